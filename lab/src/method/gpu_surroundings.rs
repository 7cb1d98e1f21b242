//! A GPU around a measurement, through NVML: who else uses it, its SM clock, temperature and throttling.

use super::surroundings::{ENERGY_LEAST, Reading, Surroundings};
use candlescope_collectors::nvml::{GpuId, NvmlCollector, Unavailable};
use candlescope_core::metric;
use candlescope_core::{Collector, HostNs, SampleRecord, Samples};
use std::time::Instant;

/// Reasons that slow a GPU down below what its power limit allows. The power limit itself is not among them: a GPU at
/// full work is always at it.
const SLOWS: [&str; 4] = ["hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"];

/// The surroundings of one GPU.
#[derive(Debug)]
pub struct GpuSurroundings {
    nvml: NvmlCollector,
    last: Reading,
    began: Instant,
    /// The energy counter before the repetition in joules, where repetitions are long enough for a difference.
    energy_before: Option<f64>,
    /// Whether a repetition lasted so long that the counter, which takes milliseconds to read, is worth reading.
    are_long: bool,
}

impl GpuSurroundings {
    /// Those of the GPU `id`: a UUID, or NVML's index, which is not CUDA's.
    ///
    /// # Errors
    /// When there is no library, driver or such GPU.
    pub fn new(id: impl Into<GpuId>) -> Result<Self, Unavailable> {
        let nvml = NvmlCollector::builder().only([id]).build()?;
        Ok(Self { nvml, last: Reading::default(), began: Instant::now(), energy_before: None, are_long: false })
    }

    fn round(&mut self) -> Vec<SampleRecord> {
        let mut records = Vec::new();
        // What NVML does not tell stays absent.
        let _ = self.nvml.sample(&mut Samples::new(HostNs::now(), &mut records));
        records
    }

    /// The energy counter in joules, now.
    fn energy(&mut self) -> Option<f64> {
        let mut records = Vec::new();
        let _ = self.nvml.last(&mut Samples::new(HostNs::now(), &mut records));
        records.iter().find(|sample| sample.metric == metric::GPU_ENERGY).map(|sample| sample.value)
    }
}

impl Surroundings for GpuSurroundings {
    fn disturbances(&mut self) -> Vec<String> {
        self.round();
        // NVML's use is over the last second at most.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        let used = self.round().into_iter().find(|sample| sample.metric == metric::GPU_UTILIZATION);
        let told = used.filter(|sample| sample.value > 0.02).map(|sample| {
            format!(
                "the GPU is {:.0} % in use before anything is measured: another process works on it",
                sample.value * 100.0
            )
        });
        told.into_iter().collect()
    }

    fn before(&mut self) {
        self.energy_before = if self.are_long { self.energy() } else { None };
        self.began = Instant::now();
    }

    fn after(&mut self) -> Reading {
        let is_long = self.began.elapsed() >= ENERGY_LEAST;
        self.are_long |= is_long;
        let before = self.energy_before.take().filter(|_| is_long);
        self.last.energy_mj =
            before.and_then(|before| Some((self.energy()? - before) * 1e3)).filter(|used| *used > 0.0);
        for sample in self.round() {
            let throttle = sample.metric.strip_prefix(metric::GPU_THROTTLED_BY);
            match (sample.metric, throttle) {
                (metric::GPU_CLOCK_SM, _) => self.last.clock_mhz = Some(sample.value / 1e6),
                (metric::GPU_UTILIZATION, _) => self.last.gpu_utilization = Some(sample.value),
                (metric::GPU_TEMPERATURE, _) => self.last.temperature_c = Some(sample.value),
                (_, Some(reason)) if SLOWS.contains(&reason) => {
                    let slowed = self.last.throttled.unwrap_or(false) || sample.value > 0.0;
                    self.last.throttled = Some(slowed);
                }
                _ => {}
            }
        }
        let reading = self.last.clone();
        // Throttling is told of every 200 ms: what was told is of this sample, and of the next ones once it is told anew.
        if reading.throttled == Some(true) {
            self.last.throttled = None;
        }
        reading
    }

    fn source(&self) -> String {
        "NVML: SM clock, temperature and use read after each sample, throttle reasons every 200 ms; energy \
         of the whole GPU by its counter's difference, for samples of a second and more after the first such; cycles are \
         device time × that clock unless a case reads a clock on the device"
            .into()
    }
}
