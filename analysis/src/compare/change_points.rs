//! Where a history changed its level.
//!
//! E-divisive: the split with the largest energy distance between what is before and what is after it counts if few
//! random orders of the same values have one as large, and both sides are split again [Matteson and James, *A
//! nonparametric approach for multiple change point analysis of multivariate data*, JASA 109 (2014)]. It needs neither
//! a model of the noise nor a threshold, and is what MongoDB watches its performance tests with [Daly et al., *The use
//! of change point detection to identify software performance regressions*, ICPE 2020].

use rand::rngs::StdRng;
use rand::{SeedableRng, seq::SliceRandom};
use serde::{Deserialize, Serialize};

/// Fewest values on either side of a change.
const LEAST: usize = 3;
/// Random orders of which at most one in a hundred may have a split as good.
const ORDERS: usize = 199;
/// Most values that are looked at, the newest ones: time grows with the square.
pub const MOST_VALUES: usize = 300;

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ChangePoint {
    /// Position of the first value after the change.
    pub at: usize,
    /// Median of the values from the change before, or the beginning, to this one.
    pub before: f64,
    /// Median of the values from here to the next change, or the end.
    pub after: f64,
    /// Share of random orders with a split as good.
    pub p: f64,
}

/// Changes of level in `values`, in order; at most the share `alpha` of histories without any is said to have one. Of
/// more than [`MOST_VALUES`] values, the last ones are looked at. Values that are not finite have no place in it.
pub fn change_points(values: &[f64], alpha: f64) -> Vec<ChangePoint> {
    let from = values.len().saturating_sub(MOST_VALUES);
    let recent = &values[from..];
    let mut random = StdRng::seed_from_u64(0xd1f1);
    let (mut found, mut open) = (Vec::new(), vec![(0, recent.len())]);
    while let Some((start, end)) = open.pop() {
        let Some((at, p)) = split(&recent[start..end], alpha, &mut random) else { continue };
        found.push((start + at, p));
        open.extend([(start, start + at), (start + at, end)]);
    }
    found.sort_by_key(|(at, _)| *at);
    let ends: Vec<usize> = found.iter().map(|(at, _)| *at).chain([recent.len()]).collect();
    let mut start = 0;
    let points = found.iter().zip(&ends[1..]).map(|((at, p), end)| {
        let point = ChangePoint {
            at: from + at,
            before: median(&recent[start..*at]),
            after: median(&recent[*at..*end]),
            p: *p,
        };
        start = *at;
        point
    });
    points.collect()
}

/// The median of values; 0 of none.
pub(super) fn median(values: &[f64]) -> f64 {
    crate::passes::stats::percentile_of(values, 0.5).unwrap_or(0.0)
}

fn split(values: &[f64], alpha: f64, random: &mut StdRng) -> Option<(usize, f64)> {
    let (at, best) = best_split(values)?;
    let mut drawn = values.to_vec();
    let mut as_good = 0;
    for _ in 0..ORDERS {
        drawn.shuffle(random);
        as_good += usize::from(best_split(&drawn).is_some_and(|(_, other)| other >= best));
    }
    let p = (as_good + 1) as f64 / (ORDERS + 1) as f64;
    (p <= alpha).then_some((at, p))
}

/// The split with the largest scaled energy distance, and that distance. Moving one value at a time to the left side
/// keeps all three sums up to date.
fn best_split(values: &[f64]) -> Option<(usize, f64)> {
    let n = values.len();
    if n < 2 * LEAST {
        return None;
    }
    let to = |value: f64, others: &[f64]| others.iter().map(|other| (value - other).abs()).sum::<f64>();
    let (mut left, mut between) = (0.0, 0.0);
    let mut right: f64 = (0..n).map(|i| to(values[i], &values[i + 1..])).sum();
    let mut best: Option<(usize, f64)> = None;
    for at in 1..=n - LEAST {
        let moved = values[at - 1];
        let (to_left, to_right) = (to(moved, &values[..at - 1]), to(moved, &values[at..]));
        left += to_left;
        right -= to_right;
        between += to_right - to_left;
        if at < LEAST {
            continue;
        }
        let (m, k) = (at as f64, (n - at) as f64);
        let distance = 2.0 / (m * k) * between - 2.0 / (m * (m - 1.0)) * left - 2.0 / (k * (k - 1.0)) * right;
        let scaled = m * k / (m + k) * distance;
        if best.is_none_or(|(_, most)| scaled > most) {
            best = Some((at, scaled));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    fn noise(n: usize, random: &mut StdRng) -> Vec<f64> {
        // One value in ten is far off.
        let mut value = || {
            let usual: f64 = (0..4).map(|_| random.random::<f64>() - 0.5).sum();
            usual * 0.02 + if random.random::<f64>() < 0.1 { 0.2 } else { 0.0 }
        };
        (0..n).map(|_| value()).collect()
    }

    #[test]
    fn a_step_of_a_history_is_found_where_it_is() {
        let mut random = StdRng::seed_from_u64(1);
        let mut values = noise(40, &mut random);
        values.iter_mut().skip(25).for_each(|value| *value += 0.06);
        let found = change_points(&values, 0.01);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!((23..=27).contains(&found[0].at), "{found:?}");
        assert!((found[0].after - found[0].before - 0.06).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn a_history_without_a_step_has_none() {
        let mut random = StdRng::seed_from_u64(2);
        let wrong = (0..60).filter(|_| !change_points(&noise(30, &mut random), 0.01).is_empty()).count();
        assert!(wrong <= 3, "{wrong} of 60");
        assert!(change_points(&[1.0, 5.0, 9.0], 0.01).is_empty());
    }
}
