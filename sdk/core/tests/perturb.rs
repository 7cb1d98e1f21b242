//! Experiments: what is made slower, what is recorded of it, and what is not.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::llm::{self, Request, Tokens};
use candlescope_core::{Batch, Delay, MemoryExporter, Perturb, PerturbRefused, PerturbationRecord, Session, Side};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

/// One test at a time: each keeps processors busy, and times what it does.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the thread busy until so much time has passed, whatever else the machine does.
fn busy(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Records what `work` does while `asked` is tried, until it has its pairs.
fn experiment(asked: &Perturb, mut work: impl FnMut()) -> Batch {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    let handle = session.handle().clone();
    handle.perturb(asked).expect("begins");
    let limit = Instant::now() + Duration::from_secs(60);
    while handle.perturbing().running {
        assert!(Instant::now() < limit, "{:?}", handle.perturbing());
        work();
    }
    // The last stretch ends with the next step of its kind.
    (0..3).for_each(|_| work());
    let manifest = session.finish();
    assert_eq!(manifest.loss.lost(), 0, "{:?}", manifest.loss);
    let batch = memory.batch();
    let steps = manifest.steps.expect("counted");
    assert_eq!(steps.begun, steps.recorded + steps.perturbed, "{steps:?}");
    assert_eq!(batch.steps.len() as u64, steps.recorded);
    batch
}

/// Pairs of a target: (delayed, control).
fn pairs<'a>(batch: &'a Batch, target: &str) -> Vec<(&'a PerturbationRecord, &'a PerturbationRecord)> {
    let of = |delayed| batch.perturbations.iter().filter(move |p| &*p.target == target && p.delayed == delayed);
    of(true).filter_map(|d| Some((d, of(false).find(|c| c.pair == d.pair)?))).collect()
}

/// Time of steps over added time, by medians of pairs.
fn slope(batch: &Batch, target: &str) -> f64 {
    let pairs = pairs(batch, target);
    assert!(pairs.len() >= 30, "{target}: {} pairs", pairs.len());
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let longer = median(pairs.iter().map(|(d, c)| d.took_ns() as f64 - c.took_ns() as f64).collect());
    longer / median(pairs.iter().map(|(d, c)| d.added_ns as f64 - c.added_ns as f64).collect())
}

/// Turns in which a worker has a short branch beside the turn's own long one, both made slower in turns, and what was recorded of
/// them. The long one takes its milliseconds by any clock: the session's is measured at its start.
fn branches(long_ms: u64, short_ms: u64) -> Batch {
    let (start, started) = mpsc::channel::<()>();
    let (done, finished) = mpsc::channel::<()>();
    let asked = ["path=long:+20%", "path=short:+20%"].map(|text| text.parse().expect("valid"));
    let asked = Perturb::new(asked).budget(1.0).pairs(40);
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let on_worker = dispatch.clone();
    let worker = std::thread::spawn(move || {
        tracing::dispatcher::with_default(&on_worker, || {
            while started.recv().is_ok() {
                trace_span!("short").in_scope(|| busy(Duration::from_millis(short_ms)));
                done.send(()).expect("awaited");
            }
        });
    });
    let handle = session.handle().clone();
    handle.perturb(&asked).expect("begins");
    tracing::dispatcher::with_default(&dispatch, || {
        let limit = Instant::now() + Duration::from_secs(120);
        while handle.perturbing().running {
            assert!(Instant::now() < limit, "{:?}", handle.perturbing());
            trace_span!("turn").in_scope(|| {
                start.send(()).expect("runs");
                trace_span!("long").in_scope(|| busy(Duration::from_micros(1_000 * long_ms + 10)));
                finished.recv().expect("runs");
            });
        }
        trace_span!("turn").in_scope(|| ());
    });
    drop(start);
    worker.join().expect("ends");
    session.finish();
    memory.batch()
}

/// The longer one of two threads is on the critical path, the shorter one is not: where it is a quarter as long, and where it is
/// half as long. What is left to the short one, 9 and 20 ms, is its slack on a busy machine that wakes it late.
#[test]
fn of_two_branches_the_longer_one_is_critical() {
    let _alone = alone();
    for (long_ms, short_ms) in [(12, 3), (40, 20)] {
        let batch = branches(long_ms, short_ms);
        let (long, short) = (slope(&batch, "path=long"), slope(&batch, "path=short"));
        let told = format!("{long_ms} ms beside {short_ms} ms: long {long:.3}, short {short:.3}");
        assert!((long - 1.0).abs() <= 0.1 && short.abs() <= 0.1, "{told}");
        // The kind of step that takes the most time, not one of the worker's, which are steps of their own thread.
        assert!(batch.perturbations.iter().all(|p| &*p.name == "turn" && p.side == Side::Host));
        // Time of the target without what was added, and what was added as a share of it.
        for stretch in batch.perturbations.iter().filter(|p| &*p.target == "path=long") {
            assert_eq!(stretch.intervals, 1, "{stretch:?}");
            assert!(stretch.interval_ns >= 1_000_000 * long_ms, "{stretch:?}");
            let share = stretch.added_ns as f64 / stretch.interval_ns as f64;
            assert!(if stretch.delayed { share >= 0.199 } else { share == 0.0 }, "{stretch:?}");
        }
    }
}

/// A pass of three layers, with what chooses the token after it.
fn token(position: usize) {
    {
        let _decode = llm::decode(Tokens::new(1).context(position));
        for _ in 0..3 {
            let _block = trace_span!("block").entered();
            trace_span!("mlp").in_scope(|| busy(Duration::from_micros(200)));
        }
    }
    let _sample = llm::sample();
    busy(Duration::from_micros(50));
}

#[test]
fn stretches_last_until_the_next_token_and_are_in_no_other_table() {
    let _alone = alone();
    let asked = Perturb::new(["path=block/mlp:+50%".parse().expect("valid")]).budget(1.0).pairs(30);
    let batch = experiment(&asked, || {
        let request = Request::new("chat", "m");
        let _inside = request.enter();
        drop(llm::prefill(Tokens::new(8).context(8)));
        (9..25).for_each(token);
    });
    assert!((slope(&batch, "path=block/mlp") - 1.0).abs() < 0.15);
    for stretch in &batch.perturbations {
        assert_eq!((stretch.phase, stretch.intervals), (Some(candlescope_core::Phase::Decode), 3), "{stretch:?}");
        // What chooses the token is in the stretch, and not in the step.
        assert!(stretch.period_ns.is_none_or(|period| period >= stretch.host_dur_ns + 50_000), "{stretch:?}");
        assert!(!batch.steps.iter().any(|step| step.step == stretch.step), "recorded, too: {stretch:?}");
    }
    // The last token of a request has none after it: no pair is made of unlike stretches.
    let whole = pairs(&batch, "path=block/mlp");
    assert!(whole.iter().filter(|(d, c)| d.period_ns.is_some() == c.period_ns.is_some()).count() >= 30);
    // Requests with steps of an experiment say so.
    assert!(batch.requests.iter().any(|request| request.perturbed == Some(true)));
    let of = |request: u64| batch.steps.iter().filter(|step| step.request == Some(request)).count();
    for request in &batch.requests {
        // A prefill, sixteen tokens, sixteen choices.
        assert_eq!(request.perturbed == Some(true), of(request.request) < 33, "{request:?}");
    }
}

#[test]
fn a_budget_holds_what_is_added() {
    let _alone = alone();
    let asked = Perturb::new(["path=step/part:+1ms".parse().expect("valid")]).budget(0.05).pairs(10);
    let began = Instant::now();
    let batch = experiment(&asked, || {
        trace_span!("step").in_scope(|| trace_span!("part").in_scope(|| busy(Duration::from_millis(1))));
    });
    let added: u64 = batch.perturbations.iter().map(|p| p.added_ns).sum();
    assert!(added >= 10_000_000, "{added}");
    // The last one, too, began once its millisecond was left; it adds more where the thread was taken off its processor.
    let delayed = batch.perturbations.iter().filter(|p| p.delayed);
    let last = delayed.max_by_key(|p| p.host_start).expect("ten pairs").added_ns;
    let allowed = began.elapsed().as_nanos() as f64 * 0.05;
    let planned = (added - last + 1_000_000) as f64;
    assert!(planned < 1.001 * allowed, "{planned} with {last} at last, of {allowed}");
}

/// Seconds for each interval of a step of milliseconds, as somebody may ask for in a server that is at work.
#[test]
fn no_step_is_held_up_for_longer_than_the_budget_has() {
    let _alone = alone();
    let asked = Perturb::new(["path=step/part:+1s".parse().expect("valid")]).budget(0.05).pairs(5);
    let began = Instant::now();
    let batch = experiment(&asked, || {
        let _step = trace_span!("step").entered();
        for _ in 0..3 {
            trace_span!("part").in_scope(|| busy(Duration::from_micros(500)));
        }
    });
    // Five pairs take 17.5 steps of 1.5 ms at the least, of which a twentieth is 1.3 ms. The rest is for a busy machine.
    let delayed: Vec<&PerturbationRecord> = batch.perturbations.iter().filter(|p| p.delayed).collect();
    assert!(delayed.len() >= 5, "{delayed:?}");
    assert!(delayed.iter().all(|p| (1_200_000..500_000_000).contains(&p.added_ns)), "{delayed:?}");
    assert!(delayed.iter().all(|p| p.intervals == 3), "each interval gets its part: {delayed:?}");
    let added: u64 = delayed.iter().map(|p| p.added_ns).sum();
    let longest = delayed.iter().map(|p| p.added_ns).max().unwrap_or_default();
    let allowed = began.elapsed().as_nanos() as f64 * 0.05;
    assert!(((added - longest) as f64) < 1.001 * allowed, "{added} with {longest} at once, of {allowed}");
}

#[test]
fn steps_of_a_capture_are_recorded_whatever_is_tried() {
    let _alone = alone();
    let (memory, all) = (MemoryExporter::new(), MemoryExporter::new());
    let (layer, session) = Session::builder().exporter(all.clone()).start().expect("starts");
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    let handle = session.handle().clone();
    let part = "path=step:+10us".parse().expect("valid");
    handle.perturb(&Perturb::new([part]).budget(1.0).step("step").pairs(1_000)).expect("begins");
    // Long enough that another program which takes the processor for some milliseconds does not look like the window.
    let step = || trace_span!("step").in_scope(|| busy(Duration::from_millis(1)));
    (0..50).for_each(|_| step());
    let capture = handle.capture(memory.clone(), 40).expect("begins");
    (0..60).for_each(|_| step());
    let run = capture.wait(Duration::from_secs(20)).expect("written");
    assert_eq!((run.counts["steps"], memory.batch().steps.len()), (40, 40));
    handle.end_perturbing();
    (0..3).for_each(|_| step());
    handle.flush(Duration::from_secs(5)).expect("flushes");
    let before = handle.stats().steps.perturbed;
    assert!(before > 0);
    (0..20).for_each(|_| step());
    assert_eq!(session.finish().steps.expect("counted").perturbed, before, "none after its end");
    // No stretch lasts as long as the window that came in between, of forty steps.
    let periods: Vec<u64> = all.batch().perturbations.iter().filter_map(|stretch| stretch.period_ns).collect();
    let mut sorted = periods.clone();
    sorted.sort_unstable();
    assert!(periods.iter().all(|ns| *ns < 20 * sorted[sorted.len() / 2]), "{sorted:?}");
}

#[test]
fn experiments_follow_one_another_and_each_keeps_its_rows() {
    let _alone = alone();
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    let handle = session.handle().clone();
    let asked = |amount: &str| {
        Perturb::new([format!("path=step/part:+{amount}").parse().expect("valid")]).budget(1.0).pairs(5).step("step")
    };
    let made = std::cell::Cell::new(0);
    let step = || {
        trace_span!("step").in_scope(|| trace_span!("part").in_scope(|| busy(Duration::from_micros(50))));
        made.set(made.get() + 1);
    };
    let over_after = ["100us", "300us"].map(|amount| {
        handle.perturb(&asked(amount)).expect("the one before is over");
        // Without a pause: the drain has not taken the last rows of one when the next begins.
        (0..1_000).take_while(|_| handle.perturbing().running).for_each(|_| step());
        assert!(!handle.perturbing().running, "{amount}");
        made.get()
    });
    step();
    // One that is only prepared does nothing.
    let so_far = {
        handle.flush(Duration::from_secs(5)).expect("flushes");
        handle.stats().steps.perturbed
    };
    handle.prepare_perturbing(&asked("100us")).expect("prepared");
    (0..50).for_each(|_| step());
    // Off, nothing is tried either.
    handle.begin_perturbing().expect("prepared");
    handle.stop();
    (0..50).for_each(|_| step());
    assert_eq!(session.finish().steps.expect("counted").perturbed, so_far);
    let rows = memory.batch().perturbations;
    // Told apart by when they were made: how much a busy machine added to a delay has no upper bound.
    let of = |steps: std::ops::Range<u64>, least_ns: u64| {
        let delayed = rows.iter().filter(|row| row.delayed && steps.contains(&row.step) && row.added_ns >= least_ns);
        delayed.map(|row| row.pair).collect::<std::collections::BTreeSet<u64>>()
    };
    let (first, second) = (of(0..over_after[0], 100_000), of(over_after[0]..over_after[1], 300_000));
    assert!(first.len() >= 5 && second.len() >= 5, "{over_after:?} {rows:?}");
    assert!(first.is_disjoint(&second), "pairs of one are no pairs of the other");
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let _alone = alone();
    let (layer, session) = Session::builder().start().expect("starts");
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    let handle = session.handle().clone();
    let host = || "path=a@host:+5%".parse().expect("valid");
    let device = "path=a@device:+5%".parse().expect("valid");
    let refused = |asked: Perturb| handle.perturb(&asked).expect_err("refused");
    assert_eq!(refused(Perturb::new([])), PerturbRefused::Nothing);
    assert_eq!(refused(Perturb::new([device])), PerturbRefused::Nothing, "GPU time is not taken");
    assert!(matches!(refused(Perturb::new([host()]).budget(0.0)), PerturbRefused::Budget(_)));
    assert!(matches!(refused(Perturb::new([host()]).budget(f64::NAN)), PerturbRefused::Budget(_)));
    assert_eq!(refused(Perturb::new([host()]).pairs(0)), PerturbRefused::NoPairs);
    assert_eq!(refused(Perturb::new([host(), host()])), PerturbRefused::Twice("path=a".into()));
    assert_eq!(
        refused(Perturb::new((0..65).map(|n| format!("path=a{n}:+5%").parse().expect("valid")))),
        PerturbRefused::TooMany { asked: 65 }
    );
    handle.perturb(&Perturb::new([host()])).expect("begins");
    assert_eq!(refused(Perturb::new([host()])), PerturbRefused::Busy);
    handle.end_perturbing();
    handle.perturb(&Perturb::new([host()])).expect("the one before has ended");
    session.finish();
    assert_eq!(refused(Perturb::new([host()])), PerturbRefused::Ended);
    assert!(matches!("path=a:+5%".parse().map(|p: candlescope_core::Perturbation| p.delay), Ok(Delay::Share(_))));
}
