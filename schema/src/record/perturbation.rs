//! Stretches of an experiment in which something was made slower, and their controls.

use crate::vocabulary::{Phase, Side};
use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_perturbation
    /// One stretch of an experiment: a step, and what follows until the next of its kind, in which the intervals of a path
    /// were made slower by a known time, or the control beside it, in which nothing was added. Nothing that ran in it has
    /// a row in another table.
    PerturbationRecord, Perturbation, Perturbations {
        /// What was made slower, as it was asked for: path=mlp.
        target: Arc<str> => Label,
        /// host: its threads were kept busy; device: a kernel that only waits was put behind its own.
        side: Side => Word,
        /// Number of the pair that this stretch and its control, or its delayed one, make.
        pair: u64 => Int,
        /// 1 if time was added, 0 if it is the control.
        delayed: bool => Narrow,
        /// Number of the step that the stretch began with.
        step: u64 => Int,
        /// Phase of that step: prefill, decode, sample, encode or vision; null outside a marked phase.
        phase: Option<Phase> => Word,
        /// Name of that step.
        name: Arc<str> => Label,
        /// Start of that step on the host, nanoseconds since the Unix epoch.
        host_start: HostNs => Int "host_start_ns",
        /// Duration of that step on the host, nanoseconds.
        host_dur_ns: u64 => Int,
        /// Start of that step to the start of the next of its kind on its thread, nanoseconds; null where none followed
        /// for the same request.
        period_ns: Option<u64> => Int,
        /// Intervals of the target in the stretch, on all threads.
        intervals: u64 => Int,
        /// Their time on that side, without what was added, nanoseconds; on a device, where nothing is marked in a
        /// stretch, what they took in recorded steps.
        interval_ns: u64 => Int,
        /// Time that was added, nanoseconds: as it passed on the host, or as a device was asked for it.
        added_ns: u64 => Int,
    }
}

impl PerturbationRecord {
    /// What the stretch took: until the next step of its kind where one followed, else its own step.
    pub fn took_ns(&self) -> u64 {
        self.period_ns.unwrap_or(self.host_dur_ns)
    }
}
