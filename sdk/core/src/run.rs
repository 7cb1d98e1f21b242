//! The run contract: what `RUN/run.json` says and which columns its tables have. Schema version 1.
//!
//! Whoever reads a run needs this module and nothing else of ours.

mod code;
mod evidence;
mod finding;
pub(crate) mod judge;
mod loaded_model;
mod wording;

pub use code::Code;
pub use evidence::{Evidence, EvidenceValue};
pub use finding::{Finding, Place, Severity, Verdict};
pub use judge::judge;
pub use loaded_model::LoadedModel;

use crate::numbers::count;
use crate::record::RecordKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Version of the layout written by this release.
pub const SCHEMA_VERSION: u32 = 1;

/// File name of the manifest inside a run directory.
pub const MANIFEST_FILE: &str = "run.json";

/// How far a GPU's clock may be off from the host's, in nanoseconds, for times of both to be compared. Above it
/// whatever rests on that is void: GPU start times on the host's time line, queue delays, classes of gaps. Durations on
/// the device stay right.
pub const GPU_CLOCK_BOUND_NS: u64 = 100_000;

/// Suffix of a segment that is still being written: not a Parquet file yet.
pub const IN_PROGRESS_SUFFIX: &str = ".inprogress";

/// `RUN/run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RunManifest {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Unique name of the run.
    pub run_id: String,
    /// Host name.
    pub host: String,
    /// Rank of this process in a distributed run, 0 otherwise.
    pub rank: u32,
    /// Start, nanoseconds since the Unix epoch.
    pub started_ns: i64,
    /// End; `None` while running and after a crash.
    pub ended_ns: Option<i64>,
    /// Whether the run was closed in order. `false` after a crash: the tables hold all finished segments.
    pub complete: bool,
    /// Machine, operating system, versions: everything that figures depend on.
    pub environment: BTreeMap<String, Value>,
    /// The model: name, architecture, dimensions, quantisation, parameters, bytes.
    pub model: BTreeMap<String, Value>,
    /// Options of the run as resolved.
    pub options: BTreeMap<String, Value>,
    /// How time-stamps became nanoseconds.
    pub clock: ClockInfo,
    /// How GPU time was taken and what became of it; absent where none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuAccount>,
    /// Steps by what became of them; absent in runs that do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepCounts>,
    /// What was told of the model's weights while it was loaded; absent where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<LoadedModel>,
    /// Records per table handed to exporters.
    pub counts: BTreeMap<String, u64>,
    /// Intervals that never became records, by reason.
    pub loss: LossCounts,
    /// What each exporter did with what it was given.
    pub exporters: Vec<ExporterReport>,
    /// The profiler's own cost.
    pub overhead: OverheadInfo,
    /// Whether the data can be trusted, and what to do where it cannot.
    pub verdict: Verdict,
    /// Free results of the program that made the run, for example the generated text's hash.
    pub results: BTreeMap<String, Value>,
}

impl RunManifest {
    /// Requests that came before those that count, from the option `warmup`: those with numbers from 1 to this.
    pub fn warmup_requests(&self) -> u64 {
        let option = self.options.get("warmup");
        option.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok())).unwrap_or(0)
    }

    /// Peaks of the machine, as the environment names them: those of the datasheet under `peaks`, those measured on this
    /// device under `measured_peaks`. Each is an object with `kind` (`flops` or `bandwidth`), `value` (FLOP/s or B/s),
    /// `label` (`datasheet` or `measured`), `source`, and for FLOPs `dtype`.
    pub fn peaks(&self) -> impl Iterator<Item = &Value> {
        let lists = ["peaks", "measured_peaks"].into_iter().filter_map(|key| self.environment.get(key)?.as_array());
        lists.flatten()
    }
}

/// Steps by what became of them: `begun` = `recorded` + `captured` + `scheduled_out` + `left_plain` + `paused` + `lost`
/// + `open_at_end`.
///
/// The run of a capture has its own: the steps of its window, all of which were to be `captured`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct StepCounts {
    /// Steps that began while the session lived, recorded or not.
    pub begun: u64,
    /// Steps with a record because recording was on or the schedule said so.
    pub recorded: u64,
    /// Steps with a record only because a window was asked for while recording was off or the schedule said no.
    pub captured: u64,
    /// Steps that the schedule left out.
    pub scheduled_out: u64,
    /// Steps without a record that were timed all the same, to measure what recording costs.
    pub left_plain: u64,
    /// Steps that began while recording was paused.
    pub paused: u64,
    /// Steps that were to be recorded and have no record, because a ring was full or their thread has
    /// none.
    pub lost: u64,
    /// Steps that were to be recorded and had not ended when the session did; while it goes on, those under way.
    pub open_at_end: u64,
    /// The schedule, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<crate::control::Schedule>,
}

impl StepCounts {
    /// Steps that have a record.
    pub fn with_record(&self) -> u64 {
        self.recorded.saturating_add(self.captured)
    }

    /// Steps that have no record, and not because they were still under way.
    pub fn without_record(&self) -> u64 {
        [self.left_plain, self.paused, self.lost].into_iter().fold(self.scheduled_out, u64::saturating_add)
    }
}

/// `recorded 1,270 of 12,744 steps (11,474 left out by the schedule)`.
impl fmt::Display for StepCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recorded {} of {} steps", count(self.with_record()), count(self.begun))?;
        let why = [
            (self.captured, "only because a capture asked for them"),
            (self.scheduled_out, "left out by the schedule"),
            (self.left_plain, "left plain to measure the overhead"),
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

/// The element type that most FLOPs of a phase are done in, as far as a run's `model` says, or else `most` (the type
/// that most FLOPs are annotated with); `None` where it is not known: a peak of another type says nothing.
///
/// A model says it in `compute_dtype` (a word, or an object with one for each phase), because that need not be the type
/// of its weights: candle multiplies quantised weights by activations that it quantises to 8 bits.
pub fn multiplied_dtype(model: &BTreeMap<String, Value>, phase: &str, most: Option<&str>) -> Option<String> {
    if let Some(told) = model.get("compute_dtype") {
        let word = told.as_str().or_else(|| told.get(phase)?.as_str())?;
        return Some(if word == "int8" { "i8".to_string() } else { word.to_string() });
    }
    let most = most.or_else(|| model.get("dtype").and_then(Value::as_str))?;
    let is_quantised = crate::vocabulary::DType::from_word(most).is_some_and(|dtype| dtype.is_quantised());
    (!is_quantised).then(|| most.to_string())
}

/// Clock used on the hot path and its relation to Unix time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ClockInfo {
    /// For example `tsc` or `monotonic`.
    pub source: String,
    /// Ticks per second as calibrated.
    pub ticks_per_second: f64,
    /// Cost of one reading in nanoseconds, measured at start.
    pub read_ns: f64,
    /// Pairs of tick and Unix time taken during the run.
    pub anchors: Vec<ClockAnchor>,
}

/// One simultaneous reading of the hot-path clock and the system clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct ClockAnchor {
    /// Hot-path clock, raw ticks.
    pub ticks: u64,
    /// Unix time in nanoseconds as candlescope maps these ticks.
    pub mapped_ns: i64,
    /// Unix time in nanoseconds as the system clock says at the same moment: the difference is the skew.
    pub system_ns: i64,
}

/// GPU time of a run: how it was taken, what it cost, how certain it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct GpuAccount {
    /// Source of marks, for example `cuda`; absent where only kernels were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// Tier as asked for: `off`, `steps`, `blocks`, `all`, `adaptive`.
    pub timing: String,
    /// Share of step time that marks may cost in the adaptive tier.
    pub budget: f64,
    /// Steps in which every interval was marked.
    pub steps_full: u64,
    /// Steps of which only some intervals were marked: the step itself, or its blocks.
    pub steps_partial: u64,
    /// Steps that were not marked.
    pub steps_unmarked: u64,
    /// Marks by what became of them. `recorded` = `timed` + `lost` + `outstanding`; the others are marks that were
    /// never made: `shared` (an earlier mark served, because nothing can have been launched since), and refusals
    /// `no_context`, `capturing`, `full`, `failed`.
    pub marks: BTreeMap<String, u64>,
    /// Intervals by what became of their marks: `timed`, or why not: `one_mark` (the other was refused), `lost`,
    /// `forgotten` (began more marks ago than are remembered), `late` (given up waiting), `cold` (in the first step of
    /// a kind, which others followed).
    pub intervals: BTreeMap<String, u64>,
    /// Mean cost of one mark on the application's thread, in nanoseconds (measured); what it waited is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_cost_ns: Option<f64>,
    /// Time of the application's threads that all marks cost together, in nanoseconds (measured): of each what it took,
    /// up to twice what marks cost. That is what the quickest eighth of a block of 32 took at most, the least of all
    /// blocks.
    pub marks_ns: u64,
    /// Time that marks waited besides (measured): for room in the launch queue, where the next launch would have
    /// waited, or for the driver while other threads launch. It is not part of the adaptive tier's budget, nor of the
    /// overhead.
    pub marks_wait_ns: u64,
    /// Steps in full of the adaptive tier that are cold, the first of their kind: no other of that kind was in full, so
    /// their parts' times are there, but say nothing about a warm step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cold_steps: Vec<u64>,
    /// Devices that marks were reported of.
    pub devices: Vec<GpuDeviceAccount>,
    /// Intervals whose GPU time does not lie within their parent's, by more than the clocks can be off.
    pub outside_parent: u64,
    /// Recorded kernels, where any were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelAccount>,
    /// Marks against kernels, for intervals of at least 100 µs that have both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
    /// Further numbers of the clock itself.
    pub statistics: BTreeMap<String, Value>,
}

impl GpuAccount {
    /// The worst bound of the clocks that GPU times on the host's time line rest on, in nanoseconds: of all devices'
    /// marks and of the recorder of kernels. `None` where nothing was placed.
    pub fn clock_bound_ns(&self) -> Option<u64> {
        let devices = self.devices.iter().filter(|d| !d.anchors.is_empty()).map(|d| d.skew_bound_ns);
        devices.chain(self.kernels.iter().filter_map(|k| k.clock_bound_ns)).max()
    }
}

/// One device's clock against the host's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct GpuDeviceAccount {
    /// UUID.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// How far GPU times of marks may be off on the host's time line, in nanoseconds (measured: half the width of the
    /// bracket around the worst reading in use, and what readings were away from where they were expected); durations
    /// are not affected. Above [`GPU_CLOCK_BOUND_NS`] start times must not be compared with the host's.
    pub skew_bound_ns: u64,
    /// Drift of the device's clock in parts per million (measured).
    pub drift_ppm: f64,
    /// Readings of both clocks that were not used, because others said more: taken while the driver was held up.
    pub anchors_dropped: u64,
    /// Simultaneous readings of both clocks that are in use; a long run keeps a selection.
    pub anchors: Vec<DeviceAnchor>,
}

/// One simultaneous reading of a device's clock and the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct DeviceAnchor {
    /// The device's clock, nanoseconds from an origin of its own.
    pub device_ns: i64,
    /// The host's, Unix nanoseconds.
    pub host_ns: i64,
    /// How far apart the readings may be.
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
    /// Steps inside windows.
    pub steps: u64,
    /// Kernels, copies and memsets delivered: `attributed` + `unattributed` + `late` + `outside_window`.
    pub recorded: u64,
    /// Of those, in the GPU time of the interval that launched them.
    pub attributed: u64,
    /// Of those, launched while steps of a window ran, but outside every interval of theirs: they have rows without a
    /// path.
    pub unattributed: u64,
    /// Of those, delivered after their interval had gone out, or of an interval without a record: they have rows, but
    /// are in no GPU time.
    pub late: u64,
    /// Of those, launched by steps that are in no window, or before the first and after the last step of one, as when
    /// weights are made: the recorder is on a little longer than the window. They have no rows.
    pub outside_window: u64,
    /// Lost by the recorder.
    pub dropped: u64,
    /// How far the recorder's clock may be off from the host's, in nanoseconds, no less than: half the width of the
    /// bracket around the worst reading of both, what readings were away from the line through their neighbours, and by
    /// how much a kernel began before its launch call did (all measured). What the recorder's library does to bring the
    /// device's clock to its own is in it only as far as the last of these shows it. `None` where there was no reading,
    /// and in runs that do not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_bound_ns: Option<u64>,
    /// Kernels, copies and memsets that began before the call that launched them had returned: their queue delay is
    /// given as 0.
    pub negative_delays: u64,
    /// The most of that, in nanoseconds.
    pub most_negative_ns: u64,
    /// Why kernels are missing, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Elapsed between an interval's marks ÷ first kernel's start to last kernel's end inside it: 1 where both agree, above
/// 1 by what the stream waited before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct CrossCheck {
    /// Intervals compared.
    pub n: u64,
    /// Median of the ratio.
    pub median_ratio: f64,
    /// 5th percentile.
    pub p05: f64,
    /// 95th percentile.
    pub p95: f64,
}

/// Intervals that were entered but never became records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct LossCounts {
    /// Intervals that ended while capture was on: everything below is part of it, the rest became records.
    pub emitted: u64,
    /// Dropped because the thread's ring was full.
    pub ring_full: u64,
    /// Dropped because the stack was deeper than supported.
    pub too_deep: u64,
    /// Dropped because their thread has no ring: there was no room for one more (`ring_memory`).
    pub no_ring: u64,
    /// Threads without a ring; their outermost intervals count as steps.
    pub threads_without_ring: u64,
    /// Ended after the pipeline had shut down.
    pub after_shutdown: u64,
    /// Read from a ring and never made a record: a bug in the profiler.
    pub unresolved: u64,
    /// Still open when the run ended (never counted as emitted).
    pub open_at_end: u64,
    /// Exits that matched no enter (never counted as emitted).
    pub unmatched_exits: u64,
    /// Intervals that were still open when their step or request had ended and others began on the same thread, and
    /// that were not left later: as a rule their guards were forgotten (never counted as emitted).
    pub forgotten_guards: u64,
    /// Requests dropped because their queue was full.
    pub requests_lost: u64,
    /// Requests that had not ended when the run did.
    pub requests_open_at_end: u64,
    /// Requests that began and ended while recording was off, and that no recorded step worked for: left out, as was
    /// asked for.
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
    /// Records resolved for it, by table, dropped ones included.
    pub received: BTreeMap<String, u64>,
    /// Records it exported, by table.
    pub exported: BTreeMap<String, u64>,
    /// Records it dropped: table → reason → number.
    pub dropped: BTreeMap<String, BTreeMap<String, u64>>,
    /// Last error, if any.
    pub last_error: Option<String>,
}

impl ExporterReport {
    /// Dropped records of one table over all reasons.
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

/// The profiler's own cost on the application's threads, by a loop or in place. Derived, except where said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct OverheadInfo {
    /// Cost of one enter+exit of a span on the application's thread in nanoseconds: registry and layer, caches warm, in
    /// a loop, measured when the session started. Between a model's operations, with caches taken by other code, it is
    /// two to three times that.
    pub per_interval_ns: f64,
    /// `per_interval_ns` × intervals (derived from the loop), and the time that GPU marks cost (measured, waiting left
    /// out): taken from the application's threads.
    pub application_ns: u64,
    /// CPU time of the profiler's own threads in nanoseconds (measured), where the platform tells.
    pub background_cpu_ns: Option<u64>,
    /// `application_ns` ÷ sum of step durations (derived from the loop).
    pub ratio: Option<f64>,
    /// Which estimate of the cost is the better one of those here: `in_place` where there is one, else `loop`. Empty in
    /// runs that do not say, which is `loop`.
    pub estimate: String,
    /// What recording costs as measured in place, where some steps were left plain for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<InPlaceOverhead>,
}

/// The estimate of overhead that a loop gives: see [`OverheadInfo::estimate`].
pub const ESTIMATE_LOOP: &str = "loop";
/// The estimate of overhead that plain steps give.
pub const ESTIMATE_IN_PLACE: &str = "in_place";

/// How much longer recorded steps are than plain ones, in which nothing was recorded (measured).
///
/// A plain step is held against the recorded one of its kind right before or right after it on its thread, by turns.
/// What is left of the profiler in a plain step is not part of it: `tracing`'s registry, and the layer's look at each
/// span, which is some tens of nanoseconds an interval. The figure is of a typical step; where only some steps get GPU
/// marks in full, [`GpuAccount::marks_ns`] has what those cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InPlaceOverhead {
    /// Steps that were left plain; they have no rows.
    pub left_plain: u64,
    /// Plain steps that were held against recorded ones.
    pub n_plain: u64,
    /// Recorded steps that they were held against.
    pub n_recorded: u64,
    /// Recorded ÷ plain − 1: the kinds' ratios, weighted by the time in recorded steps; of kinds with an interval,
    /// where any has one.
    pub ratio: f64,
    /// Lower end of its 95 % interval; `None` below six plain steps of each kind.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// By kind of step, which is its span's name.
    pub kinds: BTreeMap<String, InPlaceKind>,
}

/// The same for one kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct InPlaceKind {
    /// Plain steps that were held against recorded ones.
    pub n_plain: u64,
    /// Recorded steps that they were held against.
    pub n_recorded: u64,
    /// Median of recorded ÷ plain − 1.
    pub ratio: f64,
    /// Lower end of the median's 95 % interval, by order statistics; `None` below six plain steps.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// 64-bit signed integer.
    Int64,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit floating point.
    Float64,
    /// UTF-8 string, dictionary-encoded.
    Utf8,
}

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub kind: ColumnType,
    /// Whether values can be absent.
    pub nullable: bool,
    /// What it holds, with its unit.
    pub doc: &'static str,
}

const fn col(name: &'static str, kind: ColumnType, nullable: bool, doc: &'static str) -> Column {
    Column { name, kind, nullable, doc }
}

use ColumnType::{Float64, Int32, Int64, Utf8};

const RUN_ID: Column = col("run_id", Utf8, false, "Unique name of the run");
const HOST: Column = col("host", Utf8, false, "Host name");
const RANK: Column = col("rank", Int32, false, "Rank of the process in a distributed run, 0 otherwise");
const TRACE_ID: Column = col("trace_id", Utf8, false, "W3C trace id, 32 hex digits; the one OTLP exports");
const SPAN_ID: Column =
    col("span_id", Int64, false, "W3C span id as a signed 64-bit integer; the one OTLP and NVTX carry");
const PHASE: Column = col("phase", Utf8, true, "prefill, decode, sample or encode; null outside a marked phase");
const THREAD: Column = col("thread", Utf8, false, "Name of the thread");
const START: Column = col("host_start_ns", Int64, false, "Start on the host, nanoseconds since the Unix epoch");
const DUR: Column = col("host_dur_ns", Int64, false, "Duration on the host, nanoseconds");
const GPU_START: Column = col("gpu_start_ns", Int64, true, "Start on the device, nanoseconds since the Unix epoch");
const GPU_DUR: Column = col("gpu_dur_ns", Int64, true, "Duration on the device, nanoseconds; see gpu_source");
const GPU_SOURCE: Column = col("gpu_source", Utf8, true, "event (stream elapsed) or cupti (sum of kernels)");
const FLOPS: Column =
    col("flops", Int64, true, "Floating-point operations, analytic; in spans the interval's own, in steps the sum");
const BYTES: Column = col(
    "bytes",
    Int64,
    true,
    "Bytes of weights and KV cache, analytic lower bound; in spans the interval's own, in steps the sum",
);
const FLOPS_EXECUTED: Column = col(
    "flops_executed",
    Int64,
    true,
    "FLOPs that are executed, masked ones included; in spans the interval's own (null: as flops), in steps the sum",
);
const IO_BYTES: Column = col(
    "io_bytes",
    Int64,
    true,
    "Bytes with activations in and out of the operation; in spans the interval's own, in steps the sum",
);
const TOKENS: Column = col("tokens", Int64, true, "Tokens processed");
const CONTEXT_LEN: Column = col("context_len", Int64, true, "Context length after the step, tokens");
const BATCH: Column = col("batch", Int64, true, "Sequences in the batch");

/// Columns of `RUN/spans`.
pub const SPANS: &[Column] = &[
    RUN_ID,
    HOST,
    RANK,
    col("seq", Int64, false, "Number of the interval, unique in the run; ascending in enter order within one thread"),
    col("parent_seq", Int64, true, "seq of the interval open on the same thread when this one was entered"),
    TRACE_ID,
    SPAN_ID,
    col("step", Int64, true, "Number of the step; null for entries of a request's span, which stands above steps"),
    PHASE,
    col("path", Utf8, false, "Names from the step down with sibling ordinals: decode/block[12]/attn/linear[2]"),
    col("name", Utf8, false, "The interval's own name"),
    col("target", Utf8, false, "tracing target of the span, usually its module path"),
    col("module", Utf8, true, "Module of the model that the span stands for: model.layers.7.mlp.down_proj"),
    col("depth", Int32, false, "Intervals open on the thread at entry; 0 is outermost"),
    THREAD,
    START,
    DUR,
    GPU_START,
    GPU_DUR,
    GPU_SOURCE,
    FLOPS,
    BYTES,
    TOKENS,
    CONTEXT_LEN,
    BATCH,
    col("dtype", Utf8, true, "Element type of the operation"),
    col("shape", Utf8, true, "Shape of the operation, dimensions joined by x"),
    FLOPS_EXECUTED,
    IO_BYTES,
];

/// Columns of `RUN/steps`.
pub const STEPS: &[Column] = &[
    RUN_ID,
    HOST,
    RANK,
    col("step", Int64, false, "Number of the step, from 0 in order of start over all threads"),
    col("seq", Int64, false, "seq of the interval that is the step"),
    TRACE_ID,
    PHASE,
    col("request", Int64, true, "Number of the request the step works for; joins requests.request"),
    col("path", Utf8, false, "Name of the step's interval"),
    THREAD,
    START,
    DUR,
    GPU_START,
    GPU_DUR,
    GPU_SOURCE,
    col("energy_mj", Float64, true, "Energy in millijoules, where the window is long enough to be measured"),
    TOKENS,
    CONTEXT_LEN,
    BATCH,
    FLOPS,
    BYTES,
    col("intervals", Int64, false, "Intervals recorded in the step, itself included"),
    col(
        "intervals_lost",
        Int64,
        true,
        "Intervals of the step that were dropped because its thread's ring was full: where not 0, layers are missing; 65535: that many or more",
    ),
    col("new_tokens", Int64, true, "Tokens that are new in the step, of sequences that go on"),
    col("context_sum", Int64, true, "Sum of the context lengths after the step, of sequences that go on"),
    col("sequences", Int64, true, "Sequences that go on"),
    FLOPS_EXECUTED,
    IO_BYTES,
];

/// Columns of `RUN/requests`.
pub const REQUESTS: &[Column] = &[
    RUN_ID,
    HOST,
    RANK,
    col("request", Int64, false, "Number of the request, from 1"),
    TRACE_ID,
    SPAN_ID,
    col("operation", Utf8, false, "gen_ai.operation.name"),
    col("model", Utf8, false, "gen_ai.request.model"),
    START,
    DUR,
    col("ttft_ns", Int64, true, "Request start to first output token on the host, nanoseconds"),
    col("prompt_tokens", Int64, true, "Prompt tokens of one sequence"),
    col("output_tokens", Int64, true, "Output tokens, all sequences of the batch together"),
    BATCH,
    col("last_token_ns", Int64, true, "Request start to last output token on the host, nanoseconds"),
    col("queue_ns", Int64, true, "Request start to the start of its first step, recorded or not, nanoseconds"),
];

/// Columns of `RUN/samples`.
pub const SAMPLES: &[Column] = &[
    RUN_ID,
    HOST,
    RANK,
    col("time_ns", Int64, false, "When the sample was taken, nanoseconds since the Unix epoch"),
    col("device", Utf8, false, "host, or a GPU's UUID"),
    col("metric", Utf8, false, "Name of the metric, in base units"),
    col("value", Float64, false, "The value"),
    col("unit", Utf8, false, "Unit of the value"),
];

/// Columns of `RUN/kernels`.
pub const KERNELS: &[Column] = &[
    RUN_ID,
    HOST,
    RANK,
    col(
        "seq",
        Int64,
        true,
        "seq of the innermost interval open on the launching thread at the launch; joins spans.seq",
    ),
    col("span_id", Int64, true, "Span id of that interval"),
    col("step", Int64, true, "Step of that interval"),
    PHASE,
    col("path", Utf8, true, "Path of that interval"),
    col("module", Utf8, true, "Module of the model that interval stands for"),
    col("kind", Utf8, false, "kernel, memcpy or memset"),
    col("name", Utf8, false, "Kernel's demangled name; a copy's direction (htod, dtoh, dtod, ...); memset"),
    col("device", Utf8, false, "UUID of the GPU"),
    col("stream", Int64, false, "Number of the stream, as the driver counts them"),
    col("gpu_start_ns", Int64, false, "Start on the device, nanoseconds since the Unix epoch"),
    col("gpu_dur_ns", Int64, false, "Duration on the device, nanoseconds"),
    col("grid_x", Int64, true, "Blocks in x; null for copies and memsets"),
    col("grid_y", Int64, true, "Blocks in y"),
    col("grid_z", Int64, true, "Blocks in z"),
    col("block_x", Int64, true, "Threads of a block in x; null for copies and memsets"),
    col("block_y", Int64, true, "Threads of a block in y"),
    col("block_z", Int64, true, "Threads of a block in z"),
    col("registers", Int64, true, "Registers of a thread"),
    col("shared_static", Int64, true, "Static shared memory of a block, bytes"),
    col("shared_dynamic", Int64, true, "Dynamic shared memory of a block, bytes"),
    col("bytes", Int64, true, "Bytes copied or set; null for kernels"),
    col("launch", Utf8, true, "Name of the call that launched it"),
    col("launch_start_ns", Int64, true, "Start of that call on the host, nanoseconds since the Unix epoch"),
    col("launch_dur_ns", Int64, true, "Duration of that call on the host, nanoseconds"),
    col(
        "queue_delay_ns",
        Int64,
        true,
        "End of that call to start on the device, nanoseconds, 0 where the device was quicker",
    ),
    col("correlation", Int64, false, "Number that ties the call to what it launched"),
    col("graph", Int64, true, "CUDA graph it was launched by"),
];

/// Columns of a kind's table.
pub const fn columns(kind: RecordKind) -> &'static [Column] {
    match kind {
        RecordKind::Span => SPANS,
        RecordKind::Step => STEPS,
        RecordKind::Request => REQUESTS,
        RecordKind::Sample => SAMPLES,
        RecordKind::Kernel => KERNELS,
    }
}
