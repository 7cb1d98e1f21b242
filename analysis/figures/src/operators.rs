//! Where the time goes, as a table: one row for each path without ordinals, with its rates.

use super::gpu_time::{PathGpuTime, SampledPath, estimate};
use super::kernel_sums::Kernels;
use super::path_totals::{Intervals, PathTotals};
use super::stated_work::StatedWork;
use super::tree::{Tree, TreeRow, ratio};
use candlescope_schema::GpuSource;
use std::collections::BTreeMap;

/// One operator: all intervals of one rollup path.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// Rollup path: from the step down, without ordinals. No two rows share one.
    pub path: String,
    /// `tracing` target (module path) of the first span that was read of it.
    pub target: String,
    /// Intervals in measured steps, entered on the host or replayed by a CUDA graph.
    pub calls: u64,
    /// Of these, the ones that were entered on the host, not replayed by a CUDA graph.
    pub entered: u64,
    /// Sum of self times in nanoseconds.
    pub self_ns: u64,
    /// Sum of durations in nanoseconds.
    pub total_ns: u64,
    /// Shortest duration of an entered interval on the host, in nanoseconds; 0 if none was entered.
    pub min_ns: u64,
    /// Longest duration of an entered interval on the host, in nanoseconds; 0 if none was entered.
    pub max_ns: u64,
    /// `self_ns` ÷ the time of all steps; adds up to 1 over the table.
    pub self_share: f64,
    /// `total_ns` ÷ the time of all steps.
    pub total_share: f64,
    /// Work, of everything below it too.
    pub work: StatedWork,
    /// FLOP/s over `total_ns`, in 10⁹.
    pub gflops: Option<f64>,
    /// Bytes/s with activations over `total_ns`, in 10⁹.
    pub gbytes: Option<f64>,
    /// Element types that its intervals state, each once, in the order of reading; empty if none states one.
    pub dtypes: Vec<String>,
    /// GPU time, if any of its intervals has it from the source that the table shows.
    pub gpu: Option<OperatorGpu>,
    /// Kernels launched in it and below, for each interval in a recorded step.
    pub launches_per_call: Option<f64>,
    /// Number of these intervals.
    pub launch_calls: u64,
    /// Part of `self_ns` in which the host waited for the device, in nanoseconds (estimated from the steps whose kernels
    /// were recorded); `None` if none of its calls was recorded.
    pub host_wait_ns: Option<f64>,
}

/// Adds how long each operator waited for the device, from what the recorded steps show.
pub fn add_waits(operators: &mut [Operator], kernels: &Kernels) {
    let rows = kernels.by_path.iter().filter_map(|row| Some((row.path.as_deref()?, row)));
    let rows: BTreeMap<&str, _> = rows.collect();
    for operator in operators {
        let row = rows.get(operator.path.as_str()).filter(|row| row.calls > 0);
        let wait = row.and_then(|row| Some(row.waited_ns? as f64 / row.calls as f64 * operator.calls as f64));
        operator.host_wait_ns = wait.map(|ns| ns.min(operator.self_ns as f64));
    }
}

/// GPU time of an operator. Totals over all its intervals are estimated from the measured ones: see `gpu_time.rs`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorGpu {
    /// Marks in the stream or recorded kernels: the same in all rows of a table, see [`shown_source`].
    pub source: GpuSource,
    /// Intervals that the mean is over: with marks, those that have them; with kernels, those in steps whose kernels
    /// were recorded.
    pub measured: u64,
    /// Sum over the measured ones in nanoseconds, children included.
    pub measured_ns: u64,
    /// Mean of one interval in nanoseconds.
    pub mean_ns: f64,
    /// Total of all intervals, in nanoseconds (estimated).
    pub total_ns: f64,
    /// 95 % interval of that, if not all intervals but enough steps were measured.
    pub total_ci95_ns: Option<(f64, f64)>,
    /// Measured intervals whose children were all measured.
    pub self_measured: u64,
    /// Sum over these, less their children, in nanoseconds.
    pub self_measured_ns: u64,
    /// Self time of all intervals, in nanoseconds (estimated).
    pub self_ns: Option<f64>,
    /// `self_ns` ÷ GPU time of the outermost steps.
    pub self_share: Option<f64>,
    /// `total_ns` ÷ GPU time of the outermost steps.
    pub total_share: Option<f64>,
    /// FLOP/s over GPU time, in 10¹². Kernels that run at once count with the time they take together.
    pub tflops: Option<f64>,
    /// Bytes/s with activations over the same time, in 10⁹.
    pub gbytes: Option<f64>,
}

/// The source whose GPU time the table shows: the same for all rows, because shares and self times of two sources do
/// not add up.
///
/// Kernels, unless what they were recorded of is much less of the steps' time than what has marks: marks tell the waiting
/// for launches, too, and the work of other threads.
pub fn shown_source(tree: &Tree, intervals: &Intervals) -> Option<GpuSource> {
    let of_rows = |source: GpuSource, outermost: bool| {
        let rows = tree.rows.iter().filter(|row| !outermost || row.depth == 0);
        let has_it = |path: usize| intervals.paths[path].gpu.of(source).calls > 0;
        let rows = rows.filter(|row| row.path.is_some_and(has_it));
        rows.map(|row| if outermost { row.total_ns } else { 1 }).sum::<u64>() as f64
    };
    [true, false].into_iter().find_map(|outermost| {
        match (of_rows(GpuSource::Event, outermost), of_rows(GpuSource::Cupti, outermost)) {
            (0.0, 0.0) => None,
            (marks, kernels) if kernels < OF_KERNELS * marks => Some(GpuSource::Event),
            _ => Some(GpuSource::Cupti),
        }
    })
}

/// The least share of the time of steps that have marks which steps with kernels have, for these to be shown.
const OF_KERNELS: f64 = 0.8;

/// All operators, by self time: on the device where that is known, else on the host. `launches` are kernels by the path
/// that launched them, children's not included; `merged` is the share of their summed time that is left if overlapping
/// kernels count once, see `overlap.rs`.
pub fn operators(
    tree: &Tree,
    intervals: &Intervals,
    launches: &BTreeMap<&str, u64>,
    merged: &BTreeMap<String, f64>,
) -> Vec<Operator> {
    let source = shown_source(tree, intervals);
    let rows = rows_with_intervals(tree);
    let estimates = source.map_or(Vec::new(), |source| {
        let sampled = rows.iter().map(|&(_, path, parent)| {
            let path = &intervals.paths[path];
            let calls = if path.replayed > 0 { with_unrecorded(&rows, intervals, path, parent) } else { path.calls };
            SampledPath { parent, calls, sums: &path.gpu, groups: &path.gpu_groups }
        });
        estimate(&sampled.collect::<Vec<_>>(), source)
    });
    let outermost = rows.iter().zip(&estimates).filter(|((row, ..), _)| row.depth == 0);
    let whole_ns: f64 = outermost.filter_map(|(_, estimate)| Some(estimate.as_ref()?.total_ns)).sum();
    let launched = launches_below(&rows, intervals, launches);
    let mut operators: Vec<Operator> = rows
        .iter()
        .zip(launched)
        .enumerate()
        .map(|(at, (&(row, path, _), launched))| {
            let path = &intervals.paths[path];
            // Analytic work over measured time: per nanosecond is 10⁹ per second.
            let rate = |work: Option<u64>| work.filter(|_| row.total_ns > 0).map(|w| w as f64 / row.total_ns as f64);
            let estimate = estimates.get(at).copied().flatten();
            let gpu = source.zip(estimate).map(|(source, estimate)| {
                let at_once = match source {
                    GpuSource::Cupti => merged.get(&path.rollup).copied().unwrap_or(1.0),
                    GpuSource::Event => 1.0,
                };
                gpu(path, row, source, estimate, (whole_ns, at_once))
            });
            Operator {
                path: path.rollup.clone(),
                target: path.target.clone(),
                calls: path.calls,
                entered: path.entered(),
                self_ns: row.self_ns,
                total_ns: row.total_ns,
                min_ns: if path.entered() > 0 { path.min_ns } else { 0 },
                max_ns: path.max_ns,
                self_share: ratio(row.self_ns, tree.total_ns),
                total_share: row.share,
                work: row.work,
                gflops: rate(row.work.flops),
                gbytes: rate(row.work.io_bytes),
                dtypes: path.dtypes.clone(),
                gpu,
                launches_per_call: launched
                    .filter(|_| path.gpu.recorded_calls > 0)
                    .map(|n| n as f64 / path.gpu.recorded_calls as f64),
                launch_calls: path.gpu.recorded_calls,
                host_wait_ns: None,
            }
        })
        .collect();
    // Where there is time on the device, that is what counts: the host may only have waited.
    let on_device = |operator: &Operator| operator.gpu.and_then(|gpu| gpu.self_ns).unwrap_or(-1.0);
    operators.sort_by(|a, b| {
        on_device(b).total_cmp(&on_device(a)).then_with(|| b.self_ns.cmp(&a.self_ns)).then_with(|| a.path.cmp(&b.path))
    });
    operators
}

fn gpu(
    path: &PathTotals,
    row: &TreeRow,
    source: GpuSource,
    estimate: PathGpuTime,
    (whole_ns, at_once): (f64, f64),
) -> OperatorGpu {
    let sums = path.gpu.of(source);
    let measured = path.gpu.measured(source);
    let PathGpuTime { total_ns, self_ns, total_ci95_ns } = estimate;
    // An interval without GPU time in a recorded step has no children with GPU time either.
    let self_measured = match source {
        _ if sums.self_calls == 0 => 0,
        GpuSource::Event => sums.self_calls,
        GpuSource::Cupti => sums.self_calls.max(path.gpu.recorded_calls),
    };
    let share = |ns: f64| (whole_ns > 0.0).then(|| ns / whole_ns);
    let mean_ns = sums.total_ns as f64 / measured.max(1) as f64;
    // The work of replays is known of those that were recorded, as is their time.
    let time = if path.replayed > 0 { mean_ns * path.calls as f64 } else { total_ns };
    let rate = |work: Option<u64>| work.filter(|_| time > 0.0).map(|w| w as f64 / (time * at_once));
    OperatorGpu {
        source,
        measured,
        measured_ns: sums.total_ns,
        mean_ns,
        total_ns,
        total_ci95_ns,
        self_measured,
        self_measured_ns: sums.self_ns(),
        self_ns,
        self_share: self_ns.and_then(share),
        total_share: share(total_ns),
        tflops: rate(row.work.flops).map(|per_ns| per_ns / 1e3),
        gbytes: rate(row.work.io_bytes),
    }
}

/// Intervals of a path that graphs replayed, with those in steps whose kernels were not recorded, where they have no row: as
/// many more as there are of what is around them.
fn with_unrecorded(rows: &[Row<'_>], intervals: &Intervals, path: &PathTotals, parent: Option<usize>) -> u64 {
    let mut above = parent;
    while let Some((_, at, next)) = above.and_then(|at| rows.get(at)) {
        let around = &intervals.paths[*at];
        if around.replayed == 0 {
            let times = around.calls as f64 / around.gpu.recorded_calls.max(1) as f64;
            return path.entered() + (path.replayed as f64 * times.max(1.0)) as u64;
        }
        above = *next;
    }
    path.calls
}

/// A row with intervals of its own, the position of its totals, and its nearest ancestor among these rows.
type Row<'a> = (&'a TreeRow, usize, Option<usize>);

/// The tree without groups of modules, parents before children.
fn rows_with_intervals(tree: &Tree) -> Vec<Row<'_>> {
    // Of each row of the tree, the last row with intervals at it or above it.
    let mut nearest: Vec<Option<usize>> = Vec::with_capacity(tree.rows.len());
    let mut rows: Vec<Row<'_>> = Vec::new();
    for row in &tree.rows {
        let parent = row.parent.and_then(|parent| nearest[parent]);
        nearest.push(match row.path {
            Some(path) => {
                rows.push((row, path, parent));
                Some(rows.len() - 1)
            }
            None => parent,
        });
    }
    rows
}

/// Kernels launched in each row and below it; `None` if none were recorded at all.
fn launches_below(rows: &[Row<'_>], intervals: &Intervals, launches: &BTreeMap<&str, u64>) -> Vec<Option<u64>> {
    if launches.is_empty() {
        return vec![None; rows.len()];
    }
    let own = |path: usize| launches.get(intervals.paths[path].rollup.as_str()).copied();
    let mut counts: Vec<u64> = rows.iter().map(|&(_, path, _)| own(path).unwrap_or(0)).collect();
    // Children stand after their parents.
    for row in (0..counts.len()).rev() {
        if let Some(parent) = rows[row].2 {
            counts[parent] = counts[parent].saturating_add(counts[row]);
        }
    }
    counts.into_iter().map(Some).collect()
}
