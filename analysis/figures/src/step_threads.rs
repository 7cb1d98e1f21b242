//! What the threads of steps did while these ran. Read from the table of steps by who asks for it: rows that are kept
//! for all figures have no room for it.

use super::int_map::IntMap;
use candlescope_reader::Run;
use candlescope_schema::{RecordKind, StepRecord};

/// Time of a step's own thread, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadStates {
    /// Time in which the thread ran on a CPU.
    pub cpu_ns: u64,
    /// Ready, while another thread had the CPU.
    pub preempted_ns: u64,
    /// Time in which the thread waited: for a lock, another thread, a file or a device.
    pub blocked_ns: u64,
}

/// What is known of a step's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepThread {
    /// Where its time went; `None` if its switches were not recorded.
    pub states: Option<ThreadStates>,
    /// Pages that the system had to provide; `None` if they were not counted.
    pub page_faults: Option<u64>,
}

impl StepThread {
    /// What a record says.
    pub fn of(step: &StepRecord) -> Self {
        let states = || {
            Some(ThreadStates { cpu_ns: step.cpu_ns?, preempted_ns: step.preempted_ns?, blocked_ns: step.blocked_ns? })
        };
        Self { states: states(), page_faults: step.page_faults }
    }
}

/// By number, of those of these steps of which anything is known.
pub(crate) fn step_threads(run: &Run, is_asked: impl Fn(u64) -> bool) -> IntMap<u64, StepThread> {
    let mut threads = IntMap::default();
    for batch in run.table(RecordKind::Step) {
        for step in batch.steps.iter().filter(|step| is_asked(step.step)) {
            let thread = StepThread::of(step);
            if thread != StepThread::default() {
                threads.insert(step.step, thread);
            }
        }
    }
    threads
}
