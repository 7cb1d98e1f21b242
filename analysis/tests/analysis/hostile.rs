//! Names in a run are untrusted: none may become markup, script or a terminal control sequence.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_report::{ReportOptions, write_report};
use serde_json::json;
use std::fs;
use tempfile::tempdir;

const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(2)>",
    "</iframe><script>alert(3)//",
    "]]></script><svg onload=alert(4)>",
    "a|b`c\n# heading\u{1b}[31m\u{202e}",
    "{{ css }}{% raw %}&lt;&#39;'",
];

#[test]
fn hostile_names_stay_text() {
    for name in HOSTILE {
        let dir = tempdir().unwrap();
        // A slash is the path's own separator and cannot be part of a name.
        let block = name.replace('/', "\u{2215}");
        let scenario = Scenario { layers: 2, requests: 3, output: 12, block, ..Scenario::on_gpu() };
        let (mut batch, mut manifest) = make(&scenario);
        batch.kernels.iter_mut().for_each(|k| {
            k.name = name.into();
            k.device = name.into();
        });
        batch.samples.iter_mut().filter(|s| &*s.device != "host").for_each(|s| s.device = name.into());
        if let Some(gpu) = &mut manifest.gpu {
            gpu.timing = name.to_string();
            gpu.devices.iter_mut().for_each(|d| (d.uuid, d.name) = (name.to_string(), name.to_string()));
            gpu.intervals.insert(name.to_string(), 3);
            gpu.kernels.iter_mut().for_each(|k| (k.recorder, k.error) = (name.to_string(), Some(name.to_string())));
        }
        batch.requests.iter_mut().for_each(|r| r.model = name.into());
        manifest.run_id = name.to_string();
        manifest.host = name.to_string();
        for map in [&mut manifest.model, &mut manifest.environment, &mut manifest.options, &mut manifest.results] {
            map.insert(name.to_string(), json!({ name: [name] }));
            map.insert("name".to_string(), json!(name));
        }
        let finding = candlescope_schema::run::Finding::new(name, "{name} {path}", "{name}").text("name", name);
        let finding = finding.at(candlescope_schema::run::Place::Path, name);
        manifest.verdict.findings.push(finding.severity(candlescope_schema::run::Severity::Info));
        write_run(dir.path(), &batch, &manifest, 1_000_000);
        let report = write_report(dir.path(), &ReportOptions::default()).unwrap();

        let html = fs::read_to_string(dir.path().join("report.html")).unwrap();
        for markup in ["<script>alert", "<img", "onload=alert(4)>", "</iframe><script", "<svg onload=alert"] {
            assert!(!html.contains(markup), "{markup} of {name}");
        }
        // The frame's document is an attribute: nothing in it may end the attribute or the frame.
        let frame = html.split("srcdoc=\"").nth(1).unwrap();
        let document = &frame[..frame.find('"').unwrap()];
        assert!(!document.contains('<') && document.contains("&lt;"), "markup in the attribute");
        let inner = unescape(document);
        for markup in ["<script>alert", "<img", "<svg onload=alert"] {
            assert!(!inner.contains(markup), "{markup} of {name} in the flame graph");
        }
        assert_eq!(html.matches("<script").count(), 1, "the page's own script only");

        for file in ["report.md", "operators.md", "stakeholder_summary.md", "assumptions.md"] {
            let text = fs::read_to_string(dir.path().join(file)).unwrap();
            let outside_code: String = text.split('`').step_by(2).collect();
            assert!(!outside_code.contains("<script>") && !outside_code.contains("<img"), "{file} of {name}");
            assert!(!text.contains("\n# heading") && !text.contains('\u{1b}'), "{file} of {name}");
            let lines: Vec<_> =
                text.lines().map(|l| (l.starts_with('|'), l.replace("\\|", "").matches('|').count())).collect();
            for (before, after) in lines.iter().zip(&lines[1..]).filter(|(a, b)| a.0 && b.0) {
                assert_eq!(before.1, after.1, "cells of {name} stay in their table, in {file}");
            }
        }
        assert!(!report.summary.contains('\u{1b}') && !report.summary.contains('\u{202e}'), "terminal, {name}");
        let metrics = fs::read_to_string(dir.path().join("metrics.json")).unwrap();
        let value: serde_json::Value = serde_json::from_str(&metrics).unwrap();
        assert_eq!(value["run"]["run_id"], name, "JSON keeps names as they are");
    }
}

fn unescape(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#x27;", "'"),
        ("&#39;", "'"),
        ("&#x2f;", "/"),
        ("&amp;", "&"),
    ];
    pairs.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to))
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario::default());
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    write_report(dir.path(), &ReportOptions::default()).unwrap();
    let html = fs::read_to_string(dir.path().join("report.html")).unwrap();
    let whole = unescape(&html);
    for request in ["src=\"http", "href=\"http", "url(http", "@import", "src=\"//", "<link", "fetch(", "XMLHttpRequest"]
    {
        assert!(!whole.contains(request), "{request}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(html.len() < 400_000, "{} bytes", html.len());
}

#[test]
fn no_number_ends_a_report() {
    let extremes = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let values = [f64::MIN, -1.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX, f64::INFINITY, f64::NAN];
    let (mut batch, mut manifest) = make(&Scenario { layers: 1, requests: 2, output: 6, ..Scenario::on_gpu() });
    for (i, kernel) in batch.kernels.iter_mut().enumerate() {
        kernel.gpu_start.0 = extremes[i % 7];
        kernel.gpu_dur_ns = extremes[i / 7 % 7].unsigned_abs().min(i64::MAX as u64);
        kernel.launch_start = Some(candlescope_schema::HostNs(extremes[i / 3 % 7]));
        kernel.queue_delay_ns = Some(i64::MAX as u64 - i as u64);
        kernel.bytes = Some(i64::MAX as u64);
    }
    for (i, sample) in batch.samples.iter_mut().enumerate() {
        sample.time.0 = if i % 3 == 0 { extremes[i % 7] } else { sample.time.0 };
        sample.value = values[i % 8];
    }
    for (i, span) in batch.spans.iter_mut().enumerate().filter(|(i, _)| i % 5 == 0) {
        let dur_ns = extremes[i % 7].unsigned_abs().min(i64::MAX as u64);
        let start = candlescope_schema::HostNs(extremes[i / 7 % 7]);
        span.gpu = Some(candlescope_schema::GpuTime { start, dur_ns, source: candlescope_schema::GpuSource::Event });
        span.flops = Some(i64::MAX as u64);
    }
    for step in &mut batch.steps {
        step.gpu = step.gpu.map(|gpu| candlescope_schema::GpuTime { dur_ns: i64::MAX as u64, ..gpu });
    }
    if let Some(gpu) = &mut manifest.gpu {
        gpu.budget = f64::MAX;
        gpu.mark_cost_ns = Some(-f64::MAX);
        gpu.marks_ns = u64::MAX;
        gpu.steps_full = u64::MAX;
    }
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    let report = write_report(dir.path(), &ReportOptions::default()).unwrap();
    assert!(fs::read_to_string(&report.files[0]).unwrap().trim_end().ends_with("</html>"));
    for table in ["kernels", "samples"] {
        let text = format!("rows of table `{table}`");
        let said = report.verdict.findings.iter().any(|f| f.code == "rows_malformed" && f.message().contains(&text));
        assert!(said, "impossible times in {table} are left out and counted");
    }
    // Each sensor's readings alone, and every pair of extremes.
    for (a, b) in extremes.iter().flat_map(|a| extremes.map(|b| (*a, b))) {
        use candlescope_figures::sensor::Sensor;
        let readings = || {
            values.iter().enumerate().map(|(i, v)| (a.saturating_add(b / (i as i64 + 1)), v.abs())).collect::<Vec<_>>()
        };
        for sensor in
            [Sensor::of(readings(), Vec::new()), Sensor::of(Vec::new(), readings()), Sensor::of(readings(), readings())]
        {
            let Some(mut sensor) = sensor else { continue };
            sensor.learn_idle(&[(a.min(b), a.max(b))], true);
            let _ = sensor.energy(&[(a.min(b), a.max(b))]);
        }
    }
}
