//! Experiments: some intervals are made slower by a known time, at random, and what steps take then is compared with what
//! they take beside it. The slope, time of steps over added time, is how much of a path's time is on the critical path:
//! 1 if steps wait for all of it, 0 if it has slack. A replay of a step says the same by a model; an experiment needs none.
//!
//! ```text
//! steps     recorded │ delayed │ control │ recorded │ control │ delayed │ …      which of a pair comes first is random
//!                    └──── a pair ───────┘          └──── a pair ───────┘
//! ```
//!
//! A stretch of an experiment is a step and what follows it until the next of its kind begins on its thread, so that what
//! is launched in it and waited for in another phase counts. In the delayed stretch each interval of the path is followed
//! by added time: on the host its thread computes nothing for so long, on a device a kernel that only waits is launched
//! behind its own. In the control the same is done with no time: the same clocks are read, the same kernel is launched.
//! What a delayed stretch would add, one of its target tells that adds nothing and is no part of a pair.
//! Nothing that runs in a stretch, on any thread, is recorded otherwise; requests whose steps are part of one say so.

mod assigned;
mod course;
mod experiment;
mod on_thread;
mod path_tree;
mod steering;

pub(crate) use course::{StepBegin, StepRole};
pub(crate) use experiment::{Arm, Experiment};
pub(crate) use on_thread::OnThread;
pub(crate) use path_tree::{NOWHERE, PathQuery, Tree};

use crate::Perturbation;
use std::sync::Arc;

/// The most that can be tried in one experiment, counting the two sides of a path as two.
pub(crate) const MOST_ARMS: usize = 64;

/// What is made slower, by which share of all time, and how often.
///
/// ```
/// # use candlescope_core as candlescope;
/// use candlescope::Perturb;
/// let perturb = Perturb::new(["path=mlp:+20%".parse()?, "path=attn:+20%".parse()?]).budget(0.05).pairs(200);
/// # Ok::<(), candlescope_core::PerturbationError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Perturb {
    pub(crate) what: Vec<Perturbation>,
    pub(crate) budget: f64,
    pub(crate) pairs: u64,
    pub(crate) step: Option<Arc<str>>,
    pub(crate) alone: bool,
}

impl Perturb {
    /// An experiment that takes two hundredths of all time, and ends with a hundred pairs of each path and side.
    pub fn new(what: impl IntoIterator<Item = Perturbation>) -> Self {
        Self { what: what.into_iter().collect(), budget: 0.02, pairs: 100, step: None, alone: false }
    }

    /// What is made slower.
    pub fn what(&self) -> &[Perturbation] {
        &self.what
    }

    /// The share of the time since the experiment began that added time may take, above 0 and up to 1: no pair begins
    /// before what it adds fits in. What is more than that share of the time that all pairs of the path take at the
    /// least (of a hundred, where more are wanted) is shrunk to it, so that no step is held up for longer.
    #[must_use]
    pub const fn budget(mut self, share: f64) -> Self {
        self.budget = share;
        self
    }

    /// Pairs of each path and side, after which the experiment ends.
    #[must_use]
    pub const fn pairs(mut self, pairs: u64) -> Self {
        self.pairs = pairs;
        self
    }

    /// From the beginning of the experiment until [`Handle::end_perturbing`](crate::Handle::end_perturbing) nothing else is
    /// recorded, so that the steps recorded before and after are all that there are. Without this, the steps between two pairs are recorded as usual.
    #[must_use]
    pub const fn alone(mut self, alone: bool) -> Self {
        self.alone = alone;
        self
    }

    /// The name of the steps that stretches begin with. Without it they are decode steps (encode steps of a model that has no
    /// others), or, in a program that marks no phases, steps of the kind that takes the most time.
    #[must_use]
    pub fn step(mut self, name: impl Into<Arc<str>>) -> Self {
        self.step = Some(name.into());
        self
    }
}

/// Why no experiment begins.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PerturbRefused {
    /// Nothing is to be made slower.
    #[error("nothing is to be made slower: name a path, such as path=mlp:+5%")]
    Nothing,
    /// More than 64 of them.
    #[error(
        "{asked} paths and sides are too many for one experiment, which has at most {MOST_ARMS}: try them one after the other"
    )]
    TooMany {
        /// Paths and sides that were asked for.
        asked: usize,
    },
    /// A path stands twice on one side: it would be unclear by how much it is made slower.
    #[error("{0} is to be made slower twice on the same side: name it once, with one amount")]
    Twice(Arc<str>),
    /// The budget is no share.
    #[error("the budget of an experiment is a share of time above 0 and up to 1, such as 0.02, and not {0}")]
    Budget(String),
    /// No pairs are asked for.
    #[error("an experiment has at least one pair of each path")]
    NoPairs,
    /// None was prepared, or the one that was is over already.
    #[error("no experiment was prepared")]
    NotPrepared,
    /// Another experiment goes on.
    #[error("an experiment is under way; end it first, or wait until it has its pairs")]
    Busy,
    /// The session has ended, or belongs to the process that this one was forked from.
    #[error("the session has ended")]
    Ended,
}

/// How far an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PerturbProgress {
    /// Pairs that are complete.
    pub pairs: u64,
    /// Pairs that it takes; those of a side that a path does not use are not among them.
    pub wanted: u64,
    /// Whether it goes on.
    pub running: bool,
}
