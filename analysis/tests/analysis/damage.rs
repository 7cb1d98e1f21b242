//! Damaged runs: each damage is named with its file, and the rest is read.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use arrow_array::{Int64Array, RecordBatch};
use candlescope_figures::Analysis;
use candlescope_reader::{OpenError, Run};
use candlescope_report::{ReportError, ReportOptions, write_report};
use candlescope_schema::Batch;
use candlescope_schema::run::{Finding, RunManifest, Severity};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::{TempDir, tempdir};

/// A run of several span segments.
fn run() -> (TempDir, Batch, RunManifest) {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario { layers: 2, requests: 3, output: 16, ..Scenario::default() });
    write_run(dir.path(), &batch, &manifest, 500);
    assert!(fs::read_dir(dir.path().join("spans")).unwrap().count() >= 3);
    (dir, batch, manifest)
}

fn analyse(dir: &Path) -> Analysis {
    Analysis::of(&Run::open(dir).unwrap())
}

fn find<'a>(analysis: &'a Analysis, code: &str) -> &'a Finding {
    let findings = &analysis.verdict.findings;
    findings.iter().find(|f| f.code == code).unwrap_or_else(|| panic!("no finding {code} in {findings:?}"))
}

#[test]
fn a_whole_run_has_nothing_to_say() {
    let (dir, ..) = run();
    let analysis = analyse(dir.path());
    assert!(analysis.verdict.ok);
    assert!(analysis.verdict.findings.iter().all(|f| f.severity == Severity::Info), "{:?}", analysis.verdict);
}

#[test]
fn a_missing_manifest_is_said() {
    let (dir, batch, _) = run();
    fs::remove_file(dir.path().join("run.json")).unwrap();
    let analysis = analyse(dir.path());
    assert!(find(&analysis, "manifest_missing").message().contains("run.json"));
    assert_eq!(analysis.rows["spans"], batch.spans.len() as u64);
    assert!(analysis.latency.ttft.is_some());
    write_report(dir.path(), &ReportOptions::default()).unwrap();
}

#[test]
fn an_unreadable_manifest_is_said() {
    for text in ["{\"schema_version\": 1, \"run_id\"", "[1, 2]", "", "{\"schema_version\": 1, \"counts\": 7}"] {
        let (dir, ..) = run();
        fs::write(dir.path().join("run.json"), text).unwrap();
        assert!(find(&analyse(dir.path()), "manifest_unreadable").message().contains("run.json"), "{text}");
    }
}

#[test]
fn a_newer_schema_is_refused_with_a_remedy() {
    let (dir, ..) = run();
    fs::write(dir.path().join("run.json"), "{\"schema_version\": 2, \"counts\": \"something else by now\"}").unwrap();
    let error = Run::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::NewerSchema { found: 2, .. }));
    let text = error.to_string();
    assert!(text.contains("run.json") && text.contains("version 2") && text.contains("Update candlescope"), "{text}");
}

/// Of kernels, `missing` was written once.
#[test]
fn keys_that_are_known_no_more_are_passed_over() {
    let (dir, ..) = run();
    let path = dir.path().join("run.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest["gpu"]["kernels"] = serde_json::json!({"recorder": "cupti", "windows": 1, "dropped": 3, "missing": 2});
    fs::write(&path, manifest.to_string()).unwrap();
    assert!(find(&analyse(dir.path()), "kernels_dropped").message().contains("lost 3 records"));
}

#[test]
fn an_unfinished_segment_is_counted() {
    let (dir, ..) = run();
    fs::write(dir.path().join("spans/part-00099.parquet.inprogress"), [0u8; 1234]).unwrap();
    let analysis = analyse(dir.path());
    let finding = find(&analysis, "segment_unfinished");
    assert!(finding.message().contains("part-00099") && finding.message().contains("1234 bytes"), "{finding:?}");
}

#[test]
fn a_truncated_segment_is_named_and_the_rest_read() {
    let (dir, batch, _) = run();
    let file = dir.path().join("spans/part-00001.parquet");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let analysis = analyse(dir.path());
    assert!(find(&analysis, "segment_corrupt").message().contains("part-00001.parquet"));
    assert_eq!(analysis.rows["spans"], batch.spans.len() as u64 - 500);
    let missing = find(&analysis, "rows_missing");
    assert!(missing.message().contains("spans") && !analysis.verdict.ok, "{missing:?}");
}

#[test]
fn a_segment_with_damaged_pages_is_named_and_the_rest_read() {
    let (dir, batch, _) = run();
    let file = dir.path().join("spans/part-00001.parquet");
    let mut bytes = fs::read(&file).unwrap();
    // The footer is intact, the first pages are not.
    let end = bytes.len() / 2;
    bytes[4..end].iter_mut().for_each(|b| *b = 0xa5);
    fs::write(&file, &bytes).unwrap();
    let analysis = analyse(dir.path());
    let finding = find(&analysis, "segment_corrupt");
    assert!(finding.message().contains("part-00001.parquet") && finding.message().contains("500 rows"), "{finding:?}");
    assert!(analysis.rows["spans"] >= batch.spans.len() as u64 - 500);
}

#[test]
fn files_that_are_no_parquet_are_named() {
    let (dir, batch, _) = run();
    fs::write(dir.path().join("spans/part-00042.parquet"), b"").unwrap();
    fs::write(dir.path().join("steps/part-00042.parquet"), b"hello, I am a text").unwrap();
    fs::write(dir.path().join("steps/README.txt"), b"not a segment, none of our business").unwrap();
    let analysis = analyse(dir.path());
    let corrupt = analysis.verdict.findings.iter().filter(|f| f.code == "segment_corrupt").count();
    assert_eq!(corrupt, 2, "{:?}", analysis.verdict);
    assert_eq!(analysis.rows["steps"], batch.steps.len() as u64);
}

#[test]
fn a_foreign_parquet_file_is_named_and_left_out() {
    let (dir, batch, _) = run();
    let columns = [("seq", Arc::new(Int64Array::from(vec![1, 2, 3])) as _)];
    let foreign = RecordBatch::try_from_iter(columns).unwrap();
    crate::common::tables::write_file(&dir.path().join("spans/taxi-trips.parquet"), &foreign);
    let analysis = analyse(dir.path());
    let finding = find(&analysis, "segment_foreign");
    assert!(finding.message().contains("taxi-trips.parquet") && finding.message().contains("run_id"), "{finding:?}");
    assert_eq!(analysis.rows["spans"], batch.spans.len() as u64);
}

#[test]
fn a_table_under_another_name_is_foreign() {
    let (dir, ..) = run();
    fs::copy(dir.path().join("steps/part-00000.parquet"), dir.path().join("samples/part-00077.parquet")).unwrap();
    let analysis = analyse(dir.path());
    assert!(find(&analysis, "segment_foreign").message().contains("part-00077"));
}

#[test]
fn rows_of_another_run_are_left_out() {
    let (dir, batch, manifest) = run();
    let other = tempdir().unwrap();
    let (other_batch, _) = make(&Scenario { requests: 1, ..Scenario::default() });
    write_run(other.path(), &other_batch, &RunManifest { run_id: "other".into(), ..manifest }, 1_000_000);
    fs::copy(other.path().join("spans/part-00000.parquet"), dir.path().join("spans/part-00500.parquet")).unwrap();
    let analysis = analyse(dir.path());
    assert!(find(&analysis, "rows_of_other_runs").message().contains("`other`"));
    let read = analysis.intervals.count + analysis.intervals.above_steps + analysis.warmup.intervals;
    assert_eq!(read, batch.spans.len() as u64);
}

#[test]
fn a_segment_twice_is_noticed() {
    let (dir, ..) = run();
    fs::copy(dir.path().join("spans/part-00000.parquet"), dir.path().join("spans/part-00000 (copy).parquet")).unwrap();
    let analysis = analyse(dir.path());
    assert!(find(&analysis, "rows_surplus").message().contains("spans"));
}

#[test]
fn missing_tables_are_no_error() {
    for table in ["spans", "steps", "requests", "samples"] {
        let (dir, ..) = run();
        fs::remove_dir_all(dir.path().join(table)).unwrap();
        let report = write_report(dir.path(), &ReportOptions::default()).unwrap();
        assert!(!report.verdict.ok, "rows that were written are gone");
        assert!(report.verdict.findings.iter().any(|f| f.code == "rows_missing" && f.message().contains(table)));
    }
}

#[test]
fn an_empty_run_says_no_spans() {
    let dir = tempdir().unwrap();
    let batch = Batch::default();
    write_run(dir.path(), &batch, &crate::common::manifest(&batch), 10);
    let report = write_report(dir.path(), &ReportOptions::default()).unwrap();
    assert!(!report.verdict.ok && report.verdict.findings.iter().any(|f| f.code == "no_spans"));
    assert!(report.summary.contains("no intervals"));
}

#[test]
fn a_run_killed_before_its_first_segment_says_so() {
    let dir = tempdir().unwrap();
    let batch = Batch::default();
    write_run(dir.path(), &batch, &RunManifest { complete: false, ..crate::common::manifest(&batch) }, 10);
    fs::create_dir(dir.path().join("spans")).unwrap();
    fs::write(dir.path().join("spans/part-00000.parquet.inprogress"), [0u8; 99]).unwrap();
    let analysis = analyse(dir.path());
    find(&analysis, "run_incomplete");
    find(&analysis, "segment_unfinished");
    let finding = find(&analysis, "no_readable_spans");
    assert!(!finding.remedy().contains("layer"), "the layer is not to blame");
    assert!(analysis.verdict.findings.iter().all(|f| f.code != "no_spans"));
}

#[test]
fn nothing_readable_is_an_error_with_a_remedy() {
    let missing = Path::new("/nonexistent/run");
    let text = Run::open(missing).unwrap_err().to_string();
    assert!(text.contains("/nonexistent/run") && text.contains("--out"), "{text}");

    let dir = tempdir().unwrap();
    let error = Run::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::NotARun(_)), "{error}");

    let file = dir.path().join("run.json");
    fs::write(&file, "{}").unwrap();
    assert!(matches!(Run::open(&file).unwrap_err(), OpenError::NotADirectory(_)));
    fs::remove_file(&file).unwrap();

    fs::create_dir(dir.path().join("spans")).unwrap();
    fs::write(dir.path().join("spans/part-0.parquet"), "nonsense").unwrap();
    let error = Run::open(dir.path()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::NothingReadable { .. }) && text.contains("part-0.parquet"), "{text}");

    // An empty run.json alone is a damaged run, and one among runs no run of its own.
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("run.json"), "").unwrap();
    let text = Run::open(dir.path()).unwrap_err().to_string();
    assert!(text.starts_with("nothing in ") && text.contains("run.json` cannot be read (EOF"), "{text}");
    let batch = Batch::default();
    write_run(&dir.path().join("inside"), &batch, &crate::common::manifest(&batch), 10);
    let error = Run::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::DirectoryOfRuns { count: 1, .. }), "{error}");
}

#[test]
fn the_directory_above_runs_names_one_of_them() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario { requests: 1, ..Scenario::default() });
    for name in ["a", "b"] {
        write_run(&dir.path().join(name), &batch, &manifest, 1_000_000);
    }
    let error = Run::open(dir.path()).unwrap_err();
    assert!(matches!(&error, OpenError::DirectoryOfRuns { count: 2, .. }), "{error}");
    assert!(error.to_string().contains(&dir.path().join("b").display().to_string()));
}

#[test]
fn a_report_that_cannot_be_written_names_the_file() {
    let (dir, ..) = run();
    let out = dir.path().join("run.json").join("reports");
    let options = ReportOptions { out: Some(out.clone()), ..ReportOptions::default() };
    let error = write_report(dir.path(), &options).unwrap_err();
    assert!(matches!(error, ReportError::Write { .. }));
    assert!(error.to_string().contains(&out.display().to_string()), "{error}");
    // A directory where the file should go: no half-written file is left.
    let out = dir.path().join("out");
    fs::create_dir_all(out.join("report.html/occupied")).unwrap();
    let options = ReportOptions { out: Some(out.clone()), ..ReportOptions::default() };
    let error = write_report(dir.path(), &options).unwrap_err().to_string();
    assert!(error.contains("report.html"), "{error}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1, "no temporary file left");
}

#[test]
fn random_damage_never_panics() {
    let (dir, ..) = run();
    let file = dir.path().join("spans/part-00000.parquet");
    let whole = fs::read(&file).unwrap();
    let mut random = 0x1234_5678_9abc_def0_u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for round in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 4 {
            // Half the time in the footer, which decoders trust.
            let tail = if round % 2 == 0 { bytes.len() } else { 900.min(bytes.len()) };
            let at = bytes.len() - 1 - next(tail);
            bytes[at] = next(256) as u8;
        }
        fs::write(&file, &bytes).unwrap();
        let analysis = analyse(dir.path());
        assert!(analysis.rows["steps"] > 0, "other tables are untouched");
    }
}
