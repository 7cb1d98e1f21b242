//! What a program of somebody's own says in `run.json` of its threads and its build, without asking for it.
#![cfg(all(feature = "parquet", feature = "host"))]
#![allow(missing_docs, reason = "a test")]

use candlescope::llm;
use serde_json::Value;
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

#[test]
fn every_program_says_how_many_threads_compute_and_how_it_used_the_machine() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let (layer, scope) = candlescope::builder().parquet(&run).layer().expect("a session");
    let until = Instant::now() + Duration::from_millis(700);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        while Instant::now() < until {
            let _step = llm::decode(llm::Tokens::new(1));
            tracing::trace_span!("linear").in_scope(|| (0..200_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        }
    });
    let finished = scope.finish().expect("a manifest");
    let text = std::fs::read_to_string(run.join("run.json")).expect("run.json");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    let environment = &written["environment"];
    let variable = std::env::var("RAYON_NUM_THREADS").ok();
    assert_eq!(environment.get("rayon_num_threads"), Some(&Value::from(variable)), "null where it is not set");
    assert!(environment.get("candle_num_threads").is_some(), "{environment}");
    assert_eq!(environment["build_profile"], if cfg!(debug_assertions) { "debug" } else { "release" });
    assert!(environment["build_opt_level"].is_string() && environment["allocator"] == "unknown");
    if cfg!(target_os = "linux") {
        assert!(environment["compute_threads"].as_u64() >= Some(1) && environment["cpu_affinity"].is_string());
        assert!(environment.get("cpu_quota_cores").is_some(), "null for no limit");
        let machine = finished.machine.expect("the host was sampled while steps ran");
        assert!(machine.user_s + machine.system_s > 0.1 && machine.sampled_s >= 0.3, "{machine:?}");
        assert!(machine.pool_threads.is_some() && machine.switches_voluntary.is_some(), "{machine:?}");
        // A number may be read back one step of f64 off.
        let user_s = written["machine"]["user_s"].as_f64().expect("a number");
        assert!((user_s - machine.user_s).abs() < 1e-9, "{user_s} {machine:?}");
    }
}

/// A run may begin and end between two looks at the host: how it used the machine is not known then, its threads are.
#[test]
#[cfg(target_os = "linux")]
fn threads_are_told_where_no_step_ran_between_two_samples() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let (_layer, scope) = candlescope::builder().parquet(&run).layer().expect("a session");
    let finished = scope.finish().expect("a manifest");
    assert_eq!(finished.machine, None, "no step ran");
    assert!(finished.environment["unnamed_threads"].is_u64(), "{:?}", finished.environment);
}
