//! Statistics of many durations, without their samples.

use serde::Serialize;

/// How values spread. The percentiles interpolate linearly between samples, as pandas does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Samples that all of this is over; at least one.
    pub n: u64,
    /// Sum of all samples, in their unit.
    pub total: f64,
    /// Arithmetic mean of all samples: `total` ÷ `n`.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` for one sample.
    pub stddev: Option<f64>,
    /// Smallest of all samples; outliers are not trimmed.
    pub min: f64,
    /// 25th percentile, however few samples there are.
    pub p25: f64,
    /// Median; of an even number of samples the mean of the middle two.
    pub p50: f64,
    /// 75th percentile, however few samples there are.
    pub p75: f64,
    /// 95th percentile; `None` below 20 samples.
    pub p95: Option<f64>,
    /// 99th percentile; `None` below 100 samples.
    pub p99: Option<f64>,
    /// Largest of all samples; outliers are not trimmed.
    pub max: f64,
}

impl Spread {
    /// Of whole numbers in any order; `None` without any.
    pub(super) fn of(mut values: Vec<u64>) -> Option<Self> {
        let sums = Sums::of(values.iter().map(|value| (*value, 1)))?;
        // There may be tens of millions, of which a few are wanted.
        let mut from = 0;
        Some(sums.spread(|rank| {
            let rank = rank as usize;
            if rank >= from {
                values[from..].select_nth_unstable(rank - from);
                from = rank;
            }
            values[rank] as f64
        }))
    }

    /// Of values with the number of times each occurs, ascending; `None` without any.
    pub(super) fn of_counts(counts: &[(u64, u64)]) -> Option<Self> {
        let sums = Sums::of(counts.iter().copied())?;
        Some(sums.spread(|rank| {
            let mut below = 0;
            let at = counts.iter().find(|(_, n)| {
                below += n;
                rank < below
            });
            at.map_or(0.0, |(value, _)| *value as f64)
        }))
    }

    /// The same with `by` added to each value.
    pub(super) fn shifted(self, by: f64) -> Self {
        Self { total: self.total + by * self.n as f64, ..self.each(|value| value + by) }
    }

    /// The same in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |value: f64| value * factor;
        Self { total: scale(self.total), stddev: self.stddev.map(scale), ..self.each(scale) }
    }

    /// The same with each value changed, as far as that changes single ones and their mean.
    fn each(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            mean: change(self.mean),
            min: change(self.min),
            p25: change(self.p25),
            p50: change(self.p50),
            p75: change(self.p75),
            p95: self.p95.map(&change),
            p99: self.p99.map(&change),
            max: change(self.max),
            ..self
        }
    }
}

/// Exact sums: 2⁶⁴ squares of 64-bit numbers fit 192 bits, and no run has that many.
struct Sums {
    n: u64,
    total: u128,
    squares: u128,
}

impl Sums {
    fn of(values: impl Iterator<Item = (u64, u64)>) -> Option<Self> {
        let mut sums = Self { n: 0, total: 0, squares: 0 };
        for (value, n) in values {
            let (value, times) = (u128::from(value), u128::from(n));
            sums.n += n;
            sums.total = sums.total.saturating_add(value * times);
            sums.squares = sums.squares.saturating_add(value.saturating_mul(value).saturating_mul(times));
        }
        (sums.n > 0).then_some(sums)
    }

    fn stddev(&self) -> Option<f64> {
        stddev(self.n, self.total, self.squares)
    }

    /// `at_rank` is asked in ascending order, but for ranks that it was asked before.
    fn spread(&self, mut at_rank: impl FnMut(u64) -> f64) -> Spread {
        let mut percentile = |p: f64| {
            let rank = p * (self.n - 1) as f64;
            let (low, share) = (rank.floor() as u64, rank.fract());
            let value = at_rank(low);
            if share == 0.0 { value } else { value + share * (at_rank(low + 1) - value) }
        };
        Spread {
            n: self.n,
            total: self.total as f64,
            mean: self.total as f64 / self.n as f64,
            stddev: self.stddev(),
            min: percentile(0.0),
            p25: percentile(0.25),
            p50: percentile(0.5),
            p75: percentile(0.75),
            p95: (self.n >= 20).then(|| percentile(0.95)),
            p99: (self.n >= 100).then(|| percentile(0.99)),
            max: percentile(1.0),
        }
    }
}

/// Sample standard deviation from exact sums; `None` below two samples.
pub(super) fn stddev(n: u64, total: u128, squares: u128) -> Option<f64> {
    if n < 2 {
        return None;
    }
    // n·Σx² − (Σx)² is exact where it fits, so that nothing cancels.
    let variance = match u128::from(n).checked_mul(squares).zip(total.checked_mul(total)) {
        Some((scaled, square)) => scaled.saturating_sub(square) as f64 / n as f64 / (n - 1) as f64,
        None => (squares as f64 - total as f64 / n as f64 * total as f64).max(0.0) / (n - 1) as f64,
    };
    Some(variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_pandas_describes_it() {
        // pandas.Series([1, 2, 4, 8, 100]).describe()
        let spread = Spread::of(vec![100, 1, 8, 2, 4]).unwrap();
        assert_eq!((spread.n, spread.mean, spread.min, spread.max), (5, 23.0, 1.0, 100.0));
        assert_eq!((spread.p25, spread.p50, spread.p75), (2.0, 4.0, 8.0));
        assert!((spread.stddev.unwrap() - 43.127_717_305_695_65).abs() < 1e-9);
        assert_eq!((spread.p95, spread.p99), (None, None));
        let two = Spread::of(vec![3, 1]).unwrap();
        assert_eq!((two.min, two.p25, two.p50, two.p75, two.max), (1.0, 1.5, 2.0, 2.5, 3.0));
        let even = Spread::of(vec![1, 2, 3, 10]).unwrap();
        assert_eq!((even.p25, even.p50, even.p75), (1.75, 2.5, 4.75));
        assert_eq!(Spread::of_counts(&[(1, 1), (2, 1), (3, 1), (10, 1)]), Some(even));
        let repeated = Spread::of_counts(&[(0, 3), (7, 2)]).unwrap();
        assert_eq!(Some(repeated), Spread::of(vec![7, 0, 0, 7, 0]));
        assert_eq!(Spread::of(Vec::new()), None);
        // Each rank that is asked for is found whatever the order, with equal values and without.
        for n in [1, 2, 19, 20, 100, 101, 1_000] {
            let counts: Vec<(u64, u64)> = (0..n).map(|value| (value * value / 3, 1)).collect();
            // 7919 is prime, so that each is there once.
            let shuffled = (0..n).map(|at| counts[(at * 7_919 % n) as usize].0).collect();
            assert_eq!(Spread::of(shuffled), Spread::of_counts(&counts), "{n}");
        }
    }
}
