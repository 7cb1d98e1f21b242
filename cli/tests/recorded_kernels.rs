//! `analyze` and `export kineto`, which want runs with recorded kernels: on a made one, as no GPU is needed to read it.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::{Batch, Exporter, HostNs, Ledger};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::records::{T0, kernel};
use candlescope_testkit::scenario::{GPU, Scenario, make};
use candlescope_testkit::with;
use common::*;
use std::fs;
use std::path::Path;

/// Writes the run of a scenario, and returns its records.
fn run_of(dir: &Path, scenario: &Scenario, change: impl FnOnce(&mut Batch)) -> Batch {
    let (mut batch, manifest) = make(scenario);
    change(&mut batch);
    let mut exporter = ParquetExporter::new(ParquetConfig::new(dir));
    let ledger = Ledger::new();
    exporter.start(&manifest).unwrap();
    ledger.received(&batch);
    exporter.export(&batch, &ledger).unwrap();
    exporter.close(&ledger).unwrap();
    exporter.finish(&manifest).unwrap();
    batch
}

/// A call outside every interval, and what it launched before the first step.
fn loading(batch: &mut Batch) {
    batch.kernels.push(with(kernel(GPU, 2_000, 500), |r| {
        (r.launch, r.launch_start, r.launch_dur_ns) = (Some("cuLaunchKernel"), Some(HostNs(T0)), Some(1_000));
        r.correlation = u32::MAX;
    }));
}

#[test]
fn a_run_with_kernels_is_analyzed() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let batch = run_of(&run, &Scenario::on_gpu(), loading);
    let run = run.to_str().unwrap();
    let text = ok(&["analyze", run]);
    let gpu = format!("Example GPU {GPU}");
    for shown in [gpu.as_str(), "Why it was idle", "host-bound", "Paths, by what", "Critical path of 8 steps", "±2 ns"]
    {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let told = json(&ok(&["analyze", run, "--json", "--top", "0"]));
    assert_eq!(told["runs"].as_array().map(Vec::len), Some(1));
    let (account, device) = (&told["runs"][0], &told["runs"][0]["devices"][0]);
    assert_eq!(account["records"], batch.kernels.len() - 1, "all but that of loading the model");
    let line = &device["line"];
    let ns = |key: &str| line[key].as_u64().unwrap();
    assert_eq!((ns("steps"), ns("wall_ns")), (8, ns("busy_ns") + ns("idle_ns") + ns("edges_ns")));
    let kernels = device["kernels"].as_array().unwrap();
    let counted: u64 = kernels.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(account["records"], counted);

    // Options: rows, two runs at once, and a limit that says what it cost.
    let few = json(&ok(&["analyze", run, run, "--json", "--top", "1", "--launch-overhead", "0"]));
    assert_eq!(few["runs"][1]["devices"][0]["kernels"].as_array().map(Vec::len), Some(1));
    assert_eq!(few["runs"][1]["devices"][0]["line"]["gaps"]["launch_overhead"]["n"], 0);
    let part = json(&ok(&["analyze", run, "--json", "--limit", "account-kernels=100"]));
    assert!(part["runs"][0]["notes"].to_string().contains("account-kernels"), "{}", part["runs"][0]["notes"]);
}

#[test]
fn a_run_with_kernels_is_exported_for_tools_of_pytorch() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let batch = run_of(&run, &Scenario::on_gpu(), loading);
    let (run, file) = (run.to_str().unwrap(), dir.path().join("new.json"));
    let file_arg = file.to_str().unwrap();
    let text = ok(&["export", "kineto", run, "--out", file_arg]);
    assert!(
        text.contains(file_arg) && text.contains("8 steps") && text.contains("(1 outside every interval)"),
        "{text}"
    );
    let trace = json(&fs::read_to_string(&file).unwrap());
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |cat: &str| events.iter().filter(|e| e["ph"] == "X" && e["cat"] == cat).count();
    let on_device = of("kernel") + of("gpu_memcpy") + of("gpu_memset");
    assert_eq!((on_device, of("user_annotation")), (batch.kernels.len(), 8));
    assert_eq!(of("cuda_runtime"), batch.kernels.len(), "a call for each");
    assert_eq!(trace["deviceProperties"][0]["uuid"], GPU);

    let gzip = dir.path().join("rank0.json.gz");
    let counts = json(&ok(&["export", "kineto", run, "--json", "--out", gzip.to_str().unwrap()]));
    assert_eq!((&counts["launches_outside"], &counts["steps"]), (&1.into(), &8.into()));
    assert_eq!((&counts["kernels"], &counts["spans"]), (&batch.kernels.len().into(), &of("cpu_op").into()));
    assert_eq!(fs::read(&gzip).unwrap()[..2], [0x1f, 0x8b], "compressed, as its name says");
    // Without --out, the file is in the run.
    ok(&["export", "kineto", run]);
    assert!(Path::new(run).join("kineto.json").is_file());
}

#[test]
fn runs_that_are_missing_or_have_no_kernels_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (run, file) = (dir.path().join("run"), dir.path().join("trace.json"));
    run_of(&run, &Scenario::default(), |_| {});
    let (run, file_arg) = (run.to_str().unwrap(), file.to_str().unwrap());
    for args in [&["analyze", "/nowhere/run", "--json"][..], &["export", "kineto", "/nowhere/run", "--out", file_arg]] {
        let said = fails(args);
        assert!(said.contains("/nowhere/run"), "{said}");
    }
    let said = fails(&["export", "kineto", run, "--out", file_arg]);
    assert!(said.contains(run) && said.contains("--cupti"), "names the run and the remedy: {said}");
    // What can be found without kernels is found.
    let found = json(&ok(&["analyze", run, "--json"]));
    assert_eq!(found["schema"], 1);
    assert!(found["findings"].is_array() && found["abstained"].is_array(), "{found}");
    assert!(!file.exists(), "nothing is left");
}

#[test]
fn output_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    run_of(&run, &Scenario::on_gpu(), |_| {});
    let run = run.to_str().unwrap();
    let said = fails(&["export", "kineto", run, "--out", "/nowhere/trace.json.gz"]);
    assert!(said.contains("/nowhere/trace.json.gz") && said.contains("--out"), "{said}");
    let said = fails(&["export", "kineto", run, "--out", dir.path().to_str().unwrap()]);
    assert!(said.contains("a directory stands there"), "{said}");
    if !cfg!(target_os = "linux") {
        return;
    }
    for args in [&["analyze", run][..], &["analyze", run, "--json"], &["export", "kineto", run]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = candlescope().args(args).stdout(full).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("cannot write to standard output"), "{args:?}: {said}");
    }
}
