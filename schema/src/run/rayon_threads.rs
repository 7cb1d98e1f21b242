//! How many threads candle may compute with on a CPU, by what `run.json` says of the program's environment.

use super::{RunManifest, env_key};
use serde_json::Value;

/// The variable `RAYON_NUM_THREADS` of the program that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RayonThreads {
    /// The run does not say.
    Unknown,
    /// It was not set, or to what rayon takes for not set.
    Unset,
    /// It was set to this number.
    Set(u64),
}

impl RayonThreads {
    /// What a run's environment says. As candle reads it: 0 and what is no whole number count as not set.
    pub fn of(manifest: &RunManifest) -> Self {
        match manifest.environment.get(env_key::RAYON_NUM_THREADS.name()) {
            None => Self::Unknown,
            Some(Value::Number(number)) => number.as_u64().filter(|n| *n > 0).map_or(Self::Unset, Self::Set),
            Some(Value::String(text)) => text.parse().ok().filter(|n| *n > 0).map_or(Self::Unset, Self::Set),
            Some(_) => Self::Unset,
        }
    }

    /// As a figure: 0 stands for a variable that was not set.
    pub fn told(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Unset => Some(0.0),
            Self::Set(threads) => Some(threads as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_recorded_is_not_unset() {
        let of = |value: Option<Value>| {
            let mut manifest = RunManifest::default();
            value.into_iter().for_each(|value| {
                manifest.environment.insert(env_key::RAYON_NUM_THREADS.name().into(), value);
            });
            RayonThreads::of(&manifest)
        };
        assert_eq!((of(None), of(Some(Value::Null))), (RayonThreads::Unknown, RayonThreads::Unset));
        assert_eq!((of(Some(json!("2"))), of(Some(json!("0")))), (RayonThreads::Set(2), RayonThreads::Unset));
    }
}
