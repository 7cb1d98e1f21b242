//! The 95 % interval of a median of correlated samples: gaps between one request's tokens, steps of one request.
//!
//! What makes a request slow makes all of its tokens slow. Taken as independent, 48 gaps of each of 5 requests would be
//! 240 measurements and their interval several times too narrow. So whole clusters are resampled, with all of their
//! samples (cluster bootstrap), and the interval is between percentiles of the medians. With few clusters that is too
//! narrow as well (with six clusters, 84 to 94 % of intervals contain the median, by simulation). Therefore
//! - percentiles are taken further out, at Φ(−√(m/(m−1)) · t) with Student's t of m − 1 degrees of freedom [Hesterberg,
//!   *What Teachers Should Know About the Bootstrap*, The American Statistician 69 (2015), "expanded percentile"], and
//! - the interval is at least as wide as that of the clusters' medians by order statistics, which is valid for any
//!   distribution.
//!
//! With many clusters the variance of the share of samples below the median, between clusters, gives the same interval
//! without resampling [Woodruff, *Confidence Intervals for Medians*, JASA 47 (1952)].

use super::order;
use super::student::two_sided_quantile;
use candlescope_schema::splitmix;
use statrs::function::erf::erfc;

/// Resamples drawn.
pub(super) const RESAMPLES: usize = 2000;

/// Seed of the resampling: the same run always gives the same report.
const SEED: u64 = 0x5eed;

/// Above this number of clusters there is no resampling.
const DRAWN_MOST: usize = 64;

/// Standard normal 97.5 % quantile.
const Z: f64 = 1.959_963_984_540_054;

/// 95 % interval of the median of all samples of `clusters`, each sorted and none empty. `pooled` has all samples
/// sorted and `medians` the clusters' medians sorted. `None` if there are too few clusters.
pub(super) fn median_interval(
    clusters: &[Vec<f64>],
    pooled: &[f64],
    medians: &[f64],
    resamples: usize,
) -> Option<(f64, f64)> {
    let of_medians = order::median_interval(medians)?;
    if clusters.len() > DRAWN_MOST {
        return Some(linearised(clusters, pooled));
    }
    let drawn = drawn(clusters, pooled, resamples);
    Some((drawn.0.min(of_medians.0), drawn.1.max(of_medians.1)))
}

/// Expanded percentiles of the medians of resampled clusters.
fn drawn(clusters: &[Vec<f64>], pooled: &[f64], resamples: usize) -> (f64, f64) {
    let m = clusters.len();
    let mut random = SplitMix(SEED);
    let mut times = vec![0usize; m];
    let mut medians: Vec<f64> = (0..resamples)
        .map(|_| {
            times.fill(0);
            (0..m).for_each(|_| times[random.below(m as u32) as usize] += 1);
            let n: usize = times.iter().zip(clusters).map(|(times, cluster)| times * cluster.len()).sum();
            let upper = ranked(clusters, &times, pooled, n / 2);
            if n % 2 == 1 { upper } else { (ranked(clusters, &times, pooled, n / 2 - 1) + upper) / 2.0 }
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let out = (m as f64 / (m - 1) as f64).sqrt() * two_sided_quantile(0.05, (m - 1) as f64);
    let share = normal_above(out);
    (order::percentile(&medians, share), order::percentile(&medians, 1.0 - share))
}

/// Share of a standard normal distribution above `x`, which is that below −`x`.
pub fn normal_above(x: f64) -> f64 {
    erfc(x / std::f64::consts::SQRT_2) / 2.0
}

/// The sample of rank `rank`, from 0, if each cluster counts as often as `times` says.
fn ranked(clusters: &[Vec<f64>], times: &[usize], pooled: &[f64], rank: usize) -> f64 {
    let up_to = |value: f64| -> usize {
        let drawn = times.iter().zip(clusters).filter(|(times, _)| **times > 0);
        drawn.map(|(times, cluster)| times * cluster.partition_point(|v| *v <= value)).sum()
    };
    let at = pooled.partition_point(|value| up_to(*value) <= rank);
    pooled[at.min(pooled.len() - 1)]
}

/// Ranks around the middle, at a distance given by how much clusters differ in their share of samples below the median.
fn linearised(clusters: &[Vec<f64>], pooled: &[f64]) -> (f64, f64) {
    let (m, n) = (clusters.len() as f64, pooled.len());
    let median = order::percentile(pooled, 0.5);
    let spread: f64 = clusters
        .iter()
        .map(|cluster| {
            let (below, up_to) = (cluster.partition_point(|v| *v < median), cluster.partition_point(|v| *v <= median));
            // Samples equal to the median count half.
            let off = (below + up_to) as f64 / 2.0 - cluster.len() as f64 / 2.0;
            off * off
        })
        .sum();
    // If all samples are equal the ranks do not matter; otherwise they are at least one sample apart from the middle.
    let half = (Z * (m / (m - 1.0) * spread).sqrt()).max(1.0);
    let middle = n as f64 / 2.0;
    let low = (middle - half).floor().max(0.0) as usize;
    let high = ((middle + half).ceil() as usize).min(n - 1);
    (pooled[low.min(n - 1)], pooled[high])
}

/// SplitMix64: resampling needs nothing better, and the figures stay the same whatever version of a crate is used.
pub struct SplitMix(pub u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(splitmix::STEP);
        splitmix::mixed(self.0)
    }

    /// A number from 0 to `n` − 1, all practically equally likely; 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// At least 0 and below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Distribution, RangeOf};

    fn normal(random: &mut SplitMix) -> f64 {
        (-2.0 * (1.0 - random.uniform()).ln()).sqrt() * (std::f64::consts::TAU * random.uniform()).cos()
    }

    #[test]
    fn samples_of_one_cluster_are_one_unit() {
        // Five requests, each with 47 equal gaps: of 2, 3, 4, 5, 6. As 235 independent samples they would have an
        // interval of 4 to 4.
        let gaps = |n: usize| (0..n).map(|r| vec![2.0 + r as f64; 47]).collect::<Vec<_>>();
        let five = Distribution::clustered(gaps(5)).unwrap();
        assert_eq!((five.n, five.units, five.median, five.median_ci95), (235, 5, 4.0, None));
        let range = five.range.unwrap();
        assert_eq!((range.low, range.high, range.of), (2.0, 6.0, RangeOf::UnitMedians));
        assert!(five.p95.is_some() && five.p99.is_some());
        let six = Distribution::clustered(gaps(6)).unwrap();
        assert_eq!((six.median_ci95, six.range), (Some((2.0, 7.0)), None), "six requests: all of them");
        let one = Distribution::clustered(gaps(1)).unwrap();
        assert_eq!((one.median_ci95, one.range, one.units), (None, None, 1), "one request says nothing of others");
    }

    #[test]
    fn clusters_of_one_sample_are_samples() {
        let values = [5.0, 1.0, 4.0, 2.0, 8.0, 3.0, 9.0];
        let apart = Distribution::clustered(values.iter().map(|v| vec![*v]).collect());
        assert_eq!(apart, Distribution::of(values.to_vec()));
        assert_eq!(Distribution::clustered(vec![vec![], vec![1.0], vec![]]), Distribution::of(vec![1.0]));
        assert_eq!(Distribution::clustered(vec![vec![]]), None);
        assert_eq!(Distribution::clustered(vec![vec![1.0, f64::NAN]]), None);
    }

    #[test]
    fn ranks_count_clusters_as_often_as_they_were_drawn() {
        let clusters = vec![vec![1.0, 4.0], vec![2.0, 3.0, 5.0]];
        let pooled = [1.0, 2.0, 3.0, 4.0, 5.0];
        // 1 1 4 4 and 2 3 5 together: 1 1 2 3 4 4 5.
        let all: Vec<f64> = (0..7).map(|rank| ranked(&clusters, &[2, 1], &pooled, rank)).collect();
        assert_eq!(all, [1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0]);
        assert_eq!(ranked(&clusters, &[0, 2], &pooled, 5), 5.0);
    }

    /// Share of intervals that contain `median`, and their mean width over that of the same samples taken as
    /// independent.
    fn coverage(requests: usize, median: f64, mut draw: impl FnMut(&mut SplitMix) -> Vec<f64>) -> (f64, f64) {
        const REPETITIONS: usize = 400;
        let mut random = SplitMix(20_260_131 + requests as u64);
        let (mut held, mut width, mut naive) = (0, 0.0, 0.0);
        for _ in 0..REPETITIONS {
            let mut clusters: Vec<Vec<f64>> = (0..requests).map(|_| draw(&mut random)).collect();
            clusters.iter_mut().for_each(|c| c.sort_by(f64::total_cmp));
            let mut pooled: Vec<f64> = clusters.iter().flatten().copied().collect();
            pooled.sort_by(f64::total_cmp);
            let mut medians: Vec<f64> = clusters.iter().map(|c| order::percentile(c, 0.5)).collect();
            medians.sort_by(f64::total_cmp);
            let (low, high) = median_interval(&clusters, &pooled, &medians, 1_000).unwrap();
            held += usize::from((low..=high).contains(&median));
            width += high - low;
            let (low, high) = order::median_interval(&pooled).unwrap();
            naive += high - low;
        }
        (held as f64 / REPETITIONS as f64, width / naive)
    }

    #[test]
    fn the_interval_holds_the_median_where_requests_differ() {
        for requests in [6, 8, 10, 20] {
            // Requests differ twice as much as gaps within one do; a gap in twenty is a stall.
            let (strong, wider) = coverage(requests, 10.0, |random| {
                let request = 10.0 + normal(random);
                (0..24).map(|_| request + 0.5 * normal(random)).collect()
            });
            assert!(strong >= 0.94, "{requests} requests that differ: {strong}");
            assert!(wider > 2.5, "taken as independent it would be {wider} times too narrow");
            // Requests hardly differ.
            let (weak, _) = coverage(requests, 10.0, |random| {
                let request = 10.0 + 0.05 * normal(random);
                (0..24).map(|_| request + normal(random)).collect()
            });
            assert!(weak >= 0.94, "{requests} requests that are alike: {weak}");
            // Skewed requests of lengths that differ.
            let (skewed, _) = coverage(requests, 1.0, |random| {
                let request = (0.4 * normal(random)).exp();
                let n = 8 + random.below(32) as usize;
                (0..n).map(|_| request * (0.05 * normal(random)).exp()).collect()
            });
            assert!(skewed >= 0.94, "{requests} skewed requests: {skewed}");
        }
    }

    #[test]
    fn many_clusters_need_no_drawing() {
        let mut random = SplitMix(3);
        let mut clusters: Vec<Vec<f64>> = (0..DRAWN_MOST)
            .map(|_| {
                let request = normal(&mut random);
                (0..16).map(|_| request + 0.3 * normal(&mut random)).collect()
            })
            .collect();
        clusters.iter_mut().for_each(|c| c.sort_by(f64::total_cmp));
        let mut pooled: Vec<f64> = clusters.iter().flatten().copied().collect();
        pooled.sort_by(f64::total_cmp);
        let (few, many) = (drawn(&clusters, &pooled, RESAMPLES), linearised(&clusters, &pooled));
        let width = few.1 - few.0;
        assert!((few.0 - many.0).abs() < 0.2 * width && (few.1 - many.1).abs() < 0.2 * width, "{few:?} {many:?}");
        let equal = vec![vec![3.0; 4]; 500];
        assert_eq!(linearised(&equal, &vec![3.0; 2_000]), (3.0, 3.0));
    }
}
