//! Kernel recording on a GPU machine without candle: are the records right, and what does recording cost?
//!
//! ```text
//! cargo run --release -p candlescope-collectors --no-default-features --features cupti --example cupti_kernels -- [STEPS [LAUNCHES]]
//! ```
//!
//! Needs an NVIDIA driver and libcupti; cuBLAS is tried if its library is found. Prints one JSON object. Status 1:
//! something that was launched was not recorded, or not with its interval and call. STEPS (40) and LAUNCHES a step
//! (900) are for the costs: before CUPTI, in each of three windows, and after each, when CUPTI must be gone; also of
//! the calls that candle makes around a launch, and the longest single launch while windows open and close.

mod checks;
mod costs;
#[allow(dead_code, reason = "shared with another program")]
mod sys;

use candlescope_collectors::cupti::{self, Correlate, Cupti, CuptiOptions};
use candlescope_core::HostNs;
use candlescope_core::gpu::{Activity, ActivityError, ActivitySink};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u32>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (Ok(steps), Ok(launches)) = (number(40), number(900)) else {
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

/// One way to record.
struct Way {
    name: &'static str,
    correlate: Correlate,
    set: fn(CuptiOptions) -> CuptiOptions,
}

const WAYS: [Way; 5] = [
    Way { name: "defaults", correlate: Correlate::Callbacks, set: |o| o },
    Way { name: "attached late", correlate: Correlate::Callbacks, set: |o| o.attach_late(true) },
    Way { name: "with runtime calls", correlate: Correlate::Callbacks, set: |o| o.runtime_calls(true) },
    Way { name: "kernels alone", correlate: Correlate::Nothing, set: |o| o },
    // Last, as what stays attached slows down everything after it.
    Way { name: "kept attached", correlate: Correlate::Callbacks, set: |o| o.keep_attached(true) },
];

/// The report, and whether every check passed.
fn run(steps: u32, launches: u32) -> Result<(Value, bool), String> {
    let probe = match cupti::probe() {
        Ok(facts) => json!({ "library": facts.library, "api_version": facts.api_version, "toolkit": facts.toolkit }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    let gpu = sys::Gpu::new()?;
    let mut failures = Vec::new();

    // Before CUPTI is attached at all. The graph is made now too, so that its nodes are made without CUPTI.
    let early_graph = gpu.graph(3)?;
    let (untouched, _) = costs::steps(&gpu, None, steps, launches)?;

    let mut ways = Vec::new();
    for way in WAYS {
        eprintln!("{}", way.name);
        let report = one_way(&gpu, &way, steps, launches, &mut failures)?;
        // Printed already now: a driver that does not cope with the detachment may end the process later.
        eprintln!("{report}");
        ways.push(report);
        // Detaches what the recorder left.
        gpu.launch(sys::Kernel::Other, sys::PER_THREAD, 2, 0)?;
        gpu.launch_graph(&early_graph)?;
        gpu.synchronize_all()?;
    }
    let (after, _) = costs::steps(&gpu, None, steps, launches)?;
    let passed = failures.is_empty();
    let report = json!({
        "probe": probe,
        "steps": steps,
        "launches_per_step": launches,
        "before_cupti": untouched,
        "ways": ways,
        "after_cupti": after,
        "failures": failures,
    });
    Ok((report, passed))
}

fn one_way(gpu: &sys::Gpu, way: &Way, steps: u32, launches: u32, failures: &mut Vec<String>) -> Result<Value, String> {
    let text = |e: ActivityError| e.to_string();
    let mut recorder = Cupti::new((way.set)(CuptiOptions::default().correlate(way.correlate)));
    let began = Instant::now();
    recorder.prepare().map_err(text)?;
    let prepare_ms = costs::ms(began);
    let began = Instant::now();
    gpu.launch(sys::Kernel::Other, sys::PER_THREAD, 2, 0)?;
    let launch_after_prepare_ms = costs::ms(began);
    let second = Cupti::default().prepare().err().map(|e| e.to_string());
    if second.is_none() {
        failures.push("a second recorder could be prepared".to_string());
    }
    let mut cost_failures = Vec::new();
    let attributes = way.correlate != Correlate::Nothing;
    let cost = costs::windows(gpu, &mut recorder, attributes, steps, launches, &mut cost_failures)?;
    let (mut checked, mut switching, mut captured) = (Value::Null, Value::Null, Value::Null);
    if attributes {
        let mut check = checks::Check::new(gpu, &mut recorder, way.name.to_string());
        checked = check.all()?;
        failures.append(&mut check.failures);
        eprintln!("{}: switching", way.name);
        switching = costs::switching(gpu, &mut recorder, 12, &mut cost_failures)?;
        eprintln!("{}: detaching while a graph is captured", way.name);
        captured = while_capturing(gpu, &mut recorder, &mut cost_failures)?;
    }
    failures.extend(cost_failures.into_iter().map(|failure| format!("{}: {failure}", way.name)));
    Ok(json!({
        "way": way.name,
        "prepare_ms": prepare_ms,
        "launch_after_prepare_ms": launch_after_prepare_ms,
        "describe": recorder.describe(),
        "second_recorder": second,
        "checks": checked,
        "cost": cost,
        "switching": switching,
        "captured": captured,
    }))
}

/// The launch that detaches may be one that is captured into a graph, not run. The graph must come out whole.
fn while_capturing(gpu: &sys::Gpu, recorder: &mut Cupti, failures: &mut Vec<String>) -> Result<Value, String> {
    let text = |e: ActivityError| e.to_string();
    recorder.enable().map_err(text)?;
    recorder.disable().map_err(text)?;
    recorder.collect(true, &HostNs::now, &mut ActivitySink::default()).map_err(text)?;
    recorder.release().map_err(text)?;
    match gpu.graph(3).and_then(|graph| gpu.launch_graph(&graph)).and_then(|()| gpu.synchronize_all()) {
        Ok(()) => Ok(json!("ok")),
        Err(error) => {
            failures.push(format!("a graph could not be captured: {error}"));
            Ok(json!(error))
        }
    }
}
