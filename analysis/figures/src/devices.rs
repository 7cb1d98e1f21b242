//! Samples of each GPU: use, memory, power, clocks, temperature, and reasons for lowered clocks.

use super::memory::{InSteps, Memory, Series};
use candlescope_schema::metric;
use candlescope_schema::run::RunManifest;

/// One GPU as its samples show it. Means are over the samples, which come at even intervals.
///
/// Utilisation, power, clocks, temperature and throttling are from samples taken while a measured step ran, without
/// loading, warm-up and the time between steps. Memory is the maximum over the whole run, because most of it is
/// allocated while the model loads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Device {
    /// UUID that its samples were recorded under.
    pub uuid: String,
    /// Name, if the run has it.
    pub name: Option<String>,
    /// Whether the run has no measured steps, so that everything here is from all samples.
    pub whole_run: bool,
    /// Samples of power that its mean is over.
    pub power_samples: u64,
    /// Share of time in which any kernel ran, as the driver samples it: mean and largest.
    pub utilisation: Option<(f64, f64)>,
    /// Power drawn in watts: mean and largest.
    pub power_watts: Option<(f64, f64)>,
    /// Enforced limit of power in watts.
    pub power_limit_watts: Option<f64>,
    /// Memory in use by anyone, in bytes: largest of the whole run.
    pub memory_bytes: Option<f64>,
    /// Memory of the GPU in bytes.
    pub memory_limit_bytes: Option<f64>,
    /// Used and reserved memory of candle's pool in bytes: largest of the whole run, or the pool's own high-water mark
    /// if it is sampled.
    pub pool_bytes: (Option<f64>, Option<f64>),
    /// Clock of the multiprocessors in hertz: smallest, mean and largest.
    pub clock_hertz: Option<(f64, f64, f64)>,
    /// Memory clock in hertz: mean.
    pub memory_clock_hertz: Option<f64>,
    /// Temperature in degrees Celsius: mean and largest.
    pub celsius: Option<(f64, f64)>,
    /// Reasons for lowered clocks, and the share of samples with each; the most frequent first.
    pub throttled: Vec<(String, f64)>,
    /// Whether reasons were sampled at all.
    pub throttling_known: bool,
    /// Median time between two samples of power, in nanoseconds.
    pub period_ns: Option<u64>,
}

const THROTTLED: &str = metric::GPU_THROTTLED_BY;
const IDLE: &str = metric::GPU_IDLE;

/// Whether a metric is one of a GPU's.
fn of_gpu(metric: &str) -> bool {
    ["hw_gpu_", "hw_power_", "hw_energy_", "hw_temperature_", "candlescope_gpu_", "candlescope_cuda_"]
        .iter()
        .any(|prefix| metric.starts_with(prefix))
}

/// Every GPU with samples, by UUID. `has_steps` says whether the run has measured steps; without any, all samples
/// count.
pub fn devices(memory: &Memory, manifest: &RunManifest, has_steps: bool) -> Vec<Device> {
    let mut uuids: Vec<&str> =
        memory.series.iter().filter(|s| s.device != "host" && of_gpu(&s.metric)).map(|s| s.device.as_str()).collect();
    uuids.sort_unstable();
    uuids.dedup();
    uuids.into_iter().map(|uuid| device(uuid, memory, manifest, has_steps)).collect()
}

fn device(uuid: &str, memory: &Memory, manifest: &RunManifest, has_steps: bool) -> Device {
    let series = |metric: &str| memory.series.iter().find(|s| s.device == uuid && s.metric == metric);
    let counted = |s: &Series| match has_steps {
        true => s.in_steps,
        false => Some(InSteps { n: s.n, min: s.min, mean: s.mean, max: s.max }),
    };
    let within = |metric: &str| series(metric).and_then(counted);
    let spread = |metric: &str| within(metric).map(|s| (s.mean, s.max));
    let most = |metrics: [&str; 2]| metrics.iter().filter_map(|metric| series(metric)).map(|s| s.max).reduce(f64::max);
    // The multiprocessors' clock is what kernels run at; if it is not sampled, the graphics clock is the same or close.
    let clock = [metric::GPU_CLOCK_SM, metric::GPU_CLOCK_GRAPHICS].into_iter().find_map(within);
    let reasons: Vec<(&str, f64)> = memory
        .series
        .iter()
        .filter(|s| s.device == uuid)
        .filter_map(|s| Some((s.metric.strip_prefix(THROTTLED)?, counted(s)?.mean)))
        .collect();
    let mut throttled: Vec<(String, f64)> = reasons
        .iter()
        .map(|(reason, share)| (reason.to_string(), *share))
        .filter(|(reason, share)| reason != IDLE && *share > 0.0)
        .collect();
    throttled.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Device {
        uuid: uuid.to_string(),
        name: name(uuid, manifest),
        whole_run: !has_steps,
        power_samples: within(super::energy::POWER).map_or(0, |s| s.n),
        utilisation: spread(metric::GPU_UTILIZATION),
        power_watts: spread(super::energy::POWER),
        power_limit_watts: series(metric::GPU_POWER_LIMIT).map(|s| s.last),
        memory_bytes: series(metric::GPU_MEMORY_USED).map(|s| s.max),
        memory_limit_bytes: series(metric::GPU_MEMORY_LIMIT).map(|s| s.last),
        pool_bytes: (
            most([metric::POOL_USED_HIGH, metric::POOL_USED]),
            most([metric::POOL_RESERVED_HIGH, metric::POOL_RESERVED]),
        ),
        clock_hertz: clock.map(|s| (s.min, s.mean, s.max)),
        memory_clock_hertz: within(metric::GPU_CLOCK_MEMORY).map(|s| s.mean),
        celsius: spread(metric::GPU_TEMPERATURE),
        throttling_known: !reasons.is_empty(),
        throttled,
        period_ns: series(super::energy::POWER).and_then(|s| s.period_ns),
    }
}

/// The GPU's name, from whichever part of the manifest knows it.
pub(super) fn name(uuid: &str, manifest: &RunManifest) -> Option<String> {
    let marked = manifest.gpu.iter().flat_map(|gpu| &gpu.devices).find(|d| d.uuid == uuid);
    described(uuid, manifest).or_else(|| marked.map(|d| d.name.clone()).filter(|name| !name.is_empty()))
}

/// From `environment.gpus`, a list of objects with `uuid` and `name`.
fn described(uuid: &str, manifest: &RunManifest) -> Option<String> {
    Some(manifest.gpu(uuid)?.get("name")?.as_str()?.to_string())
}
