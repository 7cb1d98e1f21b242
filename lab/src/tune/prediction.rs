//! The times of all batches by the roofline: from the model's dimensions and the device's peaks.

use super::forecast::Latency;
use candlescope_core::run::model_key;
use candlescope_predict::roofline::{Scenario, facts_cached, facts_shape, step_times};
use candlescope_work::devices::{Device, Format};
use candlescope_work::shape::ModelShape;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Times by batch, and what they rest on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Where the peaks come from; `None` if there is no prediction.
    pub source: Option<String>,
    /// Why there is none.
    pub missing: Option<String>,
    /// Predicted times of a request by its batch (derived); empty if there is no prediction.
    #[serde(skip)]
    pub latencies: BTreeMap<u64, Latency>,
}

impl Prediction {
    /// No prediction, and why.
    pub fn none(why: impl Into<String>) -> Self {
        Self { missing: Some(why.into()), ..Self::default() }
    }

    /// Predicts batches from `start` to `end` of a request of `prompt` and `output` tokens, for the model with these
    /// facts (those of a run's `model`) on `device`.
    pub fn of(
        model: &Map<String, Value>,
        device: &Device,
        (start, end): (u64, u64),
        (prompt, output): (u64, u64),
    ) -> Self {
        let facts = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let shape = match facts_shape(&facts) {
            Ok(shape) => shape,
            Err(missing) => return Self::none(format!("the model does not say {missing}")),
        };
        let format = match stored(model) {
            Ok(format) => format,
            Err(missing) => return Self::none(missing),
        };
        let scenario = Scenario::new(format).tokens(prompt, output).cached(facts_cached(&facts, format));
        let latencies: BTreeMap<u64, Latency> =
            (start..=end).filter_map(|batch| Some((batch, one(&shape, device, &scenario, batch)?))).collect();
        if latencies.is_empty() {
            return Self::none(format!("{} has no FLOP/s for what this model multiplies", device.name));
        }
        let source = Some(format!("roofline of {} ({}: {})", device.name, device.origin.name(), device.source));
        Self { source, missing: None, latencies }
    }
}

/// The format of the weights with the width of the activations beside them.
fn stored(model: &Map<String, Value>) -> Result<Format, String> {
    let stored = Format::stored(model_key::QUANTIZATION.of(model), model_key::DTYPE.of(model));
    stored.ok_or("the model does not say how its weights are stored")?.map_err(|error| error.to_string())
}

fn one(shape: &ModelShape, device: &Device, scenario: &Scenario, batch: u64) -> Option<Latency> {
    let (first, token) = step_times(shape, device, &scenario.clone().batch(batch));
    let several = scenario.output > 1;
    Some(Latency::of(first?.mid, if several { Some(token?.mid) } else { None }, scenario.output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_models::{KvCacheDType, LoadOptions, LoadedModel, ModelSource};
    use candlescope_work::devices::known_device;

    #[test]
    fn keys_and_values_in_8_bits_are_predicted_as_they_are_held() {
        let device = known_device("H200").unwrap();
        let of = |kv_cache_dtype| {
            let options = LoadOptions { kv_cache_dtype, ..LoadOptions::default() };
            let facts = LoadedModel::load(&ModelSource::Embedded, &options).unwrap().info.to_map();
            Prediction::of(&facts, &device, (1, 64), (512, 64)).latencies[&64].e2e_ns
        };
        // They are widened before they are multiplied.
        let [full, small] = [KvCacheDType::Auto, KvCacheDType::Q8].map(of);
        assert!(small > full, "{small} and {full}");
    }
}
