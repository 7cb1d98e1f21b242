//! Kernel recording on a GPU machine without candle: is what comes true, and what does it cost?
//!
//! ```text
//! cargo run --release -p candlescope-collectors --no-default-features --features cupti --example cupti_kernels -- [STEPS [LAUNCHES]]
//! ```
//!
//! Needs an NVIDIA driver and libcupti; cuBLAS is tried where its library is found. Prints one JSON object. Status 1: something
//! that was launched was not recorded, or not with its interval and call. STEPS (100) and LAUNCHES a step (900) are for the costs.

mod checks;
mod costs;
mod sys;

use candlescope_collectors::cupti::{self, Correlate, Cupti, CuptiOptions};
use candlescope_core::gpu::Activity;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u32>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (Ok(steps), Ok(launches)) = (number(100), number(900)) else {
        eprintln!("usage: cupti_kernels [STEPS [LAUNCHES]]");
        return ExitCode::from(2);
    };
    match run(steps, launches) {
        Ok((report, true)) => {
            println!("{report:#}");
            ExitCode::SUCCESS
        }
        Ok((report, false)) => {
            println!("{report:#}");
            eprintln!("some of what was launched was not recorded as it should be: see `failures`");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The report, and whether every check passed.
fn run(steps: u32, launches: u32) -> Result<(Value, bool), String> {
    let probe = match cupti::probe() {
        Ok(facts) => json!({ "library": facts.library, "api_version": facts.api_version, "toolkit": facts.toolkit }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    let gpu = sys::Gpu::new()?;
    let mut failures = Vec::new();

    // Before CUPTI is loaded at all.
    let untouched = costs::steps(&gpu, None, steps, launches)?;

    let mut strategies = Vec::new();
    for (correlate, runtime) in [
        (Correlate::Callbacks, true),
        (Correlate::ExternalIds, true),
        (Correlate::Callbacks, false),
        (Correlate::ExternalIds, false),
        (Correlate::Nothing, false),
    ] {
        eprintln!("{} {}", correlate.name(), if runtime { "with runtime calls" } else { "" });
        let mut options = CuptiOptions::default();
        options.correlate = correlate;
        options.runtime_calls = runtime;
        let mut recorder = Cupti::new(options);
        let began = Instant::now();
        recorder.prepare().map_err(|e| e.to_string())?;
        let prepare_ms = costs::ms(began);
        let second = Cupti::default().prepare().err().map(|e| e.to_string());
        if second.is_none() {
            failures.push("a second recorder could be prepared".to_string());
        }
        let mut checked = Value::Null;
        if correlate != Correlate::Nothing {
            let mut check = checks::Check::new(&gpu, &mut recorder, format!("{}, runtime {runtime}", correlate.name()));
            let blas_counts = runtime;
            checked = check.all(blas_counts)?;
            failures.append(&mut check.failures);
        }
        let cost = costs::windows(&gpu, &mut recorder, steps, launches)?;
        strategies.push(json!({
            "strategy": correlate.name(),
            "runtime_calls": runtime,
            "prepare_ms": prepare_ms,
            "describe": recorder.describe(),
            "second_recorder": second,
            "checks": checked,
            "cost": cost,
        }));
    }
    let after = costs::steps(&gpu, None, steps, launches)?;
    let passed = failures.is_empty();
    let report = json!({
        "probe": probe,
        "steps": steps,
        "launches_per_step": launches,
        "before_cupti": untouched,
        "strategies": strategies,
        "after_cupti": after,
        "failures": failures,
    });
    Ok((report, passed))
}
