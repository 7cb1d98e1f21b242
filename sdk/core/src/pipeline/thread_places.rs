//! One thread's intervals, and which of them is the innermost at a time.

use crate::HostNs;
use crate::record::{PathInfo, SpanRecord};
use crate::vocabulary::Phase;
use std::sync::Arc;

/// Fewer intervals are not looked through for those that nobody needs.
const FEW: usize = 1024;

/// An interval, as far as samples need it.
pub(super) struct Interval {
    start: HostNs,
    end: HostNs,
    depth: u16,
    pub(super) seq: u64,
    pub(super) step: Option<u64>,
    pub(super) phase: Option<Phase>,
    pub(super) path: Arc<PathInfo>,
}

impl Interval {
    pub(super) fn of(span: &SpanRecord) -> Self {
        Self {
            start: span.host_start,
            end: span.host_start.plus_ns(span.host_dur_ns),
            depth: span.depth,
            seq: span.seq,
            step: span.step,
            phase: span.phase,
            path: span.path.clone(),
        }
    }
}

/// See the module's text. A question takes steps for the intervals around the answer, however many are beside them.
pub(super) struct ThreadPlaces {
    /// By start, outer ones first, up to `ordered`.
    intervals: Vec<Interval>,
    /// For each of them, the nearest one before it that ends later: where it is over, whoever is open is that or before it.
    later_end: Vec<Option<u32>>,
    /// Intervals are looked through when they are so many.
    look_through_at: usize,
    /// When the last one ended.
    end: Option<HostNs>,
}

impl Default for ThreadPlaces {
    fn default() -> Self {
        Self { intervals: Vec::new(), later_end: Vec::new(), look_through_at: FEW, end: None }
    }
}

impl ThreadPlaces {
    /// Adds intervals, in any order.
    pub(super) fn add(&mut self, intervals: impl Iterator<Item = Interval>) {
        for interval in intervals {
            self.end = self.end.max(Some(interval.end));
            self.intervals.push(interval);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.intervals.len()
    }

    /// Brings what was added into order; before the next question. A step inside another one comes before it, what is open
    /// around a part after it.
    pub(super) fn order(&mut self) {
        let order = |interval: &Interval| (interval.start, interval.depth);
        let added = self.later_end.len();
        let Some(first) = self.intervals[added..].iter().map(order).min() else { return };
        // What begins before stays where it is.
        let from = self.intervals[..added].partition_point(|interval| order(interval) <= first);
        self.intervals[from..].sort_by_key(order);
        self.later_end.truncate(from);
        for at in from..self.intervals.len() {
            let end = self.intervals[at].end;
            let mut before = at.checked_sub(1).map(|before| before as u32);
            while let Some(one) = before.filter(|one| self.intervals[*one as usize].end <= end) {
                before = self.later_end[one as usize];
            }
            self.later_end.push(before);
        }
    }

    /// The innermost interval that is open at a time, of those in order.
    pub(super) fn innermost(&self, at: HostNs) -> Option<&Interval> {
        let ordered = &self.intervals[..self.later_end.len()];
        // In enter order, later ones that are open are inside earlier ones.
        let mut last = ordered.partition_point(|interval| interval.start <= at).checked_sub(1)?;
        while ordered[last].end <= at {
            last = self.later_end[last]? as usize;
        }
        Some(&ordered[last])
    }

    /// Forgets what ended before `until`; unless `at_once`, only when that is worth the while.
    pub(super) fn forget(&mut self, until: HostNs, at_once: bool) {
        let all = self.end.is_none_or(|end| end < until);
        if self.intervals.len() < self.look_through_at && !at_once && !all {
            return;
        }
        let before = self.intervals.len();
        self.intervals.retain(|interval| interval.end >= until);
        if self.intervals.len() < before {
            self.later_end.clear();
        }
        self.look_through_at = FEW.max(2 * self.intervals.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn interval(start: i64, end: i64, depth: u16) -> Interval {
        let path = Arc::new(PathInfo::new(1, "path", "path", "target"));
        let (start, end) = (HostNs(start), HostNs(end));
        Interval { start, end, depth, seq: start.0 as u64, step: Some(0), phase: None, path }
    }

    fn places(intervals: impl IntoIterator<Item = Interval>) -> ThreadPlaces {
        let mut places = ThreadPlaces::default();
        places.add(intervals.into_iter());
        places.order();
        places
    }

    fn found(places: &ThreadPlaces, at: i64) -> Option<(i64, u16)> {
        places.innermost(HostNs(at)).map(|interval| (interval.start.0, interval.depth))
    }

    #[test]
    fn the_innermost_is_found_among_those_that_came_in_any_order() {
        let mut places = places([interval(10, 20, 1), interval(12, 15, 2), interval(30, 40, 1)]);
        assert_eq!([9, 10, 13, 15, 20, 35, 40].map(|at| found(&places, at)), {
            let (a, b, c) = (Some((10, 1)), Some((12, 2)), Some((30, 1)));
            [None, a, b, a, None, c, None]
        });
        // What was open around them all comes last, and one that begins together with it.
        places.add([interval(5, 50, 0), interval(5, 7, 1)].into_iter());
        places.order();
        let around = Some((5, 0));
        assert_eq!(
            [4, 5, 7, 20, 45, 50].map(|at| found(&places, at)),
            [None, Some((5, 1)), around, around, around, None]
        );
        assert_eq!(found(&places, 13), Some((12, 2)));
        places.forget(HostNs(41), false);
        assert_eq!(places.len(), 5, "too few to be worth it");
        places.forget(HostNs(41), true);
        places.order();
        assert_eq!((places.len(), found(&places, 45), found(&places, 13)), (1, around, around));
        places.forget(HostNs(51), false);
        assert_eq!(places.len(), 0, "all of them are over");
    }

    #[test]
    fn it_is_the_one_that_began_last_of_those_that_are_open_whatever_they_are() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let mut all = Vec::new();
            let mut places = ThreadPlaces::default();
            for _ in 0..next(5) + 1 {
                let part: Vec<_> = (0..next(8)).map(|_| (next(60) as i64, next(30) as i64, next(4) as u16)).collect();
                places.add(part.iter().map(|(start, length, depth)| interval(*start, start + length, *depth)));
                places.order();
                all.extend(part);
            }
            for at in 0..100 {
                let open = all.iter().filter(|(start, length, _)| *start <= at && at < start + length);
                assert_eq!(found(&places, at), open.map(|(start, _, depth)| (*start, *depth)).max());
            }
        }
    }

    /// Of one that is open for a million steps each question took all of them.
    #[test]
    fn a_long_interval_around_many_makes_no_question_slower() {
        let many = 200_000;
        let around = [interval(0, 10 * many + 10, 0)];
        let begun = Instant::now();
        let places = places((0..many).map(|i| interval(10 * i + 1, 10 * i + 5, 1)).chain(around));
        for i in 0..many {
            assert_eq!(found(&places, 10 * i + 3), Some((10 * i + 1, 1)));
            assert_eq!(found(&places, 10 * i + 7), Some((0, 0)), "between two");
        }
        // Some tens of milliseconds; a minute if each question looked at all before.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
