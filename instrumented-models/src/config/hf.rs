//! Reads a Hugging Face `config.json`.

use super::json::{count, dimensions, field, number, optional_count, text, token_id, token_ids};
use super::{ConfigError, FeedForward, GPT2, HF_ARCHITECTURES, Llama3Scaling, ModelConfig, Rope};
use serde_json::Value;

impl ModelConfig {
    /// Reads a Hugging Face `config.json` of a decoder: one of [`HF_ARCHITECTURES`].
    pub fn from_hf(name: &str, json: &Value) -> Result<Self, ConfigError> {
        let architecture = text(json, "model_type")?;
        if !HF_ARCHITECTURES.contains(&architecture.as_str()) {
            return Err(ConfigError::Architecture { found: architecture, supported: HF_ARCHITECTURES.join(", ") });
        }
        if architecture == GPT2 {
            return super::gpt2_config::from_hf(name, json);
        }
        let known = dimensions(json);
        let num_heads = count(known.heads, "num_attention_heads")?;
        if num_heads == 0 {
            return Err(ConfigError::Field { field: "num_attention_heads".into(), expected: "a positive number" });
        }
        let flag = |key: &str| json.get(key).and_then(Value::as_bool);
        let default_bias = architecture == "qwen2";
        // Within Mistral's window, windowed and full attention are the same: the context ends there.
        let window =
            if architecture == "mistral" { optional_count(known.window, json, "sliding_window")? } else { None };
        let config = Self {
            name: name.to_string(),
            vocab_size: count(known.vocab, "vocab_size")?,
            hidden_size: count(known.hidden, "hidden_size")?,
            feed_forward: FeedForward::SwiGlu { intermediate: count(known.intermediate, "intermediate_size")? },
            num_layers: count(known.layers, "num_hidden_layers")?,
            num_heads,
            num_kv_heads: count(known.kv_heads, "num_key_value_heads")?,
            head_dim: count(known.head_dim, "head_dim")?,
            max_context: optional_count(known.context, json, "max_position_embeddings")?
                .unwrap_or(2048)
                .min(window.unwrap_or(usize::MAX)),
            window,
            rms_norm_eps: number(json, "rms_norm_eps")?.unwrap_or(1e-6),
            rope: Rope {
                theta: number(json, "rope_theta")?.unwrap_or(10_000.) as f32,
                interleaved: false,
                scaling: rope_scaling(json)?,
            },
            tie_embeddings: flag("tie_word_embeddings").unwrap_or(false),
            qkv_bias: flag("attention_bias").unwrap_or(default_bias),
            bos: json.get("bos_token_id").and_then(token_id),
            eos: token_ids(json.get("eos_token_id")),
            architecture,
        };
        if config.architecture == "llama" && config.qkv_bias {
            return Err(ConfigError::Unsupported {
                what: "`attention_bias` with a bias on the output projection".into(),
                remedy: "use a model without it",
            });
        }
        if flag("mlp_bias") == Some(true) {
            return Err(ConfigError::Unsupported { what: "`mlp_bias`".into(), remedy: "use a model without it" });
        }
        if flag("use_sliding_window") == Some(true) {
            return Err(ConfigError::Unsupported {
                what: "`use_sliding_window`".into(),
                remedy: "set it to false in config.json and keep the context within the window",
            });
        }
        config.check()?;
        Ok(config)
    }
}

fn rope_scaling(json: &Value) -> Result<Option<Llama3Scaling>, ConfigError> {
    let Some(scaling) = json.get("rope_scaling").filter(|v| !v.is_null()) else { return Ok(None) };
    let kind = scaling.get("rope_type").or_else(|| scaling.get("type")).and_then(Value::as_str).unwrap_or("default");
    match kind {
        "default" => Ok(None),
        "llama3" => serde_json::from_value(scaling.clone())
            .map(Some)
            .map_err(|_| field("rope_scaling", "an object with Llama 3's four factors")),
        other => Err(ConfigError::Unsupported {
            what: format!("rope scaling `{other}`"),
            remedy: "remove `rope_scaling` from config.json and keep the context within the original length",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn qwen() -> Value {
        json!({
            "model_type": "qwen2", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true,
            "eos_token_id": [5, 6], "bos_token_id": null
        })
    }

    #[test]
    fn reads_config_json() {
        let config = ModelConfig::from_hf("q", &qwen()).unwrap();
        assert!(config.qkv_bias && config.tie_embeddings);
        assert_eq!((config.head_dim, config.eos.as_slice(), config.bos), (32, [5, 6].as_slice(), None));
        let mut scaled = qwen();
        scaled["rope_scaling"] = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192});
        assert_eq!(ModelConfig::from_hf("q", &scaled).unwrap().rope.scaling.unwrap().factor, 8.0);
    }

    #[test]
    fn refuses_what_it_cannot_run() {
        let with = |key: &str, value: Value| {
            let mut json = qwen();
            json[key] = value;
            ModelConfig::from_hf("q", &json).unwrap_err().to_string()
        };
        assert!(
            with("model_type", json!("mamba"))
                .contains("`mamba` is not supported; supported are llama, mistral, qwen2, qwen3, gpt2")
        );
        assert!(with("hidden_size", json!("wide")).contains("`hidden_size`"));
        assert!(with("rope_scaling", json!({"rope_type": "yarn"})).contains("rope scaling `yarn`"));
        assert!(with("num_key_value_heads", json!(3)).contains("4 heads are not a multiple of 3"));
        assert!(with("use_sliding_window", json!(true)).contains("use_sliding_window"));
    }
}
