//! A real Prometheus scrapes a live run: every panel of every dashboard answers, the rules hold, and the figures are the program's.
#![allow(missing_docs, reason = "a test")]

mod dashboards;
mod load;
mod server;

use dashboards::{DASHBOARDS, Query, queries};
use server::{Prometheus, promtool, stdin_to};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What the dashboards leave to be chosen, as it is chosen here.
fn chosen(expr: &str) -> String {
    let path = "decode/block/attn/linear";
    [
        ("$__rate_interval", "10s"),
        ("$__range", "1m"),
        ("$instance", ".*"),
        ("$model", ".*"),
        ("$gpu", ".*"),
        ("$path", path),
    ]
    .into_iter()
    .fold(expr.to_string(), |expr, (variable, value)| expr.replace(variable, value))
}

#[test]
fn every_panel_answers_and_the_figures_are_the_programs() {
    let live = load::Live::start();
    let marked = load::Marked::start();
    let prometheus = Prometheus::start(&[live.address, marked.address]);

    // While the load goes on, because rates are of the last seconds.
    let mut open: Vec<Query> = DASHBOARDS.iter().flat_map(|name| queries(name)).collect();
    let all = open.len();
    assert!(all > 60, "{all} queries are not all there are");
    for rule in dashboards::recordings() {
        open.push(Query { of: format!("recording rule {rule}"), expr: rule });
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !open.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_secs(1));
        open.retain(|query| {
            let answer = prometheus.query(&chosen(&query.expr));
            let values = answer.unwrap_or_else(|error| panic!("{}: {}\n{error}", query.of, query.expr));
            // The quantile of nothing is NaN: a panel without a line.
            !values.iter().any(|(_, value)| value.is_finite())
        });
    }
    let empty: Vec<String> = open.iter().map(|query| format!("{}: {}", query.of, query.expr)).collect();
    assert!(empty.is_empty(), "{} of {all} queries stay empty:\n{}", empty.len(), empty.join("\n"));
    println!("{all} queries of {} dashboards answered by a real Prometheus", DASHBOARDS.len());

    // What promtool's linter says of a page that has everything in it.
    for address in [live.address, marked.address] {
        let page = server::get(address, "/metrics").expect("metrics");
        let (ok, said) = stdin_to(&promtool(), &["check", "metrics"], page.as_bytes());
        assert!(ok && said.trim().is_empty(), "promtool check metrics: {said}");
    }

    // The load stops, and Prometheus counts what the program did: exactly.
    let done = live.stop();
    prometheus.wait_for_scrapes();
    let at = format!("{{instance=\"{}\"}}", done.address);
    let value = |metric: &str, labels: &str| {
        let expr = format!("{metric}{{{labels}}} and on (instance) up{at}");
        let values = prometheus.query(&expr).expect("answers");
        assert_eq!(values.len(), 1, "{expr}: {values:?}");
        values[0].1
    };
    assert!(done.requests > 0);
    // The last records may reach the page one scrape later; what never arrives fails below.
    let deadline = Instant::now() + Duration::from_secs(10);
    while value("gen_ai_server_request_duration_seconds_count", "") < done.requests as f64 && Instant::now() < deadline
    {
        prometheus.wait_for_scrapes();
    }
    assert_eq!(value("candlescope_tokens_total", "type=\"output\""), done.output_tokens as f64);
    assert_eq!(value("candlescope_tokens_total", "type=\"input\""), done.prompt_tokens as f64);
    assert_eq!(value("gen_ai_server_request_duration_seconds_count", ""), done.requests as f64);
    // One gap fewer than tokens in each request.
    let gaps = (done.output_tokens - done.requests) as f64;
    assert_eq!(value("candlescope_inter_token_latency_seconds_count", ""), gaps);
    let mean = |name: &str| value(&format!("{name}_sum"), "") / value(&format!("{name}_count"), "");
    let (seen, measured) = (mean("gen_ai_server_time_to_first_token_seconds"), done.mean_ttft);
    assert!(
        (seen / measured - 1.0).abs() < 0.2,
        "time to first token: {seen} s here, {measured} s by the program's own clock"
    );
    assert_eq!(value("candlescope_intervals_total", "outcome=\"ring_full\""), 0.0);

    drop(prometheus);
    let manifest = done.session.finish();
    for exporter in &manifest.exporters {
        assert!(exporter.conserved() && exporter.dropped.is_empty(), "{exporter:?}");
    }
    marked.stop();
}

#[test]
fn rules_and_configuration_hold() {
    let dir = Path::new(ROOT).join("grafana/prometheus");
    for arguments in
        [["check", "config", "prometheus.yml"], ["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]]
    {
        let output =
            std::process::Command::new(promtool()).args(arguments).current_dir(&dir).output().expect("promtool runs");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "promtool {}: {said}", arguments.join(" "));
    }
    // Each alert is tested to fire.
    let tests = std::fs::read_to_string(dir.join("rules_test.yml")).expect("rules_test.yml");
    let rules = std::fs::read_to_string(dir.join("rules.yml")).expect("rules.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5);
    for alert in alerts {
        let fires = tests
            .split("- eval_time")
            .any(|case| case.contains(&format!("alertname: {alert}\n")) && case.contains("exp_labels"));
        assert!(fires, "no test makes {alert} fire");
    }
}

#[test]
fn dashboards_and_rules_keep_to_what_is_exported() {
    let mut uids = BTreeSet::new();
    for name in DASHBOARDS {
        let dashboard = dashboards::read(name);
        assert!(uids.insert(dashboard["uid"].as_str().expect("uid").to_string()), "{name}: a uid of its own");
        dashboards::check(name, &dashboard);
    }
    let files = std::fs::read_dir(Path::new(ROOT).join("grafana/dashboards")).expect("dashboards").count();
    assert_eq!(files, DASHBOARDS.len(), "every file is tested");
    dashboards::check_rules();
    let status = std::process::Command::new("python3").args(["grafana/build.py", "--check"]).current_dir(ROOT).status();
    assert!(status.expect("python3").success(), "grafana/build.py makes other dashboards than there are");
}

/// Metrics of the GPU as its collector names them all have a family, a help text and a label in the catalogue.
#[test]
fn every_metric_of_the_gpu_collector_is_in_the_catalogue() {
    for metric in candlescope_collectors::nvml::METRICS {
        let known = candlescope_exporters::prometheus::SAMPLES.iter().any(|family| match family.labels {
            [_, _] => metric.name.strip_prefix(family.name).is_some_and(|rest| rest.starts_with('_')),
            _ => metric.name == family.name,
        });
        assert!(known, "{} would be served without a help text", metric.name);
    }
}
