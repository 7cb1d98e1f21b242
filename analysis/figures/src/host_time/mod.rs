//! What the host did inside intervals: the functions that took the time on the CPU, and the time off it.
//!
//! Sampled: a sample stands for the time since its thread's last one. Shares have the error of counting samples,
//! √(p(1 − p)/n) ([`counting_error`]).

mod call_tree;
mod frames;
mod function_path;
mod stack_pass;
mod step_times;
mod weights;

pub use call_tree::{CallNode, CallTree};
pub use frames::FrameName;
pub use function_path::function_path;
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
    /// Sum over all places; pools' time of no known interval is not in it.
    pub all: Weights,
    /// The same by rollup path, intervals' own time without that of intervals inside them.
    pub places: BTreeMap<String, PlaceTime>,
    /// Functions by the time on a CPU in themselves, most first.
    pub functions: Vec<FunctionTime>,
    /// Time of pools' threads of which no interval is known, because several steps ran at once; nanoseconds.
    pub shared_pool_ns: u64,
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
    /// The function, in one row however many callers it has.
    pub name: FrameName,
    /// Time of samples in which it was the innermost function.
    pub own: Weights,
    /// With the functions that it called.
    pub total: Weights,
    /// The rollup path where most of it was.
    pub place: Arc<str>,
}

impl FunctionTime {
    /// Standard error of its share of the time on a CPU, of all samples of `all`.
    pub fn share_error(&self, all: &Weights) -> f64 {
        if all.cpu_ns() == 0 {
            return 0.0;
        }
        counting_error(self.own.cpu_ns() as f64 / all.cpu_ns() as f64, all.samples as f64)
    }
}

/// Standard error of a share that `all` samples tell, √(p(1 − p)/n); 0 of none.
pub fn counting_error(share: f64, all: f64) -> f64 {
    let p = share.clamp(0.0, 1.0);
    if all > 0.0 { (p * (1.0 - p) / all).sqrt() } else { 0.0 }
}
