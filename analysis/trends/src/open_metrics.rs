//! A summary as OpenMetrics text with a time at every sample, which `promtool tsdb create-blocks-from openmetrics`
//! makes blocks of for Prometheus: figures of many runs, day by day, where dashboards of running programs are.
//!
//! A sample stands at the beginning of its day (UTC). The text is that of OpenMetrics 1.0: samples of a metric
//! together, those of a series in order of time, `# EOF` at the end.

use super::figure::{FIGURES, Figure};
use super::series::{DayPoint, Group, Summary, Trend};
use candlescope_schema::numbers::DAY_NS;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What all names begin with.
const PREFIX: &str = "candlescope_fleet_";
/// How many runs of a day a figure rests on.
const RUNS: &str = "runs";
/// Changes of level.
const CHANGES: &str = "level_change_ratio";
/// Runs of a day with whose data something is wrong.
const VERDICTS: &str = "verdict_runs";
/// What is told of a day's runs.
type Stat = (&'static str, fn(&DayPoint) -> f64);
const STATS: [Stat; 3] = [("median", |day| day.median), ("min", |day| day.low), ("max", |day| day.high)];
/// Seconds of a day.
const DAY_S: i64 = DAY_NS / 1_000_000_000;

/// Names of all metrics.
pub fn metrics() -> Vec<String> {
    FIGURES
        .iter()
        .map(|figure| figure.metric)
        .chain([RUNS, CHANGES, VERDICTS])
        .map(|name| format!("{PREFIX}{name}"))
        .collect()
}

/// The summary of the runs of `place`, which becomes the label `instance`; `job` is `candlescope-fleet`.
pub fn open_metrics(summary: &Summary, place: &str) -> String {
    let mut text = String::new();
    let series: Vec<(String, &Trend)> = summary
        .groups
        .iter()
        .flat_map(|group| {
            let labels = labels(group, place);
            group.trends.iter().map(move |trend| (labels.clone(), trend))
        })
        .collect();
    for figure in FIGURES {
        let help = format!("{}: median, smallest and largest of the runs of a day.", figure.title);
        family(&mut text, figure.metric, &help);
        for (labels, trend) in of(&series, figure) {
            for (stat, value) in STATS {
                let labels = format!("{labels},stat=\"{stat}\"");
                for point in &trend.days {
                    sample(&mut text, figure.metric, &labels, value(point) * figure.to_base, point.number);
                }
            }
        }
    }
    family(&mut text, RUNS, "Runs of a day that have a figure.");
    for (labels, trend) in &series {
        for point in &trend.days {
            let labels = format!("{labels},figure=\"{}\"", trend.figure.metric);
            sample(&mut text, RUNS, &labels, point.n as f64, point.number);
        }
    }
    family(&mut text, CHANGES, "Change of a figure's level on this day, as a share of what was before.");
    for (labels, trend) in &series {
        for verdict in ["worse", "better"] {
            for change in trend.changes.iter().filter(|change| change.worse == (verdict == "worse")) {
                let Some(point) = trend.days.iter().find(|point| point.day == change.day) else { continue };
                let labels = format!("{labels},figure=\"{}\",verdict=\"{verdict}\"", trend.figure.metric);
                sample(&mut text, CHANGES, &labels, change.change, point.number);
            }
        }
    }
    family(&mut text, VERDICTS, "Runs of a day with whose data something is wrong, by the code of what it is.");
    for group in &summary.groups {
        for code in group.verdicts.keys() {
            let labels = format!("{},code=\"{}\"", labels(group, place), escaped(code));
            for day in &group.verdict_days {
                let found = day.verdicts.get(code);
                found.into_iter().for_each(|n| sample(&mut text, VERDICTS, &labels, *n as f64, day.number));
            }
        }
    }
    text + "# EOF\n"
}

fn of<'a>(series: &'a [(String, &'a Trend)], figure: &'a Figure) -> impl Iterator<Item = &'a (String, &'a Trend)> {
    series.iter().filter(move |(_, trend)| trend.figure.name == figure.name)
}

fn family(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {PREFIX}{name} {}\n# TYPE {PREFIX}{name} gauge", escaped(help));
}

fn sample(text: &mut String, name: &str, labels: &str, value: f64, number: i64) {
    let _ = writeln!(text, "{PREFIX}{name}{{{labels}}} {value} {}", number * DAY_S);
}

/// By what runs of a group are told apart, as labels.
fn labels(group: &Group, place: &str) -> String {
    let mut labels = format!("job=\"candlescope-fleet\",instance=\"{}\"", escaped(place));
    let mut taken: BTreeSet<String> = ["job", "instance", "stat", "figure", "verdict", "code"].map(String::from).into();
    for (name, value) in &group.keys {
        let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut name: String = name.chars().map(word).collect();
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            name.insert(0, '_');
        }
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        let _ = write!(labels, ",{name}=\"{}\"", escaped(value));
    }
    labels
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupBy, Headline, summarise};

    #[test]
    fn texts_of_strangers_stay_within_their_quotes() {
        let run = |at: i64| Headline {
            run: format!("run-{at}"),
            first_run: None,
            started_ns: at * DAY_NS + 5,
            keys: vec!["a\"b\\c\nd".into(), "x".into(), "y".into()],
            verdict: if at == 2 { vec!["a\"b".to_string()] } else { Vec::new() },
            findings: None,
            values: vec![None, Some(2e6), None, None, None, None],
        };
        let by = [GroupBy::Model, GroupBy::Option("max-new".into()), GroupBy::Option("4bit".into())];
        let text = open_metrics(&summarise(&[run(1), run(2)], &by), "/data \"x\"");
        let first = "candlescope_fleet_tpot_seconds{job=\"candlescope-fleet\",instance=\"/data \\\"x\\\"\",\
                     model=\"a\\\"b\\\\c\\nd\",max_new=\"x\",_4bit=\"y\",stat=\"median\"} 0.002 86400\n";
        assert!(text.contains(first), "{text}");
        assert_eq!(text.matches("candlescope_fleet_verdict_runs{").count(), 1, "{text}");
        assert!(text.contains(",code=\"a\\\"b\"} 1 172800\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn every_metric_is_listed() {
        let text = open_metrics(&summarise(&[], &[]), "");
        let typed: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge")).collect();
        assert_eq!(typed, metrics());
    }
}
