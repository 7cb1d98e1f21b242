//! What of a model's configuration and weights becomes part of `model` in `run.json`, under the keys that readers know.

use super::Weight;
use super::hf_config::{ConfigUnreadable, HfConfig};
use crate::run::model_key;
use candlescope_work::config::{Config, Dimensions};
use serde_json::Value;
use std::collections::BTreeMap;

/// Facts by their key in `run.json`.
pub(super) type Facts = BTreeMap<String, Value>;

/// What a `config.json` says.
pub(super) fn of_config(json: &str) -> Result<Facts, ConfigUnreadable> {
    let config: HfConfig = serde_json::from_str(json)?;
    let known = Dimensions::of(&Config::new(&config.rest));
    let dimensions = [
        (model_key::VOCAB_SIZE, known.vocab),
        (model_key::HIDDEN_SIZE, known.hidden),
        (model_key::LAYERS, known.layers),
        (model_key::HEADS, known.heads),
        (model_key::KV_HEADS, known.kv_heads),
        (model_key::HEAD_DIM, known.head_dim),
        (model_key::INTERMEDIATE_SIZE, known.intermediate),
        (model_key::CONTEXT_LENGTH, known.context),
    ];
    let mut facts = Facts::from([(model_key::ARCHITECTURE.name().to_owned(), config.model_type.as_str().into())]);
    facts.extend(dimensions.into_iter().filter_map(|(key, value)| Some((key.name().to_owned(), value?.into()))));
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
            facts.insert(model_key::ARCHITECTURE.name().into(), name.into());
        }
        if self.bytes > 0 {
            facts.insert(model_key::PARAMETERS.name().into(), self.elements.into());
            facts.insert(model_key::WEIGHT_BYTES.name().into(), self.bytes.into());
            if let Some((dtype, _)) = self.by_dtype.iter().max_by_key(|(_, bytes)| **bytes) {
                facts.insert(model_key::DTYPE.name().into(), (*dtype).into());
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
