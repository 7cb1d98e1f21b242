//! Counters by path and kernel.

use super::{CountedKernel, Counters};
use candlescope_reader::Run;
use candlescope_schema::{RecordKind, SpanRecord};
use candlescope_work::estimate::median;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// From this throughput on, in percent, a kernel is limited by that part of the device: Nsight Compute's own rule.
const BUSY_PERCENT: f64 = 60.0;

/// What a kernel is limited by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// Arithmetic: its throughput is 60 % or more, and the higher one.
    Compute,
    /// The memory system: its throughput is 60 % or more.
    Memory,
    /// The grid: it does not fill the device once.
    Grid,
    /// Neither part of the device is busy: warps wait.
    Latency,
}

/// A kernel of a path. Figures are medians over the kernel's launches there; what was not read is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountersRow {
    /// Path without ordinals; names of the ranges where the run was not recorded.
    pub path: String,
    /// Name of the kernel, as Nsight Compute prints it.
    pub kernel: String,
    /// Launches that were measured.
    pub n: u64,
    /// Nanoseconds, alone on the device and with cold caches.
    pub duration_ns: Option<f64>,
    /// Median over the launches of [`CountedKernel::compute_percent`].
    pub compute_percent: Option<f64>,
    /// Median over the launches of [`CountedKernel::memory_percent`].
    pub memory_percent: Option<f64>,
    /// Median over the launches of [`CountedKernel::dram_percent`].
    pub dram_percent: Option<f64>,
    /// Bytes of the device's memory that were moved.
    pub dram_bytes: Option<f64>,
    /// Achieved occupancy in percent.
    pub occupancy_percent: Option<f64>,
    /// Waves of the grid.
    pub waves: Option<f64>,
    /// Registers of a thread.
    pub registers: Option<f64>,
    /// Why warps waited most, in most launches.
    pub stall: Option<String>,
    /// That reason's share of the time between two instructions of a warp.
    pub stall_share: Option<f64>,
    /// What the kernel is limited by.
    pub limiter: Option<Limiter>,
    /// Bytes that the operation should move (derived: the run's `io_bytes`, or `bytes`), if this is its only kernel.
    pub expected_bytes: Option<f64>,
}

/// Counters by path and kernel, and how they were joined.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountersByPath {
    /// The longest total duration first.
    pub rows: Vec<CountersRow>,
    /// Kernels that were measured.
    pub kernels: u64,
    /// How many of these were launched outside every interval.
    pub outside: u64,
    /// How many were found in the run.
    pub matched: u64,
}

/// What the run knows about an interval.
#[derive(Debug)]
struct RunInterval {
    path: String,
    bytes: Option<u64>,
}

impl CountersByPath {
    /// Sums up counters; `run` is the run of the same program, if it was recorded.
    pub fn of(counters: &Counters, run: Option<&Run>) -> Self {
        let wanted: HashSet<u64> = counters.kernels.iter().filter_map(|k| Some(k.ranges.last()?.span)).collect();
        let mut known = HashMap::new();
        for batch in run.iter().flat_map(|run| run.table(RecordKind::Span)) {
            let spans = batch.spans.iter().filter(|span| wanted.contains(&span.span_id.0));
            known.extend(spans.map(|span| (span.span_id.0, RunInterval::of(span))));
        }
        let mut kernels_of_span: HashMap<u64, u64> = HashMap::new();
        for span in counters.kernels.iter().filter_map(|k| Some(k.ranges.last()?.span)) {
            *kernels_of_span.entry(span).or_default() += 1;
        }
        let mut groups: BTreeMap<(String, &str), Vec<&CountedKernel>> = BTreeMap::new();
        let (mut outside, mut matched) = (0, 0);
        for kernel in &counters.kernels {
            let path = match kernel.ranges.last() {
                None => {
                    outside += 1;
                    "(outside)".to_string()
                }
                Some(innermost) => match known.get(&innermost.span) {
                    Some(known) => {
                        matched += 1;
                        known.path.clone()
                    }
                    None => kernel.ranges.iter().map(|range| range.name.as_str()).collect::<Vec<_>>().join("/"),
                },
            };
            groups.entry((path, &kernel.name)).or_default().push(kernel);
        }
        let mut rows: Vec<CountersRow> =
            groups.into_iter().map(|((path, kernel), all)| row(path, kernel, &all, &known, &kernels_of_span)).collect();
        let total = |row: &CountersRow| row.duration_ns.unwrap_or(0.0) * row.n as f64;
        rows.sort_by(|a, b| total(b).total_cmp(&total(a)));
        Self { rows, kernels: counters.kernels.len() as u64, outside, matched }
    }
}

impl RunInterval {
    fn of(span: &SpanRecord) -> Self {
        Self { path: span.path.rollup.clone(), bytes: span.io_bytes.or(span.bytes) }
    }
}

fn row(
    path: String,
    kernel: &str,
    all: &[&CountedKernel],
    known: &HashMap<u64, RunInterval>,
    kernels_of_span: &HashMap<u64, u64>,
) -> CountersRow {
    let of = |value: fn(&CountedKernel) -> Option<f64>| median(all.iter().filter_map(|k| value(k)).collect());
    let expected = all.iter().filter_map(|kernel| {
        let span = kernel.ranges.last()?.span;
        let alone = kernels_of_span.get(&span) == Some(&1);
        known.get(&span).filter(|_| alone)?.bytes.map(|bytes| bytes as f64)
    });
    let mut reasons: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (reason, share) in all.iter().filter_map(|kernel| kernel.top_stall()) {
        reasons.entry(reason).or_default().push(share);
    }
    let stall = reasons.into_iter().max_by_key(|(_, shares)| shares.len());
    let (compute, memory, waves) = (of(|k| k.compute_percent), of(|k| k.memory_percent), of(|k| k.waves));
    CountersRow {
        path,
        kernel: kernel.to_string(),
        n: all.len() as u64,
        duration_ns: of(|k| k.duration_ns),
        compute_percent: compute,
        memory_percent: memory,
        dram_percent: of(|k| k.dram_percent),
        dram_bytes: of(|k| k.dram_bytes),
        occupancy_percent: of(|k| k.occupancy_percent),
        waves,
        registers: of(|k| k.registers),
        stall: stall.as_ref().map(|(reason, _)| (*reason).to_string()),
        stall_share: stall.and_then(|(_, shares)| median(shares)),
        limiter: limiter(compute, memory, waves),
        expected_bytes: median(expected.collect()),
    }
}

fn limiter(compute: Option<f64>, memory: Option<f64>, waves: Option<f64>) -> Option<Limiter> {
    let (compute, memory) = (compute?, memory?);
    Some(match () {
        () if compute.max(memory) >= BUSY_PERCENT => {
            if compute > memory {
                Limiter::Compute
            } else {
                Limiter::Memory
            }
        }
        () if waves? < 1.0 => Limiter::Grid,
        () => Limiter::Latency,
    })
}

#[cfg(test)]
mod tests {
    use super::super::OpenRange;
    use super::*;

    fn kernel(name: &str, span: u64, compute: f64, memory: f64) -> CountedKernel {
        CountedKernel {
            name: name.to_string(),
            ranges: ["decode", "mlp"].map(|name| OpenRange { name: name.to_string(), span }).to_vec(),
            duration_ns: Some(1000.0),
            compute_percent: Some(compute),
            memory_percent: Some(memory),
            waves: Some(2.0),
            stalls: vec![("barrier".to_string(), 1.0), ("long scoreboard".to_string(), 5.0)],
            selected: Some(2.0),
            ..CountedKernel::default()
        }
    }

    #[test]
    fn what_limits_a_kernel() {
        assert_eq!(limiter(Some(80.0), Some(70.0), None), Some(Limiter::Compute));
        assert_eq!(limiter(Some(20.0), Some(60.0), None), Some(Limiter::Memory));
        assert_eq!(limiter(Some(20.0), Some(10.0), Some(0.5)), Some(Limiter::Grid));
        assert_eq!(limiter(Some(20.0), Some(10.0), Some(4.0)), Some(Limiter::Latency));
        assert_eq!(limiter(Some(20.0), None, Some(4.0)), None, "not without both");
    }

    #[test]
    fn rows_are_of_paths_and_kernels() {
        let outside = CountedKernel { name: "fill".to_string(), ..CountedKernel::default() };
        let kernels = vec![kernel("gemm", 1, 10.0, 80.0), kernel("gemm", 2, 30.0, 90.0), outside];
        let found = CountersByPath::of(&Counters { kernels }, None);
        assert_eq!((found.kernels, found.outside, found.matched), (3, 1, 0));
        let row = &found.rows[0];
        assert_eq!((row.path.as_str(), row.kernel.as_str(), row.n), ("decode/mlp", "gemm", 2));
        assert_eq!((row.compute_percent, row.limiter), (Some(20.0), Some(Limiter::Memory)));
        assert_eq!((row.stall.as_deref(), row.stall_share), (Some("long scoreboard"), Some(5.0 / 8.0)));
        assert_eq!(found.rows[1].path, "(outside)");
        assert_eq!((found.rows[1].duration_ns, found.rows[1].limiter), (None, None), "what was not read stays unknown");
    }
}
