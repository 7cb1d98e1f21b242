//! What is kept of a thread's steps until they end.

use crate::annotation::Annotation;
use crate::raw::RawInterval;
use crate::record::{PathInfo, ThreadInfo};
use crate::vocabulary::Phase;
use crate::{HostNs, Served};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests of one thread whose sources are remembered: more are not worked for in turns.
const MAX_SOURCES: usize = 64;

/// One thread's stream of raw records.
pub(crate) struct ThreadStream {
    pub(crate) info: Arc<ThreadInfo>,
    pub(super) pending: Option<Annotation>,
    pub(super) steps: Vec<StepBuffer>,
    pub(super) spare: Vec<StepBuffer>,
    /// Steps that have ended, and the end of the latest one that was in no other.
    pub(crate) steps_ended: u64,
    pub(crate) last_end: HostNs,
    /// Positions that the latest `encode` step of a request passed, all sequences together: what its decoder attends to.
    pub(super) sources: VecDeque<(u32, u64)>,
}

#[derive(Default)]
pub(super) struct StepBuffer {
    pub(super) step: u64,
    /// Positions of the source that the step's request has encoded on this thread.
    pub(super) source: Option<u64>,
    pub(super) items: Vec<RawInterval>,
    pub(super) annotations: Vec<(u32, Annotation)>,
    /// Paths of the open intervals announced so far, by `seq`.
    pub(super) open: FxHashMap<u64, Arc<PathInfo>>,
    /// Open intervals that ended in the part being resolved.
    pub(super) closing: FxHashSet<u64>,
    pub(super) announced: Vec<RawInterval>,
    pub(super) done: StepTotals,
    pub(super) serves: Vec<Served>,
}

/// Sums over all parts of a step.
#[derive(Default, Clone, Copy)]
pub(super) struct StepTotals {
    pub(super) intervals: u64,
    /// Intervals that are not the LLM helpers'.
    pub(super) model_intervals: u64,
    pub(super) flops: Option<u64>,
    /// Includes the `flops` of intervals that do not state any executed FLOPs.
    pub(super) flops_executed: u64,
    pub(super) any_executed: bool,
    pub(super) bytes: Option<u64>,
    pub(super) io_bytes: Option<u64>,
    /// Some intervals state FLOPs or bytes but no activations: the sum would be too small.
    pub(super) io_missing: bool,
    /// The work of some modules is not known: the sum would be too small.
    pub(super) work_missing: bool,
}

impl StepTotals {
    pub(super) fn add(&mut self, a: &Annotation) {
        let sum = |total: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        };
        sum(&mut self.flops, a.get_flops());
        sum(&mut self.bytes, a.get_bytes());
        sum(&mut self.io_bytes, a.get_io_bytes());
        let works = a.get_flops().is_some() || a.get_bytes().is_some();
        self.io_missing |= works && a.get_io_bytes().is_none();
        let executed = a.get_flops_executed();
        self.any_executed |= executed.is_some();
        self.flops_executed = self.flops_executed.saturating_add(executed.or(a.get_flops()).unwrap_or(0));
    }
}

impl StepBuffer {
    /// The annotation of a buffered interval, by its index. The annotations must be sorted.
    pub(super) fn annotation(&self, item: u32) -> Option<Annotation> {
        let found = self.annotations.binary_search_by_key(&item, |(at, _)| *at).ok()?;
        Some(self.annotations[found].1)
    }
}

impl ThreadStream {
    pub(crate) fn new(info: Arc<ThreadInfo>) -> Self {
        Self {
            info,
            pending: None,
            steps: Vec::new(),
            spare: Vec::new(),
            steps_ended: 0,
            last_end: HostNs(i64::MIN),
            sources: VecDeque::new(),
        }
    }

    pub(super) fn buffer(&mut self, step: u64) -> &mut StepBuffer {
        // Nested steps come and go at the end of the list; the one wanted is nearly always the last.
        if let Some(at) = self.steps.iter().rposition(|s| s.step == step) {
            return &mut self.steps[at];
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.step = step;
        self.steps.push(buffer);
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// What a request has encoded here. Nothing without a request: another source could have come in between.
    pub(super) fn source(&self, request: u32) -> Option<u64> {
        self.sources.iter().find(|(of, _)| *of == request && request != 0).map(|(_, positions)| *positions)
    }

    /// A step has ended: if it encoded, its request has a source.
    pub(super) fn remember_source(&mut self, root: &RawInterval, annotation: Option<Annotation>) {
        if root.request == 0 || root.phase() != Some(Phase::Encode) {
            return;
        }
        self.sources.retain(|(request, _)| *request != root.request);
        let Some(positions) = annotation.and_then(|said| said.get_tokens()) else { return };
        if self.sources.len() >= MAX_SOURCES {
            self.sources.pop_front();
        }
        self.sources.push_back((root.request, positions.into()));
    }

    pub(super) fn take(&mut self, step: u64) -> StepBuffer {
        match self.steps.iter().rposition(|s| s.step == step) {
            Some(at) => self.steps.remove(at),
            None => {
                let mut buffer = self.spare.pop().unwrap_or_default();
                buffer.step = step;
                buffer
            }
        }
    }

    pub(super) fn recycle(&mut self, mut buffer: StepBuffer) {
        buffer.items.clear();
        buffer.annotations.clear();
        buffer.open.clear();
        buffer.announced.clear();
        buffer.done = StepTotals::default();
        buffer.source = None;
        buffer.serves.clear();
        if self.spare.len() < 4 {
            self.spare.push(buffer);
        }
    }
}
