//! Grafana's own types of its dashboards, and where the links of panels lead.

use super::dashboards::read;
use candlescope_testkit::ROOT;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether the dashboards in `files` match Grafana's types, with the messages.
pub(crate) fn of_grafanas_types(files: &[PathBuf]) -> (bool, String) {
    let script = Path::new(ROOT).join("tests/services/grafana-types.sh");
    let output = Command::new(script).stderr(Stdio::inherit()).output().expect("grafana-types.sh runs");
    assert!(output.status.success(), "grafana-types.sh says above what is missing");
    let said = String::from_utf8(output.stdout).expect("text");
    let (node, modules) = said.trim().split_once('\n').expect("two lines");
    let check = Path::new(ROOT).join("tests/services/grafana-types/check.mjs");
    let output = Command::new(node).arg(check).arg(modules).args(files).output().expect("node runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// A link of a panel, with the variables filled in as Grafana does when a point is clicked on.
pub(crate) struct Link {
    pub(crate) of: String,
    pub(crate) url: String,
}

/// The values that a click fills in: the time range, the point, and the reader's selections.
pub(crate) struct Click<'a> {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) seconds: f64,
    pub(crate) jaeger: &'a str,
    pub(crate) service: &'a str,
}

pub(crate) fn links(name: &str, click: &Click<'_>) -> Vec<Link> {
    let values = [
        ("${__from}", click.from_ms.to_string()),
        ("${__to}", click.to_ms.to_string()),
        ("${__value.time}", click.to_ms.to_string()),
        ("${__value.numeric}", click.seconds.to_string()),
        ("${jaeger}", click.jaeger.to_string()),
        ("${jaeger_datasource}", "jaeger".to_string()),
        ("${service}", click.service.to_string()),
    ];
    let dashboard = read(name);
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let of_points = panel["fieldConfig"]["defaults"]["links"].as_array().into_iter().flatten();
        let of_panel = panel["links"].as_array().into_iter().flatten();
        for link in of_points.chain(of_panel) {
            let of = format!("{name} / {}: {}", panel["title"], link["title"]);
            let url = link["url"].as_str().expect("a URL").to_string();
            let url = values.iter().fold(url, |url, (variable, value)| url.replace(variable, value));
            assert!(!url.contains(['$', '{', ' ']), "{of} leads to {url}");
            all.push(Link { of, url });
        }
    }
    all
}

/// The query of a link to Grafana's Explore, decoded.
pub(crate) fn explored(url: &str) -> Option<Value> {
    let query = url.strip_prefix("/explore?")?;
    let pane = query.split('&').find_map(|part| part.strip_prefix("panes="))?;
    let mut bytes = Vec::new();
    let mut rest = pane.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    serde_json::from_slice(&bytes).ok()
}

/// The search that Grafana's Jaeger data source makes of a query in Explore: its fields are those of `JaegerQuery` in
/// Grafana 12, the times are of the pane, in microseconds.
pub(crate) fn as_the_data_source_asks(panes: &Value) -> String {
    let [(_, pane)] = panes.as_object().expect("panes").iter().collect::<Vec<_>>()[..] else {
        panic!("one pane: {panes}");
    };
    assert_eq!(pane["datasource"], "jaeger", "{pane}");
    let [query] = pane["queries"].as_array().expect("queries").as_slice() else { panic!("one query: {pane}") };
    let mut search = Vec::new();
    for (key, value) in query.as_object().expect("a query") {
        match key.as_str() {
            "refId" => assert!(value.is_string()),
            "datasource" => assert_eq!(*value, serde_json::json!({ "type": "jaeger", "uid": "jaeger" })),
            "queryType" => assert_eq!(value, "search"),
            "service" | "operation" | "tags" | "minDuration" | "maxDuration" => {
                search.push(format!("{key}={}", value.as_str().expect("text")));
            }
            "limit" => search.push(format!("{key}={}", value.as_u64().expect("a number"))),
            other => panic!("Jaeger's data source knows no {other}"),
        }
    }
    for (key, end) in [("start", "from"), ("end", "to")] {
        let ms: u64 = pane["range"][end].as_str().and_then(|ms| ms.parse().ok()).expect("milliseconds as text");
        search.push(format!("{key}={ms}000"));
    }
    search.join("&")
}
