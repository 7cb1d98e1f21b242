//! Replays that change nothing, or only take out the profiler.

use super::steps::{CALL, DELAY, GAP, Maker, WAKE, free, run_of, simulation};
use crate::common::write_run;
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_predict::simulation::{Replay, Simulation, SimulationOptions, TOLERANCE, parse_changes};
use candlescope_reader::{Limit, ReadLimits, Run};
use candlescope_schema::run::{InPlaceKind, InPlaceOverhead};
use proptest::prelude::*;

#[test]
fn an_unchanged_step_takes_what_was_measured() {
    let mut step = Maker::new();
    step.host(7_000);
    for at in 0..20 {
        step.enter("linear");
        step.host(1_500);
        step.launch("gemv", 500 + 400 * at, 1);
        step.leave();
    }
    step.fetch(700);
    step.host(3_000);
    let made = step.end();
    let simulation = free(&made);
    let group = &simulation.groups()[0];
    assert_eq!((group.name(), group.models().len()), ("decode", 3));
    for model in group.models() {
        let replay = Replay::of(model).unwrap();
        assert!((replay.seconds() * 1e9 - made.ns as f64).abs() < 1e-3, "{}", replay.seconds());
        assert_eq!((model.measured_ns(), model.kernels(), model.works()), (made.ns as f64, 20, 21));
    }
    let typical = group.typical().unwrap();
    assert!(typical.largest_error < 1e-9 && typical.inferred_waits == 0);
    assert!((typical.unobserved.seconds.mid * 1e9 - made.ns as f64).abs() < 1.0, "{:?}", typical.unobserved);
}

#[test]
fn what_recording_cost_is_taken_out_exactly() {
    // 30 intervals of 200 ns and 29 calls of 700 ns more than unobserved, in a step that the host bounds.
    let make = |interval, call| {
        let mut step = Maker::recorded(interval, call);
        for _ in 0..29 {
            step.enter("linear");
            step.host(3_000);
            step.launch("gemv", 800, 1);
            step.host(500);
            step.leave();
        }
        step.host(4_000);
        step.end()
    };
    let (plain, windowless, recorded) = (make(0, 0), make(200, 0), make(200, 700));
    assert_eq!(recorded.ns - windowless.ns, 29 * 700);
    let (batch, mut manifest) = run_of(&recorded, 3, 8, windowless.ns);
    // Two and a half times this is the cost in place.
    manifest.overhead.per_interval_ns = 80.0;
    let kind = InPlaceKind { n_plain: 9, ratio: windowless.ns as f64 / plain.ns as f64 - 1.0, ..Default::default() };
    manifest.overhead.in_place =
        Some(InPlaceOverhead { kinds: [("decode".to_string(), kind)].into(), ..Default::default() });
    let simulation = simulation(&batch, &manifest).unwrap();
    let typical = simulation.groups()[0].typical().unwrap();
    let unobserved = typical.unobserved;
    assert!((unobserved.seconds.mid * 1e9 - plain.ns as f64).abs() < 2.0, "{unobserved:?}, {}", plain.ns);
    assert!((unobserved.intervals_seconds.mid * 1e9 - 30.0 * 200.0).abs() < 2.0, "{unobserved:?}");
    assert!((unobserved.calls_seconds.mid * 1e9 - 29.0 * 700.0).abs() < 2.0, "{unobserved:?}");
    // Once what an interval costs in a loop is the least, three times that the most.
    assert!((unobserved.intervals_seconds.low * 1e9 - 30.0 * 80.0).abs() < 2.0, "{unobserved:?}");
    assert!((unobserved.intervals_seconds.high * 1e9 - 30.0 * 240.0).abs() < 2.0, "{unobserved:?}");
    assert!(unobserved.seconds.low < unobserved.seconds.mid && unobserved.seconds.mid < unobserved.seconds.high);
    // The idle time that recording made is gone as well.
    let idle = unobserved.recorded_idle_seconds.unwrap() - unobserved.idle_seconds.unwrap().mid;
    assert!((idle * 1e9 - (recorded.ns - plain.ns) as f64).abs() < 2.0, "{idle}");
    let outside = typical.outside.unwrap();
    assert_eq!((outside.steps, (outside.seconds * 1e9).round() as u64), (8, windowless.ns));
    assert!((outside.plain_seconds.unwrap() * 1e9 - plain.ns as f64).abs() < 1.0);
    assert!(typical.check.unwrap().abs() < 1e-4);
}

#[test]
fn a_step_that_the_device_bounds_is_no_shorter_unobserved() {
    let mut step = Maker::recorded(200, 700);
    for _ in 0..10 {
        step.launch("gemm", 50_000, 1);
    }
    step.fetch(700);
    let made = step.end();
    // Without other steps, what a call costs is a documented range.
    let (batch, manifest) = run_of(&made, 3, 0, 0);
    let simulation = simulation(&batch, &manifest).unwrap();
    let group = &simulation.groups()[0];
    let typical = group.typical().unwrap();
    let unobserved = typical.unobserved;
    assert!(group.models()[0].facts().recording.call_source.starts_with("documented"));
    assert!(unobserved.calls_seconds.mid > 9e-6, "{unobserved:?}");
    // Only what comes before the first kernel counts: half an interval, and one call.
    let shorter = made.ns as f64 - unobserved.seconds.mid * 1e9;
    assert!((0.0..=1_700.0 + 1.0).contains(&shorter), "{shorter}");
    assert!(unobserved.seconds.high * 1e9 <= made.ns as f64);
}

#[test]
fn a_wait_that_is_not_recorded_is_found() {
    let mut step = Maker::new();
    for _ in 0..4 {
        step.host(500);
        step.launch("gemm", 60_000, 1);
    }
    step.synchronize();
    step.host(4_000);
    let made = step.end();
    let simulation = free(&made);
    let group = &simulation.groups()[0];
    assert_eq!(group.models()[0].inferred_waits(), 1);
    // The host goes on when the device is done, however quick that is now.
    let outcome = group.simulate(&parse_changes("kernel=gemm×0.5").unwrap()).unwrap();
    let saved = 4.0 * 30_000.0;
    assert!((outcome.seconds.mid * 1e9 - (made.ns as f64 - saved)).abs() < 2.0, "{outcome:?}");
}

#[test]
fn streams_overlap_and_wait_for_each_other() {
    let mut step = Maker::new();
    step.launch("long", 100_000, 1);
    let side = step.launch("side", 40_000, 2);
    assert!(side < 60_000);
    // Waits for both streams.
    let join = 1_000 + DELAY + 100_000 + GAP;
    step.launch_after("join", 5_000, 2, join);
    step.synchronize();
    let made = step.end();
    let simulation = free(&made);
    let group = &simulation.groups()[0];
    let ns = |text: &str| group.simulate(&parse_changes(text).unwrap()).unwrap().seconds.mid * 1e9;
    let whole = made.ns as f64;
    assert!((ns("kernel=^side$×0.5") - whole).abs() < 2.0, "hidden behind the long one");
    // With half the long kernel the join begins 50 µs earlier, after both.
    let fetched = ns("kernel=^long$×0.5");
    assert!((whole - fetched - 50_000.0).abs() < 2.0 * GAP as f64, "{whole} {fetched}");
    assert!(ns("kernel=^side$×4") > whole + 50_000.0, "160 µs are not hidden behind 100");
}

/// What a random step is made of.
#[derive(Debug, Clone)]
enum Do {
    Host(i64),
    Launch { ns: i64, stream: u32, later: i64 },
    Fetch(i64),
    Interval,
}

fn parts() -> impl Strategy<Value = Vec<Do>> {
    let one = prop_oneof![
        (1i64..30_000).prop_map(Do::Host),
        (1i64..60_000, 1u32..4, 0i64..20_000).prop_map(|(ns, stream, later)| Do::Launch { ns, stream, later }),
        (1i64..2_000).prop_map(Do::Fetch),
        Just(Do::Interval),
    ];
    prop::collection::vec(one, 1..60)
}

fn make(parts: &[Do]) -> Maker {
    let mut step = Maker::recorded(60, 0);
    for part in parts {
        match *part {
            Do::Host(ns) => step.host(ns),
            Do::Launch { ns, stream, later } => {
                // Something that is not recorded may hold it up.
                let at = if later > 15_000 { step.now + 5 * later } else { i64::MIN };
                step.launch_after("gemv", ns, stream, at);
            }
            Do::Fetch(ns) => step.fetch(ns),
            Do::Interval => {
                step.enter("linear");
                step.host(100);
                step.leave();
            }
        }
    }
    step.launch("last", 1_000, 1);
    step.fetch(100);
    step
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn unchanged_steps_are_reproduced_and_changes_are_monotone(parts in parts(), factor in 0.0f64..1.0) {
        let made = make(&parts).end();
        let (batch, manifest) = run_of(&made, 2, 0, 0);
        let simulation = match simulation(&batch, &manifest) {
            Ok(simulation) => simulation,
            Err(abstain) => return Err(TestCaseError::fail(abstain.to_string())),
        };
        let group = &simulation.groups()[0];
        let model = &group.models()[0];
        match Replay::of(model) {
            Ok(replay) => {
                prop_assert!(replay.error().abs() <= TOLERANCE);
                let exact = (replay.seconds() * 1e9 - model.measured_ns()).abs();
                prop_assert!(exact < 1.0, "{exact} ns of {}", model.measured_ns());
            }
            // A kernel that something held up from the begin on is as if the device were busy with another step.
            Err(abstain) => {
                prop_assert!(matches!(abstain, candlescope_predict::simulation::Abstain::Backlog { .. }), "{abstain}");
                return Ok(());
            }
        }
        let unobserved = Replay::of(model).unwrap().unobserved();
        prop_assert!(unobserved.seconds.high * 1e9 <= model.measured_ns() + 1.0);
        for change in ["kernel=.", "host", "path=decode"] {
            let ns = |factor: f64| {
                let changes = parse_changes(&format!("{change}×{factor}")).unwrap();
                group.simulate(&changes).unwrap().seconds.mid * 1e9
            };
            let (nothing, some, all, more) = (ns(0.0), ns(factor), ns(1.0), ns(1.0 + factor));
            prop_assert!(nothing <= some + 1.0 && some <= all + 1.0 && all <= more + 1.0, "{change} {factor}");
            prop_assert!((all - unobserved.seconds.mid * 1e9).abs() < 1.0);
        }
    }
}

#[test]
fn findings_rest_on_the_same_replays_however_they_were_read() {
    let mut step = Maker::recorded(200, 700);
    for at in 0..20 {
        step.enter("linear");
        step.host(3_000 + 100 * at);
        step.launch("gemv", 800, 1);
        step.leave();
    }
    let made = step.end();
    let (batch, manifest) = run_of(&made, 150, 8, made.ns - 20 * 700);
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest, 1_000);
    let run = Run::open(dir.path()).unwrap();
    let apart = Simulation::of(&run, &SimulationOptions::default()).unwrap();
    let apart = apart.groups()[0].typical().unwrap();
    assert!((32..=64).contains(&apart.steps), "{} of 150", apart.steps);
    // One kernel too many for the figures: the steps are then read apart from them.
    let limits = ReadLimits::default().with(Limit::Kernels, batch.kernels.len() as u64 - 1);
    for (run, is_cut) in [(run, false), (Run::open_within(dir.path(), limits).unwrap(), true)] {
        let analysis = analyze(&run, &AnalyzeOptions::default()).analysis;
        let told = |code: &str| analysis.verdict.findings.iter().any(|finding| finding.code == code);
        // A limit of the reader is no damage of the run: copying it again would not help.
        assert!(told("limit_reached") == is_cut && !told("rows_missing"), "{:?}", analysis.verdict.findings);
        let found = analysis.diagnosis.unwrap();
        let step = found.steps.iter().find(|step| step.phase == "decode").unwrap();
        assert!(step.basis.starts_with("steps replayed"), "{}", step.basis);
        assert_eq!(step.unobserved_ns, apart.unobserved.seconds.mid * 1e9);
    }
}

#[test]
fn constants_of_the_maker_are_what_is_replayed() {
    // One kernel and its fetch: call, delay, kernel, gap, copy, waking up.
    let mut step = Maker::new();
    step.launch("gemv", 9_000, 1);
    step.fetch(300);
    assert_eq!(step.end().ns as i64, CALL + DELAY + 9_000 + GAP + 300 + WAKE);
}
