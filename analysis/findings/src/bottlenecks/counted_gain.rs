//! What a change could gain of time that was counted in samples: how many are too few to tell of it, and between what
//! the gain lies.

use super::host_causes::CauseTime;
use candlescope_figures::advice::RATES;

/// What rests on fewer samples is not told: two standard errors of n samples are 2/√n of the time that they stand for,
/// from here on a third of it at most.
pub(super) const FEWEST_COUNTS: f64 = 36.0;

/// Time that a change could gain, in nanoseconds of all steps that were sampled.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CountedGain {
    /// What was counted.
    pub(super) ns: f64,
    /// Two standard errors of counting it, between which it lies in 95 of 100 runs.
    pub(super) error_ns: f64,
    /// The most that may be gained.
    most_ns: f64,
    /// In how many samples, each standing for as much, it would be known as well.
    counts: f64,
}

impl CountedGain {
    /// All of this time, of `elapsed_ns` that passed.
    pub(super) fn of(time: &CauseTime, elapsed_ns: f64) -> Self {
        Self::of_part(time, 0.0, elapsed_ns)
    }

    /// The same of time of which this share was measured, from 0 to 1, and not counted: only the rest has an error.
    pub(super) fn of_part(time: &CauseTime, measured: f64, elapsed_ns: f64) -> Self {
        let rest = (1.0 - measured).clamp(0.0, 1.0);
        let counts = if rest > 0.0 { time.counts() / rest } else { f64::INFINITY };
        let error_ns = 2.0 * time.error_ns(elapsed_ns) * rest.sqrt();
        Self { ns: time.ns(), error_ns, most_ns: time.ns() + error_ns, counts }
    }

    /// Less what has to be done instead, which was counted as well.
    pub(super) fn without(self, instead: &CauseTime, elapsed_ns: f64) -> Self {
        let ns = (self.ns - instead.ns()).max(0.0);
        Self { ns, error_ns: self.error_ns.hypot(2.0 * instead.error_ns(elapsed_ns)), ..self }
    }

    /// Whether too few samples tell of it.
    pub(super) fn rests_on_few(&self) -> bool {
        self.counts < FEWEST_COUNTS
    }

    /// Standard error as a share of the time that passed; `None` where nothing was counted.
    pub(super) fn share_error(&self, elapsed_ns: f64) -> Option<f64> {
        (self.error_ns > 0.0).then_some(self.error_ns / 2.0 / elapsed_ns)
    }

    /// At a part of the attainable rate: the lowest of the lower end of what was counted, the highest of the upper one.
    pub(super) fn at(&self, rate: f64) -> f64 {
        match rate {
            rate if rate <= RATES[0] => (self.ns - self.error_ns).max(0.0),
            rate if rate < RATES[2] => self.ns,
            _ => (self.ns + self.error_ns).min(self.most_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_has_no_error_of_counting_and_a_part_of_it_has_less() {
        let waits = CauseTime { blocked_ns: 100.0, waits: 10, counted_waits: 10.0, ..CauseTime::default() };
        let of = |measured| CountedGain::of_part(&waits, measured, 1_000.0);
        let counted = of(0.0);
        assert!(counted.rests_on_few() && (counted.error_ns - 2.0 * waits.error_ns(1_000.0)).abs() < 1e-9);
        // Three quarters were measured: as if four times as many had been counted.
        let part = of(0.75);
        assert!(!part.rests_on_few() && (part.error_ns - counted.error_ns / 2.0).abs() < 1e-9);
        let measured = of(1.0);
        assert!(!measured.rests_on_few() && measured.share_error(1_000.0).is_none());
        assert_eq!(RATES.map(|rate| measured.at(rate)), [100.0; 3]);
    }
}
