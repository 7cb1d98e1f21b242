//! Decides what happens to a step that has ended. Pure.

use super::held::depth;
use super::otlp_config::OtlpLimits;
use candlescope_core::{SpanId, SpanRecord, StepRecord};

/// What a step belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOwner {
    /// Nothing: it is a trace of its own.
    Nobody,
    /// A request that has not ended: the step waits for its end.
    Open(u64),
    /// A request that has ended, whose span has this id if it was sent.
    Ended(Option<SpanId>),
}

/// How much of a step is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    /// The step's own interval.
    Itself,
    /// Its intervals down to this level below it.
    Levels(u32),
}

/// What happens to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) whose: StepOwner,
    pub(super) keep: Keep,
    /// Whether it is one of those that are sent in full.
    pub(super) detail: bool,
}

impl Plan {
    /// `sent`: whether sampler and rate let anything of it through. `decode`: its number among decode steps, from 0.
    pub(super) fn of(limits: &OtlpLimits, whose: StepOwner, sent: bool, decode: Option<u64>) -> Self {
        let detail = decode.is_none_or(|n| limits.detail_every > 0 && n % limits.detail_every == 0);
        // A waiting step may be needed in full later, if its request turns out slow.
        let may_be_slow = matches!(whose, StepOwner::Open(_)) && limits.slow_request.is_some();
        let keep = match (sent, detail || may_be_slow) {
            (false, _) => Keep::Nothing,
            (true, true) => Keep::Levels(limits.max_depth),
            (true, false) => Keep::Itself,
        };
        Self { whose, keep, detail }
    }

    /// Whether an interval of the step is kept.
    pub(super) fn keeps(&self, step: &StepRecord, span: &SpanRecord) -> bool {
        match self.keep {
            Keep::Nothing => false,
            Keep::Itself => span.seq == step.seq,
            Keep::Levels(levels) => depth(span) <= levels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_nth_decode_step_and_everything_else_is_kept_in_full() {
        let limits = OtlpLimits::default().detail_every(4).max_depth(3);
        let keep = |limits: &OtlpLimits, decode| Plan::of(limits, StepOwner::Open(1), true, decode).keep;
        let kept: Vec<Keep> = (0..5).map(|n| keep(&limits, Some(n))).collect();
        let (whole, itself) = (Keep::Levels(3), Keep::Itself);
        assert_eq!(kept, [whole, itself, itself, itself, whole]);
        assert_eq!(keep(&limits, None), whole, "a prefill");
        assert_eq!(keep(&limits.detail_every(0), Some(0)), itself);
    }

    #[test]
    fn a_step_that_waits_may_turn_out_to_be_of_a_slow_request() {
        let limits = OtlpLimits::default().slow_request(Duration::from_secs(1));
        let plan = |whose| Plan::of(&limits, whose, true, Some(1));
        assert_eq!((plan(StepOwner::Open(1)).keep, plan(StepOwner::Open(1)).detail), (Keep::Levels(6), false));
        assert_eq!(plan(StepOwner::Ended(Some(SpanId(1)))).keep, Keep::Itself);
        assert_eq!(plan(StepOwner::Nobody).keep, Keep::Itself);
    }

    #[test]
    fn what_is_not_sent_is_not_kept() {
        let limits = OtlpLimits::none().slow_request(Duration::ZERO);
        for whose in [StepOwner::Nobody, StepOwner::Open(1), StepOwner::Ended(None)] {
            assert_eq!(Plan::of(&limits, whose, false, None).keep, Keep::Nothing);
        }
    }
}
