//! Guards the cost of the hot path in a way that a busy machine does not disturb: the instructions per interval,
//! counted by valgrind, are compared with the figures in `instructions.txt` beside this file. After a change that is
//! worth its cost, update them:
//!
//! ```text
//! make instructions
//! ```
//!
//! Callgrind is called directly, because gungraun's runner would have to be built first, in exactly the version of its
//! library, which takes longer than this test.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(missing_docs, unsafe_code, reason = "a test that asks the system what no crate wraps")]

use candlescope_core::{Annotation, Batch, DType, ExportError, Exporter, Ledger, Schedule, Session, annotate};
use candlescope_testkit::tools::{VALGRIND, missing, require};
use candlescope_testkit::{SOON, text};
use std::fmt::Write as _;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tracing::{Span, trace_span};
use tracing_subscriber::prelude::*;

const FIGURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions.txt");
/// Tells a process that is counted which case it is.
const CASE: &str = "CANDLESCOPE_COUNTED";
/// The case of a layer that does nothing: what is left is the cost of tracing's registry.
const FLOOR: &str = "floor";
/// Intervals inside a step, about as many as a small model has.
const CHILDREN: usize = 400;
/// Steps of a case, and all their intervals.
const STEPS: usize = 20;
const INTERVALS: usize = STEPS * (CHILDREN + 1);

/// Accepts everything.
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

struct Nothing;

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Nothing {}

/// Callgrind's client requests, numbered as in `callgrind.h`: begin and end counting on all threads.
const START: usize = 0x4354_0004;
const STOP: usize = 0x4354_0005;

/// Sends callgrind a request; without callgrind nothing happens.
fn tell(request: usize) {
    let said = [request, 0, 0, 0, 0, 0];
    // SAFETY: these are the instructions in `valgrind.h`. They leave all registers unchanged except `rdx`, which gets
    // the answer.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") said.as_ptr(), inlateout("rdx") 0usize => _, options(nostack),
        );
    }
}

fn step(step: &Span, children: &[Span], says_what_it_does: bool) {
    let _step = step.enter();
    for span in children {
        let _inside = black_box(span).enter();
        if says_what_it_does {
            annotate(Annotation::new().flops(1).bytes(2).dtype(DType::F32).shape(&[1, 1, 576]));
        }
    }
}

/// What the processes do that [`count`] starts.
fn counted(case: &str) {
    // Rings that hold everything and are read only at the end, so that the drain does the same each time.
    let mut builder =
        Session::builder().exporter(Null).drain_interval(Duration::from_secs(3600)).ring_capacity(1 << 17);
    builder = builder.paused(case == "paused");
    if case == "skipped" {
        builder = builder.schedule(Schedule { skip_first: 1 << 40, wait: 0, warmup: 0, active: 1, repeat: 1 });
    }
    let (layer, session) = builder.start().expect("starts");
    let handle = session.handle().clone();
    let work = || {
        let root = trace_span!("step");
        let alike: Vec<Span> = (0..CHILDREN).map(|_| trace_span!("linear")).collect();
        // Names in another order in each step, so that no step has the shape of the one before.
        let names = [trace_span!("a"), trace_span!("b"), trace_span!("c"), trace_span!("d"), trace_span!("e")];
        let of_step = |n: usize| (0..CHILDREN).map(|child| names[child * (n % 4 + 1) % 5].clone()).collect::<Vec<_>>();
        let shapes: Vec<Vec<Span>> = (0..4).map(of_step).collect();
        let steps = || {
            (0..STEPS).for_each(|n| match case {
                "resolve" => step(&root, &shapes[n % 4], false),
                _ => step(&root, &alike, case == "annotate"),
            });
        };
        // Once before counting, to learn names and fill caches.
        steps();
        handle.flush(SOON).expect("flushes");
        tell(START);
        steps();
        if ["drain", "resolve"].contains(&case) {
            handle.flush(SOON).expect("flushes");
        }
        tell(STOP);
    };
    match case {
        FLOOR => tracing::subscriber::with_default(tracing_subscriber::registry().with(Nothing), work),
        _ => tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work),
    }
    let manifest = session.finish();
    assert_eq!(manifest.loss.lost(), 0, "what was dropped was not counted");
}

/// Makes the kernel look like one without `PR_GET_AUXV` (Linux 6.4). rustix uses that call to find the vDSO, which
/// valgrind has removed without knowing about the call. Otherwise rustix reads a file that valgrind does handle.
fn without_auxv(command: &mut Command) {
    let step = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let (load, is, answer) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_JEQ, libc::BPF_RET);
    let mut filter = [
        step(load, 0, 0, 0),
        step(is, libc::SYS_prctl as u32, 0, 2),
        // The first argument of the call.
        step(load, 16, 0, 0),
        step(is, 0x4155_5856, 1, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(answer, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32, 0, 0),
    ];
    let set = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: two system calls, which are allowed between fork and exec; the program and its filter live until they
        // return.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: `set` allocates nothing and takes no lock.
    unsafe { command.pre_exec(set) };
}

/// Instructions per interval, counted in a process of its own.
fn count(valgrind: &Path, case: &str) -> f64 {
    let mut command = Command::new(valgrind);
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--instr-atstart=no"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "an_interval_costs_no_more_instructions_than_it_did"])
        .env(CASE, case);
    without_auxv(&mut command);
    let output = command.output().expect("valgrind runs");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{case}: {said}{}", text(&output.stdout));
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    let counted = collected.filter(|n| *n > 0).unwrap_or_else(|| panic!("{case}: nothing counted: {said}"));
    counted as f64 / INTERVALS as f64
}

/// Each case with its instructions per interval, minus those of the case that it contains.
fn measured(valgrind: &Path) -> Vec<(&'static str, f64)> {
    let floor = count(valgrind, FLOOR);
    let enter_exit = count(valgrind, "enter_exit");
    let beyond = |less: f64| move |case| (case, count(valgrind, case) - less);
    let mut figures = vec![("enter_exit", enter_exit - floor)];
    figures.extend(["annotate", "paused", "skipped"].map(beyond(floor)));
    // These run on the pipeline's own threads.
    figures.extend(["drain", "resolve"].map(beyond(enter_exit)));
    figures
}

#[test]
fn an_interval_costs_no_more_instructions_than_it_did() {
    if let Ok(case) = std::env::var(CASE) {
        return counted(&case);
    }
    let Some(valgrind) = require(&VALGRIND) else { return };
    let other_profile = std::env::vars().any(|(name, _)| name.starts_with("CARGO_PROFILE_")) || !cfg!(debug_assertions);
    if other_profile {
        return missing(
            "a build with the workspace's own profile",
            "unset CARGO_PROFILE_*, and build without --release",
        );
    }
    let rustc = Command::new("rustc").arg("-V").output().expect("rustc runs");
    let rustc = text(&rustc.stdout).split(' ').nth(1).expect("a version").to_string();
    let found = measured(&valgrind);
    if std::env::var_os("UPDATE_INSTRUCTIONS").is_some() {
        let mut text = format!("# Instructions of an interval, see instructions.rs.\nrustc {rustc}\n");
        found.iter().for_each(|(case, n)| writeln!(text, "{case} {n:.1}").expect("a string takes everything"));
        return std::fs::write(FIGURES, text).expect("written");
    }
    let figures = std::fs::read_to_string(FIGURES).expect("figures");
    let figure = |name: &str| figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    // Another compiler makes other code from the same source.
    let margin = if figure("rustc") == Some(&rustc) { 1.04 } else { 1.20 };
    let mut dearer = String::new();
    for (case, n) in &found {
        let before: f64 = figure(case).expect("a figure").parse().expect("a number");
        println!("{case:10} {n:8.1} instructions, {before:.1} in instructions.txt");
        if *n > before * margin + 1.0 {
            let _ = writeln!(dearer, "{case}: {n:.1} instructions an interval, {before:.1} until now");
        }
    }
    assert!(dearer.is_empty(), "the hot path has become dearer (instructions.rs says how to accept that):\n{dearer}");
}
