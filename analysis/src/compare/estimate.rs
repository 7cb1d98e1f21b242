//! How a figure changed from one side to the other, with an interval: in pairs, between runs, or between parts of runs.

use super::paired_median;
use super::sampled::Sampled;
use super::student::{Mean, two_sided_quantile, welch};
use crate::passes::stats::percentile_of;
use serde::{Deserialize, Serialize};

/// What an interval rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Runs taken in pairs, one of each side after the other.
    Pairs,
    /// Several runs of at least one side.
    Runs,
    /// One run of each side, and how much its parts differ.
    Parts,
}

/// Which runs belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    pub(super) pairs: Option<Vec<(usize, usize)>>,
}

impl Design {
    /// Runs of A and B that were not taken in turns.
    pub fn apart() -> Self {
        Self { pairs: None }
    }

    /// Pairs by when runs started, in the order in which they were taken: if, ordered by start, each two runs are one of
    /// each side, they were taken in turns.
    pub fn of_starts(a: &[i64], b: &[i64]) -> Self {
        let mut order: Vec<(i64, bool, usize)> = a.iter().enumerate().map(|(at, start)| (*start, false, at)).collect();
        order.extend(b.iter().enumerate().map(|(at, start)| (*start, true, at)));
        order.sort_unstable();
        // What is left over at the end was stopped in the middle of a pair.
        let pairs: Option<Vec<_>> = order
            .chunks_exact(2)
            .map(|pair| match pair {
                [(_, false, a), (_, true, b)] | [(_, true, b), (_, false, a)] => Some((*a, *b)),
                _ => None,
            })
            .collect();
        let known = a.iter().chain(b).all(|start| *start > 0);
        let even = a.len().abs_diff(b.len()) <= 1 && a.len().min(b.len()) > 1;
        Self { pairs: pairs.filter(|_| known && even) }
    }

    /// Number of pairs.
    pub fn pairs(&self) -> Option<usize> {
        self.pairs.as_ref().map(Vec::len)
    }
}

/// Whether changes are ratios or differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Ratios: B ÷ A − 1, through logarithms.
    Ratio,
    /// Differences: B − A.
    Difference,
}

/// How a figure changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The change.
    pub change: f64,
    /// Lower end of its interval; absent if there are too few runs for one.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Probability of a change at least as clear without any, at most.
    pub p: f64,
    /// What it rests on.
    pub basis: Basis,
    /// Runs, or pairs of them, that have the figure: of A and B.
    pub n: (usize, usize),
}

/// The change of a figure from the runs of A to those of B; `None` unless both sides have it, and it is above zero
/// where a ratio is asked for.
pub(super) fn estimate(
    design: &Design,
    a: &[Option<Sampled>],
    b: &[Option<Sampled>],
    scale: Scale,
    alpha: f64,
) -> Option<Estimate> {
    let (a, b) = (transformed(a, scale), transformed(b, scale));
    let found = match &design.pairs {
        Some(pairs) => of_pairs(pairs, &a, &b, alpha)?,
        None => of_runs(&a, &b, alpha)?,
    };
    let back = |value: f64| if scale == Scale::Ratio { value.exp_m1() } else { value };
    Some(Estimate { change: back(found.change), low: found.low.map(back), high: found.high.map(back), ..found })
}

/// Values and their parts as they are compared; without those that cannot be.
fn transformed(side: &[Option<Sampled>], scale: Scale) -> Vec<Option<Sampled>> {
    let one = |value: f64| match scale {
        Scale::Ratio => (value > 0.0 && value.is_finite()).then(|| value.ln()),
        Scale::Difference => value.is_finite().then_some(value),
    };
    let whole = |sampled: &Sampled| {
        let parts: Option<Vec<f64>> = sampled.parts.iter().map(|part| one(*part)).collect();
        Some(Sampled { value: one(sampled.value)?, parts: parts.unwrap_or_default() })
    };
    side.iter().map(|sampled| sampled.as_ref().and_then(whole)).collect()
}

fn of_pairs(pairs: &[(usize, usize)], a: &[Option<Sampled>], b: &[Option<Sampled>], alpha: f64) -> Option<Estimate> {
    let value = |side: &[Option<Sampled>], at: usize| side.get(at)?.as_ref().map(|sampled| sampled.value);
    let differences: Vec<f64> = pairs.iter().filter_map(|(i, j)| Some(value(b, *j)? - value(a, *i)?)).collect();
    let interval = paired_median::interval(&differences, alpha);
    Some(Estimate {
        change: percentile_of(&differences, 0.5)?,
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        p: paired_median::p_value(&differences),
        basis: Basis::Pairs,
        n: (differences.len(), differences.len()),
    })
}

fn of_runs(a: &[Option<Sampled>], b: &[Option<Sampled>], alpha: f64) -> Option<Estimate> {
    let (a, b): (Vec<&Sampled>, Vec<&Sampled>) = (a.iter().flatten().collect(), b.iter().flatten().collect());
    let n = (a.len(), b.len());
    let basis = if n.0 > 1 || n.1 > 1 { Basis::Runs } else { Basis::Parts };
    let center = |side: &[&Sampled]| side.iter().map(|s| s.value).sum::<f64>() / side.len().max(1) as f64;
    if n.0 == 0 || n.1 == 0 {
        return None;
    }
    let mean = |side: &[&Sampled]| match side {
        [one] => Mean::of_parts(one.value, &one.parts),
        many => Mean::of(&many.iter().map(|s| s.value).collect::<Vec<_>>()),
    };
    // One run beside several says nothing of its own spread: that of the others stands for it.
    let (mean_a, mean_b) = match (mean(&a), mean(&b)) {
        (Some(one), None) if n.0 > 1 => (Some(one), Some(single_beside(one, center(&b), n.0))),
        (None, Some(one)) if n.1 > 1 => (Some(single_beside(one, center(&a), n.1)), Some(one)),
        both => both,
    };
    let without = Estimate { change: center(&b) - center(&a), low: None, high: None, p: 1.0, basis, n };
    let Some((mean_a, mean_b)) = mean_a.zip(mean_b) else { return Some(without) };
    let (change, (low, high), p) = welch(mean_a, mean_b, alpha);
    Some(Estimate { change, low: Some(low), high: Some(high), p, ..without })
}

/// A run by itself, that varies as much as `n` others did.
fn single_beside(others: Mean, value: f64, n: usize) -> Mean {
    Mean { mean: value, variance: others.variance * n as f64, freedom: others.freedom }
}

/// The change that two sides of one program would show on this machine, measured on A alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// 95 % of comparisons of A with itself stay below this share; absent if A does not tell.
    pub share: Option<f64>,
    /// What it was measured on.
    pub source: FloorSource,
    /// Runs, pairs or parts that it comes from.
    pub n: usize,
}

/// Where a floor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloorSource {
    /// Neighbouring runs of A among pairs.
    RepeatedA,
    /// The spread between A's runs.
    RunsOfA,
    /// The spread between parts of A's only run; other starts of the process may differ by more.
    PartsOfA,
    /// The user.
    Given,
}

/// The floor for figure `a` in comparisons with `n_b` runs on the other side.
pub(super) fn floor(design: &Design, a: &[Option<Sampled>], n_b: usize) -> Floor {
    let a = transformed(a, Scale::Ratio);
    if let Some(pairs) = &design.pairs {
        let values: Vec<f64> = pairs.iter().filter_map(|(i, _)| a.get(*i)?.as_ref().map(|s| s.value)).collect();
        // Two neighbouring runs of A are as far apart as the two runs of a pair.
        let apart: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        let spread = percentile_of(&apart, 0.5).map(|median| median * 1.4826);
        // The median of n differences varies by 1.2533 σ/√n.
        let share = spread.filter(|_| apart.len() >= 4).map(|sd| 1.96 * 1.2533 * sd / (values.len() as f64).sqrt());
        return Floor { share: share.map(f64::exp_m1), source: FloorSource::RepeatedA, n: values.len() };
    }
    let values: Vec<f64> = a.iter().flatten().map(|s| s.value).collect();
    let (source, values) = match a.iter().flatten().next() {
        Some(one) if values.len() == 1 => (FloorSource::PartsOfA, one.parts.clone()),
        _ => (FloorSource::RunsOfA, values),
    };
    let n = values.len();
    let of_a = if source == FloorSource::PartsOfA { 1.0 } else { n as f64 };
    let share = Mean::of(&values).map(|mean| {
        let sd = (mean.variance * n as f64).sqrt();
        let n_b = if source == FloorSource::PartsOfA { 1.0 } else { n_b.max(1) as f64 };
        (two_sided_quantile(0.05, mean.freedom) * sd * (1.0 / of_a + 1.0 / n_b).sqrt()).exp_m1()
    });
    Floor { share, source, n }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Vec<Option<Sampled>> {
        values.iter().map(|value| Some(Sampled::whole(*value))).collect()
    }

    #[test]
    fn runs_in_turns_are_pairs() {
        // A B B A, A B, and a last A whose partner is missing.
        let design = Design::of_starts(&[1, 4, 5, 9], &[2, 3, 6]);
        assert_eq!(design.pairs, Some(vec![(0, 0), (1, 1), (2, 2)]));
        assert_eq!(Design::of_starts(&[1, 2, 3], &[4, 5, 6]).pairs, None, "one side after the other");
        assert_eq!(Design::of_starts(&[0, 0], &[0, 0]).pairs, None, "nobody knows when");
        assert_eq!(Design::of_starts(&[1], &[2]).pairs, None, "one of each says nothing of pairs");
    }

    #[test]
    fn ratios_by_hand() {
        let (a, b) = (of(&[100.0; 8]), of(&[105.0, 106.0, 104.0, 105.0, 105.0, 107.0, 103.0, 105.0]));
        let design = Design { pairs: Some((0..8).map(|i| (i, i)).collect()) };
        let found = estimate(&design, &a, &b, Scale::Ratio, 0.02).unwrap();
        assert!((found.change - 0.05).abs() < 1e-12 && (found.low.unwrap() - 0.03).abs() < 1e-12, "{found:?}");
        assert!((found.high.unwrap() - 0.07).abs() < 1e-12 && found.p < 0.02, "{found:?}");
        let apart = estimate(&Design::apart(), &a, &b, Scale::Ratio, 0.02).unwrap();
        assert_eq!((apart.basis, apart.n), (Basis::Runs, (8, 8)));
        assert!(apart.low.unwrap() > 0.03 && apart.high.unwrap() < 0.07, "{apart:?}");
    }

    #[test]
    fn one_run_of_each_is_as_uncertain_as_its_parts() {
        let run = |value: f64, parts: &[f64]| vec![Some(Sampled { value, parts: parts.to_vec() })];
        let steady = [99.0, 100.0, 101.0, 100.0, 100.0, 100.0];
        let found = estimate(&Design::apart(), &run(100.0, &steady), &run(130.0, &steady), Scale::Ratio, 0.02).unwrap();
        assert!(found.basis == Basis::Parts && found.low.unwrap() > 0.2, "{found:?}");
        let rough = [80.0, 120.0, 100.0, 90.0, 110.0, 100.0];
        let found = estimate(&Design::apart(), &run(100.0, &rough), &run(130.0, &rough), Scale::Ratio, 0.02).unwrap();
        assert!(found.low.unwrap() < 0.0, "{found:?}");
        let blind = estimate(&Design::apart(), &run(100.0, &[]), &run(130.0, &[]), Scale::Ratio, 0.02).unwrap();
        assert_eq!((blind.low, blind.p), (None, 1.0));
        assert_eq!(floor(&Design::apart(), &run(100.0, &[]), 1).share, None);
        let floor = floor(&Design::apart(), &run(100.0, &rough), 1);
        assert!(floor.source == FloorSource::PartsOfA && floor.share.unwrap() > 0.3, "{floor:?}");
    }

    #[test]
    fn what_is_not_above_zero_has_no_ratio() {
        assert!(estimate(&Design::apart(), &of(&[0.0]), &of(&[1.0]), Scale::Ratio, 0.02).is_none());
        assert!(estimate(&Design::apart(), &[None], &of(&[1.0]), Scale::Difference, 0.02).is_none());
    }
}
