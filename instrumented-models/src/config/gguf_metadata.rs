//! Reads the metadata of a GGUF file.

use super::{ConfigError, FeedForward, GGUF_ARCHITECTURES, ModelConfig, Rope};
use candle_core::quantized::gguf_file::{Content, Value};
use candlescope_work::config::Dimensions;

impl ModelConfig {
    /// The configuration that the header of a GGUF file describes. `name` is used if the file has none.
    #[doc(hidden)]
    pub fn from_gguf(name: &str, header: &Content) -> Result<Self, ConfigError> {
        let text = |key: &str| header.metadata.get(key).and_then(|v| v.to_string().ok()).map(String::as_str);
        let architecture = text("general.architecture").unwrap_or("(none)").to_string();
        if !GGUF_ARCHITECTURES.contains(&architecture.as_str()) {
            return Err(ConfigError::Architecture { found: architecture, supported: GGUF_ARCHITECTURES.join(", ") });
        }
        let key = |name: &str| format!("{architecture}.{name}");
        let count = |name: &str| whole(header, &key(name)).map(|n| n as usize);
        let known = Dimensions::of_gguf(&architecture, |key| header.metadata.get(key).map(|_| whole(header, key)));
        let required = |known: Option<u64>, name: &str| {
            let known = known.and_then(|n| usize::try_from(n).ok());
            known.ok_or_else(|| ConfigError::Lacks { what: format!("`{}` in its metadata", key(name)) })
        };
        let experts = count("expert_count").unwrap_or(0);
        if experts > 1 {
            return Err(ConfigError::Unsupported {
                what: format!("a mixture of {experts} experts"),
                remedy: "run it with candle's own model, or pass a dense one",
            });
        }
        refuse_rope_scaling(header, &architecture)?;
        let num_heads = required(known.heads, "attention.head_count")?;
        if num_heads == 0 {
            return Err(ConfigError::Inconsistent("heads is 0".into()));
        }
        let has = |tensor: &str| header.tensor_infos.contains_key(tensor);
        let embedding = header.tensor_infos.get("token_embd.weight");
        let embedding =
            embedding.ok_or_else(|| ConfigError::Lacks { what: "the tensor `token_embd.weight`".into() })?;
        let token = |name: &str| whole(header, &format!("tokenizer.ggml.{name}")).and_then(|id| u32::try_from(id).ok());
        let mut eos: Vec<u32> = ["eos_token_id", "eot_token_id"].into_iter().filter_map(token).collect();
        eos.dedup();
        let config = Self {
            name: text("general.name").unwrap_or(name).to_string(),
            vocab_size: embedding.shape.dims().first().copied().unwrap_or(0),
            hidden_size: required(known.hidden, "embedding_length")?,
            feed_forward: FeedForward::SwiGlu { intermediate: required(known.intermediate, "feed_forward_length")? },
            num_layers: required(known.layers, "block_count")?,
            num_heads,
            num_kv_heads: required(known.kv_heads, "attention.head_count_kv")?,
            head_dim: required(known.head_dim, "attention.key_length")?,
            max_context: known.context.map_or(2048, |n| n as usize),
            window: None,
            rms_norm_eps: float(header, &key("attention.layer_norm_rms_epsilon")).unwrap_or(1e-5),
            rope: Rope {
                theta: float(header, &key("rope.freq_base")).unwrap_or(10_000.) as f32,
                // llama.cpp's converter permutes Llama's queries and keys for interleaved pairs, but not Qwen's.
                interleaved: architecture == "llama",
                scaling: None,
            },
            tie_embeddings: !has("output.weight"),
            qkv_bias: has("blk.0.attn_q.bias"),
            bos: token("bos_token_id"),
            eos,
            architecture: architecture.clone(),
        };
        config.check()?;
        if count("rope.dimension_count").is_some_and(|n| n != config.head_dim) {
            return Err(ConfigError::Unsupported {
                what: "a rotary embedding of only part of the head".into(),
                remedy: "pass another model",
            });
        }
        Ok(config)
    }
}

/// A whole number of the metadata, of any width.
fn whole(header: &Content, key: &str) -> Option<u64> {
    match header.metadata.get(key)? {
        Value::I32(v) => u64::try_from(*v).ok(),
        Value::I64(v) => u64::try_from(*v).ok(),
        value => value.to_u64().ok(),
    }
}

fn float(header: &Content, key: &str) -> Option<f64> {
    let value = header.metadata.get(key)?;
    value.to_f32().map(f64::from).or_else(|_| value.to_f64()).ok()
}

/// Fails if the metadata scales the rotary embedding: ignoring that, the model would run but compute other logits.
/// (Llama 3's scaling is not in the metadata but a tensor, see `rope_factors`.) Like llama.cpp's
/// `llama_model::load_hparams`, treats a factor without a type as linear scaling, and a factor of 0 or 1 as none.
fn refuse_rope_scaling(header: &Content, architecture: &str) -> Result<(), ConfigError> {
    let refuse = |key: &str, value: String| {
        Err(ConfigError::Unsupported {
            what: format!("rope scaling (`{key}` is `{value}`)"),
            remedy: "convert the model again without rope scaling and keep the context within the original length, \
                     or pass another model",
        })
    };
    let kind = format!("{architecture}.rope.scaling.type");
    match header.metadata.get(&kind) {
        Some(Value::String(none)) if none == "none" => return Ok(()),
        Some(Value::String(other)) => return refuse(&kind, other.clone()),
        Some(other) => return refuse(&kind, format!("{other:?}")),
        None => {}
    }
    for name in ["scaling.factor", "scaling.attn_factor", "scale_linear"] {
        let key = format!("{architecture}.rope.{name}");
        match header.metadata.get(&key) {
            None => {}
            Some(value) => match float(header, &key) {
                Some(factor) if factor == 0. || factor == 1. => {}
                Some(factor) => return refuse(&key, factor.to_string()),
                None => return refuse(&key, format!("{value:?}")),
            },
        }
    }
    Ok(())
}
