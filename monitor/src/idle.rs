//! Idle periods. Pure.

use std::time::Duration;

/// Periods kept for the list; further ones count in the sum.
const MOST_PERIODS: usize = 10_000;

/// When something is idle.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct IdleRule {
    /// The use at most: a share of a GPU's time, or of one core.
    pub at_most: f64,
    /// The shortest period that counts.
    pub at_least: Duration,
    /// Readings further apart than this do not belong to one period: nobody looked in between.
    pub most_gap: Duration,
}

impl Default for IdleRule {
    /// At most 5 % for at least a second, read at least every three seconds.
    fn default() -> Self {
        Self { at_most: 0.05, at_least: Duration::from_secs(1), most_gap: Duration::from_secs(3) }
    }
}

impl IdleRule {
    /// Sets the use at most (default 0.05).
    #[must_use]
    pub fn at_most(mut self, share: f64) -> Self {
        self.at_most = share;
        self
    }

    /// Sets the shortest period (default 1 s).
    #[must_use]
    pub fn at_least(mut self, time: Duration) -> Self {
        self.at_least = time;
        self
    }

    /// Sets the longest time between readings of one period (default 3 s).
    #[must_use]
    pub fn most_gap(mut self, time: Duration) -> Self {
        self.most_gap = time;
        self
    }
}

/// A period in which something was idle, in time since the watching began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idle {
    /// Its beginning: the last reading before the first idle one.
    pub from: Duration,
    /// Its end: the last idle reading.
    pub to: Duration,
}

impl Idle {
    /// Time from the last reading before it to its last idle reading.
    pub fn length(&self) -> Duration {
        self.to.saturating_sub(self.from)
    }
}

/// Collects idle periods, reading by reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct IdleTracker {
    /// The last reading with a value.
    last: Option<Duration>,
    open: Option<Idle>,
    done: Vec<Idle>,
    unlisted: u64,
    closed_time: Duration,
    /// Time between readings with a value, all of it.
    observed: Duration,
}

impl IdleTracker {
    /// A reading's value is of the time since the reading before. Without a value nothing is known of that time, which
    /// ends a period.
    pub(crate) fn push(&mut self, at: Duration, value: Option<f64>, rule: &IdleRule) {
        let before = self.last.filter(|last| at.saturating_sub(*last) <= rule.most_gap);
        let Some(value) = value else {
            self.last = None;
            return self.close(rule);
        };
        self.last = Some(at);
        self.observed += before.map_or(Duration::ZERO, |before| at.saturating_sub(before));
        if before.is_none() || value > rule.at_most {
            self.close(rule);
        }
        if value <= rule.at_most {
            let from = before.unwrap_or(at);
            self.open.get_or_insert(Idle { from, to: at }).to = at;
        }
    }

    fn close(&mut self, rule: &IdleRule) {
        let Some(period) = self.open.take().filter(|period| period.length() >= rule.at_least) else { return };
        self.closed_time += period.length();
        if self.done.len() < MOST_PERIODS {
            self.done.push(period);
        } else {
            self.unlisted += 1;
        }
    }

    fn still_open(&self, rule: &IdleRule) -> Option<Idle> {
        self.open.filter(|period| period.length() >= rule.at_least)
    }

    /// Periods so far, the present one included.
    pub(crate) fn periods(&self, rule: &IdleRule) -> Vec<Idle> {
        self.done.iter().copied().chain(self.still_open(rule)).collect()
    }

    /// Number of periods, those that are not listed included.
    pub(crate) fn count(&self, rule: &IdleRule) -> u64 {
        self.done.len() as u64 + self.unlisted + u64::from(self.still_open(rule).is_some())
    }

    /// Time in idle periods.
    pub(crate) fn total(&self, rule: &IdleRule) -> Duration {
        self.closed_time + self.still_open(rule).map_or(Duration::ZERO, |period| period.length())
    }

    /// Time of which something is known.
    pub(crate) fn observed(&self) -> Duration {
        self.observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[(u64, Option<f64>)]) -> Vec<(u64, u64)> {
        let rule = IdleRule::default().at_least(Duration::from_secs(2));
        let mut tracker = IdleTracker::default();
        values.iter().for_each(|(second, value)| tracker.push(Duration::from_secs(*second), *value, &rule));
        tracker.periods(&rule).iter().map(|idle| (idle.from.as_secs(), idle.to.as_secs())).collect()
    }

    #[test]
    fn a_period_is_from_the_last_busy_reading_to_the_last_idle_one() {
        let (busy, idle) = (Some(0.9), Some(0.05));
        assert_eq!(found(&[(0, busy), (1, busy), (2, idle), (3, idle), (4, busy), (5, idle), (6, busy)]), [(1, 3)]);
        assert_eq!(found(&[(0, idle), (1, idle), (2, idle)]), [(0, 2)], "the first reading tells of no time before it");
        assert_eq!(found(&[(0, idle), (1, idle)]), [], "too short");
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn unknown_and_unobserved_time_is_not_idle() {
        let idle = Some(0.0);
        assert_eq!(
            found(&[(0, idle), (1, idle), (2, idle), (3, None), (4, idle), (5, idle), (6, idle)]),
            [(0, 2), (4, 6)]
        );
        assert_eq!(found(&[(0, idle), (2, idle), (50, idle), (52, idle)]), [(0, 2), (50, 52)], "suspended");
    }

    #[test]
    fn sums_hold_however_many_periods_there_are() {
        let rule = IdleRule::default();
        let mut tracker = IdleTracker::default();
        let n = MOST_PERIODS as u64 + 5;
        for second in 0..2 * n {
            tracker.push(Duration::from_secs(second), Some((second % 2) as f64), &rule);
        }
        assert_eq!(tracker.periods(&rule).len(), MOST_PERIODS);
        // The first period has no reading before it.
        assert_eq!((tracker.count(&rule), tracker.total(&rule)), (n - 1, Duration::from_secs(n - 1)));
        assert_eq!(tracker.observed(), Duration::from_secs(2 * n - 1));
    }
}
