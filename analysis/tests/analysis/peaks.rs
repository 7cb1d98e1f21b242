//! Work against two denominators: the datasheet's peaks and those measured on the device.

use crate::common::{manifest, span, step, write_run};
use candlescope_figures::Analysis;
use candlescope_figures::peaks::{labels, of_operators};
use candlescope_reader::Run;
use candlescope_report::TerminalOptions;
use candlescope_report::{html, json, markdown, terminal};
use candlescope_schema::{Batch, DType, Phase};
use serde_json::{Value, json};

const MS: i64 = 1_000_000;

fn peaks(label: &str, flops: f64, bandwidth: f64) -> Value {
    let source = format!("{label} of a made-up machine");
    json!([
        { "kind": "flops", "value": flops, "label": label, "source": source, "dtype": "f32" },
        { "kind": "bandwidth", "value": bandwidth, "label": label, "source": source },
    ])
}

/// A prefill of 50 ms with a product of 20 ms in it, which does 5 GFLOP and reads 4 MB.
fn run(measured: bool) -> Analysis {
    let mut batch = Batch::default();
    let mut made = step(0, "prefill", 0, 50 * MS as u64);
    made.phase = Some(Phase::Prefill);
    (made.flops, made.bytes, made.tokens) = (Some(5_000_000_000), Some(4_000_000), Some(10));
    batch.steps.push(made);
    for (seq, parent, path, dur) in [(0, None, "prefill", 50), (1, Some(0), "prefill/linear", 20)] {
        let mut own = span(seq, parent, path, 0, dur * MS as u64);
        (own.step, own.phase) = (Some(0), Some(Phase::Prefill));
        if seq == 1 {
            (own.flops, own.bytes, own.io_bytes) = (Some(5_000_000_000), Some(4_000_000), Some(8_000_000));
            own.dtype = Some(DType::F32);
        }
        batch.spans.push(own);
    }
    let mut manifest = manifest(&batch);
    manifest.environment.insert("peaks".into(), peaks("datasheet", 1e12, 1e9));
    if measured {
        manifest.environment.insert("measured_peaks".into(), peaks("measured", 5e11, 8e8));
    }
    let dir = tempfile::tempdir().expect("a directory");
    write_run(dir.path(), &batch, &manifest, 1_000);
    Analysis::of(&Run::open(dir.path()).expect("opens"))
}

#[test]
fn operators_are_held_against_both_denominators() {
    let analysis = run(true);
    assert_eq!(labels(&analysis.manifest), ["datasheet", "measured"]);
    let used = of_operators(&analysis);
    let of = |path: &str| {
        let at = analysis.operators.iter().position(|operator| operator.path == path).expect("the operator");
        used[at].iter().map(|used| (used.mfu.unwrap_or(-1.0), used.mbu.unwrap_or(-1.0))).collect::<Vec<_>>()
    };
    let near = |got: Vec<(f64, f64)>, wanted: [(f64, f64); 2]| {
        for ((mfu, mbu), (wanted_mfu, wanted_mbu)) in got.iter().zip(wanted) {
            assert!((mfu - wanted_mfu).abs() < 1e-9 && (mbu - wanted_mbu).abs() < 1e-9, "{got:?}");
        }
    };
    // 5 GFLOP in 20 ms are 250 GFLOP/s; 4 MB are 0.2 GB/s.
    near(of("prefill/linear"), [(0.25, 0.2), (0.5, 0.25)]);
    // The step has them too, over its 50 ms, in the type that its operators multiply in.
    near(of("prefill"), [(0.1, 0.08), (0.2, 0.1)]);
}

#[test]
fn reports_show_both_with_their_labels() {
    let analysis = run(true);
    let text = markdown::report(&analysis);
    assert!(text.contains("MFU (datasheet) | MFU (measured) | MBU (datasheet) | MBU (measured)"), "{text}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| MFU of prefill")).collect();
    assert!(rows.iter().any(|row| row.contains("| 20.0 % |") && row.contains("| measured |")), "{rows:?}");
    assert!(rows.iter().any(|row| row.contains("| 10.0 % |") && row.contains("| datasheet |")), "{rows:?}");
    let metrics = json::metrics(&analysis);
    let linear = metrics["operators"].as_array().unwrap().iter().find(|row| row["path"] == "prefill/linear").unwrap();
    assert_eq!(linear["utilisation"][1]["label"], "measured");
    assert_eq!((&linear["utilisation"][0]["mfu"], &linear["utilisation"][1]["mfu"]), (&json!(0.25), &json!(0.5)));
    let phases: Vec<&Value> = metrics["utilisation"].as_array().unwrap().iter().collect();
    assert!(phases.iter().any(|row| row["label"] == "measured" && row["metric"] == "mfu"));
    let page = html::page(&analysis);
    assert!(page.contains("MFU (measured)") && page.contains("measured of a made-up machine"));
    let summary = terminal::summary(&analysis, &TerminalOptions::default());
    assert!(summary.contains("MFU of prefill (datasheet) 10.0 %"), "{summary}");
    assert!(summary.contains("MFU of prefill (measured) 20.0 %"), "{summary}");
}

/// A run made before peaks were measured has what it had.
#[test]
fn without_measured_peaks_there_is_the_datasheet_s_alone() {
    let analysis = run(false);
    assert_eq!(labels(&analysis.manifest), ["datasheet"]);
    let text = markdown::report(&analysis);
    assert!(text.contains("MFU (datasheet) | MBU (datasheet)") && !text.contains("measured)"), "{text}");
}
