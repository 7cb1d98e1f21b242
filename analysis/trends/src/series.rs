//! Runs by day, and where a level changed.

use super::figure::{FIGURES, Figure};
use super::headline::{GroupBy, Headline};
use candlescope_compare::{LEAST_DAYS, level_changes, median};
use candlescope_schema::numbers::{day, day_number};
use candlescope_sql::LeftOut;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Shares of histories without any change that are said to have one: anywhere, and in their last days.
const ALPHA: f64 = 0.0075;
const ALPHA_RECENT: f64 = 0.0025;
/// Days from which a change can be found: three on either side.
pub(crate) const LEAST: usize = 6;
/// A change of the last days smaller than this is not told, as a logarithm.
const MARGIN: f64 = 0.02;
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

/// What is wrong with the data of runs of one day.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VerdictDay {
    /// The day (UTC) on which the runs began.
    pub day: String,
    /// The same as days since 1970-01-01.
    #[serde(skip)]
    pub number: i64,
    /// Runs of the day, with anything wrong or nothing.
    pub runs: usize,
    /// Codes, and in how many of them.
    pub verdicts: BTreeMap<String, usize>,
}

/// Runs that are followed together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// By what they are told apart, and what they have.
    pub keys: Vec<(String, String)>,
    /// How many runs there are, with any of the figures or none. Ranks of one program are one.
    pub runs: usize,
    /// How many processes they were: ranks are one each.
    pub processes: usize,
    /// Day (UTC) on which the first of them began, as `2026-05-01`.
    pub first_day: String,
    /// Day (UTC) on which the last of them began.
    pub last_day: String,
    /// Figures that any of them has.
    pub trends: Vec<Trend>,
    /// Codes of what is wrong with data, and in how many runs.
    pub verdicts: BTreeMap<String, usize>,
    /// The same by day, of days on which anything is wrong.
    pub verdict_days: Vec<VerdictDay>,
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
    /// Runs in all of them; ranks of one program are one.
    pub runs: usize,
    /// Histories long enough to look for changes in: of these, one in a hundred is said to have one without having any.
    pub looked_at: usize,
    /// Runs that are in no group, and why; [`summarise`] leaves it to whoever read the runs.
    pub left_out: Vec<LeftOut>,
}

/// A run that is followed: of several ranks all together.
struct FollowedRun<'a> {
    ranks: Vec<&'a Headline>,
}

impl<'a> FollowedRun<'a> {
    /// Runs of one group, in order of time. Ranks of one program are one.
    fn each(headlines: Vec<&'a Headline>) -> Vec<Self> {
        let (mut runs, mut places): (Vec<Self>, HashMap<&str, usize>) = Default::default();
        for headline in headlines {
            let next = runs.len();
            let place = match &headline.first_run {
                Some(first) => *places.entry(first.as_str()).or_insert(next),
                None => next,
            };
            match runs.get_mut(place) {
                Some(run) => run.ranks.push(headline),
                None => runs.push(Self { ranks: vec![headline] }),
            }
        }
        runs
    }

    fn name(&self) -> &'a str {
        self.ranks[0].first_run.as_ref().unwrap_or(&self.ranks[0].run)
    }

    fn started_ns(&self) -> i64 {
        self.ranks[0].started_ns
    }

    fn day(&self) -> String {
        day(self.started_ns())
    }

    /// A figure: of several ranks the median.
    fn value(&self, at: usize) -> Option<f64> {
        let values: Vec<f64> = self.ranks.iter().filter_map(|rank| *rank.values.get(at)?).collect();
        (!values.is_empty()).then(|| median(&values))
    }

    /// Codes of what is wrong with data of any rank, each once.
    fn verdict(&self) -> BTreeSet<&'a str> {
        self.ranks.iter().flat_map(|rank| &rank.verdict).map(String::as_str).collect()
    }

    /// Codes of what any rank was found to lack, each once.
    fn findings(&self) -> Option<BTreeSet<&'a str>> {
        let found = || self.ranks.iter().filter_map(|rank| rank.findings.as_ref());
        found().next()?;
        Some(found().flatten().map(String::as_str).collect())
    }
}

/// Orders runs by group and day, and looks for changes of level in each figure.
pub fn summarise(headlines: &[Headline], by: &[GroupBy]) -> Summary {
    let mut groups: BTreeMap<&[String], Vec<&Headline>> = BTreeMap::new();
    for headline in headlines {
        groups.entry(&headline.keys).or_default().push(headline);
    }
    // Told apart by rank or host, a program is in several groups.
    let programs: HashSet<&str> =
        headlines.iter().map(|of| of.first_run.as_ref().unwrap_or(&of.run).as_str()).collect();
    let runs = programs.len();
    let mut groups: Vec<Group> =
        groups.into_iter().map(|(keys, runs)| group(keys, by, &FollowedRun::each(runs))).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.runs));
    let trends = groups.iter().flat_map(|group| &group.trends);
    let looked_at = trends.filter(|trend| trend.days.len() >= LEAST).count();
    Summary { groups, runs, looked_at, left_out: Vec::new() }
}

fn group(keys: &[String], by: &[GroupBy], runs: &[FollowedRun<'_>]) -> Group {
    let trends: Vec<Trend> = FIGURES.iter().enumerate().filter_map(|(at, figure)| trend(figure, at, runs)).collect();
    let last_change = trends.iter().flat_map(|trend| &trend.changes).map(|change| change.day.as_str()).max();
    let mut findings: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let mut analysed = [0, 0];
    for run in runs {
        let Some(found) = run.findings() else { continue };
        let side = usize::from(last_change.is_none_or(|last| run.day().as_str() >= last));
        analysed[side] += 1;
        found.into_iter().for_each(|code| findings.entry(code.to_string()).or_default()[side] += 1);
    }
    let verdict_days = verdict_days(runs);
    let mut verdicts: BTreeMap<String, usize> = BTreeMap::new();
    for (code, n) in verdict_days.iter().flat_map(|day| &day.verdicts) {
        *verdicts.entry(code.clone()).or_default() += n;
    }
    let day_of = |run: Option<&FollowedRun<'_>>| run.map(FollowedRun::day).unwrap_or_default();
    Group {
        keys: by.iter().map(|by| by.name().to_string()).zip(keys.iter().cloned()).collect(),
        runs: runs.len(),
        processes: runs.iter().map(|run| run.ranks.len()).sum(),
        first_day: day_of(runs.first()),
        last_day: day_of(runs.last()),
        trends,
        verdicts,
        verdict_days,
        findings,
        analysed,
    }
}

/// What is wrong with data by day, of days on which anything is.
fn verdict_days(runs: &[FollowedRun<'_>]) -> Vec<VerdictDay> {
    let mut days: BTreeMap<String, VerdictDay> = BTreeMap::new();
    for run in runs {
        let number = day_number(run.started_ns());
        let new = || VerdictDay { day: run.day(), number, runs: 0, verdicts: BTreeMap::new() };
        let of_day = days.entry(run.day()).or_insert_with(new);
        of_day.runs += 1;
        run.verdict().into_iter().for_each(|code| *of_day.verdicts.entry(code.to_string()).or_default() += 1);
    }
    days.into_values().filter(|day| !day.verdicts.is_empty()).collect()
}

fn trend(figure: &Figure, at: usize, runs: &[FollowedRun<'_>]) -> Option<Trend> {
    let mut by_day: BTreeMap<String, Vec<(&FollowedRun<'_>, f64)>> = BTreeMap::new();
    for run in runs {
        if let Some(value) = run.value(at).filter(|value| *value > 0.0) {
            by_day.entry(run.day()).or_default().push((run, value / figure.per));
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

fn point(day: String, of_day: &[(&FollowedRun<'_>, f64)]) -> DayPoint {
    let mut values: Vec<f64> = of_day.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    let (median, n) = (median(&values), values.len());
    let runs = of_day.iter().take(NAMED).map(|(run, _)| run.name().to_string()).collect();
    let number = day_number(of_day[0].0.started_ns());
    DayPoint { day, number, median, low: values[0], high: values[n - 1], n, runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::numbers::DAY_NS;

    /// Runs of two models, of which one becomes slower on the 20th day.
    fn runs() -> Vec<Headline> {
        let run = |model: &str, at: i64, n: i64, value: f64| Headline {
            run: format!("{model}-{at}-{n}"),
            first_run: None,
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
        let summary = summarise(&runs(), &[GroupBy::Model]);
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
        let summary = summarise(&runs(), &[GroupBy::Model]);
        let first = &summary.groups[0].trends[0].days[0];
        assert_eq!((first.n, first.runs.len(), first.day.as_str()), (3, 3, "1970-01-01"));
        assert!(first.low <= first.median && first.median <= first.high && first.median > 4.9);
    }

    #[test]
    fn ranks_of_a_program_are_one_run_and_what_is_wrong_is_counted_by_day() {
        let mut all: Vec<Headline> = runs().into_iter().filter(|run| run.keys[0] == "a").collect();
        // The second and the third of each day are ranks of one program, and one of them lost something.
        for run in &mut all {
            let (of_day, n) = run.run.rsplit_once('-').map(|(day, n)| (day.to_string(), n.to_string())).unwrap();
            run.first_run = (n != "0").then(|| format!("{of_day}-1"));
            run.verdict = if n == "2" { vec!["ring_full".to_string()] } else { Vec::new() };
        }
        let summary = summarise(&all, &[GroupBy::Model]);
        let group = &summary.groups[0];
        assert_eq!((summary.runs, group.runs, group.processes, group.analysed), (60, 60, 90, [40, 20]));
        let first = &group.trends[0].days[0];
        assert_eq!((first.n, &first.runs[..]), (2, &["a-0-0".to_string(), "a-0-1".to_string()][..]));
        // Both have the median of the ranks: 1.0 beside 1.03 and 1.01.
        let of_ranks = 5.0 * f64::midpoint(1.03, 1.01);
        assert!((first.high - of_ranks).abs() < 1e-9 && (first.low - 5.0).abs() < 1e-9, "{first:?}");
        assert_eq!((group.verdicts["ring_full"], group.verdict_days.len()), (30, 30));
        let day = &group.verdict_days[29];
        assert_eq!((day.day.as_str(), day.runs, day.verdicts["ring_full"]), ("1970-01-30", 2, 1));
    }
}
