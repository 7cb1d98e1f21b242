//! Statistics of a set of measurements: always with its spread, never a bare mean.
//!
//! The 95 % interval of a median comes from order statistics: with `n` independent samples the number of them below the
//! true median is binomial for any distribution, so the interval between the `k`-th smallest and the `k`-th largest
//! sample contains the median with an exactly known probability [Conover, *Practical Nonparametric Statistics*, 3rd
//! ed., section 3.2]. Below six samples even the smallest and the largest do not reach 95 % (93.8 % with five, 75 %
//! with three): there is no interval then, and the range is given under its own name. Bootstrap percentiles would exist
//! for three samples as well, but contain the median too rarely if samples are few.
//!
//! Correlated samples, such as the gaps between one request's tokens, are not independent: see
//! [`Distribution::clustered`].

mod clusters;
mod order;
mod signed_rank;
mod student;

pub use clusters::{SplitMix, normal_above};
use order::median_interval;
pub(crate) use order::sort;
pub use order::{INTERVAL_FROM, percentile};
pub use signed_rank::slope;
pub use student::{two_sided_p, two_sided_quantile};

use serde::Serialize;

/// Samples from which the 90th percentile is given.
pub const P90_FROM: usize = 10;
/// Samples from which the 95th percentile is given.
pub const P95_FROM: usize = 20;
/// Samples from which the 99th percentile is given.
pub const P99_FROM: usize = 100;

/// Statistics of one figure over its samples. The unit is the figure's own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of samples, that is of measurements, not of things measured.
    pub n: usize,
    /// Independent units they come from; the same as `n` where each sample is one.
    pub units: usize,
    /// Median; the same as the 50th percentile.
    pub median: f64,
    /// 90th percentile; `None` below [`P90_FROM`] samples, where it would be no different from the largest.
    pub p90: Option<f64>,
    /// 95th percentile; `None` below [`P95_FROM`] samples.
    pub p95: Option<f64>,
    /// 99th percentile; `None` below [`P99_FROM`] samples.
    pub p99: Option<f64>,
    /// Smallest of all samples; outliers are not trimmed.
    pub min: f64,
    /// Largest of all samples; outliers are not trimmed.
    pub max: f64,
    /// Arithmetic mean of all samples, each of which counts the same, whatever its cluster.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` for one sample.
    pub stddev: Option<f64>,
    /// 95 % interval of the median; `None` below [`INTERVAL_FROM`] units.
    pub median_ci95: Option<(f64, f64)>,
    /// Given instead of the interval if there are at least two units, but too few for it.
    pub range: Option<Range>,
    /// Every sample: in the order of measurement, or of clusters one after another.
    pub samples: Vec<f64>,
}

/// Smallest and largest of few values, which says nothing about the true median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// Smallest sample, or smallest of the units' medians: as `of` says.
    pub low: f64,
    /// Largest sample, or largest of the units' medians: as `of` says.
    pub high: f64,
    /// What it is a range of.
    pub of: RangeOf,
}

/// What a [`Range`] is a range of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeOf {
    /// Single samples, each of which is a unit of its own.
    Samples,
    /// The medians of each unit's samples.
    UnitMedians,
}

impl RangeOf {
    /// As `metrics.json` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            RangeOf::Samples => "samples",
            RangeOf::UnitMedians => "unit_medians",
        }
    }
}

impl Distribution {
    /// Statistics of independent `samples`, in the order of measurement; `None` without any. Samples must be finite.
    pub fn of(samples: Vec<f64>) -> Option<Self> {
        let sorted = sorted(samples.clone())?;
        let n = sorted.len();
        let interval = median_interval(&sorted);
        let range = Range { low: sorted[0], high: sorted[n - 1], of: RangeOf::Samples };
        let range = (interval.is_none() && n > 1).then_some(range);
        Some(Self { median_ci95: interval, range, ..Self::without_interval(samples, &sorted, n) })
    }

    /// Statistics of samples that are correlated within each of `clusters`, for example the gaps between the tokens of
    /// one request: only clusters are independent, so the interval of the median comes from resampled clusters (cluster
    /// bootstrap). Empty clusters are ignored; `None` without any sample. Samples must be finite.
    pub fn clustered(clusters: Vec<Vec<f64>>) -> Option<Self> {
        let samples = clusters.iter().flatten().copied().collect();
        Some(Self { samples, ..Self::clustered_without_samples(clusters)? })
    }

    /// The same for a figure of which nobody is shown the samples: there may be tens of millions.
    pub fn clustered_without_samples(mut clusters: Vec<Vec<f64>>) -> Option<Self> {
        clusters.retain(|cluster| !cluster.is_empty());
        let samples: Vec<f64> = clusters.iter().flatten().copied().collect();
        if samples.len() == clusters.len() {
            return Self::of(samples).map(|all| Self { samples: Vec::new(), ..all });
        }
        let pooled = sorted(samples)?;
        clusters.iter_mut().for_each(|cluster| cluster.sort_unstable_by(f64::total_cmp));
        let mut medians: Vec<f64> = clusters.iter().map(|cluster| percentile(cluster, 0.5)).collect();
        medians.sort_by(f64::total_cmp);
        let units = clusters.len();
        let interval = clusters::median_interval(&clusters, &pooled, &medians, clusters::RESAMPLES);
        let range = Range { low: medians[0], high: medians[units - 1], of: RangeOf::UnitMedians };
        let range = (interval.is_none() && units > 1).then_some(range);
        Some(Self { median_ci95: interval, range, ..Self::without_interval(Vec::new(), &pooled, units) })
    }

    fn without_interval(samples: Vec<f64>, sorted: &[f64], units: usize) -> Self {
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let stddev = (n > 1).then(|| (sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64).sqrt());
        let tail = |from: usize, p: f64| (n >= from).then(|| percentile(sorted, p));
        Self {
            n,
            units,
            median: percentile(sorted, 0.5),
            p90: tail(P90_FROM, 0.9),
            p95: tail(P95_FROM, 0.95),
            p99: tail(P99_FROM, 0.99),
            min: sorted[0],
            max: sorted[n - 1],
            mean,
            stddev,
            median_ci95: None,
            range: None,
            samples,
        }
    }

    /// The same figure in another unit.
    pub fn scaled(&self, factor: f64) -> Self {
        let option = |v: Option<f64>| v.map(|v| v * factor);
        Self {
            n: self.n,
            units: self.units,
            median: self.median * factor,
            p90: option(self.p90),
            p95: option(self.p95),
            p99: option(self.p99),
            min: self.min * factor,
            max: self.max * factor,
            mean: self.mean * factor,
            stddev: option(self.stddev),
            median_ci95: self.median_ci95.map(|(low, high)| (low * factor, high * factor)),
            range: self.range.map(|r| Range { low: r.low * factor, high: r.high * factor, of: r.of }),
            samples: self.samples.iter().map(|v| v * factor).collect(),
        }
    }
}

/// The samples in order; `None` without any, or if one is not finite.
fn sorted(mut samples: Vec<f64>) -> Option<Vec<f64>> {
    if samples.is_empty() || samples.iter().any(|v| !v.is_finite()) {
        return None;
    }
    sort(&mut samples);
    Some(samples)
}

/// The `p`-quantile of samples in any order, as [`Distribution`] has its percentiles; `None` without any, or if one is
/// not finite.
pub fn percentile_of(samples: &[f64], p: f64) -> Option<f64> {
    sorted(samples.to_vec()).map(|sorted| percentile(&sorted, p.clamp(0.0, 1.0)))
}

/// A saturating sum: one damaged value must not end a report.
pub fn total(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(0, u64::saturating_add)
}

/// [`total`], or `None` if any value is `None`.
pub fn total_if_known(values: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    values.into_iter().try_fold(0u64, |sum, value| Some(sum.saturating_add(value?)))
}

#[cfg(test)]
mod tests {
    use super::clusters::SplitMix;
    use super::order::interval_rank;
    use super::*;

    #[test]
    fn figures_by_hand() {
        let d = Distribution::of(vec![4.0, 1.0, 3.0, 2.0, 10.0]).unwrap();
        assert_eq!((d.n, d.units, d.median, d.min, d.max, d.mean), (5, 5, 3.0, 1.0, 10.0, 4.0));
        // Deviations 0, −3, −1, −2, 6: Σ² = 50, ÷ 4 = 12.5.
        assert!((d.stddev.unwrap() - 12.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(d.samples, [4.0, 1.0, 3.0, 2.0, 10.0]);
        let scaled = d.scaled(10.0);
        assert_eq!((scaled.median, scaled.range.unwrap().high, scaled.p90), (30.0, 100.0, None));
        // Rank 0.9·9 = 8.1 between 9 and 10 of 1 to 10.
        let ten = Distribution::of((1..=10).map(f64::from).collect()).unwrap();
        assert!((ten.p90.unwrap() - 9.1).abs() < 1e-12);
    }

    #[test]
    fn percentiles_need_samples_beyond_them() {
        let of = |n: usize| Distribution::of(vec![1.0; n]).unwrap();
        let known = |n: usize| (of(n).p90.is_some(), of(n).p95.is_some(), of(n).p99.is_some());
        assert_eq!(known(9), (false, false, false));
        assert_eq!(known(10), (true, false, false));
        assert_eq!(known(19), (true, false, false));
        assert_eq!(known(20), (true, true, false));
        assert_eq!(known(99), (true, true, false));
        assert_eq!(known(100), (true, true, true));
    }

    #[test]
    fn few_samples_have_a_range_and_no_interval() {
        assert_eq!(Distribution::of(vec![]), None);
        assert_eq!(Distribution::of(vec![f64::NAN]), None);
        let one = Distribution::of(vec![7.0]).unwrap();
        assert_eq!((one.median, one.stddev, one.median_ci95, one.range), (7.0, None, None, None));
        for n in 2..6 {
            let d = Distribution::of((0..n).map(f64::from).collect()).unwrap();
            assert_eq!(d.median_ci95, None, "{n}");
            assert_eq!(d.range, Some(Range { low: 0.0, high: f64::from(n - 1), of: RangeOf::Samples }));
        }
        let six = Distribution::of((0..6).map(f64::from).collect()).unwrap();
        assert_eq!((six.median_ci95, six.range), (Some((0.0, 5.0)), None), "all of them: 96.9 %");
    }

    #[test]
    fn ranks_are_those_of_the_tables() {
        // [Conover, table A3; scipy.stats.binom.ppf(0.025, n, 0.5)]
        let known = [(5, None), (6, Some(1)), (8, Some(1)), (9, Some(2)), (10, Some(2)), (20, Some(6)), (50, Some(18))];
        for (n, rank) in known.into_iter().chain([(100, Some(40)), (1_000, Some(469)), (100_000, Some(49_690))]) {
            assert_eq!(interval_rank(n), rank, "{n}");
        }
        assert_eq!((interval_rank(0), interval_rank(1)), (None, None));
    }

    /// A distribution's name, its true median, and a sample of it.
    type Kind = (&'static str, f64, fn(&mut SplitMix) -> f64);

    /// Normal, lognormal, exponential, two modes.
    fn kinds() -> [Kind; 4] {
        fn normal(random: &mut SplitMix) -> f64 {
            (-2.0 * (1.0 - random.uniform()).ln()).sqrt() * (std::f64::consts::TAU * random.uniform()).cos()
        }
        [
            ("normal", 0.0, normal),
            ("lognormal", 1.0, |random| normal(random).exp()),
            ("exponential", std::f64::consts::LN_2, |random| -(1.0 - random.uniform()).ln()),
            // A quarter at 0 ± 1 and three quarters at 10 ± 1: the median is at the lower third of the upper mode.
            ("bimodal", 10.0 - 0.430_727_3, |random| {
                if random.uniform() < 0.25 { normal(random) } else { 10.0 + normal(random) }
            }),
        ]
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        const REPETITIONS: usize = 20_000;
        let mut random = SplitMix(20_260_131);
        for (name, median, draw) in kinds() {
            for n in [6, 8, 10, 20, 50] {
                let held = (0..REPETITIONS).filter(|_| {
                    let mut samples: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
                    samples.sort_by(f64::total_cmp);
                    let (low, high) = median_interval(&samples).unwrap();
                    (low..=high).contains(&median)
                });
                let coverage = held.count() as f64 / REPETITIONS as f64;
                assert!((0.94..1.0).contains(&coverage), "{name}, n = {n}: {coverage}");
            }
        }
    }

    #[test]
    fn five_samples_would_not_hold_it() {
        let mut random = SplitMix(7);
        let (_, median, draw) = kinds()[0];
        let held = (0..20_000).filter(|_| {
            let samples: Vec<f64> = (0..5).map(|_| draw(&mut random)).collect();
            samples.iter().any(|v| *v <= median) && samples.iter().any(|v| *v >= median)
        });
        let coverage = held.count() as f64 / 20_000.0;
        assert!((coverage - 0.9375).abs() < 0.006, "even smallest to largest: {coverage}");
    }
}
