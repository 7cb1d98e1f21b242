//! Which figures a run with a schedule, a pause or losses has, and which it cannot have.

use crate::common::step;
use candlescope_figures::Sampling;
use candlescope_figures::StepRow;
use candlescope_schema::run::{RunManifest, Severity, StepCounts};

fn rows(numbers: impl IntoIterator<Item = u64>) -> Vec<StepRow> {
    numbers.into_iter().map(|n| StepRow::of(&step(n, "decode", n as i64 * 1_000, 900))).collect()
}

fn of(counts: Option<StepCounts>, numbers: impl IntoIterator<Item = u64>) -> Sampling {
    Sampling::of(&RunManifest { steps: counts, ..RunManifest::default() }, &rows(numbers))
}

/// 10 of every 100 steps of 12,744.
fn ten_in_a_hundred() -> Sampling {
    let recorded = 1_270;
    let counts = StepCounts { begun: 12_744, recorded, scheduled_out: 12_744 - recorded, ..StepCounts::default() };
    of(Some(counts), (0..12_744).filter(|n| n % 100 >= 90))
}

#[test]
fn a_schedule_is_said() {
    let sampling = ten_in_a_hundred();
    assert!((sampling.share.expect("known") - 1_270.0 / 12_744.0).abs() < 1e-12);
    let said = sampling.finding().expect("a finding");
    assert_eq!(said.message(), "recorded 1,270 of 12,744 steps (11,474 left out by the schedule)");
    assert_eq!((said.severity, said.code.as_str()), (Severity::Info, "steps_sampled"));
    assert!(sampling.is_sampled());
}

#[test]
fn a_run_of_all_steps_has_nothing_to_say() {
    let counts = StepCounts { begun: 40, recorded: 40, ..StepCounts::default() };
    let sampling = of(Some(counts), 0..40);
    assert_eq!((sampling.share, sampling.finding(), sampling.is_sampled()), (Some(1.0), None, false));
    assert_eq!(sampling.missing, 0);
    // Without steps there is no share.
    assert_eq!(of(Some(StepCounts::default()), []).share, None);
}

#[test]
fn a_pause_around_what_was_recorded_is_said_and_takes_nothing() {
    let counts = StepCounts { begun: 50, recorded: 30, paused: 20, ..StepCounts::default() };
    let around = of(Some(counts), 10..40);
    assert!(!around.is_sampled());
    assert_eq!(around.finding().expect("said").message(), "recorded 30 of 50 steps (20 while recording was off)");
    // The same pause between them does.
    let between = of(Some(counts), (0..10).chain(30..50));
    assert!(between.is_sampled());
}

#[test]
fn captured_and_lost_steps_are_told_apart() {
    let counts = StepCounts { begun: 30, recorded: 10, captured: 5, paused: 12, lost: 3, ..StepCounts::default() };
    let sampling = of(Some(counts), 0..15);
    let said = sampling.finding().expect("a finding").message();
    for part in ["15 of 30", "5 only because a capture", "12 while recording was off", "3 lost"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(sampling.is_sampled());
    // The run of a capture has all of its steps.
    let own = of(Some(StepCounts { begun: 5, captured: 5, ..StepCounts::default() }), 7..12);
    assert!(!own.is_sampled() && own.finding().is_none());
}

#[test]
fn a_run_that_does_not_say_is_found_out_by_its_numbers() {
    let whole = of(None, 5..20);
    assert_eq!((whole.share, whole.finding(), whole.is_sampled()), (None, None, false));
    let holed = of(None, [5, 6, 9, 10, 6]);
    assert_eq!((holed.share, holed.is_sampled(), holed.missing), (None, true, 2));
    assert!(holed.finding().expect("a finding").message().starts_with("2 steps between"));
}
