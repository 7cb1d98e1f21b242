//! The dashboards and rules as data.

use candlescope_exporters::prometheus::{Kind, METRICS, SAMPLES};
use candlescope_testkit::ROOT;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) const DASHBOARDS: &[&str] = &["llm-inference", "gpu", "layers", "profiler-health", "deploy"];
/// The dashboard of many runs, whose figures are not scraped.
pub(crate) const FLEET: &str = "fleet";

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    DASHBOARDS.iter().copied().chain([FLEET])
}

/// One query of one panel.
pub(crate) struct Query {
    pub(crate) of: String,
    pub(crate) expr: String,
}

pub(crate) fn read(name: &str) -> Value {
    let path = Path::new(ROOT).join("grafana/dashboards").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect("readable")).expect("valid JSON")
}

/// Every panel's queries as they are written, with the names of dashboard and panel.
pub(crate) fn targets(name: &str) -> Vec<(String, Value)> {
    let dashboard = read(name);
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels").iter().filter(|panel| panel["type"] != "row") {
        let of = format!("{name} / {}", panel["title"].as_str().unwrap_or_default());
        all.extend(panel["targets"].as_array().expect("targets").iter().map(|target| (of.clone(), target.clone())));
    }
    all
}

/// Every query of a dashboard: of its panels, and of its annotations but alerts, of which there may be none.
pub(crate) fn queries(name: &str) -> Vec<Query> {
    let expr = |target: &Value| target["expr"].as_str().expect("expr").to_string();
    let of_panels = targets(name).into_iter().map(|(of, target)| Query { of, expr: expr(&target) });
    let dashboard = read(name);
    let marks = dashboard["annotations"]["list"].as_array().expect("annotations").iter();
    let of_marks = marks.map(|mark| Query { of: format!("{name} / {}", mark["name"]), expr: expr(&mark["target"]) });
    of_panels.chain(of_marks.filter(|mark| !mark.expr.starts_with(ALERTS))).collect()
}

/// Prometheus' own series of alerts.
const ALERTS: &str = "ALERTS{";

/// Recording rules that hold the last hour against an earlier one, which a run that has just begun lacks.
pub(crate) const OF_THE_PAST: &[&str] = &[
    "job:candlescope_figure:worse_ratio",
    "job_path:candlescope_step_share:change",
    "job_path:candlescope_layer_seconds:worse_ratio",
];

/// Names of the recording rules.
pub(crate) fn recordings() -> Vec<String> {
    let names = recorded_in("rules.yml");
    assert!(!names.is_empty() && OF_THE_PAST.iter().all(|rule| names.contains(*rule)), "{names:?}");
    names.into_iter().collect()
}

fn recorded_in(file: &str) -> BTreeSet<String> {
    let rules = std::fs::read_to_string(Path::new(ROOT).join("grafana/prometheus").join(file)).expect("readable");
    rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).map(str::to_string).collect()
}

/// Checks what Grafana needs in a dashboard, and what a reader needs in a panel.
pub(crate) fn check(name: &str, dashboard: &Value) {
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|v| v >= 39), "{name}");
    let variables: BTreeSet<&str> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .filter_map(|v| v["name"].as_str())
        .collect();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().unwrap_or_default();
        assert!(!title.is_empty() && ids.insert(panel["id"].as_u64()), "{name}: {title}");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && cells.insert((x, y)), "{name}: {title} lies over another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|d| d.ends_with('.')), "{name}: {title} has no description");
        let unit = panel["fieldConfig"]["defaults"]["unit"].as_str();
        assert!(unit.is_some_and(|unit| !unit.is_empty()), "{name}: {title} has no unit");
        if panel["type"] == "stat" {
            let steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array();
            assert!(
                steps.is_some_and(|steps| !steps.is_empty() && steps[0]["value"].is_null()),
                "{name}: {title} is red above 80, as Grafana has it where nothing else is said"
            );
        }
        assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{name}: {title} asks for nothing");
        for variable in panel.to_string().split('$').skip(1) {
            let variable: String =
                variable.trim_start_matches('{').chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // A number is a group of a regular expression, which Grafana leaves alone.
            let group = !variable.is_empty() && variable.bytes().all(|b| b.is_ascii_digit());
            let known = group || variable.starts_with("__") || variables.contains(variable.as_str());
            assert!(known, "{name}: {title} uses ${variable}, which is no variable of the dashboard");
        }
    }
    for query in queries(name) {
        check_metrics(&query.of, &query.expr);
    }
    check_annotations(name, dashboard);
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(query) = variable["query"]["query"].as_str() {
            check_metrics(&format!("{name}: variable"), query);
        }
    }
}

/// Both places of an annotation's query say the same, and alerts are all that the rules know.
fn check_annotations(name: &str, dashboard: &Value) {
    let marks = dashboard["annotations"]["list"].as_array().expect("annotations");
    for mark in marks {
        assert!(mark["expr"] == mark["target"]["expr"], "{name}: {mark}");
        let Some(alerts) = mark["expr"].as_str().and_then(|expr| expr.strip_prefix(ALERTS)) else { continue };
        assert!(alerts.starts_with("alertname=~\"Candlescope.+|Gpu.+\""), "{name}: {mark}");
        let rules = std::fs::read_to_string(Path::new(ROOT).join("grafana/prometheus/rules.yml")).expect("rules.yml");
        let mut known = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        assert!(known.all(|alert| alert.starts_with("Candlescope") || alert.starts_with("Gpu")), "{name}: {mark}");
    }
    let names: Vec<_> = marks.iter().filter_map(|mark| mark["name"].as_str()).collect();
    assert_eq!(names, if name == "deploy" { vec!["Starts", "Alerts"] } else { vec![] }, "{name}");
}

pub(crate) fn check_rules() {
    // A rule that reads what no rule records is silent for ever.
    let recorded = &recorded_in("rules.yml") | &recorded_in("baseline.yml");
    for file in ["rules.yml", "rules_test.yml", "baseline.yml", "past_test.yml"] {
        let text = std::fs::read_to_string(Path::new(ROOT).join("grafana/prometheus").join(file)).expect("readable");
        let prose = ["#", "summary:", "description:"];
        for line in text.lines().filter(|line| !prose.iter().any(|start| line.trim_start().starts_with(start))) {
            check_metrics(file, line);
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            // No name begins with a digit, but the range of a subquery does: `1h:5m`.
            let is_recorded =
                |name: &&str| name.trim_matches(':').contains(":") && !name.starts_with(|c: char| c.is_ascii_digit());
            let names = line.split(|c: char| !word(c)).filter(is_recorded);
            let unknown: Vec<_> = names.filter(|name| !recorded.contains(*name)).collect();
            assert!(unknown.is_empty(), "{file}: nothing records {unknown:?}: {line}");
        }
    }
}

/// Names of labels, which may look like names of metrics.
pub(crate) fn metric_labels() -> BTreeSet<&'static str> {
    METRICS.iter().chain(SAMPLES).flat_map(|metric| metric.labels.iter().copied()).collect()
}

/// Every metric in a query is one that we export, or one of Prometheus itself.
fn check_metrics(of: &str, text: &str) {
    let labels = metric_labels();
    let recorded = recordings();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut seen = 0;
    // Texts in quotes are values of labels.
    for name in text.split('"').step_by(2).flat_map(|unquoted| unquoted.split(|c: char| !word(c))) {
        let name = name.trim_end_matches(':');
        let ours = ["candlescope_", "hw_", "gen_ai_", "process_"].iter().any(|prefix| name.starts_with(prefix));
        seen += usize::from(ours || name == "scrape_duration_seconds" || name.contains(':'));
        if !ours || labels.contains(name) || recorded.iter().any(|r| r == name) {
            continue;
        }
        let exported = METRICS.iter().chain(SAMPLES).any(|metric| match metric.kind {
            Kind::Histogram => {
                ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end) == Some(metric.name))
            }
            _ => name == metric.name,
        });
        let exported = exported || candlescope_trends::metrics().iter().any(|metric| metric == name);
        assert!(exported, "{of}: {name} is not exported");
    }
    assert!(seen > 0 || of.ends_with(".yml"), "{of} asks for no metric: {text}");
}
