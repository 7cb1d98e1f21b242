//! A real Prometheus scrapes a live run: every panel of every dashboard answers, the rules hold, and the figures are
//! the program's.
#![allow(missing_docs, reason = "a test")]

mod contents;
mod dashboards;
mod fleet;
mod grafana;
mod jaeger;
mod lint;
mod live_gate;
mod load;
mod promtool;
mod server_of_grafana;

use candlescope_testkit::ROOT;
use candlescope_testkit::SOON;
use candlescope_testkit::services::{Jaeger, Prometheus, get};
use dashboards::{DASHBOARDS, Query, queries};
use promtool::{promtool, stdin_to};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Fills in the variables of the dashboards.
fn chosen(expr: &str) -> String {
    by_the_reader(expr).replace("$__rate_interval", "10s").replace("$__range", "10s")
}

/// Fills in the variables that a reader selects; Grafana's server fills in the rest.
fn by_the_reader(expr: &str) -> String {
    let path = "decode/block/attn/linear";
    [("$job", ".+"), ("$instance", ".+"), ("$model", ".+"), ("$gpu", ".+"), ("$path", path)]
        .into_iter()
        .fold(expr.to_string(), |expr, (variable, value)| expr.replace(variable, value))
}

#[test]
fn every_panel_answers_and_the_figures_are_the_programs() {
    let live = load::Live::start();
    let marked = load::Marked::start();
    let prometheus = Prometheus::start(&[live.address, marked.address]);

    // While the load goes on, because rates are over the last seconds.
    let mut open: Vec<Query> = DASHBOARDS.iter().flat_map(|name| queries(name)).collect();
    let all = open.len();
    assert!(all > 60, "{all} queries are not all there are");
    // What compares with the past finds none in a minute: `promtool test rules` checks it.
    for rule in dashboards::recordings().into_iter().filter(|rule| !dashboards::OF_THE_PAST.contains(&rule.as_str())) {
        open.push(Query { of: format!("recording rule {rule}"), expr: rule });
    }
    let deadline = Instant::now() + SOON;
    while !open.is_empty() && Instant::now() < deadline {
        // The page is scraped twice a second, so nothing can be found earlier.
        std::thread::sleep(Duration::from_secs(1));
        open.retain(|query| {
            let answer = prometheus.query(&chosen(&query.expr));
            let values = answer.unwrap_or_else(|error| panic!("{}: {}\n{error}", query.of, query.expr));
            // The quantile of an empty histogram is NaN: a panel without a line.
            let answer = values.into_iter().find(|(_, value)| value.is_finite());
            if let Some((labels, value)) = &answer {
                println!("{}: {value} {labels}", query.of);
            }
            answer.is_none()
        });
    }
    let empty: Vec<String> = open.iter().map(|query| format!("{}: {}", query.of, query.expr)).collect();
    assert!(empty.is_empty(), "{} of {all} queries stay empty:\n{}", empty.len(), empty.join("\n"));
    println!("{all} queries of {} dashboards answered by a real Prometheus", DASHBOARDS.len());

    // promtool's linter accepts a page with all metrics.
    for address in [live.address, marked.address] {
        let page = get(address, "/metrics").expect("metrics");
        let (ok, said) = stdin_to(&promtool(), &["check", "metrics"], page.as_bytes());
        assert!(ok && said.trim().is_empty(), "promtool check metrics: {said}");
    }

    // After the load has stopped, Prometheus' counts are exactly those of the program.
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
    // The last records may reach the page one scrape later; records that never arrive fail the checks below.
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

/// Grafana reads its provisioning and the dashboards, reaches both data sources, and answers what panels ask of it.
#[test]
#[ignore = "builds Grafana, a quarter of an hour: make test-grafana"]
fn panels_answer_through_a_real_grafana() {
    let (live, marked, jaeger) = (load::Live::start(), load::Marked::start(), Jaeger::start());
    let prometheus = Prometheus::start(&[live.address, marked.address]);
    let grafana = server_of_grafana::Grafana::start(prometheus.address, jaeger.query);
    let health = grafana.get("/api/datasources/uid/prometheus/health");
    assert_eq!(health["status"], "OK", "{health}");

    let listed = grafana.get("/api/search?type=dash-db");
    let mut targets = Vec::new();
    for name in DASHBOARDS {
        let written = dashboards::read(name);
        let found = listed.as_array().expect("a list").iter().find(|found| found["uid"] == written["uid"]);
        assert_eq!(found.map(|found| &found["folderTitle"]), Some(&"candlescope".into()), "{name}: {listed}");
        let uid = written["uid"].as_str().expect("uid");
        let kept = grafana.get(&format!("/api/dashboards/uid/{uid}"));
        assert_eq!(kept["meta"]["provisioned"], true, "{name}: {kept}");
        assert_eq!(kept["dashboard"]["panels"], written["panels"], "{name} is read as it is written");
        // Of the time before the time shown there is nothing yet.
        let of_now =
            |target: &serde_json::Value| !target["expr"].as_str().is_some_and(|expr| expr.contains(" offset $"));
        for (of, mut target) in dashboards::targets(name).into_iter().filter(|(_, target)| of_now(target)) {
            target["expr"] = by_the_reader(target["expr"].as_str().expect("expr")).into();
            targets.push((of, target));
        }
    }
    let all = targets.len();
    assert!(all > 60, "{all} queries are not all there are");
    let deadline = Instant::now() + 2 * SOON;
    while !targets.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_secs(1));
        targets.retain(|(_, target)| !grafana.query(target).iter().any(|value| value.is_finite()));
    }
    assert!(targets.is_empty(), "{} of {all} queries stay empty: {targets:?}", targets.len());

    // The query of Explore to Jaeger for a click on a point.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let to_ms = u64::try_from(now.as_millis()).expect("fits");
    jaeger::store(&jaeger, "chatbot", to_ms - 60_000, 40);
    let click = grafana::Click { from_ms: to_ms - 600_000, to_ms, seconds: 0.012, jaeger: "", service: "chatbot" };
    let mut followed = 0;
    for grafana::Link { of, url } in DASHBOARDS.iter().flat_map(|name| grafana::links(name, &click)) {
        let Some(panes) = grafana::explored(&url) else { continue };
        let search = grafana::as_the_data_source_asks(&panes);
        let found = grafana.get(&format!("/api/datasources/proxy/uid/jaeger/api/traces?{search}"));
        assert_eq!(found["data"].as_array().map(Vec::len), Some(1), "{of}: {found}");
        followed += 1;
    }
    assert!(followed > 10, "{followed}");
    println!("{all} queries and {followed} links of {} dashboards answered by a real Grafana", DASHBOARDS.len());
    live.stop().session.finish();
    marked.stop();
}

#[test]
fn rules_and_configuration_hold() {
    let dir = Path::new(ROOT).join("grafana/prometheus");
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules.yml"],
        ["check", "rules", "baseline.yml"],
        ["test", "rules", "rules_test.yml"],
        ["test", "rules", "past_test.yml"],
    ] {
        let output =
            std::process::Command::new(promtool()).args(arguments).current_dir(&dir).output().expect("promtool runs");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "promtool {}: {said}", arguments.join(" "));
    }
    // Each alert is tested to fire.
    let read = |file| std::fs::read_to_string(dir.join(file)).expect("readable");
    let tests = ["rules_test.yml", "past_test.yml"].map(read).concat();
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
    for name in dashboards::all() {
        let dashboard = dashboards::read(name);
        assert!(uids.insert(dashboard["uid"].as_str().expect("uid").to_string()), "{name}: a uid of its own");
        dashboards::check(name, &dashboard);
    }
    let files = std::fs::read_dir(Path::new(ROOT).join("grafana/dashboards")).expect("dashboards").count();
    assert_eq!(files, dashboards::all().count(), "every file is tested");
    contents::check_contents();
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

#[test]
fn dashboards_keep_the_rules_of_grafanas_linter_and_each_rule_finds_what_it_is_for() {
    for rule in lint::RULES {
        for name in dashboards::all() {
            let found = (rule.check)(&dashboards::read(name));
            assert!(found.is_empty(), "{name} against {}: {found:?}", rule.name);
        }
        let mut broken = dashboards::read("gpu");
        (rule.broken)(&mut broken);
        assert!(!(rule.check)(&broken).is_empty(), "{} finds nothing in a dashboard that breaks it", rule.name);
    }
}

#[test]
fn dashboards_are_of_grafanas_own_types_and_others_are_not() {
    let folder = Path::new(ROOT).join("grafana/dashboards");
    let files: Vec<_> = dashboards::all().map(|name| folder.join(format!("{name}.json"))).collect();
    let (ok, said) = grafana::of_grafanas_types(&files);
    assert!(ok && said.contains("6 dashboards"), "{said}");

    // Mistakes that no editor would accept, each in a file of its own.
    let dir = tempfile::tempdir().expect("a directory");
    let spoilt: &[(&str, &str, &str)] = &[
        ("unknown", "\"sort\": \"desc\"", "\"order\": \"desc\""),
        ("value", "\"mode\": \"multi\"", "\"mode\": \"many\""),
        ("type", "\"fillOpacity\": 10", "\"fillOpacity\": \"10\""),
        ("query", "\"legendFormat\"", "\"legend\""),
        ("variable", "\"refresh\": 2", "\"refresh\": 7"),
        ("missing", "\"from\": \"now-30m\",", ""),
        ("annotation", "\"list\": []", "\"list\": [{ \"name\": \"Starts\" }]"),
    ];
    let mut files = Vec::new();
    for (name, from, to) in spoilt {
        let text = dashboards::read("llm-inference");
        let text = serde_json::to_string_pretty(&text).expect("JSON").replacen(from, to, 1);
        assert!(
            text.contains(to) && text != std::fs::read_to_string(folder.join("llm-inference.json")).expect("readable")
        );
        let file = dir.path().join(format!("{name}.json"));
        std::fs::write(&file, text).expect("written");
        files.push(file);
    }
    let (ok, said) = grafana::of_grafanas_types(&files);
    let silent: Vec<_> = spoilt.iter().filter(|(name, ..)| !said.contains(&format!("{name}.json: "))).collect();
    assert!(!ok && silent.is_empty(), "{silent:?} pass:\n{said}");

    let at = |file: &str| std::fs::read_to_string(Path::new(ROOT).join(file)).expect("readable");
    let after = |text: &str, key: &str| -> String {
        let rest = text.split_once(key).map(|(_, rest)| rest).unwrap_or_default();
        rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
    };
    let checked = after(&at("tests/services/grafana-types/package.json"), "\"@grafana/schema\": \"");
    assert!(!checked.is_empty());
    assert_eq!(
        checked,
        after(&at("grafana/compose.yaml"), "grafana/grafana:"),
        "the types are of the Grafana that is started"
    );
}

/// A click on a point leads to the trace behind it, and a click elsewhere does not.
#[test]
fn links_of_panels_lead_to_traces_in_a_real_jaeger() {
    // A request of 40 ms a minute ago.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let began = u64::try_from(now.as_millis()).expect("fits") - 60_000;
    let jaeger = Jaeger::start();
    jaeger::store(&jaeger, "chatbot", began, 40);
    let base = format!("http://{}", jaeger.query);
    let click = |to_ms: u64, seconds: f64, service: &'static str| grafana::Click {
        from_ms: began - 600_000,
        to_ms,
        seconds,
        jaeger: &base,
        service,
    };
    let sources = std::fs::read_to_string(Path::new(ROOT).join("grafana/provisioning/datasources/candlescope.yaml"));
    assert!(
        sources.expect("readable").contains("\n    uid: jaeger\n"),
        "where the links to Explore lead in this stack"
    );

    // A point after it, one before it, one above it, another service; which of them find it without and with a least
    // duration.
    let clicks = [
        (click(began + 5_000, 0.012, "chatbot"), 1, 1),
        (click(began - 5_000, 0.012, "chatbot"), 0, 0),
        (click(began + 5_000, 0.056, "chatbot"), 1, 0),
        (click(began + 5_000, 0.012, "other"), 0, 0),
    ];
    let mut followed = 0;
    for (click, any, slow) in &clicks {
        for name in DASHBOARDS {
            for grafana::Link { of, url } in grafana::links(name, click) {
                let search = match (url.strip_prefix(&format!("{base}/search?")), grafana::explored(&url)) {
                    (Some(search), None) => search.to_string(),
                    (None, Some(panes)) => grafana::as_the_data_source_asks(&panes),
                    _ => panic!("{of} leads to {url}"),
                };
                let expected = if search.contains("minDuration") { slow } else { any };
                assert_eq!(jaeger::found(&jaeger, &search).as_ref(), Ok(expected), "{of}: {search}");
                followed += 1;
            }
        }
    }
    assert!(followed > 80, "{followed}");
    assert!(jaeger::found(&jaeger, "service=chatbot&minDuration=12").is_err(), "a search that is wrong is refused");
}
