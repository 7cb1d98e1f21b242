//! What is said about a set of measurements: its spread, never a bare mean.

use serde::Serialize;

/// Statistics of one figure over its samples. The unit is the figure's own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of samples.
    pub n: usize,
    /// Median; the same as the 50th percentile.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile, only where there are at least 100 samples: below that it is the maximum under another name.
    pub p99: Option<f64>,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` for one sample.
    pub stddev: Option<f64>,
    /// Bootstrap 95 % interval of the median; `None` for fewer than three samples.
    pub median_ci95: Option<(f64, f64)>,
    /// Every sample in the order of measurement.
    pub samples: Vec<f64>,
}

/// Resamples drawn for the interval of the median.
pub const BOOTSTRAP_RESAMPLES: usize = 2000;

/// Seed of the resampling: the same run always gives the same report.
pub const BOOTSTRAP_SEED: u64 = 0x5eed;

/// Above this many samples the interval comes from order statistics, which the bootstrap approaches and which costs nothing.
const BOOTSTRAP_MOST: usize = 5000;

impl Distribution {
    /// Statistics of `samples`, in the order of measurement; `None` without any. Samples must be finite.
    pub fn of(samples: Vec<f64>) -> Option<Self> {
        if samples.is_empty() || samples.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let stddev = (n > 1).then(|| (sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64).sqrt());
        Some(Self {
            n,
            median: percentile(&sorted, 0.5),
            p90: percentile(&sorted, 0.9),
            p95: percentile(&sorted, 0.95),
            p99: (n >= 100).then(|| percentile(&sorted, 0.99)),
            min: sorted[0],
            max: sorted[n - 1],
            mean,
            stddev,
            median_ci95: (n >= 3).then(|| median_interval(&sorted)),
            samples,
        })
    }

    /// The same figure in another unit.
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            n: self.n,
            median: self.median * factor,
            p90: self.p90 * factor,
            p95: self.p95 * factor,
            p99: self.p99.map(|v| v * factor),
            min: self.min * factor,
            max: self.max * factor,
            mean: self.mean * factor,
            stddev: self.stddev.map(|v| v * factor),
            median_ci95: self.median_ci95.map(|(low, high)| (low * factor, high * factor)),
            samples: self.samples.iter().map(|v| v * factor).collect(),
        }
    }
}

/// The `p`-quantile of sorted samples, interpolated linearly between neighbours (type 7, the default of NumPy and R).
pub(crate) fn percentile(sorted: &[f64], p: f64) -> f64 {
    let position = p * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// A sum that stays at the largest number instead of wrapping: one damaged value must not end a report.
pub(crate) fn total(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, u64::saturating_add)
}

/// [`total`], unknown as soon as one value is.
pub(crate) fn total_if_known(values: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    values.into_iter().try_fold(0u64, |sum, value| Some(sum.saturating_add(value?)))
}

fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len();
    if n > BOOTSTRAP_MOST {
        // Ranks n/2 ± 1.96·√n/2: the binomial interval of the median.
        let half = 0.98 * (n as f64).sqrt();
        let low = (n as f64 / 2.0 - half).floor().max(0.0) as usize;
        let high = ((n as f64 / 2.0 + half).ceil() as usize).min(n - 1);
        return (sorted[low], sorted[high]);
    }
    let mut random = SplitMix(BOOTSTRAP_SEED);
    // As the samples are sorted, a resample's median is that of the ranks drawn: integers are faster to select among.
    let mut ranks = vec![0u32; n];
    let mut medians: Vec<f64> = (0..BOOTSTRAP_RESAMPLES)
        .map(|_| {
            ranks.iter_mut().for_each(|rank| *rank = random.below(n as u32));
            let (below, &mut middle, _) = ranks.select_nth_unstable(n / 2);
            let middle_value = sorted[middle as usize];
            if n % 2 == 1 {
                middle_value
            } else {
                let lower = below.iter().max().map_or(middle, |&rank| rank);
                (sorted[lower as usize] + middle_value) / 2.0
            }
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (percentile(&medians, 0.025), percentile(&medians, 0.975))
}

/// SplitMix64: resampling needs nothing better, and the figures stay the same whatever version of a crate is used.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_by_hand() {
        let d = Distribution::of(vec![4.0, 1.0, 3.0, 2.0, 10.0]).unwrap();
        assert_eq!((d.n, d.median, d.min, d.max, d.mean), (5, 3.0, 1.0, 10.0, 4.0));
        // Deviations 0, −3, −1, −2, 6: Σ² = 50, ÷ 4 = 12.5.
        assert!((d.stddev.unwrap() - 12.5f64.sqrt()).abs() < 1e-12);
        // Rank 0.9·4 = 3.6 between 4 and 10; 0.95·4 = 3.8.
        assert!((d.p90 - 7.6).abs() < 1e-12);
        assert!((d.p95 - 8.8).abs() < 1e-12);
        assert_eq!(d.p99, None);
        assert_eq!(d.samples, [4.0, 1.0, 3.0, 2.0, 10.0]);
    }

    #[test]
    fn p99_needs_a_hundred() {
        assert!(Distribution::of(vec![1.0; 99]).unwrap().p99.is_none());
        assert_eq!(Distribution::of(vec![1.0; 100]).unwrap().p99, Some(1.0));
    }

    #[test]
    fn nothing_has_no_statistics() {
        assert_eq!(Distribution::of(vec![]), None);
        assert_eq!(Distribution::of(vec![f64::NAN]), None);
        let one = Distribution::of(vec![7.0]).unwrap();
        assert_eq!((one.median, one.stddev, one.median_ci95), (7.0, None, None));
    }

    #[test]
    fn the_interval_is_the_same_every_time_and_holds_the_median() {
        let samples: Vec<f64> = (0..101).map(|i| f64::from((i * 37) % 101)).collect();
        let (a, b) = (Distribution::of(samples.clone()).unwrap(), Distribution::of(samples).unwrap());
        assert_eq!(a.median_ci95, b.median_ci95);
        let (low, high) = a.median_ci95.unwrap();
        assert!(low < a.median && a.median < high);
        // The binomial interval of the same ranks is 40.2 to 60.8: the bootstrap must come near it.
        assert!((38.0..44.0).contains(&low) && (57.0..63.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn both_intervals_agree_where_they_meet() {
        let near =
            |n: usize| Distribution::of((0..n).map(|i| i as f64 / n as f64).collect()).unwrap().median_ci95.unwrap();
        let (few, many) = (near(BOOTSTRAP_MOST), near(BOOTSTRAP_MOST + 1));
        assert!((few.0 - many.0).abs() < 0.003 && (few.1 - many.1).abs() < 0.003, "{few:?} {many:?}");
    }
}
