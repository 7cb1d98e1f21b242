//! Compares the hot path of two builds: the cost of entering and leaving a span, annotating, skipping a step, being
//! paused, counting a token.
//!
//! ```text
//! hot_path                          a round of every case, nanoseconds each
//! hot_path --against OTHER [N]      N rounds (default 12) in turns with the program OTHER, and the ratios
//! ```
//!
//! Each case runs in a process of its own, because an application has one subscriber for its whole life. The two
//! programs run in turn, so that a busy period of the machine affects both; the figure of a process is the 5th
//! percentile of its bursts. See `tests/bench/hot_path.sh`.
#![allow(missing_docs, clippy::print_stdout, reason = "a program")]

use candlescope_core::llm::Request;
use candlescope_core::{Annotation, Batch, DType, ExportError, Exporter, Ledger, Schedule, Session, annotate};
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

const CASES: [&str; 6] = ["enter_exit", "new_span", "annotate", "skipped", "paused", "token"];

/// Intervals inside a step, as many as candle's SmolLM2 has.
const CHILDREN: usize = 400;
const STEPS: usize = 10;
const PAIRS: usize = STEPS * (CHILDREN + 1);
const BURSTS: usize = 300;

struct Null;

impl Exporter for Null {
    fn name(&self) -> &'static str {
        "null"
    }
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        ledger.exported_batch(batch);
        Ok(())
    }
}

/// Nanoseconds per operation of the case.
fn measure(case: &str) -> f64 {
    // The rings are emptied between bursts, not while the time is measured.
    let mut builder = Session::builder().exporter(Null).drain_interval(Duration::from_secs(3600));
    builder = builder.paused(case == "paused");
    if case == "skipped" {
        builder = builder.schedule(Schedule { skip_first: 1 << 40, wait: 0, warmup: 0, active: 1, repeat: 1 });
    }
    let (layer, session) = builder.start().expect("starts");
    tracing_subscriber::registry().with(layer).init();
    let step = trace_span!("step");
    let spans: Vec<_> = (0..CHILDREN).map(|_| trace_span!("linear")).collect();
    let request = Request::new("chat", "m");
    request.token();
    let burst = || match case {
        "token" => (0..PAIRS).for_each(|_| black_box(&request).token()),
        "new_span" => {
            for _ in 0..STEPS {
                let _step = step.enter();
                for _ in 0..CHILDREN {
                    black_box(trace_span!("linear")).in_scope(|| ());
                }
            }
        }
        _ => {
            for _ in 0..STEPS {
                let _step = step.enter();
                for span in &spans {
                    let _inside = black_box(span).enter();
                    if case == "annotate" {
                        annotate(Annotation::new().flops(1).bytes(2).dtype(DType::F32).shape(&[1, 1, 576]));
                    }
                }
            }
        }
    };
    let mut ns = Vec::with_capacity(BURSTS);
    for at in 0..BURSTS + 5 {
        let start = Instant::now();
        burst();
        let took = start.elapsed();
        session.handle().flush(Duration::from_secs(10)).expect("flushes");
        if at >= 5 {
            ns.push(took.as_nanos() as f64 / PAIRS as f64);
        }
    }
    assert_eq!(session.handle().stats().loss.lost(), 0, "what was dropped was not measured");
    quantile(&mut ns, 0.05)
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

/// The figure of a case, measured in a process of `program`.
fn ask(program: &std::path::Path, case: &str) -> f64 {
    let output = Command::new(program).args(["--case", case]).output().expect("runs");
    assert!(output.status.success(), "{} --case {case}: {output:?}", program.display());
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let this = std::env::current_exe().expect("this program");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--case", case] => println!("{}", measure(case)),
        [] => CASES.iter().for_each(|case| println!("{case:12} {:8.2} ns", ask(&this, case))),
        ["--against", other, ref rounds @ ..] => {
            let rounds: usize = rounds.first().map_or(12, |n| n.parse().expect("a number of rounds"));
            compare(&this, std::path::Path::new(other), rounds);
        }
        _ => panic!("hot_path [--against OTHER [ROUNDS]]"),
    }
}

fn compare(this: &std::path::Path, other: &std::path::Path, rounds: usize) {
    let columns = ["operation", "least before, ns", "least after, ns", "ratio of the least"];
    println!("| {} | ratio of rounds: median (10th to 90th percentile of {rounds}) |", columns.join(" | "));
    println!("|---|---|---|---|---|");
    for case in CASES {
        let (mut before, mut after, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let pair = if round % 2 == 0 {
                let first = ask(other, case);
                (first, ask(this, case))
            } else {
                let first = ask(this, case);
                (ask(other, case), first)
            };
            before.push(pair.0);
            after.push(pair.1);
            ratios.push(pair.1 / pair.0);
        }
        // A machine that is busy or slow for a while only ever makes operations slower.
        let (before, after) = (quantile(&mut before, 0.0), quantile(&mut after, 0.0));
        let [low, ratio, high] = [0.1, 0.5, 0.9].map(|q| quantile(&mut ratios, q));
        let least = after / before;
        println!("| {case} | {before:.2} | {after:.2} | {least:.3} | {ratio:.3} ({low:.3} to {high:.3}) |");
    }
}
