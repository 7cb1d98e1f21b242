//! Fields of a `config.json`, each read or refused by its name.

use super::ConfigError;
use candlescope_work::config::{Config, Dimensions};
use serde_json::Value;

pub(super) fn field(name: &str, expected: &'static str) -> ConfigError {
    ConfigError::Field { field: name.to_string(), expected }
}

pub(super) fn text(json: &Value, key: &str) -> Result<String, ConfigError> {
    json.get(key).and_then(Value::as_str).map(str::to_string).ok_or_else(|| field(key, "a string"))
}

/// A dimension that was read of the field `key`.
pub(super) fn count(known: Option<u64>, key: &str) -> Result<usize, ConfigError> {
    known.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| field(key, "a whole number"))
}

/// The same of a field that may be missing.
pub(super) fn optional_count(known: Option<u64>, json: &Value, key: &str) -> Result<Option<usize>, ConfigError> {
    match json.get(key) {
        None | Some(Value::Null) if known.is_none() => Ok(None),
        _ => count(known, key).map(Some),
    }
}

/// Dimensions that these fields say.
pub(super) fn dimensions(json: &Value) -> Dimensions {
    json.as_object().map(|fields| Dimensions::of(&Config::new(fields))).unwrap_or_default()
}

pub(super) fn number(json: &Value, key: &str) -> Result<Option<f64>, ConfigError> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| field(key, "a number")),
    }
}

/// A token's number; `None` if it is beyond any vocabulary.
pub(super) fn token_id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Numbers of tokens: one, several, or none.
pub(crate) fn token_ids(value: Option<&Value>) -> Vec<u32> {
    match value {
        Some(Value::Array(ids)) => ids.iter().filter_map(token_id).collect(),
        Some(value) => token_id(value).into_iter().collect(),
        None => Vec::new(),
    }
}
