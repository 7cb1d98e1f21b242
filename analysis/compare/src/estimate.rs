//! How a figure changed from one side to the other, with an interval: in pairs, between runs, between days, or between
//! parts of runs.

use super::change_points::median;
use super::days::LEAST_DAYS;
use super::paired_median;
use super::sampled::RunFigure;
use super::sequence::{TimedValue, step};
use super::student::{Mean, welch};
use candlescope_figures::stats::percentile_of;
use candlescope_figures::stats::two_sided_quantile;
use serde::{Deserialize, Serialize};

/// What an interval rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Runs taken in pairs, one of each side after the other.
    Pairs,
    /// Several runs of at least one side.
    Runs,
    /// Days of a history, and today.
    Days,
    /// Windows of a server that runs, and the last one.
    Windows,
    /// One run of each side, and how much its parts differ.
    Parts,
}

/// Why runs cannot decide, however far apart their times are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Doubt {
    /// One run of each side: how much process starts, and hours, differ does not show in them.
    OneRunOfEach,
    /// One side was recorded long after the other, compared with the time between runs of one side: what else changed
    /// on the machine meanwhile does not show.
    RecordedApart {
        /// Time between a run of one side and the next one of the other, in nanoseconds.
        gap_ns: i64,
    },
    /// The history is too short to tell how much days differ.
    FewDays {
        /// Days that it has before this one, that of the baseline included.
        known: usize,
        /// Days that it takes.
        needed: usize,
    },
    /// Too few windows are known to tell how much they differ.
    FewWindows {
        /// Windows before that have the figure.
        known: usize,
        /// Windows that it takes.
        needed: usize,
    },
}

/// A gap between the sides that is so many times the longest gap within a side is too long to be passed over.
const APART: i64 = 3;
/// Sides one after the other are judged at this share of the probability to miss the truth: how much neighbouring runs
/// hang together has to be found out from few of them.
const STRICTER: f64 = 0.5;

/// Which runs belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    pub(super) pairs: Option<Vec<(usize, usize)>>,
    /// When the runs of A and of B started, if that is known.
    pub(super) starts: Option<(Vec<i64>, Vec<i64>)>,
    /// Days that are compared, and by how much they differ, as a share: one standard deviation, if that is known.
    pub(super) days: Option<Option<f64>>,
}

impl Design {
    /// Runs of A and then runs of B, of which nobody knows when they were.
    pub fn apart() -> Self {
        Self { pairs: None, starts: None, days: None }
    }

    /// Runs of different days, which differ by this share (one standard deviation) if that is known.
    pub(super) fn of_days(spread: Option<f64>) -> Self {
        Self { days: Some(spread), ..Self::apart() }
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
        let starts = known.then(|| (a.to_vec(), b.to_vec()));
        Self { pairs: pairs.filter(|_| known && even), starts, days: None }
    }

    /// Number of pairs of runs, one of each side; `None` if the runs were not taken in turns.
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

impl Scale {
    /// A share of 1 on this scale, near `center`.
    fn of(self, center: f64) -> f64 {
        if self == Self::Ratio { 1.0 } else { center.abs() }
    }
}

/// How a figure changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ChangeEstimate {
    /// B ÷ A − 1 of a figure, B − A in nanoseconds of a path: above 0 if B has more.
    pub change: f64,
    /// Lower end of its interval; absent if there are too few runs for one.
    pub low: Option<f64>,
    /// Upper end of its interval; absent where `low` is.
    pub high: Option<f64>,
    /// Probability of a change at least as clear without any, at most.
    pub p: f64,
    /// What it rests on.
    pub basis: Basis,
    /// Runs, or pairs of them, that have the figure: of A and B. Of days: those before, and 1.
    pub n: (usize, usize),
    /// Why it cannot decide, if it cannot. It has no interval then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
    /// Where runs or days follow one another: how much of the noise is passed on from each to the next, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// Where runs follow one another: the change from A to B that a steady drift makes, taken out of `change`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
}

impl ChangeEstimate {
    /// The same of windows instead of days.
    pub(super) fn of_windows(self) -> Self {
        let doubt = self.doubt.map(|doubt| match doubt {
            Doubt::FewDays { known, needed } => Doubt::FewWindows { known, needed },
            other => other,
        });
        Self { basis: Basis::Windows, doubt, ..self }
    }

    fn without(change: f64, basis: Basis, n: (usize, usize)) -> Self {
        Self { change, low: None, high: None, p: 1.0, basis, n, doubt: None, correlation: None, drift: None }
    }

    /// Without its interval, if something is in doubt that only the user's own floor can answer.
    pub(super) fn withheld(self) -> Self {
        match self.doubt {
            Some(_) => Self { low: None, high: None, p: 1.0, ..self },
            None => self,
        }
    }
}

/// The change of a figure from the runs of A to those of B; `None` unless both sides have it, and it is above zero
/// where a ratio is asked for.
pub(super) fn estimate(
    design: &Design,
    a: &[Option<RunFigure>],
    b: &[Option<RunFigure>],
    scale: Scale,
    alpha: f64,
) -> Option<ChangeEstimate> {
    let spread = design.days.flatten();
    let (a, b) = (transformed(a, scale), transformed(b, scale));
    let found = match &design.pairs {
        Some(pairs) => of_pairs(pairs, &a, &b, alpha)?,
        None if design.days.is_some() => of_runs(&a, &b, |center| spread.map(|share| share * scale.of(center)), alpha)?,
        None => of_order(design.starts.as_ref(), &a, &b, alpha)?,
    };
    Some(scaled(found, scale))
}

fn scaled(found: ChangeEstimate, scale: Scale) -> ChangeEstimate {
    let back = |value: f64| if scale == Scale::Ratio { value.exp_m1() } else { value };
    ChangeEstimate {
        change: back(found.change),
        low: found.low.map(back),
        high: found.high.map(back),
        drift: found.drift.map(back),
        ..found
    }
}

/// Values and their parts as they are compared; without those that cannot be.
fn transformed(side: &[Option<RunFigure>], scale: Scale) -> Vec<Option<RunFigure>> {
    let one = |value: f64| match scale {
        Scale::Ratio => (value > 0.0 && value.is_finite()).then(|| value.ln()),
        Scale::Difference => value.is_finite().then_some(value),
    };
    let whole = |sampled: &RunFigure| {
        let parts: Option<Vec<f64>> = sampled.parts.iter().map(|part| one(*part)).collect();
        Some(RunFigure { value: one(sampled.value)?, parts: parts.unwrap_or_default() })
    };
    side.iter().map(|sampled| sampled.as_ref().and_then(whole)).collect()
}

fn of_pairs(
    pairs: &[(usize, usize)],
    a: &[Option<RunFigure>],
    b: &[Option<RunFigure>],
    alpha: f64,
) -> Option<ChangeEstimate> {
    let value = |side: &[Option<RunFigure>], at: usize| side.get(at)?.as_ref().map(|sampled| sampled.value);
    let differences: Vec<f64> = pairs.iter().filter_map(|(i, j)| Some(value(b, *j)? - value(a, *i)?)).collect();
    let interval = paired_median::interval(&differences, alpha);
    let n = (differences.len(), differences.len());
    Some(ChangeEstimate {
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        p: paired_median::p_value(&differences),
        ..ChangeEstimate::without(percentile_of(&differences, 0.5)?, Basis::Pairs, n)
    })
}

fn center(side: &[&RunFigure]) -> f64 {
    side.iter().map(|s| s.value).sum::<f64>() / side.len().max(1) as f64
}

/// Runs of different days by Welch's interval, in which each side has the spread of days besides, at its center.
fn of_runs(
    a: &[Option<RunFigure>],
    b: &[Option<RunFigure>],
    days: impl Fn(f64) -> Option<f64>,
    alpha: f64,
) -> Option<ChangeEstimate> {
    let (a, b): (Vec<&RunFigure>, Vec<&RunFigure>) = (a.iter().flatten().collect(), b.iter().flatten().collect());
    let n = (a.len(), b.len());
    if n.0 == 0 || n.1 == 0 {
        return None;
    }
    let without = ChangeEstimate::without(center(&b) - center(&a), Basis::Days, n);
    let day = days(center(&a)).zip(days(center(&b)));
    let doubt = Doubt::FewDays { known: 1, needed: LEAST_DAYS };
    let Some((mean_a, mean_b)) = means(&a, &b) else { return Some(without) };
    let Some((day_a, day_b)) = day else { return Some(ChangeEstimate { doubt: Some(doubt), ..without }) };
    let wider = |mean: Mean, day: f64| Mean { variance: mean.variance + day * day, ..mean };
    let (change, (low, high), p) = welch(wider(mean_a, day_a), wider(mean_b, day_b), alpha);
    Some(ChangeEstimate { change, low: Some(low), high: Some(high), p, ..without })
}

/// Means of both sides. One run beside several says nothing of its own spread: that of the others stands for it.
fn means(a: &[&RunFigure], b: &[&RunFigure]) -> Option<(Mean, Mean)> {
    let mean = |side: &[&RunFigure]| match side {
        [one] => Mean::of_parts(one.value, &one.parts),
        many => Mean::of(&many.iter().map(|s| s.value).collect::<Vec<_>>()),
    };
    match (mean(a), mean(b)) {
        (Some(one), _) if b.len() == 1 && a.len() > 1 => Some((one, single_beside(one, center(b), a.len()))),
        (_, Some(one)) if a.len() == 1 && b.len() > 1 => Some((single_beside(one, center(a), b.len()), one)),
        (one, other) => one.zip(other),
    }
}

/// Runs of one side and then of the other, or in any other order that is not one of pairs. What a steady drift does is
/// taken out, and neighbouring runs may hang together.
fn of_order(
    starts: Option<&(Vec<i64>, Vec<i64>)>,
    a: &[Option<RunFigure>],
    b: &[Option<RunFigure>],
    alpha: f64,
) -> Option<ChangeEstimate> {
    let known = |side: &[Option<RunFigure>], starts: Option<&Vec<i64>>, after: bool| -> Vec<(i64, bool, f64)> {
        let run = |(at, sampled): (usize, &Option<RunFigure>)| {
            let start = starts.and_then(|starts| starts.get(at)).copied().unwrap_or(i64::from(after));
            sampled.as_ref().map(|sampled| (start, after, sampled.value))
        };
        side.iter().enumerate().filter_map(run).collect()
    };
    let (of_a, of_b) = (known(a, starts.map(|s| &s.0), false), known(b, starts.map(|s| &s.1), true));
    let n = (of_a.len(), of_b.len());
    if n.0 == 0 || n.1 == 0 {
        return None;
    }
    let mean = |side: &[(i64, bool, f64)]| side.iter().map(|run| run.2).sum::<f64>() / side.len() as f64;
    let plain = mean(&of_b) - mean(&of_a);
    if n == (1, 1) {
        let (a, b): (Vec<&RunFigure>, Vec<&RunFigure>) = (a.iter().flatten().collect(), b.iter().flatten().collect());
        let without =
            ChangeEstimate { doubt: Some(Doubt::OneRunOfEach), ..ChangeEstimate::without(plain, Basis::Parts, n) };
        let Some((a, b)) = means(&a, &b) else { return Some(without) };
        let (_, (low, high), p) = welch(a, b, alpha);
        return Some(ChangeEstimate { low: Some(low), high: Some(high), p, ..without });
    }
    let mut runs: Vec<(i64, bool, f64)> = of_a.into_iter().chain(of_b).collect();
    runs.sort_by_key(|(start, after, _)| (*start, *after));
    let in_time = starts.is_some() && runs.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let at = |(at, (start, after, value)): (usize, &(i64, bool, f64))| {
        let time = if in_time { start.saturating_sub(runs[0].0) as f64 } else { at as f64 };
        TimedValue { time, after: *after, value: *value }
    };
    let values: Vec<TimedValue> = runs.iter().enumerate().map(at).collect();
    let without = ChangeEstimate {
        doubt: if in_time { recorded_apart(&runs) } else { None },
        ..ChangeEstimate::without(plain, Basis::Runs, n)
    };
    let Some(found) = step(&values, true, alpha * STRICTER) else { return Some(without) };
    Some(ChangeEstimate {
        change: found.height,
        low: Some(found.low),
        high: Some(found.high),
        p: found.p,
        correlation: Some(found.correlation),
        drift: Some(found.trend),
        ..without
    })
}

/// Whether the time between the sides, where they are closest, is long compared with that between runs of one side.
fn recorded_apart(runs: &[(i64, bool, f64)]) -> Option<Doubt> {
    let gaps = |one_side: bool| {
        let pairs = runs.windows(2).filter(move |pair| (pair[0].1 == pair[1].1) == one_side);
        pairs.map(|pair| pair[1].0.saturating_sub(pair[0].0))
    };
    let (between, within) = (gaps(false).min()?, gaps(true).max()?);
    (between > within.saturating_mul(APART)).then_some(Doubt::RecordedApart { gap_ns: between })
}

/// Today beside the days before, of which the first is that of the baseline: how much days differ shows in them. The
/// interval is never narrower than what the runs of both days show.
pub(super) fn of_days(
    days: &[f64],
    a: &[Option<RunFigure>],
    b: &[Option<RunFigure>],
    alpha: f64,
) -> Option<ChangeEstimate> {
    let (a, b) = (transformed(a, Scale::Ratio), transformed(b, Scale::Ratio));
    let today: Vec<f64> = b.iter().flatten().map(|sampled| sampled.value).collect();
    if today.is_empty() || a.iter().flatten().next().is_none() {
        return None;
    }
    let days: Vec<f64> = days.iter().filter(|day| **day > 0.0 && day.is_finite()).map(|day| day.ln()).collect();
    let runs = of_runs(&a, &b, |_| Some(0.0), alpha)?;
    if days.len() < LEAST_DAYS {
        let doubt = Some(Doubt::FewDays { known: days.len().max(1), needed: LEAST_DAYS });
        return Some(scaled(ChangeEstimate { doubt, n: (days.len().max(1), 1), ..runs }, Scale::Ratio));
    }
    let at = |(at, value): (usize, &f64)| TimedValue { time: at as f64, after: at == days.len(), value: *value };
    let values: Vec<f64> = days.iter().copied().chain([median(&today)]).collect();
    let values: Vec<TimedValue> = values.iter().enumerate().map(at).collect();
    let found = step(&values, false, alpha * STRICTER)?;
    let half = runs.low.zip(runs.high).map_or(0.0, |(low, high)| (high - low) / 2.0);
    let found = ChangeEstimate {
        low: Some(found.low.min(found.height - half)),
        high: Some(found.high.max(found.height + half)),
        p: if runs.low.is_some() { found.p.max(runs.p) } else { found.p },
        correlation: Some(found.correlation),
        ..ChangeEstimate::without(found.height, Basis::Days, (days.len(), 1))
    };
    Some(scaled(found, Scale::Ratio))
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

impl Floor {
    /// The same of windows instead of days.
    pub(super) fn of_windows(self) -> Self {
        let source = if self.source == FloorSource::Days { FloorSource::Windows } else { self.source };
        Self { source, ..self }
    }
}

/// Where a floor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloorSource {
    /// Neighbouring runs of A among pairs.
    RepeatedA,
    /// The spread between A's runs.
    RunsOfA,
    /// How much days of the history differ.
    Days,
    /// How much earlier windows differ.
    Windows,
    /// The spread between parts of A's only run; other starts of the process may differ by more.
    PartsOfA,
    /// A share that the user gave, in place of any that was measured.
    Given,
}

/// The floor for figure `a` in comparisons with `n_b` runs on the other side.
pub(super) fn floor(design: &Design, a: &[Option<RunFigure>], n_b: usize) -> Floor {
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

/// The floor where days are compared: what one more day shows beside those known.
pub(super) fn floor_of_days(days: &[f64]) -> Floor {
    let logs: Vec<f64> = days.iter().filter(|day| **day > 0.0 && day.is_finite()).map(|day| day.ln()).collect();
    let n = logs.len();
    let mean = Mean::of(&logs).filter(|_| n >= LEAST_DAYS);
    let share = mean.map(|mean| {
        let sd = (mean.variance * n as f64).sqrt();
        (two_sided_quantile(0.05, mean.freedom) * sd * (1.0 + 1.0 / n as f64).sqrt()).exp_m1()
    });
    Floor { share, source: FloorSource::Days, n }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Vec<Option<RunFigure>> {
        values.iter().map(|value| Some(RunFigure::whole(*value))).collect()
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
        let design = Design { pairs: Some((0..8).map(|i| (i, i)).collect()), ..Design::apart() };
        let found = estimate(&design, &a, &b, Scale::Ratio, 0.02).unwrap();
        assert!((found.change - 0.05).abs() < 1e-12 && (found.low.unwrap() - 0.03).abs() < 1e-12, "{found:?}");
        assert!((found.high.unwrap() - 0.07).abs() < 1e-12 && found.p < 0.02, "{found:?}");
        let apart = estimate(&Design::apart(), &a, &b, Scale::Ratio, 0.02).unwrap();
        assert_eq!((apart.basis, apart.n, apart.doubt), (Basis::Runs, (8, 8), None));
        assert!(apart.low.unwrap() > 0.0 && apart.high.unwrap() < 0.1, "{apart:?}");
    }

    #[test]
    fn one_run_of_each_is_as_uncertain_as_its_parts() {
        let run = |value: f64, parts: &[f64]| vec![Some(RunFigure { value, parts: parts.to_vec() })];
        let steady = [99.0, 100.0, 101.0, 100.0, 100.0, 100.0];
        let found = estimate(&Design::apart(), &run(100.0, &steady), &run(130.0, &steady), Scale::Ratio, 0.02).unwrap();
        assert!(found.basis == Basis::Parts && found.low.unwrap() > 0.2, "{found:?}");
        assert_eq!((found.doubt, found.withheld().low), (Some(Doubt::OneRunOfEach), None), "{found:?}");
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
    fn sides_that_were_recorded_apart_do_not_decide() {
        let (a, b) = (of(&[100.0, 100.1, 99.9, 100.0]), of(&[130.0, 130.1, 129.9, 130.0]));
        let at = |starts: [i64; 4]| Design::of_starts(&[10, 20, 30, 40], &starts);
        let found = estimate(&at([50, 60, 70, 80]), &a, &b, Scale::Ratio, 0.02).unwrap();
        assert!(found.doubt.is_none() && found.low.unwrap() > 0.2, "{found:?}");
        let found = estimate(&at([90, 100, 110, 120]), &a, &b, Scale::Ratio, 0.02).unwrap();
        assert_eq!(found.doubt, Some(Doubt::RecordedApart { gap_ns: 50 }));
        // On several days each, what lies between them is within each side, too.
        let days = Design::of_starts(&[10, 20, 1010, 1020], &[30, 40, 1030, 1040]);
        assert_eq!(estimate(&days, &a, &b, Scale::Ratio, 0.02).unwrap().doubt, None);
    }

    #[test]
    fn days_say_how_much_days_differ() {
        let (a, b) = (of(&[100.0, 101.0, 99.0]), of(&[104.0, 105.0, 103.0]));
        let found = of_days(&[100.0, 101.0], &a, &b, 0.02).unwrap();
        assert_eq!(found.doubt, Some(Doubt::FewDays { known: 2, needed: LEAST_DAYS }));
        let steady = [100.0, 100.1, 99.9, 100.0, 100.1, 99.9, 100.0];
        let found = of_days(&steady, &a, &b, 0.02).unwrap();
        assert!(found.doubt.is_none() && (found.change - 0.04).abs() < 0.002, "{found:?}");
        // No narrower than what the runs of both days show.
        assert!(found.high.unwrap() - found.low.unwrap() > 0.03, "{found:?}");
        let rough = [100.0, 104.0, 97.0, 101.0, 96.0, 103.0, 99.0];
        let found = of_days(&rough, &a, &b, 0.02).unwrap();
        assert!(found.low.unwrap() < 0.0 && floor_of_days(&rough).share.unwrap() > 0.05, "{found:?}");
    }

    #[test]
    fn what_is_not_above_zero_has_no_ratio() {
        assert!(estimate(&Design::apart(), &of(&[0.0]), &of(&[1.0]), Scale::Ratio, 0.02).is_none());
        assert!(estimate(&Design::apart(), &[None], &of(&[1.0]), Scale::Difference, 0.02).is_none());
    }
}
