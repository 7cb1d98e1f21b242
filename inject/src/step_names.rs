//! What the program's own steps are called.

use crate::patterns::{MOST, StepKind};
use candlescope_core::injected::{NO_DOMAIN, PROGRAM_STEP, REPEATED_STEP};
use candlescope_core::{Phase, RangeKind, RangeName, Ranges};
use std::sync::OnceLock;

/// The names of steps of one kind.
pub(crate) struct StepNames {
    plain: RangeName,
    /// By pattern. Made when the first one is known: phases in a program that has none.
    repeated: [OnceLock<RangeName>; MOST],
    prompt: OnceLock<RangeName>,
    /// What a step of a phase is, or of none.
    kind: fn(Option<Phase>) -> RangeKind,
}

impl StepNames {
    /// Of steps outside of ranges; `plain`: what one is that is like nothing.
    pub(crate) fn outside(ranges: &Ranges, plain: RangeKind) -> Self {
        Self::new(ranges, plain, |phase| phase.map_or(RangeKind::Interval, RangeKind::Phase))
    }

    /// Of steps inside of a range that stays open.
    pub(crate) fn inside(ranges: &Ranges) -> Self {
        Self::new(ranges, RangeKind::Step(None), RangeKind::Step)
    }

    fn new(ranges: &Ranges, plain: RangeKind, kind: fn(Option<Phase>) -> RangeKind) -> Self {
        let plain = ranges.name(PROGRAM_STEP, NO_DOMAIN, plain);
        Self { plain, repeated: Default::default(), prompt: OnceLock::new(), kind }
    }

    /// What a step is called when it begins.
    pub(crate) fn at_begin(&self, ranges: &Ranges, as_repeated: bool, has_model: bool) -> RangeName {
        if as_repeated { self.repeated(ranges, 0, has_model) } else { self.plain }
    }

    /// What it is called once it is known what it was.
    pub(crate) fn at_end(&self, ranges: &Ranges, was: Option<StepKind>, has_model: bool) -> RangeName {
        match was {
            Some(StepKind::Repeated(pattern)) => self.repeated(ranges, pattern, has_model),
            Some(StepKind::Beside) if has_model => self.prompt(ranges),
            _ => self.plain,
        }
    }

    /// The name of what repeats. A language model repeats itself token by token; of anything else it is not known what
    /// it repeats.
    fn repeated(&self, ranges: &Ranges, pattern: usize, has_model: bool) -> RangeName {
        let made = || match (has_model, pattern) {
            (true, _) => ranges.name(Phase::Decode.as_str(), NO_DOMAIN, (self.kind)(Some(Phase::Decode))),
            (false, 0) => ranges.name(REPEATED_STEP, NO_DOMAIN, (self.kind)(None)),
            (false, more) => ranges.name(&format!("{REPEATED_STEP} {}", more + 1), NO_DOMAIN, (self.kind)(None)),
        };
        *self.repeated[pattern.min(MOST - 1)].get_or_init(made)
    }

    fn prompt(&self, ranges: &Ranges) -> RangeName {
        let made = || ranges.name(Phase::Prefill.as_str(), NO_DOMAIN, (self.kind)(Some(Phase::Prefill)));
        *self.prompt.get_or_init(made)
    }
}
