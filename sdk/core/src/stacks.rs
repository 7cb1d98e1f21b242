//! The contract of a sampler of call stacks and of what threads do off the CPU.

use crate::StackRecord;
use crate::vocabulary::ThreadState;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Samples a second of a thread's CPU time where nobody says otherwise: a prime, out of step with what happens every
/// millisecond.
pub const USUAL_HZ: u32 = 499;

/// Stacks cannot be sampled, or not any more. The message gives the reason and the remedy; the run goes on without them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StackError(pub String);

/// A reading of the system's monotonic clock (`CLOCK_MONOTONIC`), in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct MonotonicNs(pub u64);

/// Time of a thread with a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct RawStackSample {
    /// The operating system's number of the thread.
    pub tid: u64,
    /// When it was taken; where the thread was off the CPU, when that began.
    pub time: MonotonicNs,
    /// What the thread did.
    pub state: ThreadState,
    /// Time that the sample stands for, nanoseconds.
    pub weight_ns: u64,
    /// Number of a stack that was delivered in this or an earlier delivery.
    pub stack: Option<u64>,
    /// Whether the thread was in the operating system's kernel.
    pub kernel: Option<bool>,
}

/// What became known of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadEvent {
    /// The operating system's number of the thread.
    pub tid: u64,
    /// When it became so, by the monotonic clock.
    pub time: MonotonicNs,
    /// What became of the thread then.
    pub change: ThreadChange,
}

/// What a [`ThreadEvent`] tells of its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadChange {
    /// From now on the thread is sampled, and, if `switches`, it is known when it is on a CPU; it is on one now if
    /// `running`, `None` if that is not known before its next switch.
    Attached {
        /// Its name when it was attached.
        name: Arc<str>,
        /// Whether [`On`](Self::On) and [`Off`](Self::Off) are reported.
        switches: bool,
        /// Whether [`PageFaults`](Self::PageFaults) is reported.
        page_faults: bool,
        /// Whether it is on a CPU.
        running: Option<bool>,
    },
    /// The thread came onto a CPU.
    On,
    /// The thread left its CPU: because another one took it, or because it waits.
    Off {
        /// Whether it was still ready to run.
        preempted: bool,
    },
    /// So many pages had to be provided for the thread.
    PageFaults(u32),
    /// Switches and page faults are not reported from now on, until [`Resumed`](Self::Resumed).
    Paused,
    /// They are reported again.
    Resumed,
    /// Events of the thread were lost, up to this time: what it did since its last event is not known.
    Lost,
    /// The thread ended, or is no longer sampled.
    Detached,
}

/// Takes a sampler's deliveries.
#[derive(Debug, Default)]
pub struct StackSink {
    /// Samples, in any order.
    pub samples: Vec<RawStackSample>,
    /// Events; those of one thread in order of time.
    pub events: Vec<ThreadEvent>,
    /// Stacks not delivered before; a parent comes before its children. Numbers begin at 1.
    pub stacks: Vec<StackRecord>,
    /// Samples that were taken and lost since the last delivery.
    pub lost: u64,
    /// Every event that happened before has been delivered.
    pub through: MonotonicNs,
    /// Every sample on a CPU that was taken before has been delivered: such samples may have to wait until their stack has
    /// names. Time off the CPU becomes a sample when it has ended, which may be later.
    pub samples_through: MonotonicNs,
}

/// A sampler of the process's threads. Lives on a thread of its own.
///
/// Threads whose name begins with `cs-` are the profiler's own, and are left out.
pub trait StackSource: Send + 'static {
    /// Short stable name: `perf`, `signals`.
    fn name(&self) -> &'static str;

    /// Begins. Called once, on the sampler's own thread, before anything else but `name`.
    ///
    /// # Errors
    /// If the machine allows no kind of sampling; nothing else is called then.
    fn start(&mut self) -> Result<(), StackError>;

    /// Facts for `run.json`'s `environment`: `stacks_source`, `stacks_hz`, `stacks_blind_to` (what it cannot see). Asked for
    /// after the start and again after the last delivery, for those that were not known before; what was said stays.
    fn describe(&mut self) -> BTreeMap<String, Value>;

    /// How long after a delivery the next one is wanted, so that nothing is lost; 10 ms unless it says otherwise. It is
    /// asked after each delivery; others wait for what was sampled, so a tenth of a second is too long.
    fn pause(&self) -> Duration {
        Duration::from_millis(10)
    }

    /// Delivers what there is, and looks for new threads. Called again after [`pause`](Self::pause).
    ///
    /// # Errors
    /// If sampling has ended for good.
    fn poll(&mut self, into: &mut StackSink) -> Result<(), StackError>;

    /// Ends sampling and delivers the rest.
    fn stop(&mut self, into: &mut StackSink);
}
