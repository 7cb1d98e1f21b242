//! GPT-2: LayerNorm, learned positions, one projection for queries, keys and values, and a head that is the embedding.

use super::json::{count, dimensions, field, number, optional_count, token_id, token_ids};
use super::{ConfigError, FeedForward, GPT2, ModelConfig, Rope};
use candlescope_work::known_models::KnownModel;
use serde_json::Value;

/// The only activation that GPT-2 was ever trained with, under the names that Hugging Face has for its formula.
const GELU_TANH: [&str; 2] = ["gelu_new", "gelu_pytorch_tanh"];

/// One of the published sizes.
pub(super) fn of_size(model: &KnownModel) -> ModelConfig {
    let ((vocab, hidden, layers), (heads, kv_heads, head_dim)) = (model.size, model.heads);
    ModelConfig {
        name: model.name.to_string(),
        vocab_size: vocab as usize,
        hidden_size: hidden as usize,
        feed_forward: FeedForward::Gelu { intermediate: model.intermediate as usize },
        num_layers: layers as usize,
        num_heads: heads as usize,
        num_kv_heads: kv_heads as usize,
        head_dim: head_dim as usize,
        max_context: model.context as usize,
        bos: Some(50_256),
        eos: vec![50_256],
        ..base()
    }
}

/// What all have in common; dimensions are to be filled in.
fn base() -> ModelConfig {
    ModelConfig {
        name: String::new(),
        architecture: GPT2.to_string(),
        vocab_size: 0,
        hidden_size: 0,
        feed_forward: FeedForward::Gelu { intermediate: 0 },
        num_layers: 0,
        num_heads: 0,
        num_kv_heads: 0,
        head_dim: 0,
        max_context: 0,
        window: None,
        rms_norm_eps: 1e-5,
        rope: Rope { theta: 10_000., interleaved: false, scaling: None },
        tie_embeddings: true,
        qkv_bias: true,
        bos: None,
        eos: Vec::new(),
    }
}

/// Reads a `config.json` of `model_type` `gpt2`.
pub(super) fn from_hf(name: &str, json: &Value) -> Result<ModelConfig, ConfigError> {
    refuse_variants(json)?;
    let known = dimensions(json);
    let (hidden_size, num_heads) = (count(known.hidden, "n_embd")?, count(known.heads, "n_head")?);
    if num_heads == 0 {
        return Err(field("n_head", "a positive number"));
    }
    if !hidden_size.is_multiple_of(num_heads) {
        return Err(ConfigError::Inconsistent(format!("n_embd {hidden_size} is not a multiple of n_head {num_heads}")));
    }
    let intermediate =
        optional_count(known.intermediate, json, "n_inner")?.unwrap_or_else(|| hidden_size.saturating_mul(4));
    let config = ModelConfig {
        name: name.to_string(),
        vocab_size: count(known.vocab, "vocab_size")?,
        hidden_size,
        feed_forward: FeedForward::Gelu { intermediate },
        num_layers: count(known.layers, "n_layer")?,
        num_heads,
        num_kv_heads: num_heads,
        head_dim: hidden_size / num_heads,
        max_context: count(known.context, "n_positions")?,
        rms_norm_eps: number(json, "layer_norm_epsilon")?.unwrap_or(1e-5),
        tie_embeddings: json.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(true),
        bos: json.get("bos_token_id").and_then(token_id),
        eos: token_ids(json.get("eos_token_id")),
        ..base()
    };
    config.check()?;
    Ok(config)
}

/// Fails for settings under which the model would run but compute other logits.
fn refuse_variants(json: &Value) -> Result<(), ConfigError> {
    let refuse = |what: String, remedy| Err(ConfigError::Unsupported { what, remedy });
    match json.get("activation_function").map(|value| value.as_str()) {
        None => {}
        Some(Some(activation)) if GELU_TANH.contains(&activation) => {}
        Some(Some(other)) => {
            return refuse(format!("`activation_function` `{other}`"), "use a GPT-2 with gelu_new");
        }
        Some(None) => return Err(field("activation_function", "a string")),
    }
    let flag = |key: &str| json.get(key).and_then(Value::as_bool);
    for (key, usual) in
        [("scale_attn_weights", true), ("scale_attn_by_inverse_layer_idx", false), ("add_cross_attention", false)]
    {
        if flag(key).is_some_and(|value| value != usual) {
            return refuse(format!("`{key}` other than {usual}"), "use a GPT-2 without it");
        }
    }
    Ok(())
}

/// Names and shapes of all weights as they are stored, in load order: projections as (in, out), the transpose of all
/// other models'. Without `lm_head.weight` if the embedding table serves as the head.
pub(super) fn weights(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let (d, i) = (config.hidden_size, config.intermediate());
    let mut all = vec![
        ("transformer.wte.weight".to_string(), vec![config.vocab_size, d]),
        ("transformer.wpe.weight".to_string(), vec![config.max_context, d]),
    ];
    for layer in 0..config.num_layers {
        let mut add = |name: &str, shape: Vec<usize>| {
            let out = shape.last().copied().unwrap_or(0);
            all.push((format!("transformer.h.{layer}.{name}.weight"), shape));
            all.push((format!("transformer.h.{layer}.{name}.bias"), vec![out]));
        };
        add("ln_1", vec![d]);
        add("attn.c_attn", vec![d, 3 * d]);
        add("attn.c_proj", vec![d, d]);
        add("ln_2", vec![d]);
        add("mlp.c_fc", vec![d, i]);
        add("mlp.c_proj", vec![i, d]);
    }
    all.push(("transformer.ln_f.weight".to_string(), vec![d]));
    all.push(("transformer.ln_f.bias".to_string(), vec![d]));
    if !config.tie_embeddings {
        all.push(("lm_head.weight".to_string(), vec![config.vocab_size, d]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn small() -> Value {
        json!({
            "model_type": "gpt2", "vocab_size": 96, "n_embd": 48, "n_head": 4, "n_layer": 2, "n_positions": 64,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "eos_token_id": 95, "n_inner": null
        })
    }

    #[test]
    fn reads_config_json() {
        let config = ModelConfig::from_hf("g", &small()).unwrap();
        assert_eq!((config.intermediate(), config.head_dim, config.max_context), (192, 12, 64));
        assert!(config.tie_embeddings && config.qkv_bias);
        let mut wide = small();
        (wide["n_inner"], wide["tie_word_embeddings"]) = (json!(100), json!(false));
        let config = ModelConfig::from_hf("g", &wide).unwrap();
        assert_eq!(config.intermediate(), 100);
        assert!(config.weights().iter().any(|(name, shape)| name == "lm_head.weight" && shape == &[96, 48]));
    }

    #[test]
    fn refuses_what_it_cannot_run() {
        let with = |key: &str, value: Value| {
            let mut json = small();
            json[key] = value;
            ModelConfig::from_hf("g", &json).unwrap_err().to_string()
        };
        assert!(with("activation_function", json!("relu")).contains("`activation_function` `relu` is not supported"));
        assert!(with("activation_function", json!(3)).contains("`activation_function`"));
        assert!(with("n_head", json!(5)).contains("n_embd 48 is not a multiple of n_head 5"));
        assert!(with("n_head", json!(0)).contains("`n_head`"));
        assert!(with("n_embd", json!("wide")).contains("`n_embd`"));
        assert!(with("n_positions", json!("far")).contains("`n_positions`"));
        assert!(with("n_layer", json!(0)).contains("layers is 0"));
        assert!(with("scale_attn_by_inverse_layer_idx", json!(true)).contains("scale_attn_by_inverse_layer_idx"));
        assert!(with("scale_attn_weights", json!(false)).contains("scale_attn_weights"));
    }
}
