//! Quantiles and bootstrap intervals.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// A sample's spread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest value.
    pub min: f64,
    /// Tenth percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// Ninetieth percentile.
    pub p90: f64,
    /// Number of values.
    pub n: usize,
}

impl Spread {
    /// Of a sample; `None` if it is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let min = *sorted.first()?;
        let at = |q| quantile_of_sorted(&sorted, q);
        Some(Self { min, p10: at(0.1), p50: at(0.5), p90: at(0.9), n: sorted.len() })
    }
}

/// Median, `NaN` for an empty sample.
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(f64::NAN, |s| s.p50)
}

/// Linear interpolation between the two neighbouring order statistics (Hyndman and Fan's type 7, numpy's default).
fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let low = position.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * (position - low as f64)
}

/// A ratio of quantiles and its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Quantile of the first over the same quantile of the second.
    pub ratio: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs.
    pub pairs: usize,
}

/// Ratio of the quantiles `q` (0.5: medians) of paired measurements, with a percentile bootstrap over whole pairs: neighbours
/// share the machine's mood, and keeping them together keeps that out of the interval. Seeded, so that the same data give
/// the same interval.
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
    Ratio {
        ratio: ratio(&mut pairs.iter().copied()),
        low: quantile_of_sorted(&ratios, 0.025),
        high: quantile_of_sorted(&ratios, 0.975),
        pairs: pairs.len(),
    }
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
        assert_eq!((s.min, s.p50, s.n), (1.0, 2.5, 4));
        assert!((s.p10 - 1.3).abs() < 1e-12 && (s.p90 - 3.7).abs() < 1e-12);
        assert!(Spread::of(&[]).is_none());
    }

    #[test]
    fn the_interval_holds_the_ratio_and_is_narrow_for_steady_pairs() {
        let pairs: Vec<_> = (0..40).map(|i| (102.0 + f64::from(i % 3) * 0.1, 100.0 + f64::from(i % 5) * 0.1)).collect();
        let r = ratio_of_quantiles(&pairs, 0.5);
        assert!(r.low <= r.ratio && r.ratio <= r.high && r.high - r.low < 0.01, "{r:?}");
        assert!((r.ratio - 1.019).abs() < 0.002);
        assert_eq!(r, ratio_of_quantiles(&pairs, 0.5));
        let quartile = ratio_of_quantiles(&pairs, 0.25);
        assert!(quartile.low <= quartile.ratio && quartile.ratio <= quartile.high, "{quartile:?}");
    }

    #[test]
    fn slopes() {
        assert!((slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) - 2.0).abs() < 1e-12);
        assert_eq!(slope(&[(1.0, 1.0)]), 0.0);
    }
}
