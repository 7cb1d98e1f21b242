//! What a run says about its model and its machine: the shape, how it was stored, what it was asked, its peaks.

use super::scenario::Scenario;
use crate::devices::{DRIVER_LAUNCH_NS, Device, DeviceKind, Format, LAUNCH_NS, Multiply, Origin, known_device};
use crate::passes::peaks::{devices, peaks};
use crate::passes::{Analysis, Distribution};
use candlescope_core::run::{LAUNCH, RunManifest};
use candlescope_work::shape::{LARGEST, MOST_PARAMETERS, ModelShape};
use serde_json::Value;
use std::collections::BTreeMap;

/// Peaks of one origin: a roof.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Roof {
    /// `measured` or `datasheet`.
    pub origin: Origin,
    /// Where the figures come from.
    pub source: String,
    /// FLOP/s by type, of all devices that the run used together.
    pub flops: BTreeMap<Multiply, f64>,
    /// Bytes/s, of all these devices together.
    pub bandwidth: Option<f64>,
    /// How many these are.
    pub devices: u64,
}

impl Roof {
    /// Achieved ÷ attainable: the larger of bytes/s ÷ bandwidth and, where anything is computed, FLOP/s ÷ its peak.
    /// `None` if the roof lacks one of these. Without FLOP/s of 8 bits, memory alone decides for work at an intensity below
    /// every ridge that the roof has.
    pub(super) fn utilisation(&self, flops_per_s: f64, bytes_per_s: f64, multiply: Option<Multiply>) -> Option<f64> {
        let by_memory = bytes_per_s / self.bandwidth?;
        if flops_per_s <= 0.0 {
            return Some(by_memory);
        }
        match multiply.and_then(|kind| self.flops.get(&kind)) {
            Some(peak) => Some(by_memory.max(flops_per_s / peak)),
            None => {
                // Eight bits are there to be multiplied faster than wider types, so their peak is no lower than the
                // lowest of these.
                let narrow = matches!(multiply, Some(Multiply::Int8 | Multiply::Fp8));
                let least = self.flops.values().copied().fold(f64::INFINITY, f64::min);
                let below = least.is_finite() && bytes_per_s > 0.0 && flops_per_s / least <= by_memory;
                (narrow && below).then_some(by_memory)
            }
        }
    }

    /// The type whose FLOP/s stand in for `kind`: for numbers of 8 bits those of the next wider type that the roof has,
    /// as predictions take them. Wider types are multiplied by other units, so that theirs stand in for nothing.
    pub(super) fn stands_in_for(&self, kind: Multiply) -> Option<Multiply> {
        let narrow = matches!(kind, Multiply::Int8 | Multiply::Fp8) && !self.flops.contains_key(&kind);
        kind.wider().iter().copied().find(|wider| narrow && self.flops.contains_key(wider))
    }

    /// One device's share, which is the roof of what runs on one device: operators, kernels, single steps.
    pub(super) fn of_one(&self) -> Roof {
        let n = self.devices.max(1) as f64;
        Roof {
            flops: self.flops.iter().map(|(kind, flops)| (*kind, flops / n)).collect(),
            bandwidth: self.bandwidth.map(|bandwidth| bandwidth / n),
            devices: 1,
            ..self.clone()
        }
    }
}

/// The roofs of a run: its own peaks, measured and datasheet, and those of a device that was named. Without either, the
/// datasheet of the GPU that the run names.
pub(super) fn roofs(analysis: &Analysis, given: Option<&Device>) -> Vec<Roof> {
    let devices = devices(analysis);
    let mut all: Vec<Roof> = Vec::new();
    for peak in peaks(&analysis.manifest) {
        let origin = if peak.label == "measured" { Origin::Measured } else { Origin::Datasheet };
        let at = all.iter().position(|roof| roof.origin == origin).unwrap_or_else(|| {
            let (flops, source) = (BTreeMap::new(), peak.source.clone());
            all.push(Roof { origin, source, flops, bandwidth: None, devices });
            all.len() - 1
        });
        let (roof, value) = (&mut all[at], peak.value * devices as f64);
        match peak.dtype.as_deref().and_then(Multiply::named) {
            Some(dtype) if peak.is_flops => {
                roof.flops.insert(dtype, value);
            }
            _ if !peak.is_flops => roof.bandwidth = Some(value),
            _ => {}
        }
    }
    let of = |device: &Device| Roof {
        origin: device.origin,
        source: format!("{}: {}", device.name, device.source),
        flops: device.flops.iter().map(|(kind, flops)| (*kind, flops * devices as f64)).collect(),
        bandwidth: Some(device.bandwidth * devices as f64),
        devices,
    };
    match given {
        Some(device) => {
            all.retain(|roof| roof.origin != device.origin);
            all.push(of(device));
        }
        None if all.iter().all(|roof| roof.origin != Origin::Datasheet) => {
            all.extend(gpu_name(&analysis.manifest).and_then(|name| known_device(&name).ok()).as_ref().map(of));
        }
        None => {}
    }
    all.sort_by_key(|roof| roof.origin == Origin::Datasheet);
    all
}

/// The device to predict with: the one that was named, or else what the run's first roof says of it.
pub(super) fn device(analysis: &Analysis, roofs: &[Roof], given: Option<&Device>) -> Option<Device> {
    if let Some(device) = given {
        return Some(device.clone());
    }
    let roof = roofs.first()?;
    roof.bandwidth.map(|bandwidth| named_device(analysis, roof, bandwidth))
}

/// The run's device with the peaks of a roof.
fn named_device(analysis: &Analysis, roof: &Roof, bandwidth: f64) -> Device {
    let each = |value: f64| value / roof.devices.max(1) as f64;
    let known = gpu_name(&analysis.manifest).and_then(|name| known_device(&name).ok());
    let environment = &analysis.manifest.environment;
    let text = |key: &str| environment.get(key).and_then(Value::as_str).map(str::to_string);
    let on_gpu = analysis.ran_on_gpu();
    let memory = environment.get("memory_total_bytes").and_then(Value::as_f64).filter(|_| !on_gpu);
    let known = known.filter(|_| on_gpu);
    let driver = analysis.manifest.peaks().find(|peak| peak.get("kind").and_then(Value::as_str) == Some(LAUNCH));
    let driver = driver.and_then(|peak| peak.get("value")?.as_f64()).filter(|s| s.is_finite() && *s > 0.0);
    // What a launch costs on this host, where the driver's part of it was measured.
    let launch = driver.map(|seconds| LAUNCH_NS.times(seconds * 1e9 / DRIVER_LAUNCH_NS)).filter(|_| on_gpu);
    Device {
        name: gpu_name(&analysis.manifest)
            .filter(|_| on_gpu)
            .or_else(|| text("cpu_model"))
            .unwrap_or_else(|| "the run's device".to_string()),
        kind: if on_gpu { DeviceKind::Gpu } else { DeviceKind::Cpu },
        origin: roof.origin,
        source: roof.source.clone(),
        flops: roof.flops.iter().map(|(kind, flops)| (*kind, each(*flops))).collect(),
        bandwidth: each(bandwidth),
        memory: memory.or_else(|| known.as_ref()?.memory),
        link: known.as_ref().and_then(|device| device.link.clone()),
        watts: known.as_ref().and_then(|device| device.watts),
        launch: known.as_ref().and_then(|device| device.launch).map(|usual| launch.unwrap_or(usual)),
        kernel_floor: known.as_ref().and_then(|device| device.kernel_floor),
        kernel_least: known.as_ref().and_then(|device| device.kernel_least),
        sync: None,
        index_rate: known.as_ref().and_then(|device| device.index_rate),
        panel_rate: None,
        attained: None,
        launch_source: known.and_then(|device| device.launch_source),
    }
}

/// The device that a run worked on without any peak: its kind, its memory, its link.
pub(super) fn bare_device(analysis: &Analysis) -> Device {
    let roof = Roof {
        origin: Origin::Measured,
        source: String::new(),
        flops: BTreeMap::new(),
        bandwidth: Some(1.0),
        devices: 1,
    };
    named_device(analysis, &roof, 1.0)
}

fn gpu_name(manifest: &RunManifest) -> Option<String> {
    let first = manifest.gpus().first().and_then(|gpu| gpu.get("name")?.as_str());
    first.or_else(|| manifest.environment.get("gpu_name")?.as_str()).map(str::to_string)
}

/// The shape of a run's model, from the dimensions in `run.json`, or what is missing.
pub(super) fn shape(manifest: &RunManifest) -> Result<ModelShape, String> {
    facts_shape(&manifest.model)
}

/// The shape of a model from what a run's `model` says of it.
///
/// # Errors
/// What is missing in these facts, or in what is known of the architecture.
pub fn facts_shape(model: &BTreeMap<String, Value>) -> Result<ModelShape, String> {
    let number = |key: &str| {
        let value = model.get(key).and_then(Value::as_u64).filter(|value| *value > 0);
        let value = value.ok_or_else(|| format!("`model.{key}` of run.json"))?;
        // Beyond this no product of dimensions would hold, and no real model is so large.
        match key == "parameters" || value <= LARGEST {
            true => Ok(value),
            false => Err(format!("a `model.{key}` of run.json that is no more than {LARGEST}: it is {value}")),
        }
    };
    let text = |key: &str| model.get(key).and_then(Value::as_str);
    let size = (number("vocab_size")?, number("hidden_size")?, number("layers")?);
    let heads = (number("heads")?, number("kv_heads")?, number("head_dim")?);
    let name = text("name").unwrap_or("the run's model");
    let mut shape = ModelShape::decoder(name, size, heads, number("intermediate_size")?);
    shape.max_context = number("context_length").ok();
    let mut shape = shape.built_as(text("architecture").unwrap_or("llama"));
    if shape.parameters_at_most() > MOST_PARAMETERS {
        return Err(format!("dimensions in run.json that make no more than {MOST_PARAMETERS} parameters"));
    }
    // Whether the head is the embedding table is not told, but the number of parameters tells it.
    let parameters = number("parameters")?;
    shape.tied = false;
    let apart = shape.parameters();
    if apart != parameters {
        shape.tied = true;
        if shape.parameters() != parameters {
            return Err(format!(
                "layers like `{}`'s: its dimensions make {apart} parameters, or {} with one table for embedding and \
                 head, but `model.parameters` of run.json is {parameters}",
                shape.architecture,
                shape.parameters()
            ));
        }
    }
    Ok(shape)
}

/// What the run asked of its model, or what is missing.
pub(super) fn scenario(analysis: &Analysis) -> Result<Scenario, String> {
    let model = &analysis.manifest.model;
    let text = |key: &str| model.get(key).and_then(Value::as_str);
    let stored = text("quantization").or(text("dtype")).ok_or("`model.quantization` of run.json")?;
    let mut weights = Format::named(stored).map_err(|error| error.to_string())?;
    if let Some(bits) = text("dtype").and_then(|dtype| Format::named(dtype).ok()).map(|format| format.bits) {
        weights.activation_bits = bits;
    }
    let measured: Vec<_> = analysis.latency.requests.iter().filter(|request| !request.warmup).collect();
    let median = |values: Vec<f64>| Distribution::of(values).map(|d| d.median.round() as u64);
    let batch = median(measured.iter().map(|r| f64::from(r.batch.unwrap_or(1))).collect()).unwrap_or(1).max(1);
    let prompt = median(measured.iter().filter_map(|r| r.prompt_tokens).map(|n| n as f64).collect())
        .ok_or("prompt tokens of a request")?;
    let output = median(measured.iter().filter_map(|r| r.output_tokens).map(|n| n as f64).collect())
        .ok_or("output tokens of a request")?;
    let contexts: Vec<f64> = analysis.tokens.points.iter().filter_map(|p| p.context_len).map(f64::from).collect();
    let mean = Distribution::of(contexts).map(|d| d.mean.round() as u64);
    Ok(Scenario::new(weights).batch(batch).tokens(prompt, output / batch).context(mean))
}
