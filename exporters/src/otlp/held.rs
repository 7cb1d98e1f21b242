//! What is kept of requests that have not ended, and how much of it fits into a trace. Pure.

use super::counts::Counts;
use super::decodes::Decodes;
use super::otlp_config::OtlpLimits;
use super::otlp_spans::{MAX_ENTRIES, Totals};
use super::shared_steps::SharedSteps;
use candlescope_core::{Phase, SpanRecord, StepRecord, TraceId};
use std::collections::HashSet;

/// A step that ended, with what is kept of its intervals.
#[derive(Debug)]
pub(super) struct HeldStep {
    pub(super) step: StepRecord,
    /// Whether it is one of those sent in full.
    pub(super) detail: bool,
    pub(super) spans: Vec<SpanRecord>,
}

impl HeldStep {
    /// Removes all but the step's own interval.
    pub(super) fn strip(&mut self) -> u64 {
        let before = self.spans.len();
        self.spans.retain(|s| s.seq == self.step.seq);
        (before - self.spans.len()) as u64
    }
}

/// A request that has not ended.
#[derive(Debug, Default)]
pub(super) struct HeldRequest {
    pub(super) trace: Option<TraceId>,
    /// Intervals around its steps: the threads' entries into the request.
    pub(super) parents: HashSet<u64>,
    /// Whether its steps are only summed up: there was no room for more when it began, or its trace is not sent.
    pub(super) sums_only: bool,
    pub(super) steps: Vec<HeldStep>,
    pub(super) totals: Totals,
    /// All decode steps, in groups.
    pub(super) course: Decodes,
    pub(super) decodes: u64,
    /// Spans that `steps` will become.
    pub(super) held: usize,
    /// Number left out so far, for an attribute of the request's span.
    pub(super) omitted: u64,
    /// When the latest step came, as a number of batches.
    pub(super) touched: u64,
    /// What steps did for it and others.
    pub(super) shared: SharedSteps,
}

impl HeldRequest {
    /// Counts a step, which is in the interval `inside`.
    pub(super) fn add(&mut self, step: &StepRecord, inside: Option<u64>) {
        self.trace = Some(step.trace_id);
        if self.parents.len() < MAX_ENTRIES {
            self.parents.extend(inside);
        }
        self.totals.add(step);
        if step.phase == Some(Phase::Decode) {
            self.course.add(step);
        }
    }

    /// Cuts what is kept to what can be sent, and returns what was removed. This is done when twice as much is kept, so
    /// that the work stays proportional.
    pub(super) fn cut(&mut self, limits: &OtlpLimits) -> Counts {
        let most = match limits.slow_request {
            Some(_) => limits.slow_max_spans.max(limits.max_spans),
            None => limits.max_spans,
        };
        let mut gone = Counts::default();
        if self.held <= most.saturating_mul(2) {
            return gone;
        }
        // If a request may turn out slow, all of its steps are equally interesting, so levels are removed; otherwise,
        // details of steps that are not sent in full.
        if limits.slow_request.is_none() {
            gone.spans += self.steps.iter_mut().filter(|s| !s.detail).map(HeldStep::strip).sum::<u64>();
        }
        let mut fits = LevelFit::new(self.steps.iter().flat_map(|s| &s.spans), most);
        for held in &mut self.steps {
            let before = held.spans.len();
            held.spans.retain(|record| fits.takes(record));
            gone.spans += (before - held.spans.len()) as u64;
        }
        let steps = self.steps.len();
        self.steps.retain(|held| !held.spans.is_empty());
        gone.steps += (steps - self.steps.len()) as u64;
        self.held -= gone.spans as usize;
        self.omitted += gone.spans;
        gone
    }
}

/// Levels below the step, where the path begins.
pub(super) fn depth(span: &SpanRecord) -> u32 {
    span.path.path.bytes().filter(|b| *b == b'/').count() as u32
}

/// Which spans of a trace fit its limit: by level, and within the last level that fits in part, the first ones.
pub(super) struct LevelFit {
    whole_below: u32,
    rest: usize,
}

impl LevelFit {
    pub(super) fn new<'a>(spans: impl Iterator<Item = &'a SpanRecord>, limit: usize) -> Self {
        let mut levels: Vec<usize> = Vec::new();
        for span in spans {
            let depth = depth(span) as usize;
            if levels.len() <= depth {
                levels.resize(depth + 1, 0);
            }
            levels[depth] += 1;
        }
        let mut rest = limit;
        for (depth, &n) in levels.iter().enumerate() {
            if n > rest {
                return Self { whole_below: depth as u32, rest };
            }
            rest -= n;
        }
        Self { whole_below: u32::MAX, rest }
    }

    pub(super) fn takes(&mut self, span: &SpanRecord) -> bool {
        let depth = depth(span);
        if depth == self.whole_below && self.rest > 0 {
            self.rest -= 1;
            return true;
        }
        depth < self.whole_below
    }
}
