//! The one list of the codes of findings, with what to do about each. The tables of `docs/reference.md` are made of it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know: figures are as exact as they would be without it.
    Info,
    /// Some numbers are less certain.
    Warning,
    /// Numbers are missing or wrong.
    Error,
}

impl Severity {
    /// Its name in JSON.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

macro_rules! codes {
    ($($group:literal { $(
        $(#[doc = $doc:literal])+ $name:ident = $text:literal, $severity:ident, $remedy:literal;
    )+ })+) => {
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
            $($($(#[doc = $doc])+ $name,)+)+
            /// A code for which this release has no name.
            Other(Box<str>),
        }

        impl Code {
            /// Every code that this release reports.
            pub const ALL: &[Code] = &[$($(Code::$name,)+)+];

            /// The same by what they are about, with the heading of each group.
            pub const GROUPS: &[(&str, &[Code])] = &[$(($group, &[$(Code::$name,)+]),)+];

            /// Its name in `run.json`.
            pub fn as_str(&self) -> &str {
                match self {
                    $($(Code::$name => $text,)+)+
                    Code::Other(text) => text,
                }
            }

            /// Its severity, unless the finding sets another one.
            pub fn severity(&self) -> Severity {
                match self {
                    $($(Code::$name => Severity::$severity,)+)+
                    Code::Other(_) => Severity::Warning,
                }
            }

            /// What happened, whatever the run. Empty for a code that this release does not know.
            pub fn meaning(&self) -> &'static str {
                match self {
                    $($(Code::$name => concat!($($doc,)+).trim(),)+)+
                    Code::Other(_) => "",
                }
            }

            /// What to do about it, whatever the run, with links to pages of `docs`; a finding's own remedy may name its
            /// figures. Empty for a code that this release does not know.
            pub fn remedy(&self) -> &'static str {
                match self {
                    $($(Code::$name => $remedy,)+)+
                    Code::Other(_) => "",
                }
            }
        }

        impl From<&str> for Code {
            fn from(text: &str) -> Self {
                match text {
                    $($($text => Code::$name,)+)+
                    other => Code::Other(other.into()),
                }
            }
        }
    };
}

codes! {
    "Nothing, or too little, was recorded" {
        /// No span was entered while the layer was installed.
        NoSpans = "no_spans", Error, "Start candlescope before the model loads.";
        /// Steps were seen, but nothing of the model inside them. A warning where the model's weights were seen as they
        /// loaded: then its times are right, and only its layers are missing.
        NoModelSpans = "no_model_spans", Error,
            "Start candlescope before the model loads. Some of candle's models make no spans: [give them \
             some](instrument.md#models-without-spans).";
        /// A filter of the program's subscriber disables candle's spans, or those of phases and requests. Told at the
        /// start.
        SpansFiltered = "spans_filtered", Error,
            "Put the filter on the layers that print: \
             [`with_filter`](instrument.md#a-program-with-its-own-subscriber), or let it pass \
             `candle_transformers=trace,candle_nn=trace,candlescope=trace`.";
        /// `tracing` was compiled without the trace level, so candle's spans do not exist.
        StaticLevel = "static_level", Error,
            "Remove `max_level_*` and `release_max_level_*` features of `tracing` from every crate of the build.";
        /// All steps ran while recording was off.
        RecordingOff = "recording_off", Error, "Call `handle.start()` before the work begins.";
        /// The schedule left out every step.
        ScheduleRecordedNothing = "schedule_recorded_nothing", Error,
            "Run more steps, or lower `skip_first`, `wait` and `warmup`.";
        /// Steps had not ended when the session did.
        StepsOpen = "steps_open", Error, "End the work, or join its threads, before the scope is dropped.";
        /// Some steps have no record, because of a schedule, a pause, or a probe.
        StepsSampled = "steps_sampled", Info,
            "Nothing, if you wanted that. Figures that need every step are left out; record all steps to have them.";
        /// A schedule records the same part of each request, because requests take as many steps as its cycle has, or a part.
        ScheduleInStep = "schedule_in_step", Warning,
            "Record N steps in EVERY where EVERY is no multiple and no part of the steps of a request, such as 10/97.";
        /// Requests had not ended when the run did. They are not in it.
        RequestsOpen = "requests_open", Warning, "Drop requests before the scope. In a capture this is normal.";
        /// Requests began and ended while recording was off.
        RequestsPaused = "requests_paused", Info,
            "Nothing, if you wanted that. A schedule leaves out steps and keeps requests.";
        /// A capture has fewer steps than were asked for.
        CaptureCutShort = "capture_cut_short", Warning,
            "Capture again while the program is at work, or when the machine has less to do.";
        /// Another session's layer is in the same `tracing` registry.
        SecondSessionInRegistry = "second_session_in_registry", Error,
            "Give each session a registry of its own, or one session all the exporters.";
        /// The session's layer was added to a second registry, or twice to one.
        LayerAddedTwice = "layer_added_twice", Warning,
            "Add the layer once and share the subscriber (clones of one `tracing::Dispatch`).";
        /// There are only one or two measured requests, too few for a spread.
        FewRequests = "few_requests", Info, "Repeat the request, six times or more, after a warm-up.";
        /// A model of candle ran, and no step says its phase.
        PhasesUnmarked = "phases_unmarked", Info, "Mark forward passes: `llm::prefill`, `llm::decode`, `llm::encode`.";
        /// The program reported an error or panicked.
        ProgramFailed = "program_failed", Error, "Fix the error and run again; figures cover what ran until then.";
        /// The program was interrupted, as by Ctrl-C.
        Interrupted = "interrupted", Warning,
            "Nothing, if you wanted that: figures cover what ran until then. For all of it let the program end by itself.";
        /// The process was forked from the one that records.
        ForkedProcess = "forked_process", Error,
            "Nothing: the run is the parent's. To record the child, start a session of its own after the fork.";
    }
    "Modules of a model whose loading was observed" {
        /// Spans that ought to stand for a module of the model have none: their weights were read in an order that
        /// tells nothing.
        ModulesUnnamed = "modules_unnamed", Warning,
            "Load with the builder that `observe` returned, on one thread. Weights that the program joins or changes after \
             it has read them (`Tensor::cat`, `Linear::new`) are nobody's: name such a layer by `llm::module` and say its \
             [work](instrument.md#work-of-a-layer-flops-bytes-shapes); until then steps have no sum of FLOPs. Some [models \
             cannot be told apart](models.md#other-models-of-candle).";
        /// candle-transformers makes spans where this release knows of none: it is another version.
        CallsitesUnknown = "callsites_unknown", Warning, "Use the version that the finding names.";
        /// No span stands for some weights; their work is in what is around them.
        WeightsUnowned = "weights_unowned", Info, "Nothing, where these are embeddings and norms.";
        /// How many rows some modules compute, or which layers have a sliding window, is not known, so FLOPs and bytes
        /// are missing.
        RowsUnknown = "rows_unknown", Info,
            "Give `config.json` to `candlescope::modules::model` before the model loads. Without it, architectures are \
             recognised from their weights where these leave no doubt.";
        /// The model was loaded before the session began, so its spans have no modules.
        ModelLoadedBefore = "model_loaded_before", Warning, "Start candlescope first.";
        /// `RAYON_NUM_THREADS` is not set, and candle counts the processors again at each product of matrices on a CPU.
        RayonThreadsUnset = "rayon_threads_unset", Info, "Set it to the number of threads that are to compute.";
        /// The configuration given to `candlescope::modules::model` is of another model.
        ConfigContradictsWeights = "config_contradicts_weights", Error,
            "Give it the file that lies beside the weights.";
    }
    "Records were lost" {
        /// A thread made intervals faster than they were processed.
        RingFull = "ring_full", Error,
            "Enlarge the ring (`ring_capacity`, `--ring-capacity`, `--set ring_capacity=N` of `analyze --full`; \
             `ring_memory` if there are many threads), or record fewer steps with a schedule. `steps.intervals_lost` \
             says which steps lack some.";
        /// Threads found no room for a ring, so their intervals were not recorded.
        ThreadsWithoutRing = "threads_without_ring", Warning,
            "Give rings more memory (`ring_memory`), make them smaller (`ring_capacity`), or let fewer threads enter \
             spans.";
        /// More requests ended at once than their queue holds.
        RequestsLost = "requests_lost", Error,
            "End fewer requests at the same moment, or empty the queue more often (`drain_interval`).";
        /// The pipeline did not keep up with samples.
        SamplesLost = "samples_lost", Warning, "Sample less often, or give the process more CPU.";
        /// Spans were nested deeper than candlescope keeps track of.
        TooDeep = "too_deep", Warning,
            "Look for recursion among the spans, and for guards of requests that are forgotten (`mem::forget`).";
        /// Intervals ended after the session had been closed.
        AfterShutdown = "after_shutdown", Warning, "End the work before the scope is dropped.";
        /// Intervals were read and never became records.
        Unresolved = "unresolved", Error, "Report it: this is a bug in candlescope.";
        /// An exporter dropped records.
        ExporterDropped = "exporter_dropped", Error,
            "See the reasons: for a full queue, a faster destination or a larger queue (`queue_records`, \
             `--queue-records`, `--set queue_records=N` of `analyze --full`); for `io`, space or permission.";
        /// An exporter kept to its limits (disk budget, spans per second).
        ExporterLimit = "exporter_limit", Info, "Nothing, if you wanted that. Raise the limit to keep more.";
        /// An exporter had an error, and nothing was lost.
        ExporterError = "exporter_error", Warning, "Read the error.";
        /// An exporter did not finish in time.
        ExporterUnresponsive = "exporter_unresponsive", Error,
            "Raise the shutdown timeout, or look at what it waits for.";
        /// An exporter failed at its very end.
        ExporterFinishFailed = "exporter_finish_failed", Error,
            "Its last output is missing or out of date; what it had finished before is intact.";
        /// A source of samples failed.
        CollectorFailed = "collector_failed", Warning, "Read the error. Its samples are missing.";
        /// Collectors did not stop in time.
        CollectorUnresponsive = "collector_unresponsive", Warning, "Their last samples are missing.";
        /// candlescope's own pipeline panicked.
        PipelinePanicked = "pipeline_panicked", Error,
            "Report it with the message. A GPU clock of your own runs in the pipeline too.";
        /// The pipeline did not stop in time.
        PipelineStuck = "pipeline_stuck", Error, "Raise the shutdown timeout, or record fewer steps.";
        /// A tap panicked and is not called again.
        TapPanicked = "tap_panicked", Warning,
            "The run is not affected; what the tap does with intervals is incomplete.";
        /// An exporter cannot account for every record.
        NotConserved = "not_conserved", Error, "Report it as a bug of the exporter.";
    }
    "Spans in an unusual order" {
        /// A span was left that was not entered while candlescope listened.
        UnmatchedExits = "unmatched_exits", Warning,
            "Start the session before the first span is entered; leave spans on the thread that entered them.";
        /// The program marks phases, and spans that are neither phases nor of candle's crates nor state any work were
        /// entered outside them. They are taken for the application's and are no steps.
        SpansOutsidePhases = "spans_outside_phases", Info,
            "Nothing, if they are handlers and the like. If a model runs in one, mark the pass: `llm::prefill`, \
             `llm::decode`, `llm::encode`, `llm::vision`.";
        /// Spans were still open after their step or request had ended. They are not in the run.
        GuardsForgotten = "guards_forgotten", Warning,
            "Drop every guard on the thread that entered the span, inner ones first.";
        /// The parents of some intervals are missing.
        Orphans = "orphans", Warning, "End the run outside of any span. See the findings about lost records.";
        /// Spans were left in another order than the reverse one, or the data are damaged.
        ParentShorterThanChildren = "parent_shorter_than_children", Warning,
            "Leave spans in reverse order. Self times of these parents are too small.";
        /// Much of step time is in no child interval.
        Unaccounted = "unaccounted", Info, "Put spans around the operations there.";
    }
    "Time" {
        /// The system clock was set during the run, or the machine slept.
        ClockSet = "clock_set", Warning,
            "Nothing for durations and order. To join with other programs' logs, use the clock's anchors in \
             `run.json`.";
        /// Other processes used the processors, or the GPU, while steps ran (by samples; of a run too short for them by
        /// the load average), or before (`profile` looks). Times are not the program's alone.
        MachineBusy = "machine_busy", Warning,
            "End them, or use processors that they do not use, and record again; with more threads than they leave \
             processors, fewer threads (`--threads N`, `candlescope tune threads`). Counts, FLOPs and bytes hold.";
        /// The control group's quota kept the program from running.
        CpuThrottled = "cpu_throttled", Warning, "Raise the quota, or let no more threads compute than it allows.";
        /// Three tenths or more of the program's CPU time were spent in the kernel.
        SystemTimeHigh = "system_time_high", Info,
            "Set `RAYON_NUM_THREADS` where it is not; else `perf record -g` names the calls.";
        /// Recording takes a large share of step time.
        OverheadHigh = "overhead_high", Warning, "Record fewer spans (`exclude_target`), or fewer steps.";
        /// Decoding slows down as the context grows.
        DecodeSlowsWithContext = "decode_slows_with_context", Info,
            "Expected of attention; if it is steep, look for a cache that is copied at every token.";
        /// Requests that generate waited long for prompts of others, which passed between their steps.
        PromptsHoldUp = "prompts_hold_up", Info,
            "Pass prompts in smaller pieces ([chunked prefill](decoding.md#several-requests-at-once)): each wait is \
             shorter then, and the prompt takes longer.";
        /// An experiment and the replay of a step say different things of the same path.
        ReplayDisagrees = "replay_disagrees", Warning,
            "Do not rely on gains that are promised there: they rest on a model of the step that does not hold for \
             this program. [What the experiment says](criticality.md) is measured.";
        /// Memory was sampled too rarely to know its peak.
        MemoryUndersampled = "memory_undersampled", Info, "Run longer, or sample more often.";
        /// MFU or MBU is above 1: a measurement error; a warning only where the peak was measured beside others
        /// (`disturbed`).
        UtilisationAboveOne = "utilisation_above_one", Error,
            "Measure the peaks again while nothing else runs, or check the cost that the layers state and the source \
             of the peak.";
    }
    "GPU" {
        /// GPU time was asked for, and there is none.
        NoGpuTime = "no_gpu_time", Error,
            "Run the model on a CUDA device, and enter its spans on the thread that launches its work. `candlescope \
             doctor` shows what the machine has.";
        /// Power, memory and clocks are not sampled.
        NoGpuSamples = "no_gpu_samples", Warning, "`candlescope doctor` shows what is missing.";
        /// Some intervals have no GPU time, because marks are missing.
        GpuMarksLost = "gpu_marks_lost", Warning, "Use the adaptive tier, or allow more marks under way.";
        /// Intervals went out before their GPU time came.
        GpuTimeLate = "gpu_time_late", Warning, "Nothing: their host times are whole.";
        /// Intervals have GPU time outside their parent's.
        GpuOutsideParent = "gpu_outside_parent", Warning,
            "GPU times of these parents are too small; read their children.";
        /// Intervals have less GPU time than their children together.
        GpuParentShorterThanChildren = "gpu_parent_shorter_than_children", Warning,
            "GPU times of these parents are too small; read their children.";
        /// Part of the GPU time is in no path's self time.
        GpuTimeUntold = "gpu_time_untold", Info,
            "Time every interval of some steps (`adaptive` or `all`), or record kernels.";
        /// The error bound of the GPU's clock is too large to compare its times with the host's.
        GpuClockUncertain = "gpu_clock_uncertain", Warning,
            "Durations are right. Warm up before what matters, leave a core for candlescope's threads, record again.";
        /// The GPU works on after its steps have ended on the host.
        GpuOutlastsSteps = "gpu_outlasts_steps", Info, "Put the call that waits for the result inside the step.";
        /// The GPU lowered its clocks.
        GpuThrottled = "gpu_throttled", Warning,
            "Cool the GPU, raise its power limit, or lock its clocks for comparisons.";
        /// The integral of power differs from the energy counter.
        EnergySensorsDisagree = "energy_sensors_disagree", Warning, "Trust the counter, and no short window.";
        /// Call stacks were asked for, and none were sampled, or not to the end.
        NoStacks = "no_stacks", Info, "`candlescope doctor` shows what this machine allows, and what would allow more.";
        /// Many samples of call stacks were lost.
        StacksLost = "stacks_lost", Info, "Sample less often; shares of functions hold, if what was lost is like the rest.";
        /// Kernels were asked for, and there are none.
        NoKernels = "no_kernels", Warning, "Read the message; run more steps after the recorder is ready.";
        /// CUDA graphs were asked for, and every step ran call by call.
        GraphsNotReplayed = "graphs_not_replayed", Warning,
            "Read the cause, which each step states (`steps.ran`): [what it means](decoding.md#what-a-run-has-of-it).";
        /// No window of kernels was reached.
        NoKernelWindow = "no_kernel_window", Info, "Run more steps, or begin the window earlier.";
        /// The recorder lost kernels.
        KernelsDropped = "kernels_dropped", Warning, "Use shorter windows.";
        /// Kernels came after their intervals had gone out.
        KernelsLate = "kernels_late", Warning, "Use shorter windows. Kernels themselves are whole.";
        /// Kernels were launched outside every interval.
        KernelsUnattributed = "kernels_unattributed", Warning, "Put a span around the work that launches them.";
        /// Kernels belong to steps that are not in the run.
        KernelsWithoutStep = "kernels_without_step", Warning, "See the findings about lost records and segments.";
        /// The Nsight profile holds no range of candlescope.
        NsysNoRanges = "nsys_no_ranges", Warning,
            "Record with `candlescope nsys -- COMMAND`, and build the program with the feature `nvtx`.";
        /// The Nsight profile is of another run.
        NsysOtherRun = "nsys_other_run", Warning, "Give the run that was recorded under this profile.";
        /// Some ranges of the Nsight profile are not in the run.
        NsysRangesUnknown = "nsys_ranges_unknown", Info, "Look at the run's losses.";
        /// The Nsight profile holds no kernels.
        NsysNoKernels = "nsys_no_kernels", Info,
            "Trace CUDA, on a machine with a GPU, with an Nsight Systems as new as the driver.";
    }
    "Files of a run" {
        /// The run was not closed: the program crashed, was killed, or still runs.
        RunIncomplete = "run_incomplete", Warning,
            "Keep the scope until the end of `main`. Figures are of what was written.";
        /// `run.json` is missing.
        ManifestMissing = "manifest_missing", Warning, "Copy it again. The tables are analysed without it.";
        /// `run.json` is damaged.
        ManifestUnreadable = "manifest_unreadable", Warning, "Copy it again. The tables are analysed without it.";
        /// `run.json` names no schema version.
        SchemaVersionMissing = "schema_version_missing", Info, "Write runs with candlescope's Parquet exporter.";
        /// A segment was open when the program ended.
        SegmentUnfinished = "segment_unfinished", Warning, "Rotate segments more often to lose less.";
        /// A segment cannot be read.
        SegmentCorrupt = "segment_corrupt", Error, "Copy it again, or delete it to accept the loss.";
        /// A Parquet file is not of this table.
        SegmentForeign = "segment_foreign", Error, "Move files that do not belong to the run out of its folders.";
        /// No segment of the table `spans` is whole.
        NoReadableSpans = "no_readable_spans", Error, "Rotate segments more often if the program may be killed.";
        /// More files of the run cannot be read than are named.
        MoreSegments = "more_segments", Error, "Copy the run again from where it was made.";
        /// A limit on what is read was met; the rest was left out.
        LimitReached = "limit_reached", Error,
            "Raise the [limit](limits.md) that the message names, for files that you trust.";
        /// A table has fewer rows than were written.
        RowsMissing = "rows_missing", Error, "Copy the whole directory again.";
        /// A table has more rows than were written.
        RowsSurplus = "rows_surplus", Error, "Remove copies of segments from the run's folders.";
        /// Rows lack what every row has.
        RowsMalformed = "rows_malformed", Warning, "Write runs with candlescope's Parquet exporter.";
        /// Rows of another run are in the directory.
        RowsOfOtherRuns = "rows_of_other_runs", Warning, "Keep one run to a directory.";
    }
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
