//! candle on a CPU without `RAYON_NUM_THREADS`: the run says what it costs, once, if it costs anything.
#![allow(missing_docs, reason = "a test")]

use candle_core::{DType, Device};
use candle_nn::{VarBuilder, VarMap};
use candlescope_core::run::{Code, RunManifest, Severity};
use std::process::Command;
use std::time::Instant;
use tracing_subscriber::prelude::*;

const RUN: &str = "CANDLESCOPE_TEST_RUN";
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// The program, which says on standard output how long candle asks, in nanoseconds.
#[test]
fn program() {
    let Some(run) = std::env::var_os(RUN) else { return };
    let tell = candlescope_core::diagnostics::to_stderr;
    let (layer, scope) = candlescope::builder().parquet(run).on_problem(tell).layer().expect("starts");
    tracing_subscriber::registry().with(layer).init();
    for _ in 0..2 {
        let vb = candlescope::observe(VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu));
        candle_nn::linear(4, 8, vb.pp("lm_head")).expect("a layer");
    }
    let asked = || {
        let begun = Instant::now();
        std::hint::black_box(candle_core::utils::get_num_threads());
        begun.elapsed().as_nanos()
    };
    println!("asked {}", (0..5).map(|_| asked()).min().unwrap_or_default());
    scope.finish();
}

fn run(threads: Option<&str>) -> (RunManifest, String, u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "program", "--nocapture", "--quiet"]).env(RUN, &run).env_remove(VARIABLE);
    if let Some(threads) = threads {
        command.env(VARIABLE, threads);
    }
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let asked = out.split("asked ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let text = std::fs::read_to_string(run.join("run.json")).expect("run.json");
    (serde_json::from_str(&text).expect("a manifest"), said, asked.expect("how long"))
}

#[test]
fn it_is_told_once_where_candle_reads_a_file_at_each_product() {
    let (manifest, said, asked) = run(None);
    let found = manifest.verdict.findings.iter().find(|finding| finding.code == Code::RayonThreadsUnset);
    if asked > 10_000 {
        let found = found.expect("it takes long");
        assert_eq!(found.severity, Severity::Info);
        assert!(found.figure("each").is_some_and(|ns| ns > 5_000.0) && found.remedy().contains("RAYON_NUM_THREADS="));
        assert_eq!(said.matches("RAYON_NUM_THREADS is not set").count(), 1, "{said}");
    } else if asked < 3_000 {
        assert!(found.is_none(), "nothing to tell of: {asked} ns");
    }
    // What candle takes for no number is as if it were not set.
    for (threads, is_set) in [("2", true), ("0", false)] {
        let (manifest, said, _) = run(Some(threads));
        let told = manifest.verdict.findings.iter().any(|finding| finding.code == Code::RayonThreadsUnset);
        assert!(!(told && is_set), "{said}");
    }
}
