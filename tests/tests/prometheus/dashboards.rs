//! The dashboards and rules as data.

use super::ROOT;
use candlescope_exporters::prometheus::{Kind, METRICS, SAMPLES};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) const DASHBOARDS: &[&str] = &["llm-inference", "gpu", "layers", "profiler-health"];

/// One query of one panel.
pub(crate) struct Query {
    pub(crate) of: String,
    pub(crate) expr: String,
}

pub(crate) fn read(name: &str) -> Value {
    let path = Path::new(ROOT).join("grafana/dashboards").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect("readable")).expect("valid JSON")
}

pub(crate) fn queries(name: &str) -> Vec<Query> {
    let dashboard = read(name);
    let panels = dashboard["panels"].as_array().expect("panels").clone();
    let mut all = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        for target in panel["targets"].as_array().expect("targets") {
            let of = format!("{name} / {}", panel["title"].as_str().unwrap_or_default());
            all.push(Query { of, expr: target["expr"].as_str().expect("expr").to_string() });
        }
    }
    all
}

/// Names of the recording rules.
pub(crate) fn recordings() -> Vec<String> {
    let rules = std::fs::read_to_string(Path::new(ROOT).join("grafana/prometheus/rules.yml")).expect("rules.yml");
    let names: Vec<String> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).map(str::to_string).collect();
    assert!(!names.is_empty());
    names
}

/// What Grafana needs of a dashboard, and what a reader needs of a panel.
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
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
        assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{name}: {title} asks for nothing");
        for variable in panel.to_string().split('$').skip(1) {
            let variable: String =
                variable.trim_start_matches('{').chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let known = variable.starts_with("__") || variables.contains(variable.as_str());
            assert!(known, "{name}: {title} uses ${variable}, which is no variable of the dashboard");
        }
    }
    for query in queries(name) {
        check_metrics(&query.of, &query.expr);
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        if let Some(query) = variable["query"]["query"].as_str() {
            check_metrics(&format!("{name}: variable"), query);
        }
    }
}

pub(crate) fn check_rules() {
    for file in ["rules.yml", "rules_test.yml"] {
        let text = std::fs::read_to_string(Path::new(ROOT).join("grafana/prometheus").join(file)).expect("readable");
        for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', 's', 'd'])) {
            check_metrics(file, line);
        }
    }
}

/// Every metric that is asked for is one that we export, or Prometheus' own.
fn check_metrics(of: &str, text: &str) {
    let labels: BTreeSet<&str> = METRICS.iter().chain(SAMPLES).flat_map(|m| m.labels.iter().copied()).collect();
    let recorded = recordings();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut seen = 0;
    // What stands in quotes are values of labels.
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
        assert!(exported, "{of}: {name} is not exported");
    }
    assert!(seen > 0 || of.ends_with(".yml"), "{of} asks for no metric: {text}");
}
