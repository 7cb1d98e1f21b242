//! What of a model's configuration and weights becomes part of `model` in `run.json`, under the keys that readers know.

use super::{ConfigUnreadable, Weight};
use candlescope_work::config::{Config, Dimensions};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Facts by their key in `run.json`.
pub(super) type Facts = BTreeMap<String, Value>;

/// Keys of `model` that follow from a configuration and from the weights.
const ARCHITECTURE: &str = "architecture";
const PARAMETERS: &str = "parameters";
const WEIGHT_BYTES: &str = "weight_bytes";
const DTYPE: &str = "dtype";

/// The text of a `config.json` of Hugging Face.
#[derive(Deserialize)]
pub(super) struct HfConfig {
    pub(super) model_type: String,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// What a `config.json` says.
pub(super) fn of_config(json: &str) -> Result<Facts, ConfigUnreadable> {
    let config: HfConfig = serde_json::from_str(json)?;
    let known = Dimensions::of(&Config::new(&config.rest));
    let dimensions = [
        ("vocab_size", known.vocab),
        ("hidden_size", known.hidden),
        ("layers", known.layers),
        ("heads", known.heads),
        ("kv_heads", known.kv_heads),
        ("head_dim", known.head_dim),
        ("intermediate_size", known.intermediate),
        ("context_length", known.context),
    ];
    let mut facts = Facts::from([(ARCHITECTURE.to_owned(), config.model_type.as_str().into())]);
    facts.extend(dimensions.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))));
    Ok(facts)
}

/// How much was read of a model.
#[derive(Debug, Default)]
pub(super) struct Size {
    elements: u64,
    bytes: u64,
    /// Bytes by element type.
    by_dtype: BTreeMap<&'static str, u64>,
}

impl Size {
    pub(super) fn add(&mut self, weight: &Weight) {
        self.elements = self.elements.saturating_add(weight.elements());
        self.bytes = self.bytes.saturating_add(weight.bytes);
        let of_type = self.by_dtype.entry(weight.dtype.as_str()).or_default();
        *of_type = of_type.saturating_add(weight.bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Facts of a model: what its configuration says, else what was recognised, and what was read.
    pub(super) fn with(&self, told: &Facts, recognised: Option<&'static str>) -> Facts {
        let mut facts = told.clone();
        if let Some(name) = recognised.filter(|_| told.is_empty()) {
            facts.insert(ARCHITECTURE.into(), name.into());
        }
        if self.bytes > 0 {
            facts.insert(PARAMETERS.into(), self.elements.into());
            facts.insert(WEIGHT_BYTES.into(), self.bytes.into());
            if let Some((dtype, _)) = self.by_dtype.iter().max_by_key(|(_, bytes)| **bytes) {
                facts.insert(DTYPE.into(), (*dtype).into());
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_have_one_name_whatever_the_architecture_calls_them() {
        let qwen = of_config(
            r#"{"model_type": "qwen2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3,
                "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64}"#,
        );
        let qwen = qwen.unwrap();
        for (key, value) in [("vocab_size", 96), ("layers", 3), ("heads", 4), ("kv_heads", 2), ("head_dim", 8)] {
            assert_eq!(qwen[key], value, "{key}");
        }
        assert_eq!(qwen["architecture"], "qwen2");
        let gpt = of_config(r#"{"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2}"#).unwrap();
        assert_eq!((&gpt["hidden_size"], &gpt["kv_heads"], &gpt["layers"]), (&32.into(), &4.into(), &2.into()));
        let lists = of_config(r#"{"model_type": "x", "num_attention_heads": 4, "num_key_value_heads": [1, 2]}"#);
        assert_eq!(lists.unwrap().get("kv_heads"), None);
    }
}
