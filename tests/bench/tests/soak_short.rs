//! The soak run's twenty-second form. The ten-minute one is `cargo run -p candlescope-bench --bin soak`.
#![allow(missing_docs, reason = "a test")]

use std::process::Command;

#[test]
fn twenty_seconds_at_a_hundred_thousand_intervals_a_second() {
    let results = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_soak"))
        // A budget that some segments exceed, so that deleting the oldest is part of the run.
        .args(["--seconds", "20", "--rotate", "2", "--budget", "1", "--growth", "8"])
        .env("CANDLESCOPE_BENCH_DIR", results.path())
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(results.path().join("soak.json")).unwrap()).unwrap();
    assert!(report["intervals"].as_u64().unwrap() >= 1_900_000, "{text}");
    let dropped = &report["exporters"][0]["dropped"]["spans"];
    assert!(dropped["disk_budget"].as_u64().unwrap() > 0, "the budget was never reached: {text}");
}
