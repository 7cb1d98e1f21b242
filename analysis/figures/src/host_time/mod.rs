//! What the host did inside intervals: the functions that took the time on the CPU, and the time off it.
//!
//! Sampled: a sample stands for the time since its thread's last one. Shares have the error of counting samples,
//! √(p(1 − p)/n).

mod call_tree;
mod frames;
mod stack_pass;

pub use call_tree::{CallNode, CallTree};
pub use frames::FrameName;
pub(crate) use stack_pass::{NOT_OF_SAMPLES, NOT_OF_STACKS, StackPass};

use candlescope_schema::run::StackAccount;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time by what threads did, nanoseconds, and the samples that it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// On a CPU, on the threads that entered the intervals.
    pub own_ns: u64,
    /// On a CPU, on threads of pools that computed for them.
    pub pool_ns: u64,
    /// Waiting, on the threads that entered the intervals.
    pub blocked_ns: u64,
    /// Ready, while another thread had the CPU; likewise.
    pub preempted_ns: u64,
    /// The part of `own_ns` and `pool_ns` in the operating system's kernel.
    pub kernel_ns: u64,
    /// Samples of time on a CPU.
    pub samples: u64,
}

impl Weights {
    /// Time on a CPU, of all threads.
    pub fn cpu_ns(&self) -> u64 {
        self.own_ns.saturating_add(self.pool_ns)
    }

    /// Time that passed on the threads that entered the intervals.
    pub fn elapsed_ns(&self) -> u64 {
        self.own_ns.saturating_add(self.blocked_ns).saturating_add(self.preempted_ns)
    }

    /// What is left without a part of it.
    pub(crate) fn less(&self, part: &Weights) -> Self {
        Self {
            own_ns: self.own_ns.saturating_sub(part.own_ns),
            pool_ns: self.pool_ns.saturating_sub(part.pool_ns),
            blocked_ns: self.blocked_ns.saturating_sub(part.blocked_ns),
            preempted_ns: self.preempted_ns.saturating_sub(part.preempted_ns),
            kernel_ns: self.kernel_ns.saturating_sub(part.kernel_ns),
            samples: self.samples.saturating_sub(part.samples),
        }
    }

    fn raise_off_cpu(&mut self, by: f64) {
        for part in [&mut self.blocked_ns, &mut self.preempted_ns] {
            *part = (*part as f64 * by) as u64;
        }
    }

    fn add(&mut self, other: &Weights) {
        let sum = |into: &mut u64, more: u64| *into = into.saturating_add(more);
        sum(&mut self.own_ns, other.own_ns);
        sum(&mut self.pool_ns, other.pool_ns);
        sum(&mut self.blocked_ns, other.blocked_ns);
        sum(&mut self.preempted_ns, other.preempted_ns);
        sum(&mut self.kernel_ns, other.kernel_ns);
        sum(&mut self.samples, other.samples);
    }
}

/// What the host did inside the measured steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostTime {
    /// How stacks were sampled.
    pub account: StackAccount,
    /// All of it.
    pub all: Weights,
    /// The same by rollup path, intervals' own time without that of intervals inside them.
    pub places: BTreeMap<String, PlaceTime>,
    /// Functions by the time on a CPU in themselves, most first.
    pub functions: Vec<FunctionTime>,
    /// Time of pools' threads of which no interval is known, because several steps ran at once; nanoseconds.
    pub shared_pool_ns: u64,
}

impl HostTime {
    /// Switches are recorded for a part of the time where there are many: time off the CPU is raised to all of it. `part`
    /// says, for a rollup path, by how much.
    pub(crate) fn raise_off_cpu(&mut self, part: impl Fn(&str) -> f64) {
        let mut all = Weights::default();
        for (rollup, place) in &mut self.places {
            let by = part(rollup).max(1.0);
            place.all.raise_off_cpu(by);
            place.calls.nodes.iter_mut().for_each(|node| node.own.raise_off_cpu(by));
            all.add(&place.all);
        }
        self.all = all;
    }
}

/// The time of one rollup path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlaceTime {
    /// All of it, with samples without a stack.
    pub all: Weights,
    /// By function, from the first one that the path's intervals do not share with what is around them.
    pub calls: CallTree,
    /// The function with the most time on a CPU in itself, and that time.
    pub top: Option<(FrameName, u64)>,
}

/// The time of one function over all intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionTime {
    /// The function.
    pub name: FrameName,
    /// In itself.
    pub own: Weights,
    /// With the functions that it called.
    pub total: Weights,
    /// The rollup path where most of it was.
    pub place: Arc<str>,
}

impl FunctionTime {
    /// Standard error of its share of the time on a CPU, of all samples of `all`.
    pub fn share_error(&self, all: &Weights) -> f64 {
        if all.samples == 0 || all.cpu_ns() == 0 {
            return 0.0;
        }
        let p = (self.own.cpu_ns() as f64 / all.cpu_ns() as f64).min(1.0);
        (p * (1.0 - p) / all.samples as f64).sqrt()
    }
}
