//! Why a simulation says nothing.

use serde::Serialize;

/// Share of a step's time that may be of what does not say what it computes and moves.
pub(super) const MOST_UNKNOWN: f64 = 0.5;

/// Why there is no answer, and what would bring one.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum Abstain {
    /// The run has no steps that count.
    #[error(
        "the run has no measured step. Record some: `candlescope profile`, or let the warm-up count (--with-warmup)"
    )]
    NoSteps,
    /// The run is of a GPU, and its kernels were not recorded.
    #[error(
        "the run's steps launched work on a GPU, but none of their kernels were recorded. Record some: `candlescope \
         profile --device cuda:0 --cupti=20/200`, or `cupti=20/200` in the variable CANDLESCOPE"
    )]
    NoKernels,
    /// Only one step of this kind can be replayed, and nothing tells whether it is a usual one.
    #[error("only one step of `{group}` can be replayed, and it may be an unusual one. Record more steps")]
    OneStep {
        /// The steps' phase or name.
        group: String,
    },
    /// Kernels have no launch calls.
    #[error(
        "the launch calls of the recorded kernels are not in the run, so it is not known what they waited for. Record \
         them with CUPTI (`--cupti`)"
    )]
    NoLaunchCalls,
    /// The clocks of host and device cannot be compared.
    #[error(
        "the clocks of host and device are {bound_ns} ns apart at worst, too far to tell what waited for what. Record \
         the run again on a machine that is less busy"
    )]
    ClocksApart {
        /// How far, in nanoseconds.
        bound_ns: u64,
    },
    /// Several threads launched at once.
    #[error(
        "every step of `{group}` overlaps with steps of other threads that use the same device, and one step's \
         dependencies do not tell how they share it. Record with one thread, or one request at a time"
    )]
    Concurrent {
        /// The steps' phase or name.
        group: String,
    },
    /// The device was at work on earlier steps.
    #[error(
        "the device was busy with earlier steps for {:.0} % of the step, so its time is not its own. Let the step's \
         interval include the wait for its result",
        share * 100.0
    )]
    Backlog {
        /// Share of the step.
        share: f64,
    },
    /// Intervals of the step were lost.
    #[error("intervals of every step of `{group}` were lost. Record with a larger ring (`ring_capacity`)")]
    IntervalsLost {
        /// The steps' phase or name.
        group: String,
    },
    /// Replayed unchanged, the step takes another time than measured.
    #[error(
        "replayed unchanged, the step takes {simulated_ns:.0} ns instead of the measured {measured_ns:.0} ns: its \
         record does not tell what it waited for"
    )]
    NotReproduced {
        /// As measured, in nanoseconds.
        measured_ns: f64,
        /// As simulated, in nanoseconds.
        simulated_ns: f64,
    },
    /// The change needs a device, and the step has launched nothing.
    #[error(
        "`{change}` changes work on a GPU, and the step has none. On a CPU, `host×f`, `path=PATH×f` and `batch=n` can be asked for"
    )]
    NoDeviceWork { change: String },
    /// Nothing in the step is what the change is about.
    #[error("nothing in the step is changed by `{change}`: {why}")]
    NothingToChange {
        change: String,
        /// What was looked for.
        why: String,
    },
    /// Peaks are missing.
    #[error(
        "`{change}` needs the device's {what}, and the run does not have it. Measure it with `candlescope bench peaks` \
         and give the file with --peaks, or record the run again afterwards"
    )]
    NoPeak { change: String, what: &'static str },
    /// Too little is known about what the kernels do.
    #[error(
        "`{change}` needs to know what kernels compute and move, and {:.0} % of their time is of intervals that do not \
         say. Load the model by the instrumented layers, or give modules their weights (docs/models.md)",
        share * 100.0
    )]
    UnknownWork {
        change: String,
        /// Share of kernel time without FLOPs and bytes.
        share: f64,
    },
    /// No step of many rows says what more rows take.
    #[error(
        "`{change}` needs steps of 16 rows or more, such as a prompt's, to tell what further rows take on a CPU, and the run \
         has none for {:.0} % of the step's time. Record requests with longer prompts",
        share * 100.0
    )]
    NoManyRows {
        change: String,
        /// Share of the step's time of which they do not tell.
        share: f64,
    },
    /// A step-level fact is missing.
    #[error("`{change}` needs {what}, which the run's steps do not state")]
    UnknownStep { change: String, what: &'static str },
}
