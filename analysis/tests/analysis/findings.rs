//! What the verdict says.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_analysis::{Analysis, Run};
use candlescope_core::run::{ExporterReport, Finding, RunManifest, Severity};
use serde_json::json;
use tempfile::tempdir;

fn analyse(scenario: &Scenario, change: impl FnOnce(&mut RunManifest)) -> Analysis {
    let dir = tempdir().unwrap();
    let (batch, mut manifest) = make(scenario);
    change(&mut manifest);
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    Analysis::of(&Run::open(dir.path()).unwrap())
}

fn code<'a>(analysis: &'a Analysis, code: &str) -> Option<&'a Finding> {
    analysis.verdict.findings.iter().find(|f| f.code == code)
}

#[test]
fn loss_is_said_once() {
    let lossy = |m: &mut RunManifest| {
        m.loss.emitted += 70;
        m.loss.ring_full = 70;
    };
    let analysis = analyse(&Scenario::default(), lossy);
    let finding = code(&analysis, "intervals_lost").unwrap();
    assert!(finding.message.starts_with("70 of ") && finding.severity == Severity::Warning);
    let told = analyse(&Scenario::default(), |m| {
        lossy(m);
        m.verdict.findings.push(Finding {
            severity: Severity::Error,
            code: "ring_full".into(),
            message: "70 dropped".into(),
            remedy: "enlarge the ring".into(),
        });
    });
    assert!(code(&told, "intervals_lost").is_none(), "the session said it better");
    assert!(!told.verdict.ok, "and its errors count");
    assert_eq!(told.verdict.findings[0].code, "ring_full", "errors first");
}

#[test]
fn a_run_that_ended_early_is_usable() {
    let analysis = analyse(&Scenario::default(), |m| m.complete = false);
    assert!(code(&analysis, "run_incomplete").is_some() && analysis.verdict.ok);
}

#[test]
fn an_exporter_must_account_for_everything() {
    let analysis = analyse(&Scenario::default(), |m| {
        m.exporters.push(ExporterReport {
            name: "otlp".into(),
            received: [("spans".to_string(), 10)].into(),
            exported: [("spans".to_string(), 7)].into(),
            ..ExporterReport::default()
        });
    });
    assert!(code(&analysis, "not_conserved").unwrap().message.contains("otlp"));
    assert!(!analysis.verdict.ok);
}

#[test]
fn dropped_records_are_said_with_their_reason() {
    let analysis = analyse(&Scenario::default(), |m| {
        m.exporters.push(ExporterReport {
            name: "otlp".into(),
            received: [("spans".to_string(), 10)].into(),
            exported: [("spans".to_string(), 7)].into(),
            dropped: [("spans".to_string(), [("queue_full".to_string(), 3)].into())].into(),
            ..ExporterReport::default()
        });
    });
    assert!(code(&analysis, "exporter_dropped").unwrap().message.contains("queue_full 3"));
    assert!(analysis.verdict.ok);
}

#[test]
fn a_peak_that_is_passed_is_a_measurement_error() {
    let peaks = |value: f64| {
        move |m: &mut RunManifest| {
            m.environment.insert(
                "peaks".into(),
                json!([
                    { "kind": "flops", "value": value, "label": "measured", "source": "gemm", "dtype": "bf16" },
                    { "kind": "bandwidth", "value": 1e12, "label": "datasheet", "source": "vendor" },
                    { "kind": "nonsense" }, 7,
                ]),
            );
        }
    };
    // Prefill runs at about 39 GFLOP/s in the scenario.
    let fine = analyse(&Scenario::default(), peaks(100e9));
    assert!(code(&fine, "utilisation_above_one").is_none());
    let impossible = analyse(&Scenario::default(), peaks(10e9));
    let finding = code(&impossible, "utilisation_above_one").unwrap();
    assert!(finding.message.contains("MFU of prefill") && finding.message.contains("measured"), "{finding:?}");
    assert!(!impossible.verdict.ok);
}

#[test]
fn overhead_and_context_are_noticed() {
    let analysis = analyse(&Scenario { output: 400, ..Scenario::default() }, |m| m.overhead.ratio = Some(0.07));
    assert!(code(&analysis, "overhead_high").unwrap().message.contains("7.0 %"));
    // 25 ns a token of context and layer: slower with the context, but by less than the limit on this model.
    let trend = analysis.tokens.trend.unwrap();
    let expected = 25.0 * 6.0;
    assert!((trend.slope_ns - expected).abs() < expected * 0.5, "{trend:?}");
}

#[test]
fn few_requests_have_no_spread() {
    let analysis = analyse(&Scenario { requests: 2, warmup: 1, ..Scenario::default() }, |_| {});
    let finding = code(&analysis, "few_requests").unwrap();
    assert!(finding.message.starts_with("1 measured request:"), "{finding:?}");
    assert!(analysis.verdict.ok);
}
