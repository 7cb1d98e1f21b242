//! Hardware counters that Nsight Compute read of kernels whose intervals were NVTX ranges.
//!
//! A range's payload is the span id of its interval, so that counters are joined to the intervals of a run, and to their
//! bytes, exactly. Nsight Compute runs kernels one by one, several times each, with cold caches: the durations here are
//! not those of the program, the counters tell what a kernel is limited by.

mod by_path;
#[cfg(feature = "ncu")]
mod raw_page;

pub use by_path::{CountersByPath, CountersRow, Limiter};
#[cfg(feature = "ncu")]
pub use raw_page::CountersError;

/// Kernels with their counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// In the order of their launches.
    pub kernels: Vec<CountedKernel>,
}

/// One kernel with its counters. A counter that was not read is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CountedKernel {
    /// Name of the kernel.
    pub name: String,
    /// Ranges of ours that were open on the launching thread, outermost first.
    pub ranges: Vec<OpenRange>,
    /// Duration in nanoseconds, alone on the device and with cold caches.
    pub duration_ns: Option<f64>,
    /// Arithmetic throughput in percent of what the device sustains.
    pub compute_percent: Option<f64>,
    /// Throughput of the memory system (caches included) in percent of what it sustains.
    pub memory_percent: Option<f64>,
    /// Throughput of the device's memory in percent of its peak.
    pub dram_percent: Option<f64>,
    /// Bytes read from and written to the device's memory.
    pub dram_bytes: Option<f64>,
    /// Achieved occupancy: resident warps in percent of what an SM can hold.
    pub occupancy_percent: Option<f64>,
    /// Waves: blocks of the grid for each block that the device can hold at once.
    pub waves: Option<f64>,
    /// Registers of each thread.
    pub registers: Option<f64>,
    /// Why warps waited: reason and warps stalled for it per issued instruction, without `selected`, which is no wait.
    pub stalls: Vec<(String, f64)>,
    /// The same for warps that were chosen to issue.
    pub selected: Option<f64>,
}

/// A range that was open when a kernel was launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRange {
    /// Its text: the interval's name.
    pub name: String,
    /// Its payload: the interval's span id.
    pub span: u64,
}

impl CountedKernel {
    /// The reason for which warps waited most, and its share (0 to 1) of the time between two instructions of a warp.
    pub fn top_stall(&self) -> Option<(&str, f64)> {
        let all: f64 = self.stalls.iter().map(|(_, warps)| warps).sum::<f64>() + self.selected.unwrap_or(0.0);
        let (reason, warps) = self.stalls.iter().max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(&a.0)))?;
        (*warps > 0.0).then(|| (reason.as_str(), warps / all))
    }
}
