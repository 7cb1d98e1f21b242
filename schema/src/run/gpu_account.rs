//! How GPU time was taken, and what became of marks and kernels.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// GPU time of a run: how it was taken, what it cost, and how certain it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct GpuAccount {
    /// Source of marks, for example `cuda`; absent if only kernels were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// The tier that was asked for: `off`, `steps`, `blocks`, `all`, `adaptive`.
    pub timing: String,
    /// Share of step time that marks may cost in the adaptive tier.
    pub budget: f64,
    /// Steps in which every interval was marked.
    pub steps_full: u64,
    /// Steps in which only some intervals were marked: the step itself, or its blocks.
    pub steps_partial: u64,
    /// Steps that were not marked.
    pub steps_unmarked: u64,
    /// Marks by what became of them. `recorded` = `timed` + `lost` + `outstanding`. The others are marks that were
    /// never made: `shared` (an earlier mark served, because nothing can have been launched since), and the refusals
    /// `no_context`, `capturing`, `full`, `failed`.
    pub marks: BTreeMap<String, u64>,
    /// Intervals by what became of their marks: `timed`, or why they have no time: `one_mark` (the other mark was
    /// refused), `lost`, `forgotten` (it began more marks ago than are remembered), `late` (no longer waited for),
    /// `cold` (in the first step of a kind, and another step of that kind followed).
    pub intervals: BTreeMap<String, u64>,
    /// Mean cost of one mark on the application's thread, in nanoseconds (measured), without the time that it waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_cost_ns: Option<f64>,
    /// Time of the application's threads that all marks cost together, in nanoseconds (measured). Each mark counts with
    /// the time it took, up to twice the usual cost of a mark. The usual cost is the longest time among the quickest
    /// eighth of a block of 32 marks; the lowest such value of all blocks is taken.
    pub marks_ns: u64,
    /// Time that marks waited in addition (measured): for room in the launch queue, where the next launch would have
    /// waited instead, or for the driver while other threads launch. It counts neither towards the adaptive tier's
    /// budget nor as overhead.
    pub marks_wait_ns: u64,
    /// Cold steps, the first of their kind, that the adaptive tier marked in full, if no other step of that kind was:
    /// the times of their parts are in the run, but say nothing about a warm step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cold_steps: Vec<u64>,
    /// Devices for which marks were reported.
    pub devices: Vec<GpuDeviceAccount>,
    /// Intervals whose GPU time exceeds their parent's by more than the error of the clocks.
    pub outside_parent: u64,
    /// Recorded kernels, if any were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelAccount>,
    /// Marks against kernels, for intervals of at least 100 µs that have both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
    /// Further statistics of the GPU clock.
    pub statistics: BTreeMap<String, Value>,
}

impl GpuAccount {
    /// The worst error bound of the clocks behind all GPU times on the host's time line, in nanoseconds: those of all
    /// devices with marks and of the recorder of kernels. `None` if no such times were made.
    pub fn clock_bound_ns(&self) -> Option<u64> {
        let devices = self.devices.iter().filter(|d| !d.anchors.is_empty()).map(|d| d.skew_bound_ns);
        devices.chain(self.kernels.iter().filter_map(|k| k.clock_bound_ns)).max()
    }
}

/// The clock of one device in relation to the host's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct GpuDeviceAccount {
    /// UUID of the device.
    pub uuid: String,
    /// Name of the device.
    pub name: String,
    /// How far GPU times from marks may be off on the host's time line, in nanoseconds (measured: half the width of the
    /// bracket around the worst reading in use, plus how far readings were from where they were expected). Durations
    /// are not affected. Above [`GPU_CLOCK_BOUND_NS`](super::GPU_CLOCK_BOUND_NS) start times must not be compared with the
    /// host's.
    pub skew_bound_ns: u64,
    /// Drift of the device's clock in parts per million (measured).
    pub drift_ppm: f64,
    /// Readings of both clocks that were not used because others were more certain: the driver was delayed during them.
    pub anchors_dropped: u64,
    /// Simultaneous readings of both clocks that are in use; in a long run, a selection of them.
    pub anchors: Vec<DeviceAnchor>,
}

/// One simultaneous reading of a device's clock and the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DeviceAnchor {
    /// The device's clock, nanoseconds from an origin of its own.
    pub device_ns: i64,
    /// The host's clock, Unix nanoseconds.
    pub host_ns: i64,
    /// Error bound of the reading, in nanoseconds.
    pub bound_ns: u64,
}

/// Kernels recorded in windows of steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct KernelAccount {
    /// Source, for example `cupti`.
    pub recorder: String,
    /// Windows that were recorded.
    pub windows: u64,
    /// Windows that were due and were left out, because the one before was still open or its kernels had not all come.
    pub windows_missed: u64,
    /// Steps inside these windows.
    pub steps: u64,
    /// Kernels, copies and memsets that were delivered: `attributed` + `unattributed` + `late` + `outside_window`.
    pub recorded: u64,
    /// Those that are in the GPU time of the interval that launched them.
    pub attributed: u64,
    /// Those that were launched while steps of a window ran, but outside their intervals: they have rows without a
    /// path.
    pub unattributed: u64,
    /// Those that were delivered after their interval had been handed to the exporters, or whose interval has no
    /// record: they have rows, but are in no GPU time.
    pub late: u64,
    /// Those that were launched by steps in no window, or before the first or after the last step of a window, for
    /// example when weights are made: the recorder is on a little longer than the window. They have no rows.
    pub outside_window: u64,
    /// Of `attributed`, those that CUDA graphs launched.
    pub of_graphs: u64,
    /// Of these, the ones whose graph was captured under the session: they are in the interval that captured them.
    pub of_captured: u64,
    /// And those whose graph was not, but ran the same kernels in the same order as layers that are known: which
    /// interval they are in is derived.
    pub of_derived: u64,
    /// Kernels, copies and memsets that the recorder lost, or timed impossibly.
    pub dropped: u64,
    /// Of these, the ones of a graph that seemed to take far longer than in other replays, beside those that follow them.
    pub mistimed: u64,
    /// Kernels, copies and memsets that replays of graphs had fewer than nearly all other replays of the same graph,
    /// beside those that were dropped: of these the recorder told nothing. Steps that lack them have no time from
    /// kernels.
    /// Where the same ones were left out again and again, a part of the graph runs on a condition, and they are not
    /// counted.
    pub untold: u64,
    /// Lower limit of how far the recorder's clock may be off from the host's, in nanoseconds: half the width of the
    /// bracket around the worst reading of both, how far readings were from the line through their neighbours, and how
    /// long before its launch call a kernel began (all measured). An error in how the recorder's library converts the
    /// device's clock to its own shows only in the last of these. `None` if there was no reading, and in runs that do
    /// not record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_bound_ns: Option<u64>,
    /// Kernels, copies and memsets that began before the call that launched them had returned: their queue delay is
    /// given as 0.
    pub negative_delays: u64,
    /// The longest time by which one of them began early, in nanoseconds.
    pub most_negative_ns: u64,
    /// Why kernels are missing, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Time between an interval's marks ÷ time from the start of the first to the end of the last kernel inside it: 1 if
/// both agree, above 1 by what the stream waited before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct CrossCheck {
    /// Intervals that were compared; 0: the figures below say nothing.
    pub n: u64,
    /// Median of the ratio.
    pub median_ratio: f64,
    /// 5th percentile of the ratio.
    pub p05: f64,
    /// 95th percentile of the ratio.
    pub p95: f64,
}
