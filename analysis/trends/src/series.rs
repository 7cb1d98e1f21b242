//! Runs by day, and where a level changed.

use super::figure::{FIGURES, Figure};
use super::headline::{By, Headline};
use candlescope_compare::{LEAST_DAYS, level_changes};
use candlescope_schema::numbers::day;
use candlescope_sql::LeftOut;
use serde::Serialize;
use std::collections::BTreeMap;

/// Shares of histories without any change that are said to have one: anywhere, and in their last days.
const ALPHA: f64 = 0.0075;
const ALPHA_RECENT: f64 = 0.0025;
/// Days from which a change can be found: three on either side.
pub(crate) const LEAST: usize = 6;
/// A change of the last days smaller than this is not told, as a logarithm.
const MARGIN: f64 = 0.02;
/// Nanoseconds of a day.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;
/// Runs of a day that are named.
const NAMED: usize = 5;

/// A figure on one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DayPoint {
    /// The day (UTC) on which its runs began, such as `2026-05-01`.
    pub day: String,
    /// The same as days since 1970-01-01: its place in charts, and its time in metrics.
    #[serde(skip)]
    pub number: i64,
    /// Median over its runs.
    pub median: f64,
    /// The smallest of them.
    pub low: f64,
    /// The largest of them; all three are in the figure's unit.
    pub high: f64,
    /// How many runs it rests on.
    pub n: usize,
    /// Names of the first of them.
    pub runs: Vec<String>,
}

/// Where a figure changed its level.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// The first day after it.
    pub day: String,
    /// Median of the days from the change before to this one.
    pub before: f64,
    /// Median of the days from here to the next change.
    pub after: f64,
    /// The change as a share of what was before.
    pub change: f64,
    /// The share of random orders of the same days with a change as clear.
    pub p: f64,
    /// Whether it is for the worse.
    pub worse: bool,
    /// Runs of that day.
    pub runs: Vec<String>,
}

/// A figure over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trend {
    /// The figure that is followed, in whose unit medians and levels are.
    pub figure: Figure,
    /// Days that have it, in order.
    pub days: Vec<DayPoint>,
    /// Changes of its level, in order.
    pub changes: Vec<Change>,
}

impl Trend {
    /// The last day against the first one, as a share; `None` from one day.
    pub fn since_first(&self) -> Option<f64> {
        let (first, last) = (self.days.first()?, self.days.last()?);
        (self.days.len() > 1 && first.median > 0.0).then(|| last.median / first.median - 1.0)
    }
}

/// Runs that are followed together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// By what they are told apart, and what they have.
    pub keys: Vec<(String, String)>,
    /// How many runs there are, with any of the figures or none.
    pub runs: usize,
    /// Day (UTC) on which the first of them began, as `2026-05-01`.
    pub first_day: String,
    /// Day (UTC) on which the last of them began.
    pub last_day: String,
    /// Figures that any of them has.
    pub trends: Vec<Trend>,
    /// Codes of what is wrong with data, and in how many runs.
    pub verdicts: BTreeMap<String, usize>,
    /// Codes of what runs were found to lack, in how many of those that began before the last change of a figure, and in how
    /// many since then. Without a change, all count as after it.
    pub findings: BTreeMap<String, [usize; 2]>,
    /// Runs of which it is known what they lack, in the same way.
    pub analysed: [usize; 2],
}

/// Many runs over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Groups, those with most runs first.
    pub groups: Vec<Group>,
    /// Runs in all of them.
    pub runs: usize,
    /// Histories long enough to look for changes in: of these, one in a hundred is said to have one without having any.
    pub looked_at: usize,
    /// Runs that are in no group, and why; [`summarise`] leaves it to whoever read the runs.
    pub left_out: Vec<LeftOut>,
}

/// Orders runs by group and day, and looks for changes of level in each figure.
pub fn summarise(headlines: &[Headline], by: &[By]) -> Summary {
    let mut groups: BTreeMap<&[String], Vec<&Headline>> = BTreeMap::new();
    for headline in headlines {
        groups.entry(&headline.keys).or_default().push(headline);
    }
    let runs = headlines.len();
    let mut groups: Vec<Group> = groups.into_iter().map(|(keys, runs)| group(keys, by, &runs)).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.runs));
    let trends = groups.iter().flat_map(|group| &group.trends);
    let looked_at = trends.filter(|trend| trend.days.len() >= LEAST).count();
    Summary { groups, runs, looked_at, left_out: Vec::new() }
}

fn group(keys: &[String], by: &[By], runs: &[&Headline]) -> Group {
    let trends: Vec<Trend> = FIGURES.iter().enumerate().filter_map(|(at, figure)| trend(figure, at, runs)).collect();
    let last_change = trends.iter().flat_map(|trend| &trend.changes).map(|change| change.day.as_str()).max();
    let (mut findings, mut verdicts): (BTreeMap<String, [usize; 2]>, BTreeMap<String, usize>) = Default::default();
    let mut analysed = [0, 0];
    for run in runs {
        run.verdict.iter().for_each(|code| *verdicts.entry(code.clone()).or_default() += 1);
        let Some(found) = &run.findings else { continue };
        let side = usize::from(last_change.is_none_or(|last| day(run.started_ns).as_str() >= last));
        analysed[side] += 1;
        found.iter().for_each(|code| findings.entry(code.clone()).or_default()[side] += 1);
    }
    let day_of = |run: Option<&&Headline>| run.map(|run| day(run.started_ns)).unwrap_or_default();
    Group {
        keys: by.iter().map(|by| by.name().to_string()).zip(keys.iter().cloned()).collect(),
        runs: runs.len(),
        first_day: day_of(runs.first()),
        last_day: day_of(runs.last()),
        trends,
        verdicts,
        findings,
        analysed,
    }
}

fn trend(figure: &Figure, at: usize, runs: &[&Headline]) -> Option<Trend> {
    let mut by_day: BTreeMap<String, Vec<(&Headline, f64)>> = BTreeMap::new();
    for run in runs {
        if let Some(value) = run.values.get(at).copied().flatten().filter(|value| *value > 0.0) {
            by_day.entry(day(run.started_ns)).or_default().push((run, value / figure.per));
        }
    }
    let days: Vec<DayPoint> = by_day.into_iter().map(|(day, of_day)| point(day, &of_day)).collect();
    if days.is_empty() {
        return None;
    }
    let logs: Vec<f64> = days.iter().map(|day| day.median.ln()).collect();
    let changes = level_changes(&logs, ALPHA, LEAST_DAYS, MARGIN, ALPHA_RECENT).into_iter().map(|point| {
        let change = (point.after - point.before).exp_m1();
        let first = &days[point.at];
        Change {
            day: first.day.clone(),
            before: point.before.exp(),
            after: point.after.exp(),
            change,
            p: point.p,
            worse: (change > 0.0) == figure.lower_is_better,
            runs: first.runs.clone(),
        }
    });
    Some(Trend { figure: *figure, changes: changes.collect(), days })
}

fn point(day: String, of_day: &[(&Headline, f64)]) -> DayPoint {
    let mut values: Vec<f64> = of_day.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let median = f64::midpoint(values[(n - 1) / 2], values[n / 2]);
    let runs = of_day.iter().take(NAMED).map(|(run, _)| run.run.clone()).collect();
    let number = of_day[0].0.started_ns.div_euclid(DAY_NS);
    DayPoint { day, number, median, low: values[0], high: values[n - 1], n, runs }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of two models, of which one becomes slower on the 20th day.
    fn runs() -> Vec<Headline> {
        let run = |model: &str, at: i64, n: i64, value: f64| Headline {
            run: format!("{model}-{at}-{n}"),
            started_ns: at * DAY_NS + n,
            keys: vec![model.to_string()],
            verdict: Vec::new(),
            findings: Some(if at >= 20 { vec!["sampling".to_string()] } else { Vec::new() }),
            values: vec![None, Some(value), None, None, Some(1e9 / value), None],
        };
        let noise = |at: i64, n: i64| 1.0 + 0.01 * f64::from(i32::try_from((at * 7 + n * 3) % 5).unwrap());
        let days = (0..30).flat_map(|at| (0..3).map(move |n| (at, n)));
        let both = days.flat_map(|(at, n)| {
            let slower = if at >= 20 { 1.2 } else { 1.0 };
            [run("a", at, n, 5e6 * noise(at, n) * slower), run("b", at, n, 2e6 * noise(at, n))]
        });
        both.collect()
    }

    #[test]
    fn a_change_is_found_with_its_day_and_runs_and_only_there() {
        let summary = summarise(&runs(), &[By::Model]);
        assert_eq!((summary.groups.len(), summary.runs, summary.looked_at), (2, 180, 4));
        let of = |model: &str| summary.groups.iter().find(|group| group.keys[0].1 == model).unwrap();
        for trend in &of("a").trends {
            let [change] = &trend.changes[..] else { panic!("{:?}", trend.changes) };
            assert_eq!((change.day.as_str(), change.worse, change.runs[0].as_str()), ("1970-01-21", true, "a-20-0"));
            let expected = if trend.figure.lower_is_better { 0.2 } else { -1.0 / 6.0 };
            assert!((change.change - expected).abs() < 0.02 && change.p <= 0.01, "{change:?}");
        }
        assert!(of("b").trends.iter().all(|trend| trend.changes.is_empty()));
        assert_eq!((of("a").findings["sampling"], of("a").analysed), ([0, 30], [60, 30]));
    }

    #[test]
    fn a_day_is_the_median_of_its_runs() {
        let summary = summarise(&runs(), &[By::Model]);
        let first = &summary.groups[0].trends[0].days[0];
        assert_eq!((first.n, first.runs.len(), first.day.as_str()), (3, 3, "1970-01-01"));
        assert!(first.low <= first.median && first.median <= first.high && first.median > 4.9);
    }
}
