//! What a session's threads share about GPU marks: how they are made, what they cost, what became of them.

use super::{GpuLanes, GpuTiming};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Kinds of steps that threads share what they know about; one with a higher number is known to its threads alone.
const KINDS: usize = 512;

/// What the session's threads share about GPU time.
pub(crate) struct Marking {
    pub(crate) lanes: Arc<dyn GpuLanes>,
    pub(crate) timing: GpuTiming,
    pub(crate) counts: MarkCounts,
    /// What an interval costs on the host, in ticks: part of what the adaptive tier may spend.
    pub(crate) interval_ticks: AtomicU64,
    /// After so many ticks without a step of a kind the next one counts as cold.
    pub(crate) pause_ticks: AtomicU64,
    /// What a mark costs in ticks; `u64::MAX` before enough were made.
    pub(crate) cost_ticks: AtomicU64,
    /// What all threads know about kinds of steps.
    pub(crate) kinds: StepKinds,
}

impl Marking {
    pub(crate) fn new(lanes: Arc<dyn GpuLanes>, timing: GpuTiming) -> Self {
        Self {
            lanes,
            timing,
            counts: MarkCounts::default(),
            interval_ticks: AtomicU64::new(0),
            pause_ticks: AtomicU64::new(u64::MAX),
            cost_ticks: AtomicU64::new(u64::MAX),
            kinds: StepKinds::default(),
        }
    }
}

/// What became of marks, over all threads.
#[derive(Debug, Default)]
pub(crate) struct MarkCounts {
    pub(crate) recorded: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) no_context: AtomicU64,
    pub(crate) capturing: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Ticks that recorded marks cost, and that they waited besides.
    pub(crate) ticks: AtomicU64,
    pub(crate) wait_ticks: AtomicU64,
    pub(crate) steps_full: AtomicU64,
    pub(crate) steps_partial: AtomicU64,
    pub(crate) steps_unmarked: AtomicU64,
}

/// What all threads know about one kind of step.
#[derive(Debug, Default)]
pub(crate) struct StepKind {
    /// Whether one has begun.
    pub(crate) seen: AtomicBool,
    /// Steps that were their thread's first since the last in full, on any thread.
    pub(crate) firsts: AtomicU32,
}

/// By number of the name.
#[derive(Debug)]
pub(crate) struct StepKinds(Box<[StepKind]>);

impl Default for StepKinds {
    fn default() -> Self {
        Self((0..KINDS).map(|_| StepKind::default()).collect())
    }
}

impl StepKinds {
    pub(crate) fn get(&self, name: u32) -> Option<&StepKind> {
        self.0.get(name as usize)
    }
}
