//! Where a history changed its level.
//!
//! E-divisive: the split with the largest energy distance between what is before and what is after it counts if few
//! random orders of the same values have one as large, and both sides are split again [Matteson and James, *A
//! nonparametric approach for multiple change point analysis of multivariate data*, JASA 109 (2014)]. It needs neither
//! a model of the noise nor a threshold, and is what MongoDB watches its performance tests with [Daly et al., *The use
//! of change point detection to identify software performance regressions*, ICPE 2020]. Random orders take values to be
//! independent; days that hang together wander off and look like a change of level. So each change that is found is
//! held against a [`sequence`](super::sequence) whose noise is passed on in part, and is dropped if that explains it.

use super::sequence::{TimedValue, step};
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
    confirm(recent, &mut found, alpha);
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

/// Values at the end in which a change that is only just there is looked for, with their shares of the probability to
/// be wrong, which add up to 1.
const RECENT: [(usize, f64); 7] = [(2, 0.25), (3, 0.2), (4, 0.15), (5, 0.1), (6, 0.1), (8, 0.1), (12, 0.1)];

/// A change of level by more than `margin` upwards or downwards, not long before the end of `values`: of the last 2 to
/// 12 of them against those before, of which there have to be `least`. Finds one sooner than [`change_points`], which
/// wants three values after it. At most the share `alpha` of histories without any is said to have one.
pub fn recent_change(values: &[f64], least: usize, margin: f64, alpha: f64) -> Option<ChangePoint> {
    let recent = &values[values.len().saturating_sub(MOST_VALUES)..];
    let from = values.len() - recent.len();
    let tests = RECENT.into_iter().filter(|(last, _)| recent.len() >= last + least).filter_map(|(last, share)| {
        let at = recent.len() - last;
        let found = step(&ordered(recent, at), false, alpha)?;
        Some((at, found, found.p / share))
    });
    let clear = tests.filter(|(_, found, p)| *p <= alpha && found.height.abs() > margin);
    let (at, _, p) = clear.min_by(|a, b| a.2.total_cmp(&b.2))?;
    let (before, after) = recent.split_at(at);
    Some(ChangePoint { at: from + at, before: median(before), after: median(after), p })
}

/// Changes of level anywhere in `values`, by [`change_points`] at `alpha`, and of the last ones since, by
/// [`recent_change`] with the rest of its arguments.
pub fn level_changes(values: &[f64], alpha: f64, least: usize, margin: f64, alpha_recent: f64) -> Vec<ChangePoint> {
    let mut points = change_points(values, alpha);
    let from = points.last().map_or(0, |point| point.at);
    let recent = recent_change(&values[from..], least, margin, alpha_recent);
    points.extend(recent.map(|point| ChangePoint { at: point.at + from, ..point }));
    points
}

fn ordered(values: &[f64], after: usize) -> Vec<TimedValue> {
    let at = |(at, value): (usize, &f64)| TimedValue { time: at as f64, after: at >= after, value: *value };
    values.iter().enumerate().map(at).collect()
}

/// Drops changes that noise explains which is passed on from value to value, the least clear one first, because without
/// it there is more on either side of the others.
fn confirm(values: &[f64], found: &mut Vec<(usize, f64)>, alpha: f64) {
    loop {
        let ends: Vec<usize> =
            std::iter::once(0).chain(found.iter().map(|(at, _)| *at)).chain([values.len()]).collect();
        let p = |at: usize| {
            let (start, middle, end) = (ends[at], ends[at + 1], ends[at + 2]);
            let mut part = calm(&values[start..middle]);
            part.extend(calm(&values[middle..end]));
            // Any place could have been found.
            step(&ordered(&part, middle - start), false, alpha).map_or(1.0, |step| step.p * (end - start) as f64)
        };
        let worst = (0..found.len()).map(|at| (at, p(at))).max_by(|a, b| a.1.total_cmp(&b.1));
        match worst {
            Some((at, p)) if p > alpha => {
                found.remove(at);
            }
            _ => return,
        }
    }
}

/// Values with those far off brought in to where others may be: one bad day is no level.
fn calm(values: &[f64]) -> Vec<f64> {
    let middle = median(values);
    let far: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let reach = 3.0 * 1.4826 * median(&far);
    values.iter().map(|value| value.max(middle - reach).min(middle + reach)).collect()
}

/// The median of values; 0 of none, and where one is not finite.
pub fn median(values: &[f64]) -> f64 {
    candlescope_figures::stats::percentile_of(values, 0.5).unwrap_or(0.0)
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

    /// Days that hang together wander: of each ten, eight tenths are still there on the next.
    #[test]
    fn days_that_hang_together_have_no_step() {
        let mut random = StdRng::seed_from_u64(3);
        let history = |random: &mut StdRng| -> Vec<f64> {
            let mut day = 0.0;
            let mut next = || {
                day = 0.8 * day + 0.006 * (0..12).map(|_| random.random::<f64>() - 0.5).sum::<f64>();
                day
            };
            (0..30).map(|_| next()).skip(5).collect()
        };
        let histories: Vec<Vec<f64>> = (0..40).map(|_| history(&mut random)).collect();
        let wrong = histories.iter().filter(|values| !change_points(values, 0.01).is_empty()).count();
        assert!(wrong <= 1, "{wrong} of 40");
        let soon = histories.iter().filter(|values| recent_change(values, 4, 0.02, 0.02).is_some()).count();
        assert!(soon <= 2, "{soon} of 40");
    }

    #[test]
    fn a_change_is_seen_soon_after_it() {
        let mut random = StdRng::seed_from_u64(4);
        let mut values: Vec<f64> = (0..15).map(|_| 0.01 * (random.random::<f64>() - 0.5)).collect();
        values[12..].iter_mut().for_each(|value| *value += 0.04);
        let found = recent_change(&values, 4, 0.02, 0.02).expect("a change");
        assert!((11..=13).contains(&found.at) && found.after - found.before > 0.03, "{found:?}");
        assert_eq!(recent_change(&values, 4, 0.05, 0.02), None, "less than the margin");
        assert_eq!(recent_change(&values[..5], 4, 0.02, 0.02), None, "too few days");
    }
}
