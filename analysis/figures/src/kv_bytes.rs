//! How much a token of context adds to what a step reads.

use candlescope_schema::run::keys::Key;
use candlescope_schema::run::model_key;
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
    Some(2.0 * number(model_key::LAYERS)? * number(model_key::KV_HEADS)? * number(model_key::HEAD_DIM)? * width)
}
