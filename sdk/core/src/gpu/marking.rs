//! What a session's threads share about GPU marks: how they are made, what they cost, and what became of them.

use super::{GpuLanes, GpuTiming};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Kinds of steps about which threads share what they know; for a kind with a higher number, each thread knows only its
/// own steps.
const KINDS: usize = 512;

/// What the session's threads share about GPU marks.
pub(crate) struct MarkingState {
    pub(crate) lanes: Arc<dyn GpuLanes>,
    pub(crate) timing: GpuTiming,
    pub(crate) counts: MarkCounts,
    /// Cost of an interval on the host, in ticks: a part of what the adaptive tier may spend.
    pub(crate) interval_ticks: AtomicU64,
    /// After this many ticks without a step of a kind, the next one counts as cold.
    pub(crate) pause_ticks: AtomicU64,
    /// Cost of a mark in ticks; `u64::MAX` before enough marks were made.
    pub(crate) cost_ticks: AtomicU64,
    /// What the threads know together about kinds of steps.
    pub(crate) kinds: StepKinds,
}

impl MarkingState {
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

/// Counts of what became of marks, over all threads.
#[derive(Debug, Default)]
pub(crate) struct MarkCounts {
    pub(crate) recorded: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) no_context: AtomicU64,
    pub(crate) capturing: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Ticks that recorded marks cost; `wait_ticks` are those that they waited in addition.
    pub(crate) ticks: AtomicU64,
    pub(crate) wait_ticks: AtomicU64,
    pub(crate) steps_full: AtomicU64,
    pub(crate) steps_partial: AtomicU64,
    pub(crate) steps_unmarked: AtomicU64,
}

/// What the threads know together about one kind of step.
#[derive(Debug, Default)]
pub(crate) struct StepKind {
    /// Whether a step of this kind has begun.
    pub(crate) seen: AtomicBool,
    /// Steps that were the first of their thread, counted over all threads since the last one in full.
    pub(crate) firsts: AtomicU32,
}

/// By the number of the kind's name.
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
