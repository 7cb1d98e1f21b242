//! The overview has the figures of the other reports, and is small whatever the run.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_figures::Analysis;
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_reader::Run;
use candlescope_report::json;
use candlescope_report::overview::{FolderOf, FolderOverview, overview, text};
use candlescope_schema::run::{Code, Finding};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

const MOST_BYTES: usize = 8_000;

fn analysed(scenario: &Scenario) -> Analysis {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(scenario);
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    let mut analysis = analyze(&Run::open(dir.path()).unwrap(), &AnalyzeOptions::default()).analysis;
    analysis.dir = "runs/example".into();
    analysis
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= b.abs() * 1e-5
}

#[test]
fn its_figures_are_those_of_metrics_json() {
    let analysis = analysed(&Scenario::on_gpu());
    let (found, metrics) = (overview(&analysis), json::metrics(&analysis));
    let mut seen = 0;
    for figure in &found.figures {
        let theirs = &metrics["figures"][figure.key];
        if theirs.is_null() {
            continue;
        }
        seen += 1;
        let value = theirs["median"].as_f64().or(theirs["value"].as_f64()).unwrap();
        assert!(close(figure.value, value), "{}: {} and {value}", figure.key, figure.value);
        assert_eq!((figure.n, figure.kind), (theirs["n"].as_u64().unwrap(), theirs["label"].as_str().unwrap()));
        assert_eq!(figure.unit, theirs["unit"].as_str().unwrap());
        assert_eq!(figure.interval == Some("ci95"), theirs["median_ci95"].is_array(), "{}", figure.key);
    }
    assert!(seen >= 10, "{seen} headline figures");
    let step = |key: &str| found.figures.iter().find(|f| f.key == key && f.of.as_deref() == Some("decode")).unwrap();
    let phases = metrics["phases"]["rows"].as_array().unwrap();
    let decode = phases.iter().find(|row| row["name"] == "decode").unwrap();
    assert!(close(step("step_host").value, decode["duration_ns"]["median"].as_f64().unwrap()));
    let kinds = metrics["gpu"]["steps"].as_array().unwrap();
    let kind = kinds.iter().find(|kind| kind["name"] == "decode").unwrap();
    assert!(close(step("step_launches").value, kind["kernels"]["launches_per_step"].as_f64().unwrap()));
    let source = decode["gpu_source"].as_str().unwrap();
    let elapsed = kind["elapsed"].as_array().unwrap().iter().find(|elapsed| elapsed["source"] == source).unwrap();
    assert!(close(step("step_device").value, elapsed["duration_ns"]["median"].as_f64().unwrap()));
    assert!(found.figures.iter().any(|figure| figure.key == "records_lost" && figure.value == 0.0));
}

#[test]
fn its_findings_are_those_of_the_diagnosis_in_the_same_order() {
    let analysis = analysed(&Scenario::on_gpu());
    let found = overview(&analysis);
    let told = json::metrics(&analysis)["diagnosis"].take();
    let theirs = told["findings"].as_array().unwrap();
    assert!(!found.findings.is_empty() && found.findings.len() + found.left_out.findings == theirs.len());
    for finding in &found.findings {
        let of = &theirs[finding.at];
        assert_eq!((finding.code, finding.severity), (of["code"].as_str().unwrap(), of["severity"].as_str().unwrap()));
        for (ours, key) in finding.gain.iter().zip(["low", "mid", "high"]) {
            assert!(close(*ours, of["gain"][key].as_f64().unwrap()));
        }
    }
    assert_eq!(found.left_out.not_judged, told["abstained"].as_array().unwrap().len());
}

/// What a text of others may be at worst: each character takes six bytes of JSON once it is shown.
const NAMES: [&str; 4] = ["\u{202e}", "\u{1}", "\"", "𝕏"];

fn worst(name: &str) -> Analysis {
    let long = name.repeat(5_000);
    let mut analysis = analysed(&Scenario::on_gpu());
    analysis.dir = std::path::PathBuf::from(&long[..long.floor_char_boundary(4_000)]);
    analysis.manifest.run_id = long.clone();
    analysis.manifest.host = long.clone();
    for key in ["name", "architecture", "dtype", "quantization", "engine"] {
        analysis.manifest.model.insert(key.into(), long.clone().into());
    }
    for key in ["candlescope", "candle", "cpu_model"] {
        analysis.manifest.environment.insert(key.into(), long.clone().into());
    }
    analysis.manifest.options.insert("device".into(), format!("cuda{long}").into());
    // Words of findings are the program's own.
    let text: &'static str = Box::leak(long.clone().into_boxed_str());
    for _ in 0..300 {
        analysis.verdict.add(Finding::new(Code::Other(long.as_str().into()), text, text));
    }
    let path = analysis.operators[0].clone();
    analysis.operators = std::iter::repeat_with(|| path.clone()).take(2_000).collect();
    analysis.operators.iter_mut().for_each(|operator| operator.path.clone_from(&long));
    let row = analysis.phases.rows[0].clone();
    analysis.phases.rows.extend(std::iter::repeat_with(|| row.clone()).take(50));
    analysis.phases.rows.iter_mut().skip(2).for_each(|row| row.name.clone_from(&long));
    let diagnosis = analysis.diagnosis.as_mut().unwrap();
    let advice = diagnosis.findings[0].clone();
    diagnosis.findings = std::iter::repeat_with(|| advice.clone()).take(100).collect();
    for advice in &mut diagnosis.findings {
        advice.place.phase.clone_from(&long);
        advice.place.path = Some(long.clone());
    }
    analysis
}

#[test]
fn it_is_small_whatever_the_run() {
    for name in NAMES {
        let found = overview(&worst(name));
        let text = serde_json::to_string(&found).unwrap();
        assert!(text.len() <= MOST_BYTES, "{name:?}: {} bytes", text.len());
        assert!(!text.contains(['\u{202e}', '\u{7f}']), "nothing that an output would escape again");
        assert!(found.figures.len() >= 4, "{name:?} leaves {} figures", found.figures.len());
        assert_eq!(found.findings.len() + found.left_out.findings, 100);
        assert_eq!(found.paths.len() + found.left_out.paths, 2_000);
        assert!(found.trust.reasons.len() + found.left_out.reasons >= 300);
        assert!(found.next.iter().all(|next| next.command.contains(" RUN")), "a path that long is not repeated");
    }
}

#[test]
fn an_overview_that_has_room_leaves_nothing_out_for_its_size() {
    let found = overview(&analysed(&Scenario { layers: 2, ..Scenario::default() }));
    assert_eq!(found.left_out.figures, 0);
    assert!(found.next.iter().any(|next| next.command == "candlescope analyze runs/example --json"));
}

#[test]
fn as_text_it_is_a_screen_or_little_more() {
    for scenario in [Scenario::default(), Scenario::on_gpu()] {
        let shown = text(&overview(&analysed(&scenario)), 100, false);
        assert!(shown.lines().count() <= 80, "{} lines:\n{shown}", shown.lines().count());
        for part in ["Figures", "What to change", "Go on with", "candlescope analyze runs/example --json"] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
    }
}

#[test]
fn folders_say_what_they_are() {
    let (dir, run) = (Path::new("some runs"), Path::new("some runs/it's"));
    let all = [
        ("runs", FolderOf::Runs(3, run)),
        ("ranks", FolderOf::Ranks(2, run, "They take equal times.")),
        ("study", FolderOf::Study),
    ];
    for (kind, holds) in all {
        let found = FolderOverview::of(dir, holds);
        let object = serde_json::to_value(&found).unwrap();
        assert_eq!((&object["kind"], &object["schema"]), (&Value::from(kind), &Value::from(1)));
        assert!(object.to_string().len() <= MOST_BYTES && !found.next.is_empty());
        assert!(found.text().contains("'some runs'"), "{}", found.text());
    }
}

#[test]
fn figures_stand_in_the_order_of_what_they_tell() {
    let keys: Vec<&str> = overview(&analysed(&Scenario::on_gpu())).figures.iter().map(|figure| figure.key).collect();
    let at = |key: &str| keys.iter().position(|known| *known == key).unwrap_or_else(|| panic!("{key} in {keys:?}"));
    assert!(at("ttft") == 0 && at("tpot") < at("step_host") && at("step_host") < at("records_lost"), "{keys:?}");
}
