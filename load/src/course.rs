//! The course of a stage: which requests are warm-up, which are measured, and when it is over. Without I/O.
//!
//! Requests that begin between the first and the last measured one are all measured. Those that begin later keep the
//! load up until the last measured one has ended, so that none of them ran under less load than the others, and long
//! answers are not missing because they did not end in time.

use crate::failure::FailureKind;
use crate::level::Amount;
use crate::record::Part;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Course {
    warmup: Amount,
    measure: Amount,
    begun: u64,
    /// Of the requests that the warm-up waits for.
    warm_ended: u64,
    from: Option<u64>,
    started: u64,
    ended: u64,
    last_start: u64,
    last_end: u64,
    over: Option<u64>,
}

impl Course {
    pub(crate) fn new(warmup: Amount, measure: Amount, now: u64) -> Self {
        Self {
            warmup,
            measure,
            begun: now,
            warm_ended: 0,
            from: None,
            started: 0,
            ended: 0,
            last_start: now,
            last_end: now,
            over: None,
        }
    }

    /// A request is about to begin: which part of the stage it belongs to, or that there are to be no more.
    pub(crate) fn begin(&mut self, now: u64) -> Option<Part> {
        if self.is_over(now) {
            return None;
        }
        if self.from.is_none() && !self.is_warm(now) {
            return Some(Part::Warmup);
        }
        self.from.get_or_insert(now);
        if self.is_closed(now) {
            return Some(Part::After);
        }
        self.started += 1;
        self.last_start = now;
        Some(Part::Measured)
    }

    /// A request has ended; `number` is its place in the order in which they began, from 0.
    pub(crate) fn end(&mut self, part: Part, number: u64, now: u64) {
        match part {
            // The first to end are the shortest answers; the warm-up lasts until the first that began have ended.
            Part::Warmup => self.warm_ended += u64::from(matches!(self.warmup, Amount::Requests(n) if number < n)),
            Part::Measured => {
                self.ended += 1;
                self.last_end = now;
            }
            Part::After => {}
        }
    }

    /// No request is to begin any more.
    pub(crate) fn stop(&mut self, now: u64) {
        self.over.get_or_insert(now);
    }

    /// Whether all measured requests have begun and ended.
    pub(crate) fn is_over(&mut self, now: u64) -> bool {
        if self.over.is_none() && self.is_closed(now) && self.ended == self.started {
            self.over = Some(now);
        }
        self.over.is_some()
    }

    /// Why requests that are under way are to be given up: the stage has been over for `drain` nanoseconds, or nothing has begun
    /// for twice their `patience`. A request may have begun, on another thread, after the caller looked at the clock.
    pub(crate) fn gives_up(&mut self, now: u64, drain: u64, patience: u64) -> Option<FailureKind> {
        self.is_over(now);
        if self.over.is_some_and(|since| now.saturating_sub(since) >= drain) {
            return Some(FailureKind::Cancelled);
        }
        let closed = self.closed_at(now)?;
        (now.saturating_sub(closed) > patience.saturating_mul(2)).then_some(FailureKind::Unfinished)
    }

    /// When the last measured request began, once it has: from then on the stage only waits.
    pub(crate) fn closed_at(&self, now: u64) -> Option<u64> {
        let from = self.from?;
        match self.measure {
            Amount::Seconds(time) => Some(from.saturating_add(nanos(time))).filter(|end| now >= *end),
            Amount::Requests(n) => (self.started >= n).then_some(self.last_start),
        }
    }

    /// Share of the stage that has been measured.
    pub(crate) fn done(&self, now: u64) -> f64 {
        let Some(from) = self.from else { return 0.0 };
        let share = match self.measure {
            Amount::Seconds(time) => now.saturating_sub(from) as f64 / nanos(time).max(1) as f64,
            Amount::Requests(n) => self.ended as f64 / n.max(1) as f64,
        };
        share.min(1.0)
    }

    /// The time in which the load was steady and figures were taken.
    pub(crate) fn window(&self, now: u64) -> Option<(u64, u64)> {
        let from = self.from?;
        let end = match self.measure {
            Amount::Seconds(time) => from.saturating_add(nanos(time)).min(now),
            Amount::Requests(_) => self.last_end.max(from),
        };
        (end > from).then_some((from, end))
    }

    fn is_warm(&self, now: u64) -> bool {
        match self.warmup {
            Amount::Requests(n) => self.warm_ended >= n,
            Amount::Seconds(time) => now.saturating_sub(self.begun) >= nanos(time),
        }
    }

    fn is_closed(&self, now: u64) -> bool {
        self.closed_at(now).is_some()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_requests_keeps_the_load_until_the_last_has_ended() {
        let mut course = Course::new(Amount::Requests(1), Amount::Requests(2), 0);
        assert_eq!([course.begin(1), course.begin(2)], [Some(Part::Warmup); 2]);
        course.end(Part::Warmup, 1, 4);
        assert_eq!(course.begin(5), Some(Part::Warmup), "the first has not ended");
        course.end(Part::Warmup, 0, 5);
        assert_eq!(
            [course.begin(6), course.begin(7), course.begin(8)].map(Option::unwrap),
            [Part::Measured, Part::Measured, Part::After]
        );
        course.end(Part::Measured, 3, 10);
        assert_eq!((course.begin(11), course.done(11)), (Some(Part::After), 0.5));
        course.end(Part::Measured, 4, 20);
        assert_eq!((course.begin(21), course.window(30)), (None, Some((6, 20))));
    }

    #[test]
    fn a_time_waits_for_what_began_in_it() {
        let mut course =
            Course::new(Amount::Seconds(Duration::from_nanos(10)), Amount::Seconds(Duration::from_nanos(100)), 0);
        assert_eq!(course.begin(9), Some(Part::Warmup));
        assert_eq!(course.begin(10), Some(Part::Measured));
        assert_eq!(course.begin(109), Some(Part::Measured));
        assert_eq!(
            (course.begin(110), course.closed_at(110), course.closed_at(109)),
            (Some(Part::After), Some(110), None)
        );
        course.end(Part::Measured, 1, 112);
        assert!(!course.is_over(150));
        course.end(Part::Measured, 2, 160);
        assert_eq!((course.begin(161), course.window(161)), (None, Some((10, 110))));
    }

    #[test]
    fn a_request_that_began_after_the_look_at_the_clock_is_not_given_up() {
        let (drain, patience) = (1_000, 50);
        let mut course = Course::new(Amount::Requests(0), Amount::Requests(1), 0);
        assert_eq!(course.begin(10), Some(Part::Measured));
        assert_eq!(course.gives_up(9, drain, patience), None);
        assert_eq!(course.gives_up(110, drain, patience), None);
        assert_eq!(course.gives_up(111, drain, patience), Some(FailureKind::Unfinished));
        course.end(Part::Measured, 0, 120);
        course.stop(130);
        assert_eq!(course.gives_up(129, drain, u64::MAX), None, "it was over after the look");
        assert_eq!(course.gives_up(1_130, drain, u64::MAX), Some(FailureKind::Cancelled));
    }

    #[test]
    fn a_stage_that_is_stopped_has_the_window_so_far() {
        let mut course = Course::new(Amount::Requests(0), Amount::Seconds(Duration::from_nanos(100)), 0);
        assert_eq!(course.window(5), None);
        course.begin(5);
        course.stop(40);
        assert_eq!((course.begin(6), course.window(40)), (None, Some((5, 40))));
    }
}
