//! What a run says about its model and its machine: the shape, how it was stored, what it was asked, its peaks.

use super::scenario::Scenario;
use candlescope_figures::peaks::{devices, peaks};
use candlescope_figures::{Analysis, Distribution};
use candlescope_schema::run::keys::Key;
use candlescope_schema::run::{RunManifest, env_key, model_key};
use candlescope_work::devices::{
    Device, DeviceKind, Format, Multiply, Origin, Peak, PeakKind, Roof, known_device, launch_of_driver,
};
use candlescope_work::operation::kv_width_in_8_bits;
use candlescope_work::shape::{LARGEST, MOST_PARAMETERS, ModelShape};
use serde_json::Value;
use std::collections::BTreeMap;

/// The roofs of a run, each of the peaks of one origin: its own, measured and datasheet, and that of a device that was
/// named. Without either, the datasheet of the GPU that the run names.
pub(super) fn roofs(analysis: &Analysis, given: Option<&Device>) -> Vec<Roof> {
    let devices = devices(analysis);
    let known = peaks(&analysis.manifest);
    let typed = |peak: &&Peak| !peak.is_flops() || peak.dtype.as_deref().and_then(Multiply::named).is_some();
    let own = |origin: Origin| {
        let peaks = known.iter().filter(typed).filter(|peak| peak.origin() == origin);
        Roof::new(peaks.cloned()).of_devices(devices)
    };
    let own = [Origin::Measured, Origin::Datasheet].map(own).into_iter();
    let mut all: Vec<Roof> = own.filter(|roof| !roof.peaks().is_empty()).collect();
    let of = |device: &Device| Roof::new(device.peaks()).of_devices(devices);
    match given {
        Some(device) => {
            all.retain(|roof| roof.origin() != device.origin);
            all.push(of(device));
        }
        None if all.iter().all(|roof| roof.origin() != Origin::Datasheet) => {
            all.extend(gpu_name(&analysis.manifest).and_then(|name| known_device(&name).ok()).as_ref().map(of));
        }
        None => {}
    }
    all.sort_by_key(|roof| roof.origin() == Origin::Datasheet);
    all
}

/// The device to predict with: the one that was named, or else the run's with the peaks of its first roof.
pub(super) fn device(analysis: &Analysis, roofs: &[Roof], given: Option<&Device>) -> Option<Device> {
    given.cloned().or_else(|| bare_device(analysis).with_peaks(roofs.first()?))
}

/// The device that a run worked on without any peak: its kind, its memory, its link, and what a launch costs its host.
pub(super) fn bare_device(analysis: &Analysis) -> Device {
    let environment = &analysis.manifest.environment;
    let on_gpu = analysis.ran_on_gpu();
    let gpu = gpu_name(&analysis.manifest).filter(|_| on_gpu);
    let name = gpu
        .clone()
        .or_else(|| env_key::CPU_MODEL.of(environment).map(str::to_string))
        .unwrap_or_else(|| "the run's device".to_string());
    let own = Device::without_peaks(name, if on_gpu { DeviceKind::Gpu } else { DeviceKind::Cpu });
    let Some(known) = gpu.and_then(|name| known_device(&name).ok()) else {
        let memory = env_key::MEMORY_TOTAL.of(environment).filter(|_| !on_gpu);
        return Device { memory, ..own };
    };
    // What a launch costs on this host, where the driver's part of it was measured.
    let driver = analysis.manifest.peaks().find(|peak| peak.kind == PeakKind::Launch);
    let launch = driver.map(|driver| launch_of_driver(driver.value * 1e9));
    Device {
        memory: known.memory,
        link: known.link,
        watts: known.watts,
        launch: known.launch.map(|usual| launch.unwrap_or(usual)),
        kernel_floor: known.kernel_floor,
        kernel_least: known.kernel_least,
        index_rate: known.index_rate,
        launch_source: known.launch_source,
        ..own
    }
}

fn gpu_name(manifest: &RunManifest) -> Option<String> {
    manifest.gpu_name().or_else(|| manifest.environment.get("gpu_name")?.as_str()).map(str::to_string)
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
    let number = |known: Key<u64>| {
        let (key, value) = (known.name(), known.of(model).filter(|value| *value > 0));
        let value = value.ok_or_else(|| format!("`model.{key}` of run.json"))?;
        // Beyond this no product of dimensions would hold, and no real model is so large.
        match key == model_key::PARAMETERS.name() || value <= LARGEST {
            true => Ok(value),
            false => Err(format!("a `model.{key}` of run.json that is no more than {LARGEST}: it is {value}")),
        }
    };
    let size = (number(model_key::VOCAB_SIZE)?, number(model_key::HIDDEN_SIZE)?, number(model_key::LAYERS)?);
    let heads = (number(model_key::HEADS)?, number(model_key::KV_HEADS)?, number(model_key::HEAD_DIM)?);
    let name = model_key::NAME.of(model).unwrap_or("the run's model");
    let mut shape = ModelShape::decoder(name, size, heads, number(model_key::INTERMEDIATE_SIZE)?);
    shape.max_context = number(model_key::CONTEXT_LENGTH).ok();
    let mut shape = shape.built_as(model_key::ARCHITECTURE.of(model).unwrap_or("llama"));
    if shape.parameters_at_most() > MOST_PARAMETERS {
        return Err(format!("dimensions in run.json that make no more than {MOST_PARAMETERS} parameters"));
    }
    // Whether the head is the embedding table is not told, but the number of parameters tells it.
    let parameters = number(model_key::PARAMETERS)?;
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
    let weights = Format::stored(model_key::QUANTIZATION.of(model), model_key::DTYPE.of(model))
        .ok_or("`model.quantization` of run.json")?;
    let weights = weights.map_err(|error| error.to_string())?;
    let measured: Vec<_> = analysis.latency.requests.iter().filter(|request| !request.warmup).collect();
    let median = |values: Vec<f64>| Distribution::of(values).map(|d| d.median.round() as u64);
    let batch = median(measured.iter().map(|r| f64::from(r.batch.unwrap_or(1))).collect()).unwrap_or(1).max(1);
    let prompt = median(measured.iter().filter_map(|r| r.prompt_tokens).map(|n| n as f64).collect())
        .ok_or("prompt tokens of a request")?;
    let output = median(measured.iter().filter_map(|r| r.output_tokens).map(|n| n as f64).collect())
        .ok_or("output tokens of a request")?;
    let contexts: Vec<f64> = analysis.tokens.points.iter().filter_map(|p| p.context_len).map(f64::from).collect();
    let mean = Distribution::of(contexts).map(|d| d.mean.round() as u64);
    let scenario = Scenario::new(weights).batch(batch).tokens(prompt, output / batch).context(mean);
    Ok(scenario.cached(facts_cached(model, weights)))
}

/// The format of keys and values that a run's model holds in 8 bits, as our layers do: a byte each, and a scale of four for
/// each position and head; `None` if they are held as activations.
pub fn facts_cached(model: &BTreeMap<String, Value>, weights: Format) -> Option<Format> {
    let features = model_key::HEAD_DIM.of(model).filter(|features| *features > 0)?;
    let bits = 8.0 * kv_width_in_8_bits(features as f64);
    model_key::KV_CACHE_DTYPE.of(model).filter(|kept_as| *kept_as == "q8")?;
    Some(Format { name: "q8", bits, in_blocks: false, ..weights })
}
