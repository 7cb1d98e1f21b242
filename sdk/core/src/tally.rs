//! Counts that are kept while a run goes on: records, losses, steps.

use crate::record::RecordKind;
use crate::run::{LossCounts, StepCounts};

/// Numbers about the run so far, for the verdict and for statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) loss: LossCounts,
    /// Records resolved, by kind.
    pub(crate) counts: [u64; RecordKind::ALL.len()],
    pub(crate) orphans: u64,
    pub(crate) outlived_parent: u64,
    pub(crate) step_ns: u64,
    /// Time that GPU marks took on the application's threads.
    pub(crate) marks_ns: u64,
    pub(crate) model_spans: u64,
    pub(crate) helper_spans: u64,
    pub(crate) phase_steps: u64,
    pub(crate) hollow_phase_steps: u64,
    /// Intervals read from the rings.
    pub(crate) drained: u64,
    /// Steps by what became of them.
    pub(crate) steps: StepCounts,
}

impl Tally {
    /// The counts since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less = |f: fn(&Self) -> u64| f(self).saturating_sub(f(before));
        Self {
            loss: LossCounts {
                emitted: less(|t| t.loss.emitted),
                ring_full: less(|t| t.loss.ring_full),
                too_deep: less(|t| t.loss.too_deep),
                no_ring: less(|t| t.loss.no_ring),
                threads_without_ring: less(|t| t.loss.threads_without_ring),
                after_shutdown: less(|t| t.loss.after_shutdown),
                unresolved: less(|t| t.loss.unresolved),
                open_at_end: 0,
                unmatched_exits: less(|t| t.loss.unmatched_exits),
                forgotten_guards: less(|t| t.loss.forgotten_guards),
                requests_lost: less(|t| t.loss.requests_lost),
                requests_open_at_end: 0,
                requests_paused: less(|t| t.loss.requests_paused),
                samples_lost: less(|t| t.loss.samples_lost),
            },
            counts: std::array::from_fn(|kind| self.counts[kind].saturating_sub(before.counts[kind])),
            orphans: less(|t| t.orphans),
            outlived_parent: less(|t| t.outlived_parent),
            step_ns: less(|t| t.step_ns),
            marks_ns: less(|t| t.marks_ns),
            model_spans: less(|t| t.model_spans),
            helper_spans: less(|t| t.helper_spans),
            phase_steps: less(|t| t.phase_steps),
            hollow_phase_steps: less(|t| t.hollow_phase_steps),
            drained: less(|t| t.drained),
            steps: StepCounts {
                begun: less(|t| t.steps.begun),
                recorded: less(|t| t.steps.recorded),
                captured: less(|t| t.steps.captured),
                scheduled_out: less(|t| t.steps.scheduled_out),
                left_plain: less(|t| t.steps.left_plain),
                perturbed: less(|t| t.steps.perturbed),
                paused: less(|t| t.steps.paused),
                lost: less(|t| t.steps.lost),
                open_at_end: self.steps.open_at_end,
                schedule: self.steps.schedule,
                budgeted: self.steps.budgeted,
            },
        }
    }
}
