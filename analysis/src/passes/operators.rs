//! Where the time goes, as a table: one row for each path without ordinals, with the rate at which it worked.

use super::intervals::Intervals;
use super::tree::{Tree, ratio};

/// One operator: all intervals of one rollup path.
#[derive(Debug, Clone, PartialEq)]
pub struct Operator {
    /// Path without ordinals.
    pub path: String,
    /// `tracing` target.
    pub target: String,
    /// Intervals.
    pub calls: u64,
    /// Sum of self times in nanoseconds.
    pub self_ns: u64,
    /// Sum of durations in nanoseconds.
    pub total_ns: u64,
    /// Shortest interval.
    pub min_ns: u64,
    /// Longest interval.
    pub max_ns: u64,
    /// `self_ns` ÷ the time of all steps; adds up to 1 over the table.
    pub self_share: f64,
    /// `total_ns` ÷ the time of all steps.
    pub total_share: f64,
    /// FLOPs, of everything below it too.
    pub flops: Option<u64>,
    /// Bytes, of everything below it too.
    pub bytes: Option<u64>,
    /// FLOP/s over `total_ns`, in 10⁹.
    pub gflops: Option<f64>,
    /// Bytes/s over `total_ns`, in 10⁹.
    pub gbytes: Option<f64>,
    /// FLOPs ÷ bytes.
    pub intensity: Option<f64>,
    /// Element types seen.
    pub dtypes: Vec<String>,
    /// Intervals with device time.
    pub gpu_calls: u64,
    /// Sum of device time of those in nanoseconds.
    pub gpu_total_ns: Option<u64>,
    /// The same less their children's device time.
    pub gpu_self_ns: Option<u64>,
    /// What measured the device time.
    pub gpu_source: Option<&'static str>,
}

/// All operators, by self time.
pub fn operators(tree: &Tree, intervals: &Intervals) -> Vec<Operator> {
    let mut operators: Vec<Operator> = tree
        .rows
        .iter()
        .map(|row| {
            let path = &intervals.paths[row.path];
            // Analytic work over measured time: per second × 10⁻⁹ is per nanosecond.
            let rate = |work: Option<u64>| work.filter(|_| row.total_ns > 0).map(|w| w as f64 / row.total_ns as f64);
            let gpu = |ns: u64| (path.gpu_calls > 0).then_some(ns);
            Operator {
                path: path.rollup.clone(),
                target: path.target.clone(),
                calls: row.calls,
                self_ns: row.self_ns,
                total_ns: row.total_ns,
                min_ns: path.min_ns,
                max_ns: path.max_ns,
                self_share: ratio(row.self_ns, tree.total_ns),
                total_share: row.share,
                flops: row.flops,
                bytes: row.bytes,
                gflops: rate(row.flops),
                gbytes: rate(row.bytes),
                intensity: row.flops.zip(row.bytes).filter(|(_, b)| *b > 0).map(|(f, b)| f as f64 / b as f64),
                dtypes: path.dtypes.clone(),
                gpu_calls: path.gpu_calls,
                gpu_total_ns: gpu(path.gpu_total_ns),
                gpu_self_ns: gpu(path.gpu_self_ns),
                gpu_source: path.gpu_source,
            }
        })
        .collect();
    operators.sort_by(|a, b| b.self_ns.cmp(&a.self_ns).then_with(|| a.path.cmp(&b.path)));
    operators
}
