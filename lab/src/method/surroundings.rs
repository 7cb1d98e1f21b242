//! What else goes on while a case is measured: clocks, temperature, throttling, other users of the device.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The energy counter of a GPU moves every 100 ms or so: what is shorter than ten of these periods has no figure of its own.
pub(crate) const ENERGY_LEAST: Duration = Duration::from_secs(1);

/// What was read beside a sample. What a source does not tell stays `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Clock rate of the device in MHz: of the SMs of a GPU, the mean over the cores of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Temperature of the GPU, or of the CPU's package, in °C when it was last read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Whether the device is slowed down by heat or power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled: Option<bool>,
    /// Energy that the device used since [`before`](Surroundings::before), in millijoules, where the time was long enough
    /// for its sensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<f64>,
    /// CPU time that this process used since [`before`](Surroundings::before), in milliseconds, where the time was long
    /// enough for its clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<f64>,
    /// Share of its last period in which the GPU ran kernels, as its driver tells: of a second at most, so that the
    /// repetitions before may be in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_utilization: Option<f64>,
}

/// A source of what goes on around a measurement.
pub trait Surroundings {
    /// What disturbs the machine before anything is measured, one sentence each: another process on the GPU, a busy
    /// CPU. May take some hundred milliseconds.
    fn disturbances(&mut self) -> Vec<String>;

    /// Called right before a repetition. Must be short.
    fn before(&mut self) {}

    /// Read right after a repetition, about the time since [`before`](Self::before).
    fn after(&mut self) -> Reading;

    /// Waits until the device has recovered from being throttled; called after a throttled sample.
    fn recover(&mut self, wait: Duration) {
        std::thread::sleep(wait);
    }

    /// Where the figures come from, for `study.json`, for example `NVML: SM clock, read after each sample`.
    fn source(&self) -> String;
}

/// No source at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSurroundings;

impl Surroundings for NoSurroundings {
    fn disturbances(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn after(&mut self) -> Reading {
        Reading::default()
    }

    fn source(&self) -> String {
        "none".into()
    }
}
