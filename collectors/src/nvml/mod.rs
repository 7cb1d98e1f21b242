//! NVIDIA GPUs, through NVML: power, energy, memory, use, clocks, temperature, throttling, PCIe.
//!
//! [`METRICS`] lists the metrics with their units; `device` of a sample is the GPU's UUID as NVML writes it. Each
//! metric fails on its own: what a GPU or driver does not support is not queried again and stays absent; what fails
//! temporarily is queried again, less and less often; and a GPU that falls off the bus is reported once, while the
//! others go on.
//!
//! | asked | what | why |
//! |---|---|---|
//! | every round, 20 times a second | power, memory, use, clocks | below 5 µs a call; the sensors move about ten times a second |
//! | every 200 ms | temperature, throttle reasons | slow, or many series |
//! | every second, in the first and in the last round | energy, power limit, PCIe link | the energy counter takes about 3.4 ms a call |
//! | every 5 s, one call a round, GPU by GPU | PCIe throughput | each call blocks for about 20 ms |
//!
//! A run's energy is the difference of the last and the first `hw_energy_joules_total`. Samples of a round carry the
//! time at which the round began; energy is read first.
//!
//! Names of metrics with a label follow one rule: `candlescope_gpu_clock_hertz_sm` is `candlescope_gpu_clock_hertz`
//! with the domain `sm`, `candlescope_gpu_throttled_sw_power_cap` is `candlescope_gpu_throttled` with the reason
//! `sw_power_cap`.
//!
//! The library is loaded when a collector is made, so this builds and starts on machines without a GPU. It stays
//! loaded until the process ends.

mod gpu_metrics;
mod gpu_source;
mod nvml_device;
mod nvml_probe;
mod schedule;
#[cfg(test)]
mod script;
mod select;
#[cfg(test)]
mod tests;
mod watched;

pub use gpu_metrics::{METRICS, Metric};
pub use gpu_source::{GpuFacts, Unavailable};
pub use nvml_probe::{GpuReport, Report, probe};
pub use select::GpuId;

use candlescope_core::run::env_key;
use candlescope_core::{CollectError, Collector, Samples};
use candlescope_work::devices::{Peak, datasheet_peaks};
use gpu_metrics::{Query, of_query};
use gpu_source::Machine;
use schedule::{DueQueries, Schedule};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use watched::{Outcome, WatchedGpu};

/// Samples the machine's NVIDIA GPUs.
#[derive(Debug)]
pub struct NvmlCollector {
    period: Duration,
    began: Instant,
    schedule: Schedule,
    gpus: Vec<WatchedGpu>,
    driver: Option<String>,
    cuda_driver: Option<String>,
    unreachable: Vec<String>,
}

/// Options of an [`NvmlCollector`].
#[derive(Debug, Clone)]
#[must_use = "call `build` to get the collector"]
pub struct NvmlBuilder {
    period: Duration,
    only: Vec<GpuId>,
}

impl NvmlBuilder {
    /// Time between two rounds; 50 ms by default, at least 1 ms. Shorter than 100 ms mostly repeats readings, as that
    /// is how often the sensors move.
    pub fn period(mut self, period: Duration) -> Self {
        self.period = period.max(Duration::from_millis(1));
        self
    }

    /// Samples these GPUs only: by UUID, or by NVML's index, which is not CUDA's. Calls add up; without any, all GPUs are
    /// sampled.
    pub fn only<I>(mut self, gpus: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<GpuId>,
    {
        self.only.extend(gpus.into_iter().map(Into::into));
        self
    }

    /// Loads NVML and opens the GPUs.
    ///
    /// # Errors
    /// If there is no library, driver or GPU, or if a GPU named with [`only`](Self::only) does not exist.
    pub fn build(self) -> Result<NvmlCollector, Unavailable> {
        NvmlCollector::of(nvml_device::machine()?, self)
    }
}

impl NvmlCollector {
    /// A collector of all GPUs.
    ///
    /// # Errors
    /// As [`NvmlBuilder::build`].
    pub fn new() -> Result<Self, Unavailable> {
        Self::builder().build()
    }

    /// A collector of some GPUs: see [`NvmlBuilder::only`].
    ///
    /// # Errors
    /// As [`NvmlBuilder::build`].
    pub fn only<I>(gpus: I) -> Result<Self, Unavailable>
    where
        I: IntoIterator,
        I::Item: Into<GpuId>,
    {
        Self::builder().only(gpus).build()
    }

    /// Options of a new collector.
    pub fn builder() -> NvmlBuilder {
        NvmlBuilder { period: Duration::from_millis(50), only: Vec::new() }
    }

    fn of(machine: Machine, options: NvmlBuilder) -> Result<Self, Unavailable> {
        let Machine { driver, cuda_driver, gpus, unreachable } = machine;
        if gpus.is_empty() {
            return Err(Unavailable::NoGpu(unreachable));
        }
        let there: Vec<(u32, &str)> = gpus.iter().map(|(facts, _)| (facts.index, facts.uuid.as_str())).collect();
        let chosen = select::select(&options.only, &there)?;
        let gpus: Vec<WatchedGpu> = gpus
            .into_iter()
            .enumerate()
            .filter(|(place, _)| chosen.contains(place))
            .map(|(_, (facts, gpu))| WatchedGpu::new(facts, gpu))
            .collect();
        Ok(Self {
            period: options.period,
            began: Instant::now(),
            schedule: Schedule::new(gpus.len()),
            gpus,
            driver,
            cuda_driver,
            unreachable,
        })
    }

    /// The GPUs that are sampled, in NVML's order.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuFacts> {
        self.gpus.iter().map(|gpu| &gpu.facts)
    }

    /// One round: everything that is due, of every GPU that is still there.
    fn take(&mut self, due: DueQueries, now: Duration, out: &mut Samples<'_>) -> Result<(), CollectError> {
        let (mut answered, mut trouble, mut lost) = (false, None, Vec::new());
        for (place, gpu) in self.gpus.iter_mut().enumerate() {
            for query in Query::ALL.into_iter().filter(|query| due.asks(place, *query)) {
                match gpu.ask(query, now) {
                    Outcome::Answered(answer) => {
                        answered = true;
                        for metric in of_query(query) {
                            if let Some(value) = metric.of(&answer) {
                                out.push(&gpu.device, metric.name, value, metric.unit);
                            }
                        }
                    }
                    Outcome::Nothing(why) => trouble = Some(why),
                    Outcome::Skipped => {}
                }
            }
            if let Some(why) = gpu.news() {
                lost.push(format!("{} is lost ({why})", gpu.device));
            }
        }
        if !lost.is_empty() {
            return Err(CollectError(format!(
                "{}: its samples end here; the kernel log has the cause (`dmesg | grep -i xid`)",
                lost.join(", ")
            )));
        }
        // Lost GPUs were reported when they were lost.
        if !answered && self.gpus.iter().any(|gpu| !gpu.is_lost()) {
            let why = trouble.unwrap_or_else(|| "no metric is supported, or each failed a moment ago".to_string());
            return Err(CollectError(format!("NVML told nothing of any GPU: {why}")));
        }
        Ok(())
    }

    /// Peaks of the GPUs, if all are of one known kind and none is split. In a mixture nothing tells which GPU did the
    /// work, and a MIG instance reaches only a part of its GPU's peak.
    fn peaks(&self) -> Vec<Peak> {
        let mut names = self.gpus.iter().map(|gpu| (gpu.facts.mig == Some(true), gpu.facts.name.as_deref()));
        match names.next() {
            Some((false, Some(name))) if names.all(|other| other == (false, Some(name))) => datasheet_peaks(name),
            _ => Vec::new(),
        }
    }
}

impl Collector for NvmlCollector {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn period(&self) -> Duration {
        self.period
    }

    /// `gpus`, each with the metrics that it does not report and why; `nvidia_driver`, `cuda_driver_version`; `peaks`
    /// if the GPUs are known. Makes every query of every GPU once, which takes some fifty milliseconds per GPU.
    fn describe(&mut self) -> BTreeMap<String, Value> {
        let now = self.began.elapsed();
        let gpus = self.gpus.iter_mut().map(|gpu| {
            let mut facts = gpu.facts.to_json();
            let missing = gpu.survey(now).missing;
            if !missing.is_empty() {
                facts["missing"] = nvml_probe::missing(&missing);
            }
            facts
        });
        let mut facts = BTreeMap::from([(env_key::GPUS.name().to_string(), gpus.collect::<Value>())]);
        let peaks = self.peaks();
        let known = [
            (env_key::NVIDIA_DRIVER.name(), self.driver.as_deref().map(Value::from)),
            (env_key::CUDA_DRIVER.name(), self.cuda_driver.as_deref().map(Value::from)),
            (env_key::PEAKS.name(), (!peaks.is_empty()).then(|| json!(peaks))),
            ("gpus_unreachable", (!self.unreachable.is_empty()).then(|| json!(self.unreachable))),
        ];
        facts.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
        facts
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        let now = self.began.elapsed();
        let due = self.schedule.round(now);
        self.take(due, now, out)
    }

    fn last(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        // With the latest possible time, no query is postponed any longer: an energy counter that failed a moment ago
        // gets its last chance.
        self.take(Schedule::last(), Duration::MAX, out)
    }
}
