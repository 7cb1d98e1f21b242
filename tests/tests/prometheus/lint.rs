//! The rules of Grafana's dashboard-linter under the same names, each with a test that it finds what it is for.
//!
//! They are reimplemented here because the linter itself cannot be pinned: it has no releases, and its module is not in
//! Go's checksum database, so nothing guarantees that the fetched code is what Grafana published. Rules about Loki are
//! left out. Two rules are stricter than the original: every kind of panel needs a unit, and every metric its matchers.
//! There are no exceptions.

use super::dashboards::metric_labels;
use serde_json::{Value, json};

/// Units that the dashboards use, all of them in Grafana's list; any other text is shown after the number as it is.
const UNITS: &[&str] = &[
    "Bps",
    "bool_yes_no",
    "bytes",
    "celsius",
    "flops",
    "hertz",
    "joule",
    "none",
    "ops",
    "percentunit",
    "reqps",
    "s",
    "short",
    "watt",
];

/// One rule: what it finds in a dashboard, and how to break one so that it finds something.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) check: fn(&Value) -> Vec<String>,
    pub(crate) broken: fn(&mut Value),
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "template-datasource-rule",
        check: |d| {
            let sources = variables(d).filter(|v| v["type"] == "datasource").collect::<Vec<_>>();
            let first = sources.first().is_some_and(|v| v["query"] == "prometheus");
            let named = sources.iter().filter(|v| {
                let kind = v["query"].as_str().unwrap_or_default();
                let mut label = kind.to_string();
                label.get_mut(..1).map(str::make_ascii_uppercase);
                v["name"] != format!("{kind}_datasource") || v["label"] != format!("{label} data source")
            });
            let mut found: Vec<String> = named.map(|v| format!("{} is not named for its kind", v["name"])).collect();
            found.extend((!first).then(|| "no data source for Prometheus to choose first".to_string()));
            found
        },
        broken: |d| d["templating"]["list"][0]["name"] = json!("source"),
    },
    Rule { name: "template-job-rule", check: |d| chosen_many(d, "job", "Job"), broken: |d| remove_variable(d, "job") },
    Rule {
        name: "template-instance-rule",
        check: |d| chosen_many(d, "instance", "Instance"),
        broken: |d| variable(d, "instance")["allValue"] = json!(".*"),
    },
    Rule {
        name: "template-label-promql-rule",
        check: |d| {
            let queries = variables(d).filter(|v| v["type"] == "query");
            let bad = queries.filter(|v| {
                let query = v["query"]["query"].as_str().unwrap_or_default();
                let inner = query.strip_prefix("label_values(").and_then(|q| q.strip_suffix(')'));
                !inner.and_then(|inner| inner.rsplit_once(", ")).is_some_and(|(metric, label)| {
                    let name = metric.split('{').next().unwrap_or_default();
                    let balanced = metric.matches('{').count() == metric.matches('}').count();
                    is_word(name) && is_word(label) && balanced && metric.matches('"').count() % 2 == 0
                })
            });
            bad.map(|v| format!("{} asks {}", v["name"], v["query"]["query"])).collect()
        },
        broken: |d| variable(d, "job")["query"]["query"] = json!("label_values(up{, job)"),
    },
    Rule {
        name: "template-on-time-change-reload-rule",
        check: |d| {
            let stale = variables(d).filter(|v| v["type"] == "query" && v["refresh"] != 2);
            stale.map(|v| format!("{} keeps its values when the time changes", v["name"])).collect()
        },
        broken: |d| variable(d, "job")["refresh"] = json!(1),
    },
    Rule {
        name: "uneditable-dashboard",
        check: |d| {
            (d["editable"] != false).then(|| "edits would be lost: it comes from a file".into()).into_iter().collect()
        },
        broken: |d| d["editable"] = json!(true),
    },
    Rule {
        name: "panel-datasource-rule",
        check: |d| {
            each_panel(d, |p| {
                let of = |v: &Value| v["datasource"]["uid"] == "${prometheus_datasource}";
                !of(p) || p["targets"].as_array().is_some_and(|targets| !targets.iter().all(of))
            })
        },
        broken: |d| first_panel(d)["targets"][0]["datasource"]["uid"] = json!("prometheus"),
    },
    Rule {
        name: "panel-title-description-rule",
        check: |d| {
            each_panel(d, |p| [&p["title"], &p["description"]].iter().any(|t| t.as_str().is_none_or(str::is_empty)))
        },
        broken: |d| first_panel(d)["description"] = json!(""),
    },
    Rule {
        name: "panel-units-rule",
        check: |d| {
            each_panel(d, |p| {
                let overrides = p["fieldConfig"]["overrides"].as_array().into_iter().flatten();
                let properties = overrides.flat_map(|o| o["properties"].as_array().into_iter().flatten());
                let own = properties.filter(|property| property["id"] == "unit").map(|property| &property["value"]);
                let mut units = own.chain([&p["fieldConfig"]["defaults"]["unit"]]);
                units.any(|unit| unit.as_str().is_none_or(|unit| !UNITS.contains(&unit)))
            })
        },
        broken: |d| first_panel(d)["fieldConfig"]["defaults"]["unit"] = json!("W"),
    },
    Rule {
        name: "panel-no-targets-rule",
        check: |d| each_panel(d, |p| p["targets"].as_array().is_none_or(Vec::is_empty)),
        broken: |d| first_panel(d)["targets"] = json!([]),
    },
    Rule {
        name: "target-job-rule",
        check: |d| each_use(d, |used| !used.labels.contains("job=~\"$job\"")),
        broken: |d| replace_query(d, "job=~\"$job\",", ""),
    },
    Rule {
        name: "target-instance-rule",
        check: |d| each_use(d, |used| !used.labels.contains("instance=~\"$instance\"")),
        broken: |d| replace_query(d, "instance=~\"$instance\"", "instance=\"a\""),
    },
    Rule {
        name: "target-rate-interval-rule",
        check: |d| each_use(d, |used| used.function.ends_with("rate") && used.range != "$__rate_interval"),
        broken: |d| replace_query(d, "$__rate_interval", "5m"),
    },
    Rule {
        name: "target-counter-agg-rule",
        check: |d| {
            each_use(d, |used| {
                let counter = ["_total", "_bucket", "_sum", "_count"].iter().any(|end| used.metric.ends_with(end));
                counter && !["rate", "irate", "increase"].contains(&used.function)
            })
        },
        broken: |d| replace_query(d, "rate(", "("),
    },
];

fn variables(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["templating"]["list"].as_array().into_iter().flatten()
}

fn chosen_many(dashboard: &Value, name: &str, label: &str) -> Vec<String> {
    let good = variables(dashboard).any(|v| {
        v["name"] == name
            && v["label"] == label
            && v["type"] == "query"
            && v["multi"] == true
            && v["includeAll"] == true
            && v["allValue"] == ".+"
            && v["datasource"]["uid"] == "${prometheus_datasource}"
    });
    (!good).then(|| format!("there is no variable {name} to choose many or all of")).into_iter().collect()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().into_iter().flatten().filter(|panel| panel["type"] != "row")
}

fn each_panel(dashboard: &Value, bad: impl Fn(&Value) -> bool) -> Vec<String> {
    panels(dashboard).filter(|panel| bad(panel)).map(|panel| panel["title"].to_string()).collect()
}

fn each_use(dashboard: &Value, bad: impl Fn(&Use<'_>) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap_or_default();
            let of = uses(expr);
            found.extend(of.is_empty().then(|| format!("{}: no metric in {expr}", panel["title"])));
            found.extend(of.iter().filter(|used| bad(used)).map(|used| format!("{}: {}", panel["title"], used.metric)));
        }
    }
    found
}

/// A metric in a query: `function(metric{labels}[range])`.
#[derive(Debug, PartialEq)]
struct Use<'a> {
    function: &'a str,
    metric: &'a str,
    labels: &'a str,
    range: &'a str,
}

/// Every metric that a query asks for. Ours have no braces in their labels' values.
fn uses(expr: &str) -> Vec<Use<'_>> {
    let labels = metric_labels();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(start) = expr[at..].find(word).map(|n| at + n) {
        let end = expr[start..].find(|c| !word(c)).map_or(expr.len(), |n| start + n);
        let metric = &expr[start..end];
        at = end;
        let quoted = expr[..start].matches('"').count() % 2 == 1;
        let ours = ["candlescope_", "hw_", "gen_ai_", "process_", "scrape_"].iter().any(|p| metric.starts_with(p));
        if quoted || !ours || labels.contains(metric) {
            continue;
        }
        let rest = &expr[end..];
        let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
        let rest = &rest[if labels.is_empty() { 0 } else { labels.len() + 2 }..];
        let range = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("", |(range, _)| range);
        let before = expr[..start].strip_suffix('(').unwrap_or_default();
        let function = &before[before.rfind(|c| !word(c)).map_or(0, |n| n + 1)..];
        all.push(Use { function, metric, labels, range });
    }
    all
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn variable<'a>(dashboard: &'a mut Value, name: &str) -> &'a mut Value {
    let list = dashboard["templating"]["list"].as_array_mut().expect("variables");
    list.iter_mut().find(|v| v["name"] == name).expect("the variable")
}

fn remove_variable(dashboard: &mut Value, name: &str) {
    dashboard["templating"]["list"].as_array_mut().expect("variables").retain(|v| v["name"] != name);
}

fn first_panel(dashboard: &mut Value) -> &mut Value {
    let panels = dashboard["panels"].as_array_mut().expect("panels");
    panels.iter_mut().find(|panel| panel["type"] != "row").expect("a panel")
}

/// Changes the first query that has `from`.
fn replace_query(dashboard: &mut Value, from: &str, to: &str) {
    let panels = dashboard["panels"].as_array_mut().expect("panels").iter_mut();
    let mut targets = panels.filter(|p| p["type"] != "row").flat_map(|p| p["targets"].as_array_mut().expect("targets"));
    let target = targets.find(|t| t["expr"].as_str().is_some_and(|expr| expr.contains(from))).expect("such a query");
    target["expr"] = json!(target["expr"].as_str().unwrap_or_default().replacen(from, to, 1));
}

#[test]
fn metrics_are_found_in_queries() {
    let found = uses("sum by (hw_id) (rate(hw_energy_joules_total{a=\"hw_x\"}[5m])) / (hw_power_watts > 0)");
    assert_eq!(
        found,
        [
            Use { function: "rate", metric: "hw_energy_joules_total", labels: "a=\"hw_x\"", range: "5m" },
            Use { function: "", metric: "hw_power_watts", labels: "", range: "" },
        ]
    );
}
