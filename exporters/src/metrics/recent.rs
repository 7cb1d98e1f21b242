//! Stretches of time in the last seconds and their sums as time of one device: merged where they overlap. Pure.

use candlescope_core::stretches::{Stretch, length, merged};
use std::collections::VecDeque;

/// All time.
pub(crate) const ALWAYS: Stretch = (i64::MIN, i64::MAX);

/// One stretch and the work that was done in it.
#[derive(Debug, Clone, Copy)]
struct Item {
    from: i64,
    to: i64,
    amount: f64,
}

/// The stretches of the last seconds, in order of arrival.
///
/// Overload policy: beyond `most` the oldest stretch is dropped, and the time before its end is ignored from then on.
/// So sums are over a shorter window, but still correct.
#[derive(Debug)]
pub(crate) struct RecentStretches {
    items: VecDeque<Item>,
    most: usize,
    /// Time before this is not complete.
    complete_from: i64,
}

/// Sums over the stretches in a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sums {
    /// Work. A stretch that is partly in the window contributes the same part of its work.
    pub(crate) amount: f64,
    /// Sum of the durations in nanoseconds, with overlaps counted multiple times.
    pub(crate) sum_ns: u64,
    /// The stretches merged, ascending.
    pub(crate) merged: Vec<Stretch>,
}

impl Sums {
    /// Time in which at least one stretch was open, in nanoseconds.
    pub(crate) fn union_ns(&self) -> u64 {
        length(&self.merged)
    }
}

impl RecentStretches {
    /// Empty, for at most `most` stretches.
    pub(crate) fn new(most: usize) -> Self {
        Self { items: VecDeque::new(), most: most.max(1), complete_from: i64::MIN }
    }

    /// Takes a stretch and the work that was done in it.
    pub(crate) fn push(&mut self, (from, to): Stretch, amount: f64) {
        if self.items.len() >= self.most
            && let Some(oldest) = self.items.pop_front()
        {
            self.complete_from = self.complete_from.max(oldest.to);
        }
        self.items.push_back(Item { from, to: to.max(from), amount });
    }

    /// Removes stretches that ended before `start`. Some that came out of order may stay; they are in no sum.
    pub(crate) fn forget_before(&mut self, start: i64) {
        while self.items.front().is_some_and(|first| first.to <= start) {
            self.items.pop_front();
        }
    }

    /// The time from which on everything is known, Unix nanoseconds.
    pub(crate) fn complete_from(&self) -> i64 {
        self.complete_from
    }

    /// Sums over the time in `counted` (ordered and disjoint) from `start` on, or from where everything is known.
    pub(crate) fn within(&self, start: i64, counted: &[Stretch]) -> Sums {
        let start = start.max(self.complete_from);
        let mut sums = Sums::default();
        let mut pieces: Vec<Stretch> = Vec::with_capacity(self.items.len());
        for item in self.items.iter().filter(|item| item.to > start) {
            let from = item.from.max(start);
            let at = counted.partition_point(|stretch| stretch.1 < from);
            let windows = counted[at..].iter().take_while(|stretch| stretch.0 <= item.to);
            let inside = windows.map(|stretch| (stretch.0.max(from), stretch.1.min(item.to)));
            let before = (pieces.len(), sums.sum_ns);
            pieces.extend(inside);
            let inside_ns = length(&pieces[before.0..]);
            let whole_ns = item.to.abs_diff(item.from);
            sums.amount += match whole_ns {
                0 if pieces.len() > before.0 => item.amount,
                0 => 0.0,
                _ => item.amount * (inside_ns as f64 / whole_ns as f64),
            };
            sums.sum_ns = before.1.saturating_add(inside_ns);
        }
        sums.merged = merged(pieces);
        sums
    }

    /// The stretches from `start` on, merged.
    pub(crate) fn stretches(&self, start: i64) -> Vec<Stretch> {
        self.within(start, &[ALWAYS]).merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl RecentStretches {
        fn since(&self, start: i64) -> Sums {
            self.within(start, &[ALWAYS])
        }
    }

    #[test]
    fn time_is_merged_and_work_is_summed() {
        let mut recent = RecentStretches::new(100);
        for stretch in [(0, 10), (5, 15), (20, 30), (20, 30), (22, 24)] {
            recent.push(stretch, 3.0);
        }
        let sums = recent.since(i64::MIN);
        assert_eq!((sums.amount, sums.sum_ns, sums.union_ns()), (15.0, 42, 25));
        assert_eq!(sums.merged, [(0, 15), (20, 30)]);
        // From 8 on: 2 of the first's 10, 7 of the second's 10, the others whole.
        let sums = recent.since(8);
        assert!((sums.amount - (0.6 + 2.1 + 9.0)).abs() < 1e-12 && sums.union_ns() == 17, "{sums:?}");
        assert_eq!(recent.since(30), Sums::default());
    }

    #[test]
    fn what_finds_no_room_shortens_the_window_and_not_the_work_alone() {
        let mut recent = RecentStretches::new(4);
        (0..10).for_each(|n| recent.push((n * 10, n * 10 + 10), 10.0));
        let sums = recent.since(0);
        assert_eq!((sums.amount, sums.union_ns()), (40.0, 40), "still one a nanosecond");
        // A stretch that began long before contributes the part of its work that is in the window.
        recent.push((0, 110), 110.0);
        let sums = recent.since(0);
        assert_eq!((sums.amount, sums.union_ns()), (30.0 + 40.0, 40));
    }

    #[test]
    fn a_step_without_duration_has_its_work() {
        let mut recent = RecentStretches::new(4);
        recent.push((5, 5), 7.0);
        assert_eq!(recent.since(0).amount, 7.0);
        recent.forget_before(5);
        assert_eq!(recent.since(0), Sums::default());
    }

    #[test]
    fn only_time_that_counts_is_in_the_sums() {
        let mut recent = RecentStretches::new(4);
        recent.push((0, 10), 10.0);
        recent.push((5, 25), 40.0);
        let sums = recent.within(2, &[(0, 8), (9, 20), (30, 40)]);
        // Of the first 2 to 8 and 9 to 10, of the second 5 to 8 and 9 to 20.
        assert_eq!((sums.amount, sums.sum_ns), (7.0 + 28.0, 7 + 14));
        assert_eq!(sums.merged, [(2, 8), (9, 20)]);
        assert_eq!(recent.within(0, &[]), Sums::default());
    }
}
