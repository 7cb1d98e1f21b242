//! How much a token of context adds to what a step reads.

use crate::run::keys::Key;
use crate::run::model_key;
use candlescope_work::operation;
use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes of keys and values of one token of context, by the model's shape; `None` if that is not known.
pub fn kv_bytes_of_a_token(model: &BTreeMap<String, Value>) -> Option<f64> {
    let number = |key: Key<u64>| key.of(model).filter(|value| *value > 0).map(|value| value as f64);
    let [layers, heads, size] = [model_key::LAYERS, model_key::KV_HEADS, model_key::HEAD_DIM].map(number);
    let (layers, heads, size) = (layers?, heads?, size?);
    let width = match model_key::KV_CACHE_DTYPE.of(model) {
        Some("q8") => operation::kv_width_in_8_bits(size),
        _ => match model_key::DTYPE.of(model)? {
            "f32" | "u32" => 4.0,
            "f64" => 8.0,
            _ => 2.0,
        },
    };
    Some(operation::kv_bytes_of_a_token(layers, heads, size, width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cache_in_8_bits_has_a_byte_for_each_value_and_four_for_each_head() {
        let mut model: BTreeMap<String, Value> =
            [("layers", 30.into()), ("kv_heads", 3.into()), ("head_dim", 64.into()), ("dtype", json!("bf16"))]
                .map(|(key, value): (&str, Value)| (key.to_string(), value))
                .into();
        assert_eq!(kv_bytes_of_a_token(&model), Some(2.0 * 30.0 * 3.0 * 64.0 * 2.0));
        model.insert("kv_cache_dtype".into(), json!("q8"));
        assert_eq!(kv_bytes_of_a_token(&model), Some(2.0 * 30.0 * 3.0 * (64.0 + 4.0)));
        model.remove("head_dim");
        assert_eq!(kv_bytes_of_a_token(&model), None);
    }
}
