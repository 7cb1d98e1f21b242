//! Quantiles and bootstrap intervals.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Values from which the tenth and the ninetieth percentile are given.
pub const P90_FROM: usize = 10;

/// A sample's spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest value.
    pub min: f64,
    /// Tenth percentile; `None` below [`P90_FROM`] values, where it would be no different from the smallest.
    pub p10: Option<f64>,
    /// Median.
    pub p50: f64,
    /// Ninetieth percentile, likewise.
    pub p90: Option<f64>,
    /// Number of values.
    pub n: usize,
}

impl Spread {
    /// The spread of a sample; `None` if it is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let min = *sorted.first()?;
        let at = |q| quantile_of_sorted(&sorted, q);
        let tail = |q| (sorted.len() >= P90_FROM).then(|| at(q));
        Some(Self { min, p10: tail(0.1), p50: at(0.5), p90: tail(0.9), n: sorted.len() })
    }
}

/// Median, `NaN` for an empty sample.
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(f64::NAN, |s| s.p50)
}

/// The quantile `q` of values that are not sorted, `NaN` for an empty sample.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    if sorted.is_empty() { f64::NAN } else { quantile_of_sorted(&sorted, q) }
}

/// Linear interpolation between the two neighbouring order statistics (Hyndman and Fan's type 7, numpy's default).
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let low = position.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (position - low as f64)
}

/// Number of pairs from which a ratio has an interval.
pub const INTERVAL_FROM: usize = 6;

/// A ratio of quantiles and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Quantile of the first over the same quantile of the second.
    pub ratio: f64,
    /// Lower end; `None` below [`INTERVAL_FROM`] pairs, for which no interval contains the true ratio in 95 of 100
    /// cases.
    pub low: Option<f64>,
    /// Upper end, likewise.
    pub high: Option<f64>,
    /// Pairs.
    pub pairs: usize,
}

impl Ratio {
    /// The difference from 1 as text: `+1.87 % (+1.02 to +2.75)`.
    pub fn percent(&self) -> String {
        let of = |ratio: f64| (ratio - 1.0) * 1e2;
        match self.low.zip(self.high) {
            Some((low, high)) => format!("{:+.2} % ({:+.2} to {:+.2})", of(self.ratio), of(low), of(high)),
            None => format!("{:+.2} % (too few pairs for an interval)", of(self.ratio)),
        }
    }
}

/// Ratio of the quantiles `q` (0.5: medians) of paired measurements, with a percentile bootstrap over whole pairs: the
/// two of a pair are measured under the same load of the machine, and keeping them together keeps that load out of the
/// interval. Percentiles of few resampled pairs are too narrow, so they are taken further out, at Φ(−√(n/(n−1)) · t)
/// with Student's t of n − 1 degrees of freedom [Hesterberg, *What Teachers Should Know About the Bootstrap*, 2015].
/// Seeded, so that the same data give the same interval.
pub fn ratio_of_quantiles(pairs: &[(f64, f64)], q: f64) -> Ratio {
    const RESAMPLES: usize = 10_000;
    let (mut a, mut b) = (Vec::with_capacity(pairs.len()), Vec::with_capacity(pairs.len()));
    let mut ratio = |sample: &mut dyn Iterator<Item = (f64, f64)>| {
        a.clear();
        b.clear();
        sample.for_each(|(x, y)| {
            a.push(x);
            b.push(y);
        });
        a.sort_unstable_by(f64::total_cmp);
        b.sort_unstable_by(f64::total_cmp);
        quantile_of_sorted(&a, q) / quantile_of_sorted(&b, q)
    };
    let mut rng = StdRng::seed_from_u64(7);
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| ratio(&mut (0..pairs.len()).map(|_| pairs[rng.random_range(0..pairs.len())]))).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (low, high) = match pairs.len() {
        0..INTERVAL_FROM => (None, None),
        n => {
            let share = expanded(n);
            (Some(quantile_of_sorted(&ratios, share)), Some(quantile_of_sorted(&ratios, 1.0 - share)))
        }
    };
    Ratio { ratio: ratio(&mut pairs.iter().copied()), low, high, pairs: pairs.len() }
}

/// The expanded percentile for 2.5 % in a bootstrap of `n` units: 0.0024 for 6, 0.0218 for 60.
fn expanded(n: usize) -> f64 {
    const Z: f64 = 1.959_963_984_540_054;
    let freedom = (n - 1) as f64;
    let power = |n| Z.powi(n);
    // Student's t, 97.5 % quantile [Abramowitz and Stegun, 26.7.5].
    let t = Z
        + (power(3) + Z) / (4.0 * freedom)
        + (5.0 * power(5) + 16.0 * power(3) + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * Z) / (384.0 * freedom.powi(3));
    let x = (n as f64 / freedom).sqrt() * t;
    // Normal distribution below −x [the same, 26.2.17].
    let s = 1.0 / (1.0 + 0.231_641_9 * x);
    let sum =
        s * (0.319_381_530 + s * (-0.356_563_782 + s * (1.781_477_937 + s * (-1.821_255_978 + s * 1.330_274_429))));
    (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum
}

/// Least-squares slope of `y` over `x`, in units of `y` for each unit of `x`; zero for fewer than two points.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mean_x, mean_y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let (covariance, variance) =
        points.iter().fold((0.0, 0.0), |(c, v), p| (c + (p.0 - mean_x) * (p.1 - mean_y), v + (p.0 - mean_x).powi(2)));
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        let s = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((s.min, s.p50, s.n, s.p10, s.p90), (1.0, 2.5, 4, None, None));
        let s = Spread::of(&(1..=11).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!((s.p10, s.p50, s.p90), (Some(2.0), 6.0, Some(10.0)));
        assert!(Spread::of(&[]).is_none());
    }

    #[test]
    fn the_interval_holds_the_ratio_and_is_narrow_for_steady_pairs() {
        let pairs: Vec<_> = (0..40).map(|i| (102.0 + f64::from(i % 3) * 0.1, 100.0 + f64::from(i % 5) * 0.1)).collect();
        let r = ratio_of_quantiles(&pairs, 0.5);
        let (low, high) = (r.low.unwrap(), r.high.unwrap());
        assert!(low <= r.ratio && r.ratio <= high && high - low < 0.01, "{r:?}");
        assert!((r.ratio - 1.019).abs() < 0.002);
        assert_eq!(r, ratio_of_quantiles(&pairs, 0.5));
        let quartile = ratio_of_quantiles(&pairs, 0.25);
        assert!(quartile.low.unwrap() <= quartile.ratio && quartile.ratio <= quartile.high.unwrap(), "{quartile:?}");
    }

    #[test]
    fn few_pairs_have_no_interval_and_some_a_wide_one() {
        let pairs: Vec<_> = (0..5).map(|i| (1.0 + f64::from(i), 1.0)).collect();
        let r = ratio_of_quantiles(&pairs, 0.5);
        assert!(r.ratio == 3.0 && r.low.is_none() && r.high.is_none(), "{r:?}");
        assert_eq!(r.percent(), "+200.00 % (too few pairs for an interval)");
        assert!((expanded(6) - 0.0024).abs() < 1e-4 && (expanded(60) - 0.0218).abs() < 1e-4, "{}", expanded(60));
        assert!((expanded(1_000_000) - 0.025).abs() < 1e-5);
    }

    /// Ratios of pairs with a common disturbance and a true ratio of 1.02.
    #[test]
    fn the_interval_holds_the_ratio_as_often_as_it_says() {
        let mut rng = StdRng::seed_from_u64(11);
        let mut normal = move || {
            let (a, b): (f64, f64) = (rng.random(), rng.random());
            (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        };
        for n in [8, 24] {
            let held = (0..200).filter(|_| {
                let pairs: Vec<_> = (0..n)
                    .map(|_| {
                        let mood = 100.0 + 3.0 * normal();
                        (1.02 * (mood + normal()), mood + normal())
                    })
                    .collect();
                let r = ratio_of_quantiles(&pairs, 0.5);
                r.low.unwrap() <= 1.02 && 1.02 <= r.high.unwrap()
            });
            let coverage = held.count() as f64 / 200.0;
            assert!(coverage >= 0.94, "{n} pairs: {coverage}");
        }
    }

    #[test]
    fn slopes() {
        assert!((slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) - 2.0).abs() < 1e-12);
        assert_eq!(slope(&[(1.0, 1.0)]), 0.0);
    }
}
