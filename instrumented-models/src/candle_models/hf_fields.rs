//! Checks of a `config.json` before it is given to candle's own reader, which says neither which field is wrong nor how
//! large one may be.

use crate::config::ConfigError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Largest dimension: more than any real model has, and few enough that no product of two overflows.
const MAX: usize = 1 << 24;

/// Largest number of layers, heads or positions whose tables candle makes before it has read a weight.
const MAX_FEW: usize = 1 << 16;

/// Fields whose values are far smaller than others', by their endings.
const FEW: [&str; 6] = ["layers", "heads", "positions", "embeddings", "buckets", "distance"];

/// A whole number from 1 to the largest that a model may have.
pub(super) fn count(json: &Value, name: &'static str) -> Result<usize, ConfigError> {
    let found = json.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let value = found.ok_or(ConfigError::Field { field: name.into(), expected: "a whole number from 1" })?;
    let limit = if FEW.iter().any(|ending| name.ends_with(ending)) { MAX_FEW } else { MAX };
    if value > limit {
        return Err(ConfigError::TooLarge { name, value, limit });
    }
    Ok(value)
}

/// As [`count`], where the field may be absent.
pub(super) fn optional_count(json: &Value, name: &'static str) -> Result<Option<usize>, ConfigError> {
    match json.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(_) => count(json, name).map(Some),
    }
}

/// Fails unless the heads share `features` equally.
pub(super) fn shared_by_heads(json: &Value, features: &'static str, heads: &'static str) -> Result<(), ConfigError> {
    let (width, count) = (count(json, features)?, count(json, heads)?);
    if !width.is_multiple_of(count) {
        return Err(ConfigError::Inconsistent(format!("{features} {width} is not a multiple of {heads} {count}")));
    }
    Ok(())
}

/// The configuration in candle's form, by candle's own reader.
pub(super) fn candles<C: DeserializeOwned>(json: &Value) -> Result<C, ConfigError> {
    serde_json::from_value(json.clone()).map_err(|cause| ConfigError::Unreadable(cause.to_string()))
}
