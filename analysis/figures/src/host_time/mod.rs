//! What the host did inside intervals: the functions that took the time on the CPU, and the time off it.
//!
//! Sampled: a sample stands for the time since its thread's last one. Shares have the error of counting samples,
//! √(p(1 − p)/n).

mod call_tree;
mod frames;
mod stack_pass;
mod step_times;
mod weights;

pub use call_tree::{CallNode, CallTree};
pub use frames::FrameName;
pub(crate) use stack_pass::{NOT_OF_SAMPLES, NOT_OF_STACKS, StackPass};
pub(crate) use step_times::StepTimes;
pub use weights::Weights;

use candlescope_schema::run::StackAccount;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// Where there are many switches, they are recorded for a part of the time. Time off the CPU is that of steps that lie
    /// wholly in such a part, and is raised to that of all steps of their kind.
    pub(crate) fn raise_off_cpu(&mut self, times: &StepTimes) {
        let mut all = Weights::default();
        for (rollup, place) in &mut self.places {
            let by = times.factor(rollup);
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
