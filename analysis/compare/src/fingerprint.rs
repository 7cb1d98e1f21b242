//! Who measured what where: what has to agree before times may be compared.

use candlescope_figures::{ChosenDevice, PRICE_PER_HOUR};
use candlescope_schema::run::{RunManifest, env_key, model_key};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Facts of `model` that say which model it is. Others say in which form its weights are.
const OF_MODEL: [&str; 9] = [
    model_key::ARCHITECTURE.name(),
    model_key::LAYERS.name(),
    model_key::HIDDEN_SIZE.name(),
    model_key::INTERMEDIATE_SIZE.name(),
    model_key::HEADS.name(),
    model_key::KV_HEADS.name(),
    model_key::HEAD_DIM.name(),
    model_key::VOCAB_SIZE.name(),
    model_key::PARAMETERS.name(),
];
const OF_WEIGHTS: [&str; 5] = [
    model_key::DTYPE.name(),
    model_key::QUANTIZATION.name(),
    model_key::COMPUTE_DTYPE.name(),
    model_key::KV_CACHE_DTYPE.name(),
    model_key::WEIGHT_BYTES.name(),
];
const OF_MACHINE: [&str; 4] =
    [env_key::ARCH.name(), env_key::CPU_MODEL.name(), env_key::CPU_AVAILABLE.name(), env_key::OS.name()];
/// Facts of the environment that decide how many threads compute, and on what. One that is null is known not to be set
/// or limited; one that is missing is not known.
const OF_THREADS: [&str; 7] = [
    env_key::RAYON_NUM_THREADS.name(),
    env_key::CANDLE_NUM_THREADS.name(),
    env_key::COMPUTE_THREADS.name(),
    env_key::CALLER_COMPUTES.name(),
    env_key::CPU_CORES.name(),
    env_key::CPU_QUOTA.name(),
    env_key::CPU_AFFINITY.name(),
];
/// Facts of the environment that say how the program was built.
const OF_BUILD: [&str; 4] = [
    env_key::BUILD_PROFILE.name(),
    env_key::BUILD_OPT_LEVEL.name(),
    env_key::CANDLE_FEATURES.name(),
    env_key::ALLOCATOR.name(),
];
/// What stands for a fact that is known to be absent.
const NOT_SET: &str = "not set";
const OF_VERSIONS: [&str; 5] = [
    env_key::CANDLESCOPE.name(),
    env_key::CANDLE.name(),
    env_key::KERNEL.name(),
    env_key::NVIDIA_DRIVER.name(),
    env_key::CUDA_DRIVER.name(),
];
/// Options that decide how a run is recorded, and so what recording costs it.
const OF_RECORDING: [&str; 8] =
    ["gpu-timing", "gpu-budget", "cupti", "cupti-graphs", "nvtx", "overhead-probe", "schedule", "stacks"];
/// Options that say where results go, or how long to measure; and those that are compared in other places.
const LEFT_OUT: [&str; 15] = [
    "config",
    "device",
    "disk-budget-mb",
    "dtype",
    "kv-cache-dtype",
    "model",
    "no-progress",
    "otlp",
    "out",
    "perfetto",
    PRICE_PER_HOUR,
    "prometheus",
    "repeats",
    "threads",
    "warmup",
];

/// The option, and the fact about the model, that says which implementation runs it.
const ENGINE: &str = model_key::ENGINE.name();

/// The fact that counts the tokens of all sequences of a request.
pub(super) const OUTPUT_TOKENS: &str = "output_tokens";

/// Facts by name, with their values as in JSON.
pub type Facts = BTreeMap<String, Value>;

/// What has to agree, by what follows if it does not.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fingerprint {
    /// Architecture, layers, sizes, heads, vocabulary and parameters: which model it is.
    pub model: Facts,
    /// In which form its weights are, and its keys and values.
    pub dtype: Facts,
    /// What kind of device it runs on: `cpu` or `gpu`; which GPU is part of the machine.
    pub device: Facts,
    /// The machine: processors and GPUs.
    pub machine: Facts,
    /// Sequences at once, by kind of step.
    pub shapes: Facts,
    /// Prompt, output and context, in tokens.
    pub tokens: Facts,
    /// How many threads compute, and what limits them. Facts that are not known are absent.
    pub threads: Facts,
    /// How the program was built. Facts that are not known are absent.
    pub build: Facts,
    /// Options of the program.
    pub options: Facts,
    /// How it was recorded.
    pub recording: Facts,
    /// Versions of candlescope, candle, kernel and driver.
    pub versions: Facts,
    /// Clocks of GPUs in hertz, and the share of samples in which they were slowed down.
    pub clocks: BTreeMap<String, f64>,
}

impl Fingerprint {
    /// What `run.json` tells; shapes, tokens and clocks stay empty, as the run's tables have them.
    pub fn of(manifest: &RunManifest) -> Self {
        let pick = |from: &Facts, keys: &[&str]| -> Facts {
            let known = keys.iter().filter_map(|key| Some(((*key).to_string(), from.get(*key)?.clone())));
            known.filter(|(_, value)| !value.is_null()).collect()
        };
        let told = |keys: &[&str]| -> Facts {
            let known =
                keys.iter().filter_map(|key| Some(((*key).to_string(), manifest.environment.get(*key)?.clone())));
            known.map(|(key, value)| (key, if value.is_null() { NOT_SET.into() } else { value })).collect()
        };
        let mut machine = pick(&manifest.environment, &OF_MACHINE);
        let names: Vec<Value> = manifest.gpus().iter().filter_map(|gpu| gpu.get("name").cloned()).collect();
        if !names.is_empty() {
            machine.insert("gpus".into(), Value::from(names));
        }
        let on_gpu = match ChosenDevice::of(manifest) {
            ChosenDevice::Gpu => true,
            ChosenDevice::Cpu => false,
            ChosenDevice::Unsaid => manifest.gpu.as_ref().is_some_and(|gpu| !gpu.devices.is_empty()),
        };
        let device = Facts::from([("device".to_string(), Value::from(if on_gpu { "gpu" } else { "cpu" }))]);
        let others = manifest.options.iter().filter(|(key, value)| {
            let key = key.as_str();
            !value.is_null() && !LEFT_OUT.contains(&key) && !OF_RECORDING.contains(&key) && key != "inputs"
        });
        let mut options: Facts = others.map(|(key, value)| (key.clone(), value.clone())).collect();
        // The one that ran; the option may have left the choice open.
        if let Some(engine) = manifest.model.get(ENGINE).filter(|_| options.contains_key(ENGINE)) {
            options.insert(ENGINE.to_string(), engine.clone());
        }
        Self {
            model: pick(&manifest.model, &OF_MODEL),
            dtype: pick(&manifest.model, &OF_WEIGHTS),
            device,
            machine,
            threads: told(&OF_THREADS),
            build: told(&OF_BUILD),
            options,
            recording: pick(&manifest.options, &OF_RECORDING),
            versions: pick(&manifest.environment, &OF_VERSIONS),
            ..Self::default()
        }
    }

    /// The machine in one line.
    pub fn machine_name(&self) -> String {
        let text = |key: &str| match self.machine.get(key) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(items)) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" + ")),
            Some(other) => Some(other.to_string()),
            None => None,
        };
        let cores = text(env_key::CPU_AVAILABLE.name()).map(|n| format!("{n} cores"));
        let parts: Vec<String> = [text(env_key::CPU_MODEL.name()), cores, text("gpus")].into_iter().flatten().collect();
        if parts.is_empty() { "an unknown machine".to_string() } else { parts.join(", ") }
    }
}
