//! When a case is warm: when its rolling median has settled.

use super::options::Method;
use candlescope_work::estimate::median;
use std::time::Duration;

/// Repetitions of which the rolling median is taken.
const WINDOW: usize = 3;
/// Share of the median by which it may still move: less is not looked for.
const MOVES: f64 = 0.01;

/// The warm-up of one case.
#[derive(Debug, Clone, Default)]
pub(super) struct WarmUp {
    times: Vec<f64>,
    first: Duration,
    others: Duration,
}

/// Whether warm-up goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Warm {
    /// It goes on: repetitions are too few, or the median moves, and no limit is reached.
    NotYet,
    /// The median has settled.
    Settled,
    /// The median moves still, but there were as many repetitions as there may be.
    Limit,
    /// The median may move still, but the time for warming up is over.
    OutOfTime,
}

impl WarmUp {
    pub(super) fn add(&mut self, ns: u64, spent: Duration) {
        match self.times.is_empty() {
            true => self.first = spent,
            false => self.others += spent,
        }
        self.times.push(ns as f64);
    }

    /// The part of the case's time limit that warming up took. The first repetition loads kernels and fills caches,
    /// which is no part of what the limit is for, unless it is long by itself.
    pub(super) fn spent(&self, method: &Method) -> Duration {
        self.others + if self.first >= most(method) { self.first } else { Duration::ZERO }
    }

    pub(super) fn repetitions(&self) -> u32 {
        self.times.len() as u32
    }

    pub(super) fn state(&self, method: &Method) -> Warm {
        let n = self.repetitions();
        if n >= method.warmup_min && self.settled() {
            return Warm::Settled;
        }
        // Out of time before the fewest repetitions: one that is as long as that says enough about the case.
        if n > 0 && self.spent(method) >= most(method) {
            return Warm::OutOfTime;
        }
        if n >= method.warmup_max.max(method.warmup_min) { Warm::Limit } else { Warm::NotYet }
    }

    /// Whether the median of the last repetitions is where that of the ones before was, as far as they themselves
    /// agree.
    fn settled(&self) -> bool {
        let Some(from) = self.times.len().checked_sub(2 * WINDOW) else { return false };
        let (before, last) = self.times[from..].split_at(WINDOW);
        let (before, _) = middle(before);
        let (last, spread) = middle(last);
        // The spread of the last ones only: those before may be spread because they still fall.
        (before - last).abs() <= (2.0 * spread).max(MOVES * last)
    }
}

/// The longest that warming up may take.
fn most(method: &Method) -> Duration {
    method.time_limit.mul_f64(method.warmup_share.clamp(0.0, 1.0))
}

/// Median, and median distance from it.
fn middle(times: &[f64]) -> (f64, f64) {
    let median = |values| median(values).unwrap_or(0.0);
    let at = median(times.to_vec());
    (at, median(times.iter().map(|time| (time - at).abs()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: &[u64], method: &Method) -> Vec<Warm> {
        let mut warm_up = WarmUp::default();
        let states = times.iter().map(|ns| {
            warm_up.add(*ns, Duration::from_nanos(*ns));
            warm_up.state(method)
        });
        states.collect()
    }

    #[test]
    fn a_falling_time_is_not_warm_and_a_level_one_is() {
        let method = Method::default();
        let falling = [1_000, 800, 600, 500, 400, 300, 200, 150];
        assert!(after(&falling, &method).iter().all(|state| *state == Warm::NotYet));
        let level = [1_000, 500, 100, 101, 100, 102, 100, 101];
        let states = after(&level, &method);
        assert_eq!(states.iter().position(|state| *state == Warm::Settled), Some(6), "{states:?}");
        // Noise that is larger than what the median moves by.
        let noisy = [100, 140, 90, 120, 80, 130];
        assert_eq!(after(&noisy, &method).last(), Some(&Warm::Settled));
    }

    #[test]
    fn limits_end_it() {
        let falling: Vec<u64> = (0..60).map(|n| 1_000_000 / (n + 1)).collect();
        let states = after(&falling, &Method::default().warmup_max(5));
        assert_eq!(states.iter().position(|state| *state == Warm::Limit), Some(4));
        let slow = [3_000_000_000, 5_000_000_000];
        assert_eq!(after(&slow, &Method::default()), [Warm::NotYet, Warm::OutOfTime], "a quarter of 15 s is over");
        let cold = [9_000_000_000];
        assert_eq!(after(&cold, &Method::default()), [Warm::OutOfTime], "a first one that is long by itself counts");
    }
}
