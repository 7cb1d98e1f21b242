//! The run contract: the keys of `RUN/run.json` and the columns of its tables. Schema version 1.
//!
//! A program that reads a run needs only this module of ours.

mod clock_info;
mod code;
mod evidence;
mod finding;
mod gpu_account;
#[doc(hidden)]
pub mod judge;
mod judge_clock;
mod judge_exporters;
mod judge_gpu;
mod judge_machine;
mod judge_modules;
mod judge_stacks;
#[doc(hidden)]
pub mod keys;
mod loaded_model;
mod machine_use;
mod overhead_info;
mod rayon_threads;
mod stack_account;
mod wording;

#[doc(hidden)]
pub use crate::table::{Column, ColumnType, columns};
#[doc(hidden)]
pub use clock_info::{ClockAnchor, ClockInfo};
pub use code::{Code, Severity};
#[doc(hidden)]
pub use evidence::{Evidence, EvidenceValue};
#[doc(hidden)]
pub use finding::Place;
pub use finding::{Finding, Verdict};
#[doc(hidden)]
pub use gpu_account::{CrossCheck, DeviceAnchor, GpuAccount, GpuDeviceAccount, KernelAccount};
#[doc(hidden)]
pub use judge::judge;
#[doc(hidden)]
pub use keys::{INTERRUPTED, env_key, model_key, option_key, result_key};
#[doc(hidden)]
pub use loaded_model::LoadedModel;
#[doc(hidden)]
pub use machine_use::{MachineMeter, MachineUse, is_overloaded};
#[doc(hidden)]
pub use overhead_info::{BudgetKept, ESTIMATE_IN_PLACE, ESTIMATE_LOOP, InPlaceKind, InPlaceOverhead, OverheadInfo};
#[doc(hidden)]
pub use rayon_threads::RayonThreads;
#[doc(hidden)]
pub use stack_account::StackAccount;

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
#[doc(hidden)]
pub const IN_PROGRESS_SUFFIX: &str = ".inprogress";

/// The NVTX domain of ranges that candlescope makes, by which files of Nsight's tools are read.
#[doc(hidden)]
pub const NVTX_DOMAIN: &str = "candlescope";

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
    /// The job whose processes are the ranks, as its launcher calls it: the same on all of them, and perhaps on those
    /// of a later start. Absent if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
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
    #[doc(hidden)]
    pub clock: ClockInfo,
    /// How GPU time was taken and what became of it; absent if none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[doc(hidden)]
    pub gpu: Option<GpuAccount>,
    /// How call stacks were sampled and what became of the samples; absent if none were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[doc(hidden)]
    pub stacks: Option<StackAccount>,
    /// Steps by what became of them; absent in runs that do not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepCounts>,
    /// What was reported about the model's weights while it was loaded; absent if nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[doc(hidden)]
    pub modules: Option<LoadedModel>,
    /// How the program and others used the machine while steps ran; absent if the host was not sampled then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[doc(hidden)]
    pub machine: Option<MachineUse>,
    /// Records handed to exporters, by table.
    pub counts: BTreeMap<String, u64>,
    /// Intervals that never became records, by reason.
    pub loss: LossCounts,
    /// What each exporter did with the records it received.
    pub exporters: Vec<ExporterReport>,
    /// The profiler's own cost.
    #[doc(hidden)]
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
    let most = most.or_else(|| model_key::DTYPE.of(model))?;
    let is_quantised = crate::vocabulary::DType::from_word(most).is_some_and(|dtype| dtype.is_quantised());
    (!is_quantised).then(|| most.to_string())
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
