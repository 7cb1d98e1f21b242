//! Control, loss, failing exporters, shutdown.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::run::RunManifest;
use candlescope_core::*;
use candlescope_testkit::{SOON, wait_until};
use common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

fn steps(n: usize) {
    let (step, inner) = (trace_span!("step"), trace_span!("inner"));
    for _ in 0..n {
        let _s = step.enter();
        inner.in_scope(|| ());
    }
}

fn recorded_steps(batch: &Batch) -> Vec<u64> {
    let mut steps: Vec<u64> = batch.steps.iter().map(|s| s.step).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn schedules_take_effect_at_steps() {
    let schedule = Schedule { skip_first: 2, wait: 1, warmup: 1, active: 2, repeat: 2 };
    let (batch, m) = record(Session::builder().schedule(schedule), |_| steps(20));
    assert_eq!(recorded_steps(&batch), [4, 5, 8, 9]);
    assert_eq!(batch.spans.len(), 8);
    assert_conserved(&m);
}

#[test]
fn start_stop_and_capture_next_take_effect_at_steps() {
    let (batch, m) = record(Session::builder().paused(true), |handle| {
        steps(3); // 0..3: off
        handle.capture_next(2).unwrap();
        assert_eq!(handle.capture_next(1), Err(CaptureBusy { remaining: 2 }));
        steps(4); // 3..7: two of them
        handle.start();
        let (step, inner) = (trace_span!("step"), trace_span!("inner"));
        {
            let _s = step.enter(); // 7: on
            handle.stop(); // not before the step ends
            inner.in_scope(|| ());
        }
        {
            let _s = step.enter(); // 8: off
            handle.start();
            inner.in_scope(|| ());
        }
        steps(1); // 9: on
    });
    assert_eq!(recorded_steps(&batch), [3, 4, 7, 9]);
    assert_eq!(batch.spans.len(), 8);
    assert!(m.verdict.ok, "{:?}", m.verdict);
    assert_conserved(&m);
}

#[test]
fn a_full_ring_takes_an_interval_with_all_it_says_or_not_at_all() {
    // Each step states its own number: in both halves of an annotation, in one, or in none. In this order, a ring of
    // 256 has room for two records when an interval with three comes.
    let say = |i: u64| match i % 5 {
        0 => Annotation::new(),
        1 | 2 => Annotation::new().io_bytes(i).tokens(i as usize),
        3 => Annotation::new().io_bytes(i),
        _ => Annotation::new().tokens(i as usize),
    };
    let (batch, m) = record(tight(), |handle| {
        let step = trace_span!("step");
        for round in 0..3 {
            for i in 0..200 {
                step.in_scope(|| annotate(say(200 * round + i)));
            }
            handle.flush(Duration::from_secs(10)).unwrap();
        }
    });
    assert_conserved(&m);
    assert!(m.loss.ring_full > 200, "{:?}", m.loss);
    assert!(batch.spans.len() > 300);
    let first = batch.spans.iter().map(|s| s.seq).min().unwrap();
    for (span, step) in batch.spans.iter().zip(&batch.steps) {
        let said = say(span.seq - first);
        assert_eq!((span.io_bytes, span.tokens), (said.get_io_bytes(), said.get_tokens()), "{}", span.seq);
        assert_eq!((step.io_bytes, step.tokens), (span.io_bytes, span.tokens));
    }
}

#[test]
fn a_paused_session_makes_no_complaint() {
    let (batch, m) = record(Session::builder().paused(true), |_| steps(3));
    assert!(batch.is_empty());
    assert!(m.verdict.ok);
    assert_eq!(m.loss.emitted, 0);
}

#[test]
fn what_a_step_inside_another_lost_is_counted_once() {
    let (batch, m) = record(tight(), |_| {
        let (outer, inner) = (trace_span!("outer"), trace_span!("inner"));
        let many = |n| (0..n).for_each(|_| inner.in_scope(|| ()));
        let _outer = outer.enter();
        many(300);
        {
            let _decode = llm::decode(llm::Tokens::new(1).context(1));
            many(500);
        }
        many(700);
    });
    let of = |name: &str| batch.steps.iter().find(|s| &*s.path.name == name).expect("a step");
    assert_eq!((made(of("outer")), made(of("decode"))), (1_001, 501));
    assert_eq!(of("decode").intervals_lost, Some(500));
    assert_eq!(batch.steps.iter().map(lost).sum::<u64>(), m.loss.ring_full);
}

#[test]
fn a_step_that_lost_more_than_it_can_count_says_that_many() {
    let (batch, m) = record(tight(), |_| {
        let (step, inner) = (trace_span!("step"), trace_span!("inner"));
        let _step = step.enter();
        (0..70_000).for_each(|_| inner.in_scope(|| ()));
    });
    assert_eq!(batch.steps[0].intervals_lost, Some(65_535));
    assert!(m.loss.ring_full > 65_535);
}

#[test]
fn a_full_ring_drops_the_newest_counts_it_and_keeps_the_steps() {
    const N: usize = 5_000;
    let (batch, m) = record(tight(), |_| {
        let (step, inner) = (trace_span!("step"), trace_span!("inner"));
        for _ in 0..3 {
            let _s = step.enter();
            for _ in 0..N {
                inner.in_scope(|| ());
            }
        }
    });
    assert_eq!(m.loss.emitted, 3 * N as u64 + 3);
    assert!(m.loss.ring_full > 0);
    assert_eq!(batch.steps.len(), 3, "steps have slots of their own");
    // Each step says how many intervals it lacks.
    assert!(batch.steps.iter().all(|s| made(s) == N as u64 + 1), "{:?}", batch.steps);
    assert_eq!(batch.steps.iter().map(lost).sum::<u64>(), m.loss.ring_full);
    assert!(m.verdict.findings.iter().any(|f| f.code == "ring_full"), "{:?}", m.verdict);
    assert!(!m.verdict.ok);
    assert_conserved(&m);
}

#[test]
fn many_threads_at_full_speed_lose_nothing_that_is_not_counted() {
    let (batch, m) = record(Session::builder().ring_capacity(1024), |_| {
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| tracing::dispatcher::with_default(&dispatch, || steps(20_000)));
            }
        });
    });
    assert_eq!(m.loss.emitted, 8 * 20_000 * 2);
    assert_eq!(batch.spans.len() as u64, m.counts["spans"]);
    assert_conserved(&m);
}

/// An exporter that misbehaves as `how` says.
struct Awkward {
    how: How,
    calls: Arc<AtomicUsize>,
    /// Whether the program has ended all its steps.
    over: Arc<AtomicBool>,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Its first call lasts until the program has ended all its steps.
    Held,
    Fail,
    FailForGood,
    Panic,
    Silent,
    Hang,
}

impl Exporter for Awkward {
    fn name(&self) -> &'static str {
        "awkward"
    }
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.how {
            How::Held => {
                wait_until(|| self.over.load(Ordering::SeqCst), "the program goes on meanwhile");
                ledger.exported_batch(batch);
                Ok(())
            }
            How::Fail => {
                ledger.dropped_batch(batch, DropReason::Io);
                Err(ExportError::new("the disk is on fire"))
            }
            How::FailForGood => {
                ledger.dropped_batch(batch, DropReason::Io);
                Err(ExportError::fatal("gone"))
            }
            How::Panic => panic!("exporter bug"),
            How::Silent => Ok(()),
            How::Hang => loop {
                std::thread::sleep(Duration::from_secs(1));
            },
        }
    }
}

fn with_awkward(how: How, builder: SessionBuilder) -> RunManifest {
    let awkward = Awkward { how, calls: Arc::default(), over: Arc::default() };
    let (calls, over) = (awkward.calls.clone(), awkward.over.clone());
    let memory = MemoryExporter::new();
    let (layer, session) = builder.exporter(awkward).exporter(memory.clone()).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for round in 1..=10 {
            steps(100);
            // So that each round is a batch of its own, and the exporter has the first one before others come.
            let all = || memory.batch().steps.len() == round * 100 && calls.load(Ordering::SeqCst) > 0;
            wait_until(all, "the records of the round have arrived");
        }
    });
    over.store(true, Ordering::SeqCst);
    let manifest = session.finish();
    assert_conserved(&manifest);
    let memory_report = manifest.exporters.iter().find(|e| e.name == "memory").unwrap();
    assert_eq!(memory_report.exported["spans"], 2_000, "the other exporter is not affected");
    manifest
}

fn dropped(m: &RunManifest) -> BTreeMap<String, u64> {
    m.exporters.iter().find(|e| e.name == "awkward").unwrap().dropped.get("spans").cloned().unwrap_or_default()
}

fn fast() -> SessionBuilder {
    Session::builder().drain_interval(Duration::from_millis(1))
}

#[test]
fn a_slow_exporter_delays_nobody_and_its_loss_is_counted() {
    let m = with_awkward(How::Held, fast().queue_records(800).shutdown_timeout(Duration::from_secs(20)));
    // If the program had waited for the exporter, which waits for the program, nothing would have been dropped.
    assert!(dropped(&m)["queue_full"] > 0, "{m:?}");
    assert!(m.verdict.findings.iter().any(|f| f.code == "exporter_dropped" && f.message().contains("queue_full")));
}

#[test]
fn a_program_that_failed_is_not_ok() {
    let run = |error: Option<&str>| {
        let (_, m) = record(fast(), |handle| {
            steps(3);
            handle.set_result("tokens", 3);
            if let Some(error) = error {
                handle.set_result("error", error);
            }
        });
        m
    };
    let failed = |m: &RunManifest| m.verdict.findings.iter().find(|f| f.code == "program_failed").cloned();
    let fine = run(None);
    assert!(fine.verdict.ok && failed(&fine).is_none(), "{:?}", fine.verdict);
    let broken = run(Some("output token 3: out of memory"));
    assert!(!broken.verdict.ok);
    assert!(failed(&broken).unwrap().message().contains("output token 3: out of memory"));
}

#[test]
fn a_failing_exporter_is_reported() {
    let m = with_awkward(How::Fail, fast());
    assert_eq!(dropped(&m), BTreeMap::from([("io".into(), 2_000)]));
    assert!(m.verdict.findings.iter().any(|f| f.message().contains("the disk is on fire")));
}

#[test]
fn an_exporter_that_fails_for_good_or_panics_gets_no_more() {
    for how in [How::FailForGood, How::Panic] {
        let m = with_awkward(how, fast());
        let dropped = dropped(&m);
        assert!(dropped["dead"] > 0, "{dropped:?}");
        assert_eq!(dropped.values().sum::<u64>(), 2_000);
        assert!(!m.verdict.ok);
    }
}

#[test]
fn an_exporter_that_says_nothing_is_found_out() {
    let m = with_awkward(How::Silent, fast());
    assert_eq!(dropped(&m), BTreeMap::from([("unaccounted".into(), 2_000)]));
}

#[test]
fn a_hanging_exporter_cannot_hold_up_the_end() {
    let begin = Instant::now();
    let m = with_awkward(How::Hang, fast().shutdown_timeout(Duration::from_millis(500)));
    assert!(begin.elapsed() < SOON);
    assert!(dropped(&m)["shutdown"] > 0);
    assert!(m.verdict.findings.iter().any(|f| f.code == "exporter_unresponsive"));
}

#[test]
fn flush_makes_records_visible_and_times_out_honestly() {
    let memory = MemoryExporter::new();
    let (layer, session) =
        Session::builder().drain_interval(Duration::from_secs(3600)).exporter(memory.clone()).start().unwrap();
    let mut live = None;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        steps(10);
        assert!(memory.batch().is_empty());
        session.handle().flush(Duration::from_secs(5)).unwrap();
        assert_eq!(memory.batch().spans.len(), 20);
        let stats = session.handle().stats();
        assert_eq!(stats.counts[&RecordKind::Span], 20);
        live = stats.overhead_ratio;
    });
    let end = session.finish().overhead.ratio;
    assert!(live == end && end.is_some_and(|ratio| ratio > 0.0), "nothing happened in between: {live:?} and {end:?}");

    let hang = Awkward { how: How::Hang, calls: Arc::default(), over: Arc::default() };
    let (layer, session) =
        Session::builder().exporter(hang).shutdown_timeout(Duration::from_millis(100)).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || steps(1));
    let timeout = Duration::from_millis(100);
    assert_eq!(session.handle().flush(timeout), Err(FlushError::Timeout { timeout, waiting: 1 }));
}

#[test]
fn an_exporter_that_cannot_start_is_named() {
    struct Refuses;
    impl Exporter for Refuses {
        fn name(&self) -> &'static str {
            "refuses"
        }
        fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
            Err(ExportError::fatal("directory /x is not writable: choose another"))
        }
        fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
            Ok(())
        }
    }
    let error = Session::builder().exporter(Refuses).start().unwrap_err().to_string();
    assert_eq!(error, "the refuses exporter cannot start: directory /x is not writable: choose another");
    let error = Session::builder().ring_capacity(5).start().unwrap_err().to_string();
    assert!(error.contains("ring_capacity is 5"));
}

#[test]
fn an_exporter_can_ask_how_its_session_stands() {
    /// Notes how many steps it sees at the start and at each flush.
    #[derive(Clone, Default)]
    struct Asks(SessionStats, Arc<Mutex<Vec<Option<u64>>>>);
    impl Asks {
        fn ask(&self) {
            let steps = self.0.get().map(|stats| stats.counts[&RecordKind::Step]);
            self.1.lock().expect("whole").push(steps);
        }
    }
    impl Exporter for Asks {
        fn name(&self) -> &'static str {
            "asks"
        }
        fn attach(&mut self, session: &SessionStats) {
            self.0 = session.clone();
        }
        fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
            self.ask();
            Ok(())
        }
        fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
            ledger.exported_batch(batch);
            Ok(())
        }
        fn flush(&mut self, _: &Ledger) -> Result<(), ExportError> {
            self.ask();
            Ok(())
        }
    }
    let (own, captured) = (Asks::default(), Asks::default());
    record(Session::builder().exporter(own.clone()), |handle| {
        steps(3);
        handle.flush(Duration::from_secs(20)).expect("flushes");
        let capture = handle.capture(captured.clone(), 1).expect("begins");
        capture.end();
        capture.wait(Duration::from_secs(20)).expect("written");
    });
    let asked = |asks: &Asks| asks.1.lock().expect("whole").clone();
    assert_eq!(asked(&own), [None, Some(3)], "there is no session before it has started");
    assert_eq!(asked(&captured), [Some(3)], "of a capture there is one: the one that goes on");
}

/// What an exporter keeps is not in its queue, from which alone records are dropped.
#[test]
fn what_an_exporter_keeps_is_not_in_its_queue() {
    /// Takes everything at once and accounts for it only at the end, as one that fills a segment does.
    #[derive(Clone, Default)]
    struct Keeps {
        /// Whether it works on a batch for as long as it is told to.
        hold: Arc<AtomicBool>,
    }
    impl Exporter for Keeps {
        fn name(&self) -> &'static str {
            "keeps"
        }
        fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
            while self.hold.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
        fn close(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
            for kind in RecordKind::ALL {
                ledger.exported(kind, ledger.pending(kind));
            }
            Ok(())
        }
    }
    let keeps = Keeps::default();
    let hold = keeps.hold.clone();
    let builder = Session::builder().queue_records(1_000).exporter(keeps);
    let (_, m) = record(builder, |handle| {
        let queue = || handle.stats().queues.into_iter().find(|queue| queue.exporter == "keeps").expect("its queue");
        assert_eq!((queue().queued, queue().limit), (0, 1_000));
        steps(10);
        handle.flush(SOON).expect("flushes");
        let account = handle.stats().exporters.into_iter().find(|exporter| exporter.name == "keeps");
        let account = account.expect("its account");
        assert_eq!((account.received["spans"], account.exported["spans"]), (20, 0), "it has settled nothing");
        assert_eq!(queue().queued, 0, "and has taken everything");
        hold.store(true, Ordering::Relaxed);
        steps(1);
        wait_until(|| queue().queued > 0, "it works on a batch");
        hold.store(false, Ordering::Relaxed);
        handle.flush(SOON).expect("flushes");
        assert_eq!(queue().queued, 0);
    });
    assert_conserved(&m);
}

#[test]
fn a_failure_at_the_very_end_is_not_swallowed() {
    struct Forgetful;
    impl Exporter for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }
        fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
            ledger.exported_batch(batch);
            Ok(())
        }
        fn finish(&mut self, run: &RunManifest) -> Result<(), ExportError> {
            assert!(run.verdict.ok);
            Err(ExportError::fatal("cannot write run.json: disk full"))
        }
    }
    let (layer, session) = Session::builder().exporter(Forgetful).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || steps(2));
    let m = session.finish();
    assert!(!m.verdict.ok);
    assert!(m.verdict.findings.iter().any(|f| f.code == "exporter_finish_failed" && f.message().contains("disk full")));
    assert_conserved(&m);
}

#[test]
fn work_after_the_end_is_harmless() {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        steps(2);
        let step = trace_span!("under way");
        let _s = step.enter();
        let handle = session.handle().clone();
        let m = session.finish();
        assert_eq!(m.loss.open_at_end, 1);
        steps(1_000_000 / 16);
        assert_eq!(handle.flush(Duration::from_secs(1)), Ok(()));
        handle.start();
    });
    assert_eq!(memory.batch().spans.len(), 4);
}

#[test]
fn taps_balance_and_see_names_first() {
    #[derive(Default)]
    struct Counting {
        depth: AtomicUsize,
        seen: AtomicUsize,
        named: AtomicUsize,
        unknown: AtomicBool,
    }
    struct Shared(Arc<Counting>);
    impl Tap for Shared {
        fn name(&self, id: u32, _: &str, _: &str) {
            self.0.named.fetch_max(id as usize, Ordering::SeqCst);
        }
        fn enter(&self, i: TapInterval) {
            self.0.seen.fetch_add(1, Ordering::SeqCst);
            if i.name as usize > self.0.named.load(Ordering::SeqCst) {
                self.0.unknown.store(true, Ordering::SeqCst);
            }
            assert_eq!(self.0.depth.fetch_add(1, Ordering::SeqCst), i.depth as usize);
        }
        fn exit(&self, i: TapInterval) {
            assert_eq!(self.0.depth.fetch_sub(1, Ordering::SeqCst), i.depth as usize + 1);
        }
    }
    let tap = Arc::new(Counting::default());
    let schedule = Schedule { skip_first: 0, wait: 1, warmup: 0, active: 1, repeat: 0 };
    let (batch, _) = record(Session::builder().schedule(schedule).tap(Shared(tap.clone())), |_| steps(10));
    assert_eq!(tap.seen.load(Ordering::SeqCst), batch.spans.len());
    assert_eq!(batch.spans.len(), 10);
    assert_eq!(tap.depth.load(Ordering::SeqCst), 0);
    assert!(!tap.unknown.load(Ordering::SeqCst));
}

/// A tap that is slow to learn a name and makes a span of its own meanwhile.
#[derive(Default)]
struct Slow {
    known: Mutex<BTreeSet<u32>>,
    unknown: AtomicUsize,
    entered: AtomicUsize,
}

struct SlowTap(Arc<Slow>);

impl Tap for SlowTap {
    fn name(&self, id: u32, _: &str, _: &str) {
        let _own = trace_span!("own");
        std::thread::sleep(Duration::from_millis(5));
        self.0.known.lock().unwrap().insert(id);
    }
    fn enter(&self, i: TapInterval) {
        let known = self.0.known.lock().unwrap().contains(&i.name);
        self.0.unknown.fetch_add(usize::from(!known), Ordering::SeqCst);
        self.0.entered.fetch_add(1, Ordering::SeqCst);
    }
    fn exit(&self, _: TapInterval) {}
}

#[test]
fn a_tap_knows_every_name_before_any_thread_uses_it() {
    let slow = Arc::new(Slow::default());
    let start = std::sync::Barrier::new(4);
    let (batch, _) = record(Session::builder().tap(SlowTap(slow.clone())), |_| {
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || {
                        start.wait();
                        trace_span!("first").in_scope(|| trace_span!("second").in_scope(|| ()));
                    });
                });
            }
        });
    });
    assert_eq!((slow.entered.load(Ordering::SeqCst), slow.unknown.load(Ordering::SeqCst)), (8, 0));
    assert!(batch.spans.iter().all(|s| ["first", "second"].contains(&&*s.path.name)), "{:?}", paths(&batch));
}

#[test]
fn a_hanging_collector_costs_its_samples_and_nothing_else() {
    struct Hangs;
    impl Collector for Hangs {
        fn name(&self) -> &'static str {
            "hangs"
        }
        fn period(&self) -> Duration {
            Duration::MAX
        }
        fn sample(&mut self, _: &mut Samples<'_>) -> Result<(), CollectError> {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
    let begin = Instant::now();
    let builder = Session::builder().collector(Hangs).shutdown_timeout(Duration::from_secs(2));
    let (batch, m) = record(builder, |_| steps(10));
    assert!(begin.elapsed() < SOON);
    assert_eq!(batch.spans.len(), 20);
    assert!(m.complete);
    assert!(m.verdict.findings.iter().any(|f| f.code == "collector_unresponsive"));
    assert_conserved(&m);
}

#[test]
fn timeouts_beyond_all_time_are_fine() {
    let (batch, _) = record(Session::builder().shutdown_timeout(Duration::MAX), |handle| {
        steps(1);
        handle.flush(Duration::MAX).unwrap();
    });
    assert_eq!(batch.spans.len(), 2);
    let action = Schedule { skip_first: 0, wait: u64::MAX, warmup: 1, active: u64::MAX, repeat: 1 }.action(5);
    assert_eq!(action, StepAction::Skip);
}

#[test]
fn flush_says_so_when_an_exporter_is_dead() {
    let dead = Awkward { how: How::FailForGood, calls: Arc::default(), over: Arc::default() };
    let (layer, session) = fast().exporter(dead).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        steps(1);
        let _ = session.handle().flush(Duration::from_secs(5));
        assert_eq!(session.handle().flush(Duration::from_secs(5)), Err(FlushError::Failed { exporters: 1 }));
    });
}

#[test]
fn a_window_is_used_up_by_steps_that_are_recorded_anyway() {
    let (batch, _) = record(Session::builder(), |handle| {
        handle.capture_next(2).unwrap();
        steps(2);
        handle.stop();
        steps(3);
    });
    assert_eq!(recorded_steps(&batch), [0, 1]);
}

#[test]
fn requests_outside_of_capture_are_not_recorded_and_open_ones_are_named() {
    let (batch, m) = record(Session::builder(), |handle| {
        drop(llm::Request::new("chat", "recorded"));
        handle.stop();
        drop(llm::Request::new("chat", "not recorded"));
        handle.start();
        std::mem::forget(llm::Request::new("chat", "never ends"));
    });
    assert_eq!(batch.requests.iter().map(|r| &*r.model).collect::<Vec<_>>(), ["recorded"]);
    assert_eq!(m.loss.requests_open_at_end, 1);
    assert!(m.verdict.findings.iter().any(|f| f.code == "requests_open"));
}

#[test]
fn steps_inside_steps_count_once_for_the_overhead() {
    let (batch, m) = record(Session::builder(), |_| {
        let _outer = trace_span!("handler").entered();
        let request = llm::Request::new("chat", "m");
        let _in_request = request.enter();
        for position in 1..4 {
            let _step = llm::decode(llm::Tokens::new(1).context(position));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(batch.steps.len(), 4);
    assert_eq!(batch.requests.len(), 1);
    let outer = batch.steps.iter().find(|s| s.phase.is_none()).unwrap().host_dur_ns as f64;
    let ratio = m.overhead.application_ns as f64 / outer;
    assert!((m.overhead.ratio.unwrap() / ratio - 1.0).abs() < 1e-6);
}

#[test]
fn threads_of_one_name_are_told_apart() {
    let (batch, _) = record(Session::builder(), |_| {
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        std::thread::scope(|s| {
            for _ in 0..3 {
                let dispatch = dispatch.clone();
                let thread = std::thread::Builder::new().name("worker".into());
                thread.spawn_scoped(s, move || tracing::dispatcher::with_default(&dispatch, || steps(2))).unwrap();
            }
        });
    });
    let names: std::collections::BTreeSet<_> = batch.spans.iter().map(|s| s.thread.name.to_string()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains("worker"));
}

#[test]
fn a_short_run_still_gets_a_sample_at_its_end() {
    struct Slow(Arc<AtomicUsize>);
    impl Collector for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        fn period(&self) -> Duration {
            Duration::from_secs(3600)
        }
        fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
            out.push(&"host".into(), "calls", self.0.fetch_add(1, Ordering::SeqCst) as f64, "count");
            Ok(())
        }
    }
    let calls = Arc::<AtomicUsize>::default();
    let (batch, _) = record(Session::builder().collector(Slow(calls.clone())), |_| {
        steps(1);
        wait_until(|| calls.load(Ordering::SeqCst) == 1, "the first sample is taken");
    });
    assert_eq!(batch.samples.iter().map(|s| s.value).collect::<Vec<_>>(), [0.0, 1.0]);
}

#[test]
fn collectors_sample_in_the_background_and_their_failure_is_a_finding() {
    struct Good(Arc<str>, Arc<AtomicUsize>);
    impl Collector for Good {
        fn name(&self) -> &'static str {
            "good"
        }
        fn period(&self) -> Duration {
            Duration::from_millis(2)
        }
        fn describe(&mut self) -> BTreeMap<String, serde_json::Value> {
            BTreeMap::from([("colour".into(), "blue".into())])
        }
        fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
            assert_eq!(std::thread::current().name(), Some("cs-collect"));
            out.push(&self.0, "answer", 42.0, "count");
            out.push(&self.0, "nothing", f64::NAN, "count");
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    struct Bad;
    impl Collector for Bad {
        fn name(&self) -> &'static str {
            "bad"
        }
        fn period(&self) -> Duration {
            Duration::from_millis(2)
        }
        fn sample(&mut self, _: &mut Samples<'_>) -> Result<(), CollectError> {
            Err(CollectError("no such sensor".into()))
        }
    }
    let calls = Arc::<AtomicUsize>::default();
    let good = Good("host".into(), calls.clone());
    let (batch, m) = record(Session::builder().collector(good).collector(Bad), |_| {
        steps(1);
        wait_until(|| calls.load(Ordering::SeqCst) > 3, "several samples are taken");
    });
    assert!(batch.samples.len() > 3);
    assert!(batch.samples.iter().all(|s| s.metric == "answer" && s.value == 42.0));
    assert_eq!(m.environment["colour"], "blue");
    assert!(m.verdict.findings.iter().any(|f| f.code == "collector_failed" && f.message().contains("no such sensor")));
    assert!(m.overhead.background_cpu_ns.unwrap() > 0);
    assert!(m.overhead.per_interval_ns > 1.0 && m.overhead.per_interval_ns < 10_000.0);
}
