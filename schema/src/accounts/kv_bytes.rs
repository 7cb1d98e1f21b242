//! How much a token of context adds to what a step reads.

use crate::run::keys::Key;
use crate::run::model_key;
use candlescope_work::operation;
use serde_json::Value;
use std::collections::BTreeMap;

/// Bytes of keys and values of one token of context, by the model's shape; `None` if that is not known.
pub fn kv_bytes_of_a_token(model: &BTreeMap<String, Value>) -> Option<f64> {
    let number = |key: Key<u64>| key.of(model).filter(|value| *value > 0).map(|value| value as f64);
    let width = match model_key::DTYPE.of(model)? {
        "f32" | "u32" => 4.0,
        "f64" => 8.0,
        _ => 2.0,
    };
    let [layers, heads, size] = [model_key::LAYERS, model_key::KV_HEADS, model_key::HEAD_DIM].map(number);
    Some(operation::kv_bytes_of_a_token(layers?, heads?, size?, width))
}
