//! Why a step takes its time on the host, of programs whose truth is known: what is sampled, joined and read says it, and the
//! findings name the cause. On a busy machine, too: what is told apart here differs by far more than others can change.
#![allow(missing_docs, reason = "a test")]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use candle_core::{Device, Tensor};
use candlescope::llm::{self, Tokens};
use candlescope_compare::{CompareOptions, RunFacts, Side, compare};
use candlescope_figures::advice::{Advice, AdviceCode, Missing};
use candlescope_findings::{AnalyzeOptions, Analyzed, analyze};
use candlescope_reader::Run;
use candlescope_report::advice::text;
use candlescope_schema::run::{MachineUse, env_key};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

const RUN: &str = "CANDLESCOPE_TEST_RUN";
const SCENE: &str = "CANDLESCOPE_TEST_SCENE";

/// CPU time of the calling thread.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[inline(never)]
fn alpha(time: Duration) -> u64 {
    let (end, mut x) = (cpu() + time, 1u64);
    while cpu() < end {
        for _ in 0..20_000 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    x
}

#[inline(never)]
fn beta(time: Duration) -> u64 {
    let (end, mut x) = (cpu() + time, 7u64);
    while cpu() < end {
        for _ in 0..20_000 {
            x = black_box(x.rotate_left(11) ^ 0x9e37_79b9_7f4a_7c15);
        }
    }
    x
}

/// A step: 9 ms of one function, 15 ms of another, and 6 ms of waiting for a lock that another thread holds. With `more`, 9 ms more
/// of the second function.
fn shares(more: bool) {
    let of_second = Duration::from_millis(if more { 24 } else { 15 });
    let lock = Arc::new(Mutex::new(()));
    let (ask, asked) = channel::<()>();
    let (held, holds) = channel::<()>();
    let theirs = lock.clone();
    let other = std::thread::spawn(move || {
        for () in asked {
            let _held = theirs.lock().expect("whole");
            held.send(()).expect("somebody waits");
            std::thread::sleep(Duration::from_millis(6));
        }
    });
    let (first, second, wait) = (trace_span!("first"), trace_span!("second"), trace_span!("wait"));
    for _ in 0..60 {
        let _step = llm::decode(Tokens::new(1));
        first.in_scope(|| black_box(alpha(Duration::from_millis(9))));
        second.in_scope(|| black_box(beta(of_second)));
        ask.send(()).expect("the other thread");
        holds.recv().expect("it holds the lock");
        wait.in_scope(|| drop(lock.lock()));
    }
    drop(ask);
    other.join().expect("ends");
}

/// Products of small matrices by candle, in a process without RAYON_NUM_THREADS.
fn products() {
    let one = Tensor::ones((1, 64), candle_core::DType::F32, &Device::Cpu).expect("a tensor");
    let weights = Tensor::ones((64, 64), candle_core::DType::F32, &Device::Cpu).expect("a tensor");
    let product = trace_span!("product");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let _step = llm::decode(Tokens::new(1));
        for _ in 0..16 {
            product.in_scope(|| black_box(one.matmul(&weights).expect("a product")));
        }
    }
}

/// Memory that is taken from the system and given back in each step.
fn memory(run: &Path) {
    let faults = || {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
        let after_name = stat.rsplit_once(')').expect("a name").1.to_string();
        after_name.split_whitespace().nth(7).expect("minor faults").parse::<u64>().expect("a number")
    };
    let (before, mut steps) = (faults(), 0);
    let grow = trace_span!("grow");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let _step = llm::decode(Tokens::new(1));
        steps += 1;
        grow.in_scope(|| {
            let mut room: Vec<u8> = Vec::with_capacity(48 << 20);
            room.resize(48 << 20, 1);
            black_box(&room);
        });
    }
    let each = (faults() - before) / steps;
    std::fs::write(run.with_extension("faults"), each.to_string()).expect("written");
}

/// A step that has a processor together with another thread of the program.
fn crowded() {
    // Threads that it starts share the processor.
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).expect("a processor");
    let (end, over) = channel::<()>();
    let other = std::thread::spawn(move || {
        while over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            black_box(beta(Duration::from_millis(1)));
        }
    });
    let work = trace_span!("work");
    for _ in 0..60 {
        let _step = llm::decode(Tokens::new(1));
        work.in_scope(|| black_box(alpha(Duration::from_millis(20))));
    }
    drop(end);
    other.join().expect("ends");
}

/// Half of each step it waits for another thread, forty times: more often than recording each wait may cost.
fn restless() {
    let (ask, asked) = channel::<()>();
    let (done, answer) = channel::<()>();
    let other = std::thread::spawn(move || {
        while asked.recv().is_ok() {
            black_box(beta(Duration::from_micros(100)));
            if done.send(()).is_err() {
                break;
            }
        }
    });
    let (work, wait) = (trace_span!("work"), trace_span!("wait"));
    for _ in 0..250 {
        let _step = llm::decode(Tokens::new(1));
        for _ in 0..40 {
            work.in_scope(|| black_box(alpha(Duration::from_micros(100))));
            wait.in_scope(|| {
                ask.send(()).expect("it asks");
                answer.recv().expect("it answers");
            });
        }
    }
    drop(ask);
    other.join().expect("ends");
}

/// Of each step 6 ms are waited for another thread; then come six layers of 1 ms each, the first of which takes 5 ms more, as one
/// does whose threads and caches have to get going again.
fn resumed() {
    let (ask, asked) = channel::<()>();
    let (done, answer) = channel::<()>();
    let other = std::thread::spawn(move || {
        while asked.recv().is_ok() {
            std::thread::sleep(Duration::from_millis(6));
            if done.send(()).is_err() {
                break;
            }
        }
    });
    let wait = trace_span!("wait");
    for _ in 0..60 {
        let _step = llm::decode(Tokens::new(1));
        wait.in_scope(|| {
            ask.send(()).expect("it asks");
            answer.recv().expect("it answers");
        });
        for layer in 0..6 {
            let time = Duration::from_millis(if layer == 0 { 6 } else { 1 });
            trace_span!("layer").in_scope(|| black_box(alpha(time)));
        }
    }
    drop(ask);
    other.join().expect("ends");
}

/// Two thirds of a step are computed by one thread while the pool's second one waits, the rest by both.
fn serial() {
    let (alone, shared) = (trace_span!("alone"), trace_span!("shared"));
    for _ in 0..80 {
        let _step = llm::decode(Tokens::new(1));
        alone.in_scope(|| black_box(alpha(Duration::from_millis(12))));
        let half = || black_box(beta(Duration::from_millis(6)));
        shared.in_scope(|| rayon::join(half, half));
    }
}

#[test]
fn program() {
    let Some(run) = std::env::var_os(RUN) else { return };
    let scene = std::env::var(SCENE).expect("a scene");
    let hz = if scene == "unsampled" { 0 } else { 499 };
    let (layer, scope) = candlescope::builder().stacks(hz).parquet(&run).layer().expect("starts");
    tracing_subscriber::registry().with(layer).init();
    match &*scene {
        "shares" => shares(false),
        "slower" => shares(true),
        "products" => products(),
        "memory" | "unsampled" => memory(Path::new(&run)),
        "crowded" => crowded(),
        "serial" => serial(),
        "restless" => restless(),
        "resumed" => resumed(),
        other => panic!("no scene {other}"),
    }
    scope.finish();
}

fn recorded(scene: &str) -> Analyzed {
    let dir = tempfile::tempdir().expect("a folder");
    analyze(&run_of(scene, dir.path()), &AnalyzeOptions::default())
}

/// One scene at a time: others would take its processors.
fn run_of(scene: &str, dir: &Path) -> Run {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = dir.join(scene);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "program", "--quiet"]).env(RUN, &run).env(SCENE, scene).env_remove("RAYON_NUM_THREADS");
    if scene == "serial" {
        command.env("RAYON_NUM_THREADS", "2");
    }
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Run::open(&run).expect("a run")
}

fn found(analyzed: &Analyzed, code: AdviceCode, cause: Option<&str>) -> Advice {
    let all = &analyzed.analysis.diagnosis.as_ref().expect("looked for").findings;
    let one = all.iter().find(|advice| advice.code == code && advice.place.cause == cause);
    one.unwrap_or_else(|| panic!("no {code} {cause:?} among {all:#?}")).clone()
}

#[test]
fn functions_have_the_time_of_the_intervals_that_they_ran_in() {
    let analyzed = recorded("shares");
    let analysis = &analyzed.analysis;
    let host = analysis.host.as_ref().expect("stacks");
    let place = |path: &str| host.places.get(path).unwrap_or_else(|| panic!("{path} of {:?}", host.places.keys()));
    for (path, function) in [("decode/first", "alpha"), ("decode/second", "beta")] {
        let total: u64 =
            host.functions.iter().filter(|f| f.name.function.ends_with(function)).map(|f| f.total.own_ns).sum();
        let share = total as f64 / place(path).all.own_ns as f64;
        assert!((0.9..=1.1).contains(&share), "{function} has {share:.2} of {path}");
    }
    let (first, second) = (place("decode/first").all.own_ns as f64, place("decode/second").all.own_ns as f64);
    let n = host.all.samples as f64;
    let error = 3.0 * (0.375 * 0.625 / n).sqrt();
    let share = first / (first + second);
    assert!((share - 0.375).abs() < 0.03 + error, "{share:.3} ± {error:.3} of {n} samples");
    // What is measured at switches has no error of counting; others can only make it longer.
    let wait = analysis.intervals.paths.iter().find(|path| path.rollup == "decode/wait").expect("a path").threads;
    if wait.known_ns > 0 {
        let each = wait.blocked_ns as f64 / 60.0 / 1e6;
        assert!((4.0..30.0).contains(&each), "{each:.1} ms");
        let blocked = found(&analyzed, AdviceCode::Blocked, None);
        assert_eq!(blocked.place.path.as_deref(), Some("decode/wait"), "{blocked:?}");
    }
}

#[test]
fn the_function_that_takes_longer_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let side = |scene: &str| Side { name: scene.into(), runs: vec![RunFacts::of(&run_of(scene, dir.path()))] };
    let compared = compare(&side("shares"), &side("slower"), &CompareOptions::default()).expect("comparable");
    let functions = compared.functions.expect("stacks on both sides");
    let most = functions.changed.first().unwrap_or_else(|| panic!("none of {functions:#?}"));
    assert!(most.function.ends_with("beta"), "{most:?}");
    assert_eq!(most.path, "decode/second");
    let (low, high) = most.interval_ns;
    assert!(low < 9e6 && high > 9e6, "{most:?}");
    let others = functions.changed.iter().filter(|change| change.path != "decode/second");
    assert_eq!(others.count(), 0, "{functions:#?}");
}

#[test]
fn candle_asks_for_the_number_of_cores_at_each_product() {
    let analyzed = recorded("products");
    let asked = found(&analyzed, AdviceCode::HotOverhead, Some("thread_count"));
    // On a busy machine a step consists of waiting for a processor, too, of which it is no share.
    let host = analyzed.analysis.host.as_ref().expect("stacks").all;
    let (preempted, elapsed) = (host.preempted_ns as f64, host.elapsed_ns() as f64);
    assert!(asked.gain.mid > 0.3 * (1.0 - preempted / elapsed), "{asked:?}");
    assert_eq!(asked.place.path.as_deref(), Some("decode/product"));
}

#[test]
fn memory_that_is_given_back_costs_page_faults() {
    let dir = tempfile::tempdir().expect("a folder");
    let analyzed = analyze(&run_of("memory", dir.path()), &AnalyzeOptions::default());
    let truth = std::fs::read_to_string(dir.path().join("memory.faults")).expect("the program's own count");
    let truth: f64 = truth.parse().expect("a number");
    let faults = found(&analyzed, AdviceCode::PageFaults, None);
    assert!(faults.gain.mid > 0.1, "{faults:?}");
    assert_eq!(faults.place.path.as_deref(), Some("decode/grow"));
    if let Some(pages) = faults.figure("faults") {
        assert!(pages > 20.0, "{pages} a step");
        // However few records tell of them. The sampler's own threads have some, too: with large pages there are not enough others.
        assert!(truth < 1_000.0 || (0.7..1.3).contains(&(pages / truth)), "{pages} a step, of {truth}");
    }
}

#[test]
fn waits_that_are_recorded_a_part_of_the_time_are_told_in_full() {
    let analyzed = recorded("restless");
    let decode = analyzed.analysis.intervals.paths.iter().find(|path| path.rollup == "decode").expect("steps");
    let threads = decode.threads;
    // Where recording every wait costs little enough, or none can be, there is nothing to see here.
    if threads.known_ns == 0 || threads.known_ns as f64 > 0.95 * decode.total_ns as f64 {
        return;
    }
    let share = threads.share(threads.blocked_ns).expect("known");
    let told = found(&analyzed, AdviceCode::Blocked, None).figure("share").expect("a figure");
    assert!((told / share - 1.0).abs() < 0.15, "{told} told, {share} measured in {} ns", threads.known_ns);
}

#[test]
fn what_is_slower_behind_a_wait_is_in_the_upper_bound_of_the_wait() {
    let analyzed = recorded("resumed");
    let wait =
        analyzed.analysis.intervals.paths.iter().find(|path| path.rollup == "decode/wait").expect("a path").threads;
    // Where waits cannot be recorded, there is nothing to see here.
    if wait.known_ns == 0 {
        return;
    }
    let blocked = found(&analyzed, AdviceCode::Blocked, None);
    let diagnosis = analyzed.analysis.diagnosis.as_ref().expect("looked for");
    let step = diagnosis.steps.iter().find(|step| step.phase == "decode").expect("steps");
    let of = |name: &str| blocked.figure(name).unwrap_or_else(|| panic!("{name} of {blocked:#?}"));
    // The layer computes 5 ms more. Others may take the processor from one layer more than from another.
    assert!((3e6..9e6).contains(&of("resumed_ns")), "{blocked:#?}");
    let behind = of("resumed_ns") / step.unobserved_ns;
    assert!((blocked.gain.high - of("share") - behind).abs() < 0.02, "{behind} of {step:#?} in {blocked:#?}");
    assert!(blocked.gain.mid < of("share"), "what is expected is the wait alone: {blocked:#?}");
    let told = text(diagnosis).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("behind it, the first layer takes"), "{told}");
    // A step whose parts have no siblings shows nothing of it.
    let other = recorded("shares");
    if other.analysis.intervals.paths.iter().any(|path| path.rollup == "decode/wait" && path.threads.known_ns > 0) {
        assert_eq!(found(&other, AdviceCode::Blocked, None).figure("resumed_ns"), None);
    }
}

#[test]
fn a_processor_that_is_shared_is_seen() {
    let analyzed = recorded("crowded");
    let threads = analyzed.analysis.intervals.paths.iter().find(|path| path.rollup == "decode").expect("steps").threads;
    if threads.known_ns == 0 {
        return;
    }
    let share = threads.share(threads.preempted_ns).expect("known");
    assert!(share > 0.3, "{share}");
    let preempted = found(&analyzed, AdviceCode::Preempted, None);
    assert!(preempted.figure("share").is_some_and(|told| (told - share).abs() < 1e-9));
}

#[test]
fn what_one_thread_computes_alone_is_told() {
    let analyzed = recorded("serial");
    let environment = &analyzed.analysis.manifest.environment;
    // One processor has no thread that waits, nor have several that others use.
    let others = analyzed.analysis.manifest.machine.as_ref().and_then(MachineUse::others_cores).unwrap_or(0.0);
    let free = env_key::CPU_AVAILABLE.of(environment).expect("known") as f64 - others;
    let all = &analyzed.analysis.diagnosis.as_ref().expect("looked for").findings;
    if free < 1.6 {
        return;
    }
    let serial = found(&analyzed, AdviceCode::SerialPart, None);
    assert_eq!(serial.place.path.as_deref(), Some("decode/alone"), "{serial:?}");
    assert!(serial.place.function.as_deref().is_some_and(|name| name.ends_with("alpha")), "{serial:?}");
    assert_eq!(serial.figure("paths"), Some(1.0), "{serial:?}");
    let share = serial.figure("share").expect("a figure");
    assert!((0.4..0.9).contains(&share), "{share}");
    assert!(all.iter().all(|advice| advice.code != AdviceCode::ThreadsWait));
}

#[test]
fn without_samples_nothing_is_said_of_functions() {
    let analyzed = recorded("unsampled");
    assert!(analyzed.analysis.host.is_none());
    let abstained = &analyzed.analysis.diagnosis.as_ref().expect("looked for").abstained;
    let hot = abstained.iter().find(|one| one.code == AdviceCode::HotOverhead).expect("it says so");
    assert_eq!(hot.missing, Missing::Stacks);
}
