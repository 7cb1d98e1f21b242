//! The run contract: the keys of `RUN/run.json` and the columns of its tables. Schema version 1.
//!
//! A program that reads a run needs only this module of ours.

mod code;
mod evidence;
mod finding;
#[doc(hidden)]
pub mod judge;
mod judge_clock;
mod judge_exporters;
mod judge_gpu;
mod judge_machine;
mod judge_modules;
mod judge_stacks;
pub mod keys;
mod loaded_model;
mod machine_use;
mod rayon_threads;
mod wording;

pub use crate::table::{Column, ColumnType, columns};
pub use code::{Code, Severity};
pub use evidence::{Evidence, EvidenceValue};
pub use finding::{Finding, Place, Verdict};
#[doc(hidden)]
pub use judge::judge;
pub use keys::{env_key, model_key, option_key, result_key};
pub use loaded_model::LoadedModel;
#[doc(hidden)]
pub use machine_use::MachineMeter;
pub use machine_use::MachineUse;
#[doc(hidden)]
pub use rayon_threads::RayonThreads;

use crate::numbers::count;
use crate::record::RecordKind;
use candlescope_work::devices::Peak;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Version of the layout written by this release.
pub const SCHEMA_VERSION: u32 = 1;

/// The version of candle whose spans this release knows, and with which candlescope itself is built.
#[doc(hidden)]
pub const CANDLE_VERSION: &str = "0.11.1";

/// File name of the manifest inside a run directory.
pub const MANIFEST_FILE: &str = "run.json";

/// The largest error bound of a GPU's clock against the host's, in nanoseconds, with which times of both may be
/// compared. Above it, everything based on that comparison is invalid: GPU start times on the host's time line, queue
/// delays, classes of gaps. Durations on the device remain right.
#[doc(hidden)]
pub const GPU_CLOCK_BOUND_NS: u64 = 100_000;

/// Suffix of a segment that is still being written and is not yet a Parquet file.
pub const IN_PROGRESS_SUFFIX: &str = ".inprogress";

/// Contents of `RUN/run.json`, written when a run starts and again when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RunManifest {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Unique name of the run.
    pub run_id: String,
    /// Name of the machine, as in every row of the tables; a container's is that of the container.
    pub host: String,
    /// Rank of this process in a distributed run, 0 otherwise.
    pub rank: u32,
    /// Processes of the distributed run; absent if it is not known to be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// Start, nanoseconds since the Unix epoch.
    pub started_ns: i64,
    /// End, nanoseconds since the Unix epoch; `None` while the run goes on and after a crash.
    pub ended_ns: Option<i64>,
    /// Whether the run was closed properly. `false` after a crash: the tables then hold all finished segments.
    pub complete: bool,
    /// Machine, operating system, versions: everything that figures depend on.
    pub environment: BTreeMap<String, Value>,
    /// The model: name, architecture, dimensions, quantisation, parameters, bytes.
    pub model: BTreeMap<String, Value>,
    /// Options of the run as resolved.
    pub options: BTreeMap<String, Value>,
    /// How the hot path's ticks became nanoseconds.
    pub clock: ClockInfo,
    /// How GPU time was taken and what became of it; absent if none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuAccount>,
    /// How call stacks were sampled and what became of the samples; absent if none were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackAccount>,
    /// Steps by what became of them; absent in runs that do not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepCounts>,
    /// What was reported about the model's weights while it was loaded; absent if nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<LoadedModel>,
    /// How the program and others used the machine while steps ran; absent if the host was not sampled then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineUse>,
    /// Records handed to exporters, by table.
    pub counts: BTreeMap<String, u64>,
    /// Intervals that never became records, by reason.
    pub loss: LossCounts,
    /// What each exporter did with the records it received.
    pub exporters: Vec<ExporterReport>,
    /// The profiler's own cost.
    pub overhead: OverheadInfo,
    /// Whether the data can be trusted, and what to do if not.
    pub verdict: Verdict,
    /// Results that the program itself added, for example a hash of the generated text.
    pub results: BTreeMap<String, Value>,
}

impl RunManifest {
    /// Number of warm-up requests, from the option `warmup`: the requests numbered from 1 to this are in no figure.
    pub fn warmup_requests(&self) -> u64 {
        let option = self.options.get("warmup");
        option.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok())).unwrap_or(0)
    }

    /// The GPUs that were sampled, as the environment describes them: objects with `uuid`, `index`, `name` and more.
    pub fn gpus(&self) -> &[Value] {
        env_key::GPUS.of(&self.environment).map_or(&[], Vec::as_slice)
    }

    /// What the environment says of the GPU with this UUID.
    pub fn gpu(&self, uuid: &str) -> Option<&Value> {
        self.gpus().iter().find(|gpu| gpu.get("uuid").and_then(Value::as_str) == Some(uuid))
    }

    /// The name of the first GPU that was sampled.
    pub fn gpu_name(&self) -> Option<&str> {
        self.gpus().first()?.get("name")?.as_str()
    }

    /// Peaks of the machine, as the environment names them: those of the datasheet under `peaks`, those measured on this
    /// device under `measured_peaks`, each an object that [`Peak::read`] reads. Beside peaks (`flops` and `bandwidth`)
    /// stand times that are none: `graph_gap` between two kernels of a CUDA graph, and `launch`, the driver's part of
    /// one.
    #[doc(hidden)]
    pub fn peaks(&self) -> impl Iterator<Item = Peak> {
        let lists = [env_key::PEAKS, env_key::MEASURED_PEAKS].into_iter().filter_map(|key| key.of(&self.environment));
        lists.flatten().filter_map(Peak::read)
    }
}

/// Steps by what became of them: `begun` = `recorded` + `captured` + `scheduled_out` + `left_plain` + `perturbed` + `paused`
/// + `lost` + `open_at_end`.
///
/// The run of a capture has counts of its own: the steps of its window, all of which should be `captured`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct StepCounts {
    /// Steps that began during the session, recorded or not.
    pub begun: u64,
    /// Steps with a record, because recording was on or the schedule included them.
    pub recorded: u64,
    /// Steps with a record only because of a window, while recording was off or the schedule left them out.
    pub captured: u64,
    /// Steps that the schedule, or the budget for the cost of recording, left out.
    pub scheduled_out: u64,
    /// Steps without a record of which only the duration was measured, for the cost of recording.
    pub left_plain: u64,
    /// Steps that were part of an experiment, in which some were made slower: they are in no figure but its own.
    #[serde(skip_serializing_if = "is_zero")]
    pub perturbed: u64,
    /// Steps that began while recording was paused.
    pub paused: u64,
    /// Steps that were to be recorded but have no record, because a ring was full or their thread has no ring.
    pub lost: u64,
    /// Steps that were to be recorded and had not ended when the session did; during the session, the steps under way.
    pub open_at_end: u64,
    /// The schedule, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<crate::Schedule>,
    /// Whether a budget for the cost of recording left steps out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub budgeted: bool,
}

impl StepCounts {
    /// Steps that have a record.
    pub fn with_record(&self) -> u64 {
        self.recorded.saturating_add(self.captured)
    }

    /// Steps that have no record although they ended.
    pub fn without_record(&self) -> u64 {
        [self.left_plain, self.perturbed, self.paused, self.lost]
            .into_iter()
            .fold(self.scheduled_out, u64::saturating_add)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// `recorded 1,270 of 12,744 steps (11,474 left out by the schedule)`.
impl fmt::Display for StepCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recorded {} of {} steps", count(self.with_record()), count(self.begun))?;
        let left_out = match (self.schedule.is_some(), self.budgeted) {
            (_, false) => "left out by the schedule",
            (false, true) => "left out by the budget",
            (true, true) => "left out by the schedule or the budget",
        };
        let why = [
            (self.captured, "only because a capture asked for them"),
            (self.scheduled_out, left_out),
            (self.left_plain, "left plain to measure the overhead"),
            (self.perturbed, "part of an experiment"),
            (self.paused, "while recording was off"),
            (self.lost, "lost because a ring was full or a thread had none"),
            (self.open_at_end, "not ended"),
        ];
        let mut before = " (";
        for (n, what) in why.into_iter().filter(|(n, _)| *n > 0) {
            write!(f, "{before}{} {what}", count(n))?;
            before = ", ";
        }
        f.write_str(if before == ", " { ")" } else { "" })
    }
}

/// The element type in which most FLOPs of a phase are computed: as a run's `model` states it, or else `most` (the type
/// that most FLOPs are annotated with). `None` if it is not known; the FLOPs are then compared with no peak, because a
/// peak of another type would say nothing.
///
/// A model states it in `compute_dtype` (a word, or an object with one word per phase), because it can differ from the
/// type of the weights: candle multiplies quantised weights by activations that it quantises to 8 bits.
#[doc(hidden)]
pub fn multiplied_dtype(model: &BTreeMap<String, Value>, phase: &str, most: Option<&str>) -> Option<String> {
    if let Some(told) = model_key::COMPUTE_DTYPE.raw(model) {
        let word = told.as_str().or_else(|| told.get(phase)?.as_str())?;
        return Some(if word == "int8" { "i8".to_string() } else { word.to_string() });
    }
    let most = most.or_else(|| model.get("dtype").and_then(Value::as_str))?;
    let is_quantised = crate::vocabulary::DType::from_word(most).is_some_and(|dtype| dtype.is_quantised());
    (!is_quantised).then(|| most.to_string())
}

/// The clock of the hot path, and how it relates to Unix time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ClockInfo {
    /// For example `tsc` or `monotonic`.
    pub source: String,
    /// Ticks per second as calibrated.
    pub ticks_per_second: f64,
    /// Cost of one reading in nanoseconds, measured at start.
    pub read_ns: f64,
    /// Pairs of ticks and Unix time taken during the run.
    pub anchors: Vec<ClockAnchor>,
}

/// One simultaneous reading of the hot-path clock and the system clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct ClockAnchor {
    /// Hot-path clock, raw ticks.
    pub ticks: u64,
    /// Unix time in nanoseconds to which candlescope maps these ticks.
    pub mapped_ns: i64,
    /// Unix time in nanoseconds by the system clock at the same moment: the difference is the skew.
    pub system_ns: i64,
}

/// How call stacks were sampled, and what became of the samples. What the sampler could see stands in the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct StackAccount {
    /// Source of the samples: `perf`, `signals`.
    pub source: String,
    /// Samples delivered, those of time off the CPU included.
    pub samples: u64,
    /// Samples that were taken and lost.
    pub lost: u64,
    /// Samples that could not wait for the end of their step, and so have no interval.
    pub unplaced: u64,
    /// Threads that were sampled.
    pub threads: u64,
    /// Why sampling failed or ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

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
    /// are not affected. Above [`GPU_CLOCK_BOUND_NS`] start times must not be compared with the host's.
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
    /// Kernels, copies and memsets that the recorder lost, or timed impossibly.
    pub dropped: u64,
    /// Of these, the ones of a graph that seemed to take far longer than in other replays, beside those that follow them.
    pub mistimed: u64,
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

/// Intervals that were entered but never became records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct LossCounts {
    /// Intervals that ended while recording was on. Those that are counted as lost below are part of them; the rest
    /// became records.
    pub emitted: u64,
    /// Dropped because the thread's ring was full.
    pub ring_full: u64,
    /// Dropped because the stack was deeper than supported.
    pub too_deep: u64,
    /// Dropped because their thread has no ring: there was no room for another one (`ring_memory`).
    pub no_ring: u64,
    /// Threads without a ring; each of their outermost intervals counts as a step.
    pub threads_without_ring: u64,
    /// Ended after the pipeline had shut down.
    pub after_shutdown: u64,
    /// Read from a ring but never made a record: a bug in the profiler.
    pub unresolved: u64,
    /// Still open when the run ended (never counted as emitted).
    pub open_at_end: u64,
    /// Exits that matched no enter (never counted as emitted).
    pub unmatched_exits: u64,
    /// Intervals that were still open when their step or request had ended and others began on the same thread, and
    /// that were not left later: usually because their guards were forgotten (never counted as emitted).
    pub forgotten_guards: u64,
    /// Requests dropped because their queue was full.
    pub requests_lost: u64,
    /// Requests that had not ended when the run did.
    pub requests_open_at_end: u64,
    /// Requests that began and ended while recording was off, and that no recorded step worked for. They are left out
    /// on purpose.
    pub requests_paused: u64,
    /// Samples dropped because the drain did not keep up.
    pub samples_lost: u64,
}

impl LossCounts {
    /// Intervals lost before they became records.
    pub fn lost(&self) -> u64 {
        [self.too_deep, self.no_ring, self.after_shutdown, self.unresolved]
            .into_iter()
            .fold(self.ring_full, u64::saturating_add)
    }
}

/// One exporter's account: `received = exported + dropped` for each kind of record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ExporterReport {
    /// Name of the exporter.
    pub name: String,
    /// Records resolved for it, by table, including those it dropped.
    pub received: BTreeMap<String, u64>,
    /// Records it exported, by table.
    pub exported: BTreeMap<String, u64>,
    /// Records it dropped: table → reason → number.
    pub dropped: BTreeMap<String, BTreeMap<String, u64>>,
    /// Last error, if any.
    pub last_error: Option<String>,
}

impl ExporterReport {
    /// Dropped records of one table, for all reasons.
    pub fn dropped_total(&self, kind: RecordKind) -> u64 {
        self.dropped.get(kind.table()).map_or(0, |reasons| reasons.values().fold(0, |sum, n| sum.saturating_add(*n)))
    }

    /// Whether `received = exported + dropped` holds for every table.
    pub fn conserved(&self) -> bool {
        RecordKind::ALL.into_iter().all(|kind| {
            let get = |map: &BTreeMap<String, u64>| map.get(kind.table()).copied().unwrap_or(0);
            get(&self.received) == get(&self.exported).saturating_add(self.dropped_total(kind))
        })
    }
}

/// The profiler's own cost on the application's threads, measured in a loop or in place. Derived, unless stated
/// otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct OverheadInfo {
    /// Cost of one enter+exit of a span on the application's thread in nanoseconds: registry and layer, caches warm, in
    /// a loop, measured when the session started. Between a model's operations, when other code has filled the caches,
    /// it is two to three times that.
    pub per_interval_ns: f64,
    /// Time taken from the application's threads, in nanoseconds: `per_interval_ns` × intervals (derived from the
    /// loop), plus the time that GPU marks cost (measured, without waiting).
    pub application_ns: u64,
    /// CPU time of the profiler's own threads in nanoseconds (measured), on platforms that report it.
    pub background_cpu_ns: Option<u64>,
    /// `application_ns` ÷ sum of step durations (derived from the loop).
    pub ratio: Option<f64>,
    /// The better estimate of the cost that is here: `in_place` if there is one, else `loop`. Empty in runs that do not
    /// state it, which means `loop`.
    pub estimate: String,
    /// The cost of recording as measured in place, if some steps were left plain for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceOverhead>,
    /// What became of a budget for the cost of recording, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetKept>,
}

/// A budget for the cost of recording, and what became of it: steps were left out until it was held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct BudgetKept {
    /// The share of all steps' time that recording may take.
    pub target: f64,
    /// Steps that were recorded, of those that began while recording was on.
    pub kept: f64,
    /// What recording took of all steps' time: the cost of a recorded step, as measured in place, × `kept` (derived). With that
    /// of windows of kernels; without stacks, whose samples come in every step. `None` if no plain step was compared.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval; `None` without one.
    pub low: Option<f64>,
    /// Upper end of that interval; `None` without one.
    pub high: Option<f64>,
    /// Whether the budget was held: true if the whole interval is within it, false if all of it is above; `None` if neither, or
    /// without an interval.
    pub held: Option<bool>,
}

/// The estimate from a loop: see [`OverheadInfo::estimate`].
pub const ESTIMATE_LOOP: &str = "loop";
/// The estimate from plain steps.
pub const ESTIMATE_IN_PLACE: &str = "in_place";

/// How much longer recorded steps take than plain ones, in which nothing is recorded (measured).
///
/// A plain step is compared with the recorded step of its kind right before it or right after it on its thread, by
/// turns. What the profiler costs even in a plain step is not included: `tracing`'s registry, and the layer's check of
/// each span, some tens of nanoseconds per interval. The figure is that of a typical step; if only some steps get GPU
/// marks in full, their cost is in [`GpuAccount::marks_ns`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InPlaceOverhead {
    /// Steps that were left plain; they have no rows.
    pub left_plain: u64,
    /// Plain steps that were compared with recorded ones.
    pub n_plain: u64,
    /// Recorded steps that they were compared with.
    pub n_recorded: u64,
    /// Recorded ÷ plain − 1: the ratios of the kinds, weighted by their time in recorded steps. If any kinds have a
    /// confidence interval, only these count.
    pub ratio: f64,
    /// Lower end of its 95 % interval; `None` below six plain steps of each kind.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// By kind of step, which is its span's name.
    pub kinds: BTreeMap<String, InPlaceKind>,
    /// Steps whose kernels were recorded (`n_recorded`) beside the median of recorded steps of their kind before the recorder was
    /// switched on, in place of plain ones: what a window costs in addition. `None` if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<InPlaceKind>,
}

/// The comparison for one kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InPlaceKind {
    /// Plain steps that were compared with recorded ones.
    pub n_plain: u64,
    /// Recorded steps that they were compared with.
    pub n_recorded: u64,
    /// Median of recorded ÷ plain − 1.
    pub ratio: f64,
    /// Lower end of the median's 95 % interval, by order statistics; `None` below six plain steps.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
}
