//! A budget for the cost of recording: which steps are left out so that recording takes no more of all steps' time.

use crate::probe::mixed;
use crate::run::{BudgetKept, InPlaceOverhead, StepCounts};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Steps that are recorded or left out together: gaps between tokens need steps that follow one another.
const BLOCK: u64 = 8;

/// One step in so many of those that are recorded is left plain, to measure the cost.
pub(crate) const PROBE: u64 = 5;

/// The least share of steps that is recorded whatever it costs: without any nothing would be measured, and a cost that was
/// high once could never fall.
const LEAST: f64 = 1.0 / 64.0;

/// By how much fewer steps than the estimate allows are recorded because it is uncertain.
const DOUBT: f64 = 4.0;

/// The most by which the share grows at once: what is measured lags behind.
const GROWTH: f64 = 1.5;

/// Leaves steps out, at random and in blocks, so that those with a record are a sample of all.
#[derive(Debug)]
pub(crate) struct Budget {
    target: f64,
    /// Blocks whose mixed number is below this are recorded.
    below: AtomicU64,
}

impl Budget {
    /// `target` is the share of all steps' time that recording may take. Until its cost is known, every step is recorded.
    pub(crate) const fn new(target: f64) -> Self {
        Self { target, below: AtomicU64::new(u64::MAX) }
    }

    /// Whether the `nth` step of a thread is recorded.
    #[inline]
    pub(crate) fn keeps(&self, thread: u64, nth: u64) -> bool {
        let block = (nth / BLOCK).wrapping_add(thread.wrapping_mul(0xff51_afd7_ed55_8ccd));
        let mixed = mixed(block, block >> 7);
        (mixed ^ (mixed >> 31)) <= self.below.load(Relaxed)
    }

    /// The share of steps that is recorded now.
    fn share(&self) -> f64 {
        self.below.load(Relaxed) as f64 / u64::MAX as f64
    }

    /// The cost of a recorded step was measured anew. Until it has an interval, nothing changes. The upper end counts,
    /// so that the budget is held whatever is true within the interval; but a wide one, as of the first steps or on a
    /// busy machine, takes at most [`DOUBT`] times what the estimate itself takes, because without recorded steps it
    /// would stay wide.
    pub(crate) fn adjust(&self, cost: Cost) {
        let Some((_, high)) = cost.interval else { return };
        let affordable = |cost: f64| if cost <= self.target { 1.0 } else { self.target / cost };
        let wanted = affordable(high).max(affordable(cost.ratio) / DOUBT).max(LEAST);
        let share = wanted.min(self.share() * GROWTH);
        self.below.store((share * u64::MAX as f64) as u64, Relaxed);
    }

    /// What became of it.
    pub(crate) fn kept(&self, cost: Option<Cost>, steps: &StepCounts) -> BudgetKept {
        // Lost ones took their time, too.
        let recorded = steps.recorded + steps.lost;
        let on = recorded + steps.scheduled_out + steps.left_plain;
        let kept = if on > 0 { recorded as f64 / on as f64 } else { 1.0 };
        // Of the time that steps take with it.
        let share = |ratio: f64| kept * ratio / (1.0 + kept * ratio);
        let interval = cost.filter(|cost| cost.is_whole).and_then(|cost| cost.interval);
        let interval = interval.map(|(low, high)| (share(low), share(high)));
        let held = interval.and_then(|(low, high)| match () {
            () if high <= self.target => Some(true),
            () if low > self.target => Some(false),
            () => None,
        });
        let (low, high) = (interval.map(|ends| ends.0), interval.map(|ends| ends.1));
        BudgetKept { target: self.target, kept, ratio: cost.map(|cost| share(cost.ratio)), low, high, held }
    }
}

/// What recording a step costs, as a share of the time that it takes plain; of steps whose kernels were recorded, too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    ratio: f64,
    /// 95 %.
    interval: Option<(f64, f64)>,
    /// Whether that covers windows of kernels, too, if there are any.
    is_whole: bool,
}

impl Cost {
    /// From plain steps beside recorded ones, and recorded ones beside those with kernels, which are the share `windows` of
    /// them.
    pub(crate) fn of(found: &InPlaceOverhead, windows: f64) -> Self {
        let own = found.windows.unwrap_or_default();
        // Steps with kernels are compared with recorded ones, and these with plain ones.
        let part = windows * (1.0 + found.ratio);
        let ratio = found.ratio + part * own.ratio;
        // The two are independent.
        let apart = |end: Option<f64>, of: f64| end.map(|end| end - of);
        let half = |a: Option<f64>, b: Option<f64>| Some(a?.hypot(part * b.unwrap_or(0.0)));
        let low = half(apart(found.low, found.ratio), apart(own.low, own.ratio));
        let high = half(apart(found.high, found.ratio), apart(own.high, own.ratio));
        let interval = low.zip(high).map(|(low, high)| (ratio - low, ratio + high));
        Self { ratio, interval, is_whole: windows == 0.0 || own.low.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(ratio: f64, low: f64, high: f64) -> Cost {
        Cost::of(&InPlaceOverhead { ratio, low: Some(low), high: Some(high), ..InPlaceOverhead::default() }, 0.0)
    }

    fn recorded(budget: &Budget) -> f64 {
        let steps = 80_000;
        (0..steps).filter(|step| budget.keeps(0, *step)).count() as f64 / steps as f64
    }

    #[test]
    fn the_share_follows_the_cost_and_blocks_stay_whole() {
        let budget = Budget::new(0.01);
        assert_eq!(recorded(&budget), 1.0);
        budget.adjust(Cost::of(&InPlaceOverhead { ratio: 0.5, ..InPlaceOverhead::default() }, 0.0));
        assert_eq!(recorded(&budget), 1.0, "without an interval nothing is known");
        budget.adjust(cost(0.03, 0.02, 0.04));
        assert!((recorded(&budget) - 0.25).abs() < 0.02, "{}", recorded(&budget));
        assert!((0..1000).all(|block| (0..8).all(|at| budget.keeps(3, block * 8 + at) == budget.keeps(3, block * 8))));
        // It may fall at once, and grows step by step.
        budget.adjust(cost(0.002, 0.001, 0.003));
        assert!((recorded(&budget) - 0.375).abs() < 0.02);
        (0..5).for_each(|_| budget.adjust(cost(0.002, 0.001, 0.003)));
        assert_eq!(recorded(&budget), 1.0);
        budget.adjust(cost(0.02, 0.0, 5.0));
        assert!((recorded(&budget) - 0.125).abs() < 0.02, "a wide interval is made narrower by recording");
        budget.adjust(cost(90.0, 80.0, 100.0));
        assert!((recorded(&budget) - LEAST).abs() < 0.005, "something is always recorded");
    }

    #[test]
    fn requests_of_any_length_are_met_at_every_place() {
        let budget = Budget::new(0.01);
        budget.adjust(cost(0.04, 0.03, 0.05));
        // A prompt each so many steps: about a fifth of them are recorded, whatever the period.
        for period in [8, 16, 40, 64, 200, 201, 256, 1024] {
            let prompts: Vec<u64> = (0..4000).map(|n| n * period).collect();
            let kept = prompts.iter().filter(|step| budget.keeps(period, **step)).count() as f64 / 4000.0;
            assert!((kept - 0.2).abs() < 0.04, "{kept} of every {period}th");
        }
    }

    #[test]
    fn what_is_said_at_the_end_is_of_all_steps() {
        let steps = StepCounts { begun: 100, recorded: 20, scheduled_out: 75, left_plain: 5, ..StepCounts::default() };
        let kept = Budget::new(0.01).kept(Some(cost(0.03, 0.02, 0.04)), &steps);
        assert_eq!((kept.kept, kept.held), (0.2, Some(true)));
        // Six thousandths of a plain step's time, of what steps take with them.
        assert!(
            (kept.ratio.unwrap() - 0.006 / 1.006).abs() < 1e-12 && (kept.high.unwrap() - 0.008 / 1.008).abs() < 1e-12
        );
        assert_eq!(Budget::new(0.005).kept(Some(cost(0.03, 0.02, 0.04)), &steps).held, None, "it may be");
        assert_eq!(Budget::new(0.001).kept(Some(cost(0.03, 0.02, 0.04)), &steps).held, Some(false));
        assert_eq!(Budget::new(0.001).kept(None, &steps).held, None);
    }

    #[test]
    fn windows_of_kernels_count_by_their_share_of_the_steps() {
        use crate::run::InPlaceKind;
        let windows = InPlaceKind { ratio: 0.3, low: Some(0.2), high: Some(0.4), ..InPlaceKind::default() };
        let found = InPlaceOverhead {
            ratio: 0.01,
            low: Some(0.005),
            high: Some(0.015),
            windows: Some(windows),
            ..InPlaceOverhead::default()
        };
        let cost = Cost::of(&found, 0.05);
        let (low, high) = cost.interval.unwrap();
        let part = 0.05 * 1.01;
        assert!((cost.ratio - 0.01 - part * 0.3).abs() < 1e-12 && cost.is_whole);
        assert!((high - cost.ratio - 0.005f64.hypot(part * 0.1)).abs() < 1e-12);
        assert!((cost.ratio - low - (high - cost.ratio)).abs() < 1e-12);
        // Of few windows nothing certain is said, but what is known of other steps still counts.
        let few = InPlaceOverhead { windows: Some(InPlaceKind { ratio: 0.3, ..InPlaceKind::default() }), ..found };
        let budget = Budget::new(0.001);
        budget.adjust(Cost::of(&few, 0.05));
        assert!(recorded(&budget) < 0.2);
        assert_eq!(budget.kept(Some(Cost::of(&few, 0.05)), &StepCounts::default()).held, None);
    }
}
