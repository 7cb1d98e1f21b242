//! The one list of the codes of findings. `docs/reference.md` says what to do about each of them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Some numbers are less certain.
    Warning,
    /// Numbers are missing or wrong.
    Error,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $severity:ident;)+) => {
        /// What a finding is about: its stable, machine-readable name.
        ///
        /// ```
        /// use candlescope_schema::run::{Code, Severity};
        /// assert_eq!(Code::RingFull.as_str(), "ring_full");
        /// assert_eq!("ring_full".parse(), Ok(Code::RingFull));
        /// assert_eq!(Code::RingFull.severity(), Severity::Error);
        /// // A newer release's, or a program's own.
        /// assert_eq!(Code::from("cache_cold").to_string(), "cache_cold");
        /// ```
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
            /// A code for which this release has no name.
            Other(Box<str>),
        }

        impl Code {
            /// Every code that this release reports.
            pub const ALL: &[Code] = &[$(Code::$name,)+];

            /// Its name in `run.json`.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Code::$name => $text,)+
                    Code::Other(text) => text,
                }
            }

            /// Its severity, unless the finding sets another one.
            pub fn severity(&self) -> Severity {
                match self {
                    $(Code::$name => Severity::$severity,)+
                    Code::Other(_) => Severity::Warning,
                }
            }
        }

        impl From<&str> for Code {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Code::$name,)+
                    other => Code::Other(other.into()),
                }
            }
        }
    };
}

codes! {
    // Nothing, or too little, was recorded.
    /// No span was entered while the layer was in place.
    NoSpans = "no_spans", Error;
    /// Steps were seen, but no spans of a model inside them.
    NoModelSpans = "no_model_spans", Error;
    /// A filter of the program's subscriber disables the model's spans.
    SpansFiltered = "spans_filtered", Error;
    /// `tracing` was compiled without the trace level.
    StaticLevel = "static_level", Error;
    /// All steps ran while recording was off.
    RecordingOff = "recording_off", Error;
    /// The schedule left out every step.
    ScheduleRecordedNothing = "schedule_recorded_nothing", Error;
    /// Steps had not ended when the session did.
    StepsOpen = "steps_open", Error;
    /// Some steps have no record.
    StepsSampled = "steps_sampled", Info;
    /// Requests had not ended when the run did.
    RequestsOpen = "requests_open", Warning;
    /// Requests began and ended while recording was off.
    RequestsPaused = "requests_paused", Info;
    /// A capture has fewer steps than were asked for.
    CaptureCutShort = "capture_cut_short", Warning;
    /// Another session's layer is in the same registry.
    SecondSessionInRegistry = "second_session_in_registry", Error;
    /// The session's layer was added to a second registry, or twice to one.
    LayerAddedTwice = "layer_added_twice", Warning;
    /// Too few measured requests to have a spread.
    FewRequests = "few_requests", Info;
    /// A model of candle ran without phases, so that nothing is known about its forward passes.
    PhasesUnmarked = "phases_unmarked", Info;
    /// The program reported an error or panicked.
    ProgramFailed = "program_failed", Error;
    /// The process was forked from the one that records: the run belongs to the parent.
    ForkedProcess = "forked_process", Error;

    // Modules of a model whose loading was observed.
    /// Spans that should stand for a module do not.
    ModulesUnnamed = "modules_unnamed", Warning;
    /// Spans of candle were made at callsites that this release does not know.
    CallsitesUnknown = "callsites_unknown", Warning;
    /// No span stands for some weights.
    WeightsUnowned = "weights_unowned", Info;
    /// It is not known how many rows modules compute, so their FLOPs are missing.
    RowsUnknown = "rows_unknown", Info;
    /// The model was loaded before the session began.
    ModelLoadedBefore = "model_loaded_before", Warning;
    /// candle looks up the number of processors at every product of matrices.
    RayonThreadsUnset = "rayon_threads_unset", Info;
    /// The configuration contradicts the weights.
    ConfigContradictsWeights = "config_contradicts_weights", Error;

    // Records were lost.
    /// A thread made intervals faster than they were processed.
    RingFull = "ring_full", Error;
    /// There was no room for the rings of some threads.
    ThreadsWithoutRing = "threads_without_ring", Warning;
    /// More requests ended at once than their queue holds.
    RequestsLost = "requests_lost", Error;
    /// The pipeline did not keep up with samples.
    SamplesLost = "samples_lost", Warning;
    /// Spans were nested more deeply than is supported.
    TooDeep = "too_deep", Warning;
    /// Intervals ended after the session had been closed.
    AfterShutdown = "after_shutdown", Warning;
    /// Intervals were read from the rings but never became records.
    Unresolved = "unresolved", Error;
    /// An exporter dropped records.
    ExporterDropped = "exporter_dropped", Error;
    /// An exporter left records out because of limits that were set.
    ExporterLimit = "exporter_limit", Info;
    /// An exporter had an error, but nothing was lost.
    ExporterError = "exporter_error", Warning;
    /// An exporter did not finish in time.
    ExporterUnresponsive = "exporter_unresponsive", Error;
    /// An exporter failed at the very end.
    ExporterFinishFailed = "exporter_finish_failed", Error;
    /// A source of samples failed.
    CollectorFailed = "collector_failed", Warning;
    /// Collectors did not stop in time.
    CollectorUnresponsive = "collector_unresponsive", Warning;
    /// The pipeline panicked.
    PipelinePanicked = "pipeline_panicked", Error;
    /// The pipeline did not stop in time.
    PipelineStuck = "pipeline_stuck", Error;
    /// A tap panicked and is not called again.
    TapPanicked = "tap_panicked", Warning;
    /// An exporter cannot account for every record.
    NotConserved = "not_conserved", Error;

    // Spans in an unusual order.
    /// A span was left that had not been entered during the session.
    UnmatchedExits = "unmatched_exits", Warning;
    /// Spans outside all phases of a program that marks them are no steps.
    SpansOutsidePhases = "spans_outside_phases", Info;
    /// Spans were still open after their step or request had ended.
    GuardsForgotten = "guards_forgotten", Warning;
    /// The parents of some intervals are missing.
    Orphans = "orphans", Warning;
    /// Intervals ended after their parent, or take longer together than it does.
    ParentShorterThanChildren = "parent_shorter_than_children", Warning;
    /// Much of step time is in no child interval.
    Unaccounted = "unaccounted", Info;

    // Time.
    /// The system clock was set during the run, or the machine slept.
    ClockSet = "clock_set", Warning;
    /// Other processes used the processors or the GPU: times are not the program's alone.
    MachineBusy = "machine_busy", Warning;
    /// A quota of the control group kept the program from running.
    CpuThrottled = "cpu_throttled", Warning;
    /// Much of the program's CPU time was spent in the kernel.
    SystemTimeHigh = "system_time_high", Info;
    /// Recording takes a large share of step time.
    OverheadHigh = "overhead_high", Warning;
    /// Decoding slows down as the context grows.
    DecodeSlowsWithContext = "decode_slows_with_context", Info;
    /// Memory was sampled too rarely to know its peak.
    MemoryUndersampled = "memory_undersampled", Info;
    /// MFU or MBU is above 1: a measurement error.
    UtilisationAboveOne = "utilisation_above_one", Error;

    // GPU.
    /// GPU time was asked for, but there is none.
    NoGpuTime = "no_gpu_time", Error;
    /// Power, memory and clocks are not sampled.
    NoGpuSamples = "no_gpu_samples", Warning;
    /// Some intervals have no GPU time, because marks are missing.
    GpuMarksLost = "gpu_marks_lost", Warning;
    /// Intervals were handed to the exporters before their GPU time came.
    GpuTimeLate = "gpu_time_late", Warning;
    /// Intervals have GPU time outside their parent's.
    GpuOutsideParent = "gpu_outside_parent", Warning;
    /// Intervals have less GPU time than their children together.
    GpuParentShorterThanChildren = "gpu_parent_shorter_than_children", Warning;
    /// Part of the GPU time is in no path's self time.
    GpuTimeUntold = "gpu_time_untold", Info;
    /// The GPU's clock is too uncertain to compare its times with the host's.
    GpuClockUncertain = "gpu_clock_uncertain", Warning;
    /// The GPU goes on working after its steps have ended on the host.
    GpuOutlastsSteps = "gpu_outlasts_steps", Info;
    /// The GPU's clocks were lowered by something other than idleness.
    GpuThrottled = "gpu_throttled", Warning;
    /// The integral of power differs from the energy counter.
    EnergySensorsDisagree = "energy_sensors_disagree", Warning;
    /// Kernels were asked for, but there are none.
    NoKernels = "no_kernels", Warning;
    /// No window of kernels was reached.
    NoKernelWindow = "no_kernel_window", Info;
    /// The recorder lost kernels.
    KernelsDropped = "kernels_dropped", Warning;
    /// Kernels came after their intervals had been handed to the exporters.
    KernelsLate = "kernels_late", Warning;
    /// Kernels were launched outside every interval.
    KernelsUnattributed = "kernels_unattributed", Warning;
    /// Kernels belong to steps that are not in the run.
    KernelsWithoutStep = "kernels_without_step", Warning;
    /// The Nsight profile has no ranges of candlescope.
    NsysNoRanges = "nsys_no_ranges", Warning;
    /// The Nsight profile is of another run.
    NsysOtherRun = "nsys_other_run", Warning;
    /// Some ranges of the Nsight profile are not in the run.
    NsysRangesUnknown = "nsys_ranges_unknown", Info;
    /// The Nsight profile has no kernels.
    NsysNoKernels = "nsys_no_kernels", Info;

    // Files of a run.
    /// The run was not closed properly.
    RunIncomplete = "run_incomplete", Warning;
    /// `run.json` is missing.
    ManifestMissing = "manifest_missing", Warning;
    /// `run.json` is damaged.
    ManifestUnreadable = "manifest_unreadable", Warning;
    /// `run.json` names no schema version.
    SchemaVersionMissing = "schema_version_missing", Info;
    /// A segment was open when the program ended.
    SegmentUnfinished = "segment_unfinished", Warning;
    /// A segment cannot be read.
    SegmentCorrupt = "segment_corrupt", Error;
    /// A Parquet file does not belong to this table.
    SegmentForeign = "segment_foreign", Error;
    /// No segment of the table `spans` is complete.
    NoReadableSpans = "no_readable_spans", Error;
    /// Further files of the run cannot be read, beyond those that are named.
    MoreSegments = "more_segments", Error;
    /// A limit on what is read was reached; the rest was left out.
    LimitReached = "limit_reached", Error;
    /// A table has fewer rows than were written.
    RowsMissing = "rows_missing", Error;
    /// A table has more rows than were written.
    RowsSurplus = "rows_surplus", Error;
    /// Rows lack values that every row has.
    RowsMalformed = "rows_malformed", Warning;
    /// Rows of another run are in the directory.
    RowsOfOtherRuns = "rows_of_other_runs", Warning;
}

impl FromStr for Code {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<str> for Code {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}

impl PartialEq<&str> for Code {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Code::from(&*String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_is_read_as_it_is_written() {
        for code in Code::ALL {
            let text = serde_json::to_string(code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), *code);
            assert!(!matches!(code.as_str().parse(), Ok(Code::Other(_))), "{code} has a name");
        }
        let names: BTreeSet<&str> = Code::ALL.iter().map(Code::as_str).collect();
        assert_eq!(names.len(), Code::ALL.len(), "each stands once");
        assert_eq!(serde_json::from_str::<Code>("\"of_tomorrow\"").unwrap(), Code::Other("of_tomorrow".into()));
    }
}
