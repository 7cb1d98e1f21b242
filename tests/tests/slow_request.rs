//! Why a request was slow, of a program whose truth is known: of ten requests one waits for a lock, one shares its processor
//! with another thread, one computes for longer in one span, and one is answered at length.
#![allow(missing_docs, reason = "a test")]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use candlescope::llm::{self, Request, Tokens};
use candlescope_figures::request_account::{NoRequest, PartKind};
use candlescope_figures::{Analysis, RequestAccount};
use candlescope_reader::{ReadLimits, Run};
use candlescope_report::{ReportOptions, write_request};
use candlescope_sql::{Sources, SqlValue, query};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::trace_span;
use tracing_subscriber::prelude::*;

const RUN: &str = "CANDLESCOPE_TEST_RUN";
const SWITCHES: &str = "CANDLESCOPE_TEST_SWITCHES";

/// Steps of a request: the prompt's, and one for each further token.
const STEPS: usize = 8;
/// What each step computes, and what it computes longer, or waits.
const EACH: Duration = Duration::from_millis(3);
const LONGER: Duration = Duration::from_millis(30);

/// Requests that are not like the others, by number.
const BLOCKED: u64 = 3;
const PREEMPTED: u64 = 5;
const COMPUTES: u64 = 7;
const LENGTHY: u64 = 9;

/// Computes for so much CPU time of the calling thread.
#[inline(never)]
fn compute(time: Duration) {
    let cpu = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (end, mut x) = (cpu() + time, 1u64);
    while cpu() < end {
        for _ in 0..5_000 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Not a test of its own: the program that the tests record.
#[test]
fn program() {
    let Some(run) = std::env::var_os(RUN) else { return };
    let hz = if std::env::var_os(SWITCHES).is_some() { 99 } else { 0 };
    let (layer, scope) = candlescope::builder().stacks(hz).parquet(run).layer().expect("starts");
    tracing_subscriber::registry().with(layer).init();
    // The thread that takes the processor has the same one.
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).expect("a processor");

    let lock = Arc::new(Mutex::new(()));
    let (ask, asked) = channel::<()>();
    let (held, holds) = channel::<()>();
    let theirs = lock.clone();
    let holder = std::thread::spawn(move || {
        for () in asked {
            let _held = theirs.lock().expect("whole");
            held.send(()).expect("somebody waits");
            std::thread::sleep(LONGER);
        }
    });
    let (attention, mlp, wait) = (trace_span!("attention"), trace_span!("mlp"), trace_span!("wait"));
    for number in 1..=10 {
        let steps = if number == LENGTHY { 2 * STEPS } else { STEPS };
        let request = Request::new("chat", "m").prompt_tokens(16);
        let _entered = request.enter();
        for step in 0..steps {
            let slow = |which: u64| which == number && step == STEPS / 2;
            let over = Arc::new(AtomicBool::new(false));
            let theirs = over.clone();
            let other = slow(PREEMPTED).then(|| {
                let thread = std::thread::spawn(move || {
                    while !theirs.load(Ordering::Relaxed) {
                        compute(Duration::from_millis(1));
                    }
                });
                std::thread::sleep(Duration::from_millis(5));
                thread
            });
            let phase = match step {
                0 => llm::prefill(Tokens::new(16).context(16)),
                step => llm::decode(Tokens::new(1).context(16 + step)),
            };
            attention.in_scope(|| compute(EACH / 2));
            mlp.in_scope(|| compute(EACH / 2));
            if slow(COMPUTES) {
                mlp.in_scope(|| compute(LONGER));
            }
            if slow(PREEMPTED) {
                attention.in_scope(|| compute(LONGER));
            }
            if slow(BLOCKED) {
                ask.send(()).expect("the other thread");
                holds.recv().expect("it holds the lock");
                wait.in_scope(|| drop(lock.lock()));
            }
            drop(phase);
            over.store(true, Ordering::Relaxed);
            other.into_iter().for_each(|thread| thread.join().expect("ends"));
        }
    }
    drop(ask);
    holder.join().expect("ends");
    scope.finish();
}

/// Programs share a processor, so one runs after the other.
static ONE: Mutex<()> = Mutex::new(());

fn recorded(switches: bool) -> (tempfile::TempDir, Run) {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("run");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "program", "--quiet"]).env(RUN, &run);
    if switches {
        command.env(SWITCHES, "1");
    }
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let run = Run::open(&run).expect("a run");
    (dir, run)
}

fn part(account: &RequestAccount, kind: PartKind) -> Option<f64> {
    account.parts.iter().find(|part| part.kind == kind).and_then(|part| part.ns)
}

/// Milliseconds of a part that is known.
fn ms(account: &RequestAccount, kind: PartKind) -> f64 {
    part(account, kind).unwrap_or_else(|| panic!("no {kind:?} of {:?}", account.parts)) / 1e6
}

fn assert_adds_up(account: &RequestAccount) {
    let sum: f64 = account.parts.iter().filter_map(|part| part.ns).sum();
    let difference = account.more_ns().expect("others like it");
    assert!((sum - difference).abs() < 1.0, "{sum} of {difference}: {:?}", account.parts);
}

#[test]
fn each_slow_request_has_its_reason() {
    let (_dir, run) = recorded(true);
    let account = |number| RequestAccount::of(&run, number).expect("a request");
    (1..=10).for_each(|number| assert_adds_up(&account(number)));

    let lengthy = account(LENGTHY);
    let work = ms(&lengthy, PartKind::Work);
    assert!(work > 0.7 * STEPS as f64 * EACH.as_secs_f64() * 1e3, "{work} of {:?}", lengthy.parts);
    assert_eq!(lengthy.like, 10);

    let computes = account(COMPUTES);
    let longest = computes.paths.as_ref().expect("paths").first().expect("one took longer");
    assert_eq!(longest.path, "decode/mlp");
    // Beside other programs the steps that it is held against are longer, too.
    assert!(longest.more_ns > 0.5 * LONGER.as_nanos() as f64, "{longest:?}");
    let slowest = &computes.slowest[0];
    assert!(slowest.more_ns > 0.5 * LONGER.as_nanos() as f64, "{slowest:?}");

    // The rows of the slowest steps are found again.
    let sources = Sources::open([run.dir()], &ReadLimits::default()).expect("opens");
    let rows = query(&computes.query().expect("steps"), &sources, &ReadLimits::default(), 0).expect("SQL").rows;
    assert_eq!(rows.len(), computes.slowest.len());
    assert!(rows.iter().any(|row| row[1] == SqlValue::Int(slowest.step as i64)));

    let blocked = account(BLOCKED);
    if blocked.without_states > 0 || computes.without_states > 0 {
        // This machine records no switches, or has lost those of a step, which is said: its time is of no part then.
        return;
    }
    assert!(ms(&computes, PartKind::OnCpu) > 0.8 * 30.0, "{:?}", computes.parts);
    assert!(ms(&blocked, PartKind::Blocked) > 0.8 * 30.0, "{:?}", blocked.parts);
    assert!(ms(&blocked, PartKind::OnCpu) < 10.0, "{:?}", blocked.parts);
    let waits = blocked.paths.as_ref().expect("paths").first().expect("one took longer");
    assert_eq!(waits.path, "decode/wait");
    assert!(waits.states.expect("known")[2] > 0.8 * waits.more_ns, "{waits:?}");
    let crowded = account(PREEMPTED);
    assert!(ms(&crowded, PartKind::Preempted) > 15.0, "{:?}", crowded.parts);
}

#[test]
fn what_is_not_known_is_said() {
    let (_dir, run) = recorded(false);
    let account = RequestAccount::of(&run, BLOCKED).expect("a request");
    assert_adds_up(&account);
    for kind in [PartKind::OnCpu, PartKind::Preempted, PartKind::Blocked, PartKind::Gpu] {
        assert_eq!(part(&account, kind), None);
    }
    assert!(part(&account, PartKind::Unknown).is_some(), "{:?}", account.parts);
    let slowest = &account.slowest[0];
    assert!(slowest.states.is_none() && slowest.more_ns > 0.5 * LONGER.as_nanos() as f64, "{slowest:?}");
    assert_eq!(account.without_states, STEPS as u64);

    let out = tempfile::tempdir().expect("a folder");
    let options = ReportOptions { out: Some(out.path().into()), ..ReportOptions::default() };
    let written = write_request(&run, &account, &options).expect("written");
    let page = std::fs::read_to_string(out.path().join("request-3.html")).expect("a page");
    let markdown = std::fs::read_to_string(out.path().join("request-3.md")).expect("Markdown");
    for text in [&written.summary, &page, &markdown] {
        assert!(text.contains("8 of its 8 steps it is not known"), "{text}");
        assert!(text.contains("the median of 10"), "{text}");
    }
    assert!(page.len() < 60_000, "{} bytes", page.len());
    let told = written.account["parts"].as_array().expect("parts").iter().find(|part| part["part"] == "blocked");
    assert!(told.expect("a row")["ns"].is_null());

    // The page of the run leads there.
    let analysis = Analysis::of(&run);
    let slowest = analysis.latency.requests.iter().max_by_key(|request| request.dur_ns).expect("requests").request;
    let report = candlescope_report::markdown::report(&analysis);
    assert!(report.contains(&format!("candlescope report RUN --request {slowest}")), "{report}");

    let Err(NoRequest::Unknown { known, .. }) = RequestAccount::of(&run, 12) else { panic!("there is none") };
    assert_eq!(known, "1 to 10");
}
