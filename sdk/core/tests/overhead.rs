//! The cost of recording, measured in place: plain steps beside recorded ones.
#![allow(missing_docs)]
mod common;

use candlescope_core::{MemoryExporter, Session, Tap, TapInterval};
use common::record;
use std::time::{Duration, Instant};
use tracing::trace_span;

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Makes every recorded interval longer by a known time.
struct Dear(Duration);

impl Tap for Dear {
    fn name(&self, _: u32, _: &str, _: &str) {}
    fn enter(&self, _: TapInterval) {
        spin(self.0);
    }
    fn exit(&self, _: TapInterval) {}
}

/// Steps of ten intervals, each of which works for `work`.
fn steps(name: &'static str, n: usize, work: Duration) {
    let step = if name == "prefill" { trace_span!("prefill") } else { trace_span!("decode") };
    let layer = trace_span!("layer");
    for _ in 0..n {
        let _step = step.enter();
        (0..10).for_each(|_| layer.in_scope(|| spin(work)));
    }
}

#[test]
fn a_known_cost_is_measured_in_place() {
    // 30 µs for each of ten intervals of 100 µs: recording takes 30 %.
    let builder = Session::builder().tap(Dear(Duration::from_micros(30))).overhead_probe(4);
    let (batch, m) = record(builder, |_| steps("decode", 403, Duration::from_micros(100)));
    let overhead = &m.overhead;
    let in_place = overhead.in_place.as_ref().expect("measured");
    assert_eq!((overhead.estimate.as_str(), in_place.left_plain), ("in_place", 100));
    // If two plain steps follow each other, the first may have none to be compared with.
    assert!((80..=100).contains(&in_place.n_plain) && in_place.n_plain == in_place.n_recorded, "{in_place:?}");
    assert!((0.22..0.40).contains(&in_place.ratio), "{in_place:?}");
    let (low, high) = (in_place.low.expect("an interval"), in_place.high.expect("an interval"));
    assert!(low > 0.1 && low <= in_place.ratio && in_place.ratio <= high, "{in_place:?}");
    assert_eq!(in_place.kinds["decode"].n_plain, in_place.n_plain);
    // The loop's estimate does not include the tap.
    assert!(overhead.ratio.expect("steps ran") < 0.1, "{overhead:?}");
    let counts = m.steps.expect("counted");
    assert_eq!((counts.begun, counts.recorded, counts.left_plain, counts.scheduled_out), (403, 303, 100, 0));
    // Plain steps have no rows, and their numbers are missing.
    assert_eq!((batch.steps.len(), batch.spans.len()), (303, 303 * 11));
    let numbers: std::collections::BTreeSet<u64> = batch.steps.iter().map(|s| s.step).collect();
    assert_eq!((numbers.len(), m.loss.lost()), (303, 0));
    assert!((0..3).all(|n| numbers.contains(&n)), "the first are cold");
    assert!(m.verdict.ok, "{:?}", m.verdict);
    common::assert_conserved(&m);
    // It is read back as it was written, except for the last digit of a number.
    let text = serde_json::to_string(&m).expect("JSON");
    let back = serde_json::from_str::<candlescope_core::run::RunManifest>(&text).expect("reads");
    let read = back.overhead.in_place.as_ref().expect("there");
    assert_eq!((read.left_plain, read.n_plain, read.n_recorded), (100, in_place.n_plain, in_place.n_recorded));
    assert_eq!((read.kinds.len(), back.steps), (1, m.steps));
    assert!((read.ratio - in_place.ratio).abs() < 1e-12 && read.low.is_some() && read.high.is_some(), "{read:?}");
}

#[test]
fn a_budget_is_held_by_leaving_steps_out() {
    // Recording takes 30 %, and may take 5.
    let builder = Session::builder().tap(Dear(Duration::from_micros(30))).cost(0.05);
    let (batch, m) = record(builder, |_| steps("decode", 3000, Duration::from_micros(100)));
    let budget = m.overhead.budget.expect("a budget");
    let in_place = m.overhead.in_place.as_ref().expect("measured");
    let counts = m.steps.expect("counted");
    assert_eq!((counts.begun, counts.recorded), (3000, batch.steps.len() as u64));
    assert_eq!(counts.recorded + counts.scheduled_out + counts.left_plain, 3000, "{counts:?}");
    // A sixth, and what was recorded before that was known; where the interval is wide, much less is.
    assert!((0.01..0.4).contains(&budget.kept), "{budget:?}");
    assert!((0.15..0.5).contains(&in_place.ratio), "{in_place:?}");
    let ratio = budget.ratio.expect("measured");
    let taken = budget.kept * in_place.ratio;
    assert!((ratio - taken / (1.0 + taken)).abs() < 1e-9 && ratio < 0.1, "{budget:?}");
    assert!(budget.low <= budget.ratio && budget.ratio <= budget.high, "{budget:?}");
    // What is left is in blocks: most steps have a neighbour.
    let numbers: std::collections::BTreeSet<u64> = batch.steps.iter().map(|s| s.step).collect();
    let beside = numbers.iter().filter(|n| numbers.contains(&(*n + 1))).count();
    assert!(beside * 2 > numbers.len(), "{beside} of {}", numbers.len());
    assert!(m.verdict.ok, "{:?}", m.verdict);
    common::assert_conserved(&m);
    // A session that costs next to nothing records everything.
    let (batch, m) = record(Session::builder().cost(0.9), |_| steps("decode", 300, Duration::from_micros(20)));
    let budget = m.overhead.budget.expect("a budget");
    assert!(budget.held == Some(true) && budget.kept > 0.7, "{budget:?}");
    assert_eq!(m.steps.map(|steps| (steps.scheduled_out, steps.recorded)), Some((0, batch.steps.len() as u64)));
    for nonsense in [0.0, -1.0, 1.5, f64::NAN] {
        let error = Session::builder().cost(nonsense).start().expect_err("refused").to_string();
        assert!(error.contains("above 0 and up to 1"), "{error}");
    }
}

#[test]
fn each_thread_has_its_steps_in_a_row_under_a_budget() {
    let builder = Session::builder().tap(Dear(Duration::from_micros(30))).cost(0.05);
    let (batch, m) = record(builder, |_| {
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let work = || {
            tracing::dispatcher::with_default(&subscriber, || steps("decode", 1500, Duration::from_micros(60)));
        };
        std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(work)));
    });
    let counts = m.steps.expect("counted");
    assert!(counts.budgeted && counts.begun == 3000 && counts.scheduled_out > 1000, "{counts:?}");
    assert!(counts.to_string().contains("left out by the budget"), "{counts}");
    // The steps of a thread after one another: the gap to the next is that of a step or of a few that are left out.
    let mut by_thread = std::collections::BTreeMap::<u32, Vec<i64>>::new();
    for step in &batch.steps {
        by_thread.entry(step.thread.index).or_default().push(step.host_start.0);
    }
    assert_eq!(by_thread.len(), 2);
    for mut starts in by_thread.into_values() {
        starts.sort_unstable();
        let near = starts.windows(2).filter(|pair| pair[1] - pair[0] < 4_000_000).count();
        assert!(near * 2 > starts.len(), "{near} of {}", starts.len());
    }
}

#[test]
fn where_nothing_was_left_plain_it_says_that_a_loop_is_the_estimate() {
    let (batch, m) = record(Session::builder(), |_| steps("decode", 20, Duration::ZERO));
    assert_eq!((batch.steps.len(), m.overhead.estimate.as_str(), &m.overhead.in_place), (20, "loop", &None));
    let (batch, m) = record(Session::builder().overhead_probe(2), |_| steps("decode", 3, Duration::ZERO));
    assert_eq!((batch.steps.len(), m.overhead.estimate.as_str(), &m.overhead.in_place), (3, "loop", &None));
    let error = Session::builder().overhead_probe(1).start().expect_err("refused");
    assert!(error.to_string().contains("at least 2"), "{error}");
}

#[test]
fn a_window_that_was_asked_for_has_all_its_steps() {
    let captured = MemoryExporter::new();
    let (batch, _) = record(Session::builder().overhead_probe(2), |handle| {
        steps("decode", 11, Duration::ZERO);
        let capture = handle.capture(captured.clone(), 20).expect("begins");
        steps("decode", 40, Duration::ZERO);
        capture.wait(Duration::from_secs(20)).expect("written");
    });
    assert_eq!(captured.batch().steps.len(), 20);
    assert!(batch.steps.len() > 31 && batch.steps.len() < 45, "{} of 51", batch.steps.len());
}

#[test]
fn a_window_has_steps_inside_a_plain_one_too() {
    let captured = MemoryExporter::new();
    let (_, m) = record(Session::builder().overhead_probe(2), |handle| {
        let around = trace_span!(target: "candle", "generate");
        let step = trace_span!("decode", candlescope.phase = "decode");
        let work = |n: usize| {
            (0..n).for_each(|_| {
                let _around = around.enter();
                (0..3).for_each(|_| step.in_scope(|| ()));
            });
        };
        work(5);
        // Opened inside a step that may be plain, repeatedly, until it was.
        for _ in 0..4 {
            let _around = around.enter();
            let capture = handle.capture(captured.clone(), 2).expect("begins");
            (0..3).for_each(|_| step.in_scope(|| ()));
            let run = capture.wait(Duration::from_secs(20)).expect("written");
            assert_eq!(run.steps.expect("counted").captured + run.steps.expect("counted").recorded, 2);
        }
    });
    let counts = m.steps.expect("counted");
    assert_eq!(counts.begun, counts.with_record() + counts.without_record() + counts.open_at_end, "{counts:?}");
}

#[test]
fn steps_inside_a_plain_one_are_part_of_it() {
    let (batch, m) = record(Session::builder().overhead_probe(2), |_| {
        let around = trace_span!(target: "candle", "generate");
        let step = trace_span!("decode", candlescope.phase = "decode");
        for _ in 0..43 {
            let _around = around.enter();
            (0..3).for_each(|_| step.in_scope(|| ()));
        }
    });
    let of = |name: &str| batch.steps.iter().filter(|s| &*s.path.name == name).count();
    assert_eq!((of("generate"), of("decode")), (23, 23 * 3), "all or nothing");
    let kinds = m.overhead.in_place.expect("measured").kinds;
    assert_eq!(kinds.keys().collect::<Vec<_>>(), ["generate"]);
    assert_eq!(m.loss.lost(), 0);
}
