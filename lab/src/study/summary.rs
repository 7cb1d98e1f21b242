//! Figures of a case over its samples.

use super::journal::Records;
use crate::method::{CaseEnd, CaseId, Mode, Sample, SampleVerdict, StopReason};
use candlescope_figures::stats::Distribution;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What the interval of a median is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntervalOf {
    /// Process starts: samples of one are no more alike than those of two.
    Processes,
    /// The samples of a single process start: another one may be off by more than the interval says.
    OneProcess,
}

/// Below this the CPU time of a process, counted in ticks of 10 ms, says nothing.
const LEAST_WALL_MS: f64 = 200.0;

/// A case and its samples.
#[derive(Debug, Clone)]
pub struct CaseSummary {
    /// Suite and parameters of the case, by which its samples are found.
    pub case: CaseId,
    /// Plain samples that count.
    pub plain: Vec<Sample>,
    /// Samples of [`Mode::Profiled`], which candlescope recorded: in no figure of capacity.
    pub profiled: Vec<Sample>,
    /// Samples that were taken again.
    pub retaken: usize,
    /// Process starts that the plain samples come from.
    pub processes: usize,
    /// Why it stopped in each process start that took plain samples, or tried to.
    pub stops: Vec<StopReason>,
    /// What went wrong, if something did.
    pub detail: Option<String>,
}

impl CaseSummary {
    /// Statistics of a figure over the plain samples that have it; `None` without any. Over several process starts the
    /// 95 % interval comes from resampled starts, as samples of one start hang together, and needs six of them.
    pub fn plain(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Distribution> {
        of(&self.plain, figure)
    }

    /// The same over the recorded samples.
    pub fn profiled(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Distribution> {
        of(&self.profiled, figure)
    }

    /// Duration on the host in nanoseconds.
    pub fn host_ns(&self) -> Option<Distribution> {
        self.plain(|sample| Some(sample.measurement.host_ns as f64))
    }

    /// Duration on the device in nanoseconds, if it was measured.
    pub fn device_ns(&self) -> Option<Distribution> {
        self.plain(|sample| sample.measurement.device_ns.map(|ns| ns as f64))
    }

    /// Most memory in use, in bytes, if it was measured.
    pub fn memory_bytes(&self) -> Option<Distribution> {
        self.plain(|sample| sample.measurement.memory_bytes.map(|bytes| bytes as f64))
    }

    /// Processors that the process used, over all plain samples whose CPU time is known; `None` where these are too
    /// short for its clock.
    pub fn processors_used(&self) -> Option<f64> {
        let known = self.plain.iter().filter_map(|sample| Some((sample.reading.cpu_ms?, sample.measurement.host_ns)));
        let (cpu, wall) = known.fold((0.0, 0.0), |(cpu, wall), (ms, ns)| (cpu + ms, wall + ns as f64 / 1e6));
        (wall >= LEAST_WALL_MS).then(|| cpu / wall)
    }

    /// Share of the time in which the GPU ran kernels, from 0 to 1, as its driver tells.
    pub fn gpu_utilization(&self) -> Option<Distribution> {
        self.plain(|sample| sample.reading.gpu_utilization)
    }

    /// The last recorded run, relative to the study: one before it may have been cut short.
    pub fn last_run(&self) -> Option<&str> {
        self.profiled.iter().rev().find_map(|sample| sample.measurement.run.as_deref())
    }

    /// A further figure of the suite.
    pub fn figure(&self, name: &str) -> Option<Distribution> {
        self.plain(|sample| sample.measurement.figures.get(name).copied())
    }

    /// What the intervals of these statistics are over.
    pub fn interval_of(&self) -> IntervalOf {
        if self.processes > 1 { IntervalOf::Processes } else { IntervalOf::OneProcess }
    }

    /// Recorded ÷ plain median duration on the host, less one: what recording costs.
    pub fn recording_cost(&self) -> Option<f64> {
        let recorded = self.profiled(|sample| Some(sample.measurement.host_ns as f64))?;
        Some(recorded.median / self.host_ns()?.median - 1.0)
    }

    /// The smallest and the largest ratio of a recorded repetition to a plain one, less one. Recorded ones have a process
    /// start of their own, so that how far starts differ is in it.
    pub fn recording_cost_range(&self) -> Option<(f64, f64)> {
        let recorded = self.profiled(|sample| Some(sample.measurement.host_ns as f64))?;
        let plain = self.host_ns()?;
        Some((recorded.min / plain.max - 1.0, recorded.max / plain.min - 1.0))
    }

    /// Whether some of its figures are of a first repetition, in place of a warm-up.
    pub fn is_cold(&self) -> bool {
        self.plain.iter().any(|sample| sample.verdict == SampleVerdict::Cold)
    }

    /// Why it gave no figures, if it gave none.
    pub fn outcome(&self) -> Option<StopReason> {
        let bad = [StopReason::OutOfMemory, StopReason::Refused, StopReason::Failed];
        self.stops.iter().copied().find(|reason| bad.contains(reason))
    }
}

fn of(samples: &[Sample], figure: impl Fn(&Sample) -> Option<f64>) -> Option<Distribution> {
    let mut clusters: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        if let Some(value) = figure(sample) {
            clusters.entry(sample.process).or_default().push(value);
        }
    }
    match clusters.len() {
        1 => Distribution::of(clusters.into_values().flatten().collect()),
        _ => Distribution::clustered(clusters.into_values().collect()),
    }
}

/// A summary of each of `cases`, in this order.
pub fn summaries(cases: &[CaseId], records: &Records) -> Vec<CaseSummary> {
    let mut by_key: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
    for sample in &records.samples {
        by_key.entry(sample.case.key()).or_default().push(sample);
    }
    let standing: Vec<&CaseEnd> = records.standing().collect();
    let summary = |case: &CaseId| {
        let samples = by_key.remove(&case.key()).unwrap_or_default();
        let of = |mode: Mode| -> Vec<Sample> {
            let counts = |sample: &&&Sample| sample.mode == mode && sample.verdict.counts();
            samples.iter().filter(counts).map(|sample| (*sample).clone()).collect()
        };
        let plain = of(Mode::Plain);
        let stops: Vec<&CaseEnd> = standing.iter().copied().filter(|stop| stop.case == *case).collect();
        CaseSummary {
            case: case.clone(),
            retaken: samples.iter().filter(|sample| sample.verdict == SampleVerdict::Retaken).count(),
            processes: plain.iter().map(|sample| sample.process).collect::<BTreeSet<_>>().len(),
            profiled: of(Mode::Profiled),
            plain,
            detail: stops.iter().find_map(|stop| stop.detail.clone()),
            stops: stops.iter().map(|stop| stop.reason).collect(),
        }
    };
    cases.iter().map(summary).collect()
}
