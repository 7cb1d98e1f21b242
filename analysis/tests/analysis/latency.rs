//! TTFT, TPOT, ITL and throughput, computed by hand.

use crate::common::{T0, request, step};
use candlescope_figures::StepRow;
use candlescope_figures::Tokens;
use candlescope_figures::latency::{Latency, warmup_requests};
use candlescope_schema::run::RunManifest;
use candlescope_schema::{Phase, RequestRecord};
use candlescope_testkit::with;
use serde_json::json;
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;

fn phase(number: u64, request: u64, phase: Phase, start_ms: i64, dur_ms: u64) -> StepRow {
    let mut record = step(number, phase.as_str(), start_ms * MS as i64, dur_ms * MS);
    record.phase = Some(phase);
    record.request = Some(request);
    StepRow::of(&record)
}

/// Request at 0: prefill 10–50 ms, decodes end at 80, 100 and 140 ms.
fn steps() -> Vec<StepRow> {
    let mut prefill = phase(0, 1, Phase::Prefill, 10, 40);
    prefill.tokens = Some(20);
    vec![
        prefill,
        phase(1, 1, Phase::Decode, 60, 20),
        phase(2, 1, Phase::Decode, 85, 15),
        phase(3, 1, Phase::Decode, 120, 20),
    ]
}

fn of(requests: &[RequestRecord], steps: &[StepRow]) -> Latency {
    Latency::of(requests, steps, &BTreeSet::new(), true)
}

#[test]
fn one_request_by_hand() {
    let request = with(request(1, 0, 150 * MS), |r| r.output_tokens = Some(4));
    let latency = of(&[request], &steps());
    let r = &latency.requests[0];
    assert_eq!(r.ttft_ns, Some(50 * MS), "to the end of the prefill step");
    assert_eq!(r.e2e_ns, Some(140 * MS), "to the last token, not to the end of the request");
    assert_eq!(r.itl_ns, [30 * MS, 20 * MS, 40 * MS]);
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64), "(140 − 50) / 3");
    assert!((r.prefill_tokens_per_s.unwrap() - 500.0).abs() < 1e-9, "20 tokens in 40 ms");
    assert!((r.decode_tokens_per_s.unwrap() - 1000.0 / 30.0).abs() < 1e-9, "3 tokens in 90 ms");
    assert!((latency.output_tokens_per_s.unwrap() - 4.0 / 0.15).abs() < 1e-9, "4 tokens in 150 ms");
    assert_eq!(latency.itl.unwrap().median, 30.0 * MS as f64);
}

#[test]
fn what_the_request_says_comes_first() {
    let request = with(request(1, 0, 150 * MS), |r| (r.ttft_ns, r.output_tokens) = (Some(45 * MS), Some(4)));
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.ttft_ns, Some(45 * MS));
    assert!((r.tpot_ns.unwrap() - 95.0 / 3.0 * MS as f64).abs() < 1e-3);
}

#[test]
fn a_single_token_has_no_tpot() {
    let request = with(request(1, 0, 60 * MS), |r| r.output_tokens = Some(1));
    let latency = of(&[request], &steps()[..1]);
    let r = &latency.requests[0];
    assert_eq!((r.ttft_ns, r.tpot_ns, r.decode_tokens_per_s), (Some(50 * MS), None, None));
    assert_eq!(latency.tpot, None, "missing, not zero");
    assert!(r.itl_ns.is_empty());
}

#[test]
fn a_batch_counts_gaps_along_one_sequence() {
    // Four sequences, 16 tokens in all: 4 each, 3 gaps of 30 ms.
    let request = with(request(1, 0, 150 * MS), |r| (r.output_tokens, r.batch) = (Some(16), Some(4)));
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64));
    assert!((r.decode_tokens_per_s.unwrap() - 12.0 / 0.09).abs() < 1e-9, "12 tokens of all sequences in 90 ms");
}

#[test]
fn sequences_that_stop_early_do_not_shorten_the_longest() {
    // Four sequences of 4, 2, 1 and 1 tokens: the longest has the 3 gaps of 30 ms that the steps show.
    let request = with(request(1, 0, 150 * MS), |r| (r.output_tokens, r.batch) = (Some(8), Some(4)));
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64));
    assert!((r.decode_tokens_per_s.unwrap() - 4.0 / 0.09).abs() < 1e-9, "4 tokens after the first of each in 90 ms");
}

#[test]
fn a_step_may_yield_several_tokens() {
    // Speculative decoding: ten tokens in four steps.
    let request = with(request(1, 0, 150 * MS), |r| r.output_tokens = Some(10));
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(10.0 * MS as f64), "(140 − 50) / 9");
    assert!((r.decode_tokens_per_s.unwrap() - 9.0 / 0.09).abs() < 1e-9);
    assert_eq!(r.itl_ns, [30 * MS, 20 * MS, 40 * MS], "what comes at once has one gap before it");
}

/// Steps of one sequence after a prompt of 20 tokens, each with the tokens that it processes and those of them that it yields.
fn guessed(of_steps: [(u32, u32); 3]) -> Vec<StepRow> {
    let mut steps = steps();
    (steps[0].new_tokens, steps[0].context_len) = (Some(20), Some(20));
    (steps[0].sequences, steps[0].context_sum) = (Some(1), Some(20));
    let mut length = 20;
    for (step, (processed, yielded)) in steps[1..].iter_mut().zip(of_steps) {
        (step.tokens, step.context_len) = (Some(processed), Some(length + processed));
        length += yielded;
        (step.new_tokens, step.sequences, step.context_sum) = (Some(yielded), Some(1), Some(u64::from(length)));
    }
    steps
}

#[test]
fn tokens_that_were_guessed_wrong_are_no_output() {
    // A token with the prompt, 1, 5, and of the last five the first, which ends the text: eight in all.
    let steps = guessed([(1, 1), (5, 5), (5, 1)]);
    let record = with(request(1, 0, 150 * MS), |r| r.output_tokens = Some(8));
    let r = of(std::slice::from_ref(&record), &steps).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(90.0 * MS as f64 / 7.0), "(140 − 50) / 7, not / 11");
    // Without what the request says, the steps say as much.
    let untold = with(record.clone(), |r| r.output_tokens = None);
    let r = of(&[untold], &steps).requests.remove(0);
    assert_eq!((r.output_tokens, r.tpot_ns), (Some(8), Some(90.0 * MS as f64 / 7.0)));
    // A program that states the context as it was processed, and nothing of what stays.
    let mut plain = steps;
    plain.iter_mut().for_each(|step| (step.sequences, step.context_sum) = (None, None));
    let r = of(&[record], &plain).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(90.0 * MS as f64 / 7.0));
}

#[test]
fn what_was_guessed_wrong_hides_no_gap() {
    // The context that was processed shrinks from 25 to 22.
    let steps = guessed([(5, 1), (1, 1), (5, 5)]);
    let record = with(request(1, 0, 150 * MS), |r| r.output_tokens = Some(8));
    let r = Latency::of(&[record], &steps, &BTreeSet::new(), false).requests.remove(0);
    assert_eq!(r.itl_ns, [30 * MS, 20 * MS, 40 * MS]);
    assert_eq!(r.e2e_ns, Some(140 * MS), "no step is missing");
}

#[test]
fn a_prompt_in_chunks_yields_its_token_at_the_last() {
    let mut steps = vec![phase(0, 1, Phase::Prefill, 0, 20), phase(1, 1, Phase::Prefill, 20, 25)];
    steps.push(phase(2, 1, Phase::Decode, 50, 10));
    let r = of(&[request(1, 0, 70 * MS)], &steps).requests.remove(0);
    assert_eq!(r.ttft_ns, Some(45 * MS));
    assert_eq!(r.itl_ns, [15 * MS]);
    assert_eq!(r.output_tokens, Some(2), "counted from the steps");
}

#[test]
fn sampling_as_a_step_yields_the_token() {
    let steps = vec![
        phase(0, 1, Phase::Prefill, 0, 20),
        phase(1, 1, Phase::Sample, 20, 2),
        phase(2, 1, Phase::Decode, 25, 10),
        phase(3, 1, Phase::Sample, 35, 2),
    ];
    let r = of(&[request(1, 0, 40 * MS)], &steps).requests.remove(0);
    assert_eq!((r.ttft_ns, r.e2e_ns), (Some(22 * MS), Some(37 * MS)));
    assert_eq!(r.itl_ns, [15 * MS]);
}

#[test]
fn warm_up_is_left_out() {
    let manifest =
        |n: serde_json::Value| RunManifest { options: [("warmup".to_string(), n)].into(), ..RunManifest::default() };
    let requests = [request(1, 0, 90 * MS), request(2, 100 * MS as i64, 10 * MS), request(3, 200 * MS as i64, 20 * MS)];
    let warmup = warmup_requests(&manifest(json!(1)), &requests);
    assert_eq!(warmup, BTreeSet::from([1]));
    assert_eq!(warmup_requests(&manifest(json!("2")), &requests).len(), 2);
    assert!(warmup_requests(&manifest(json!(3)), &requests).is_empty(), "nothing else was recorded");
    assert!(warmup_requests(&RunManifest::default(), &requests).is_empty());
    // Request 1 is gone because the oldest segments were deleted: the others are measured.
    assert!(warmup_requests(&manifest(json!(1)), &requests[1..]).is_empty());
    assert_eq!(warmup_requests(&manifest(json!(2)), &requests[1..]), BTreeSet::from([2]));
    let latency = Latency::of(&requests, &[], &warmup, true);
    let e2e = latency.e2e.unwrap();
    assert_eq!((e2e.n, e2e.min, e2e.max), (2, 10.0 * MS as f64, 20.0 * MS as f64));
    assert_eq!(latency.wall_ns, 120 * MS, "from the second request on");
}

#[test]
fn requests_without_steps_still_have_a_length() {
    let request = with(request(1, 0, 50 * MS), |r| (r.ttft_ns, r.output_tokens) = (Some(10 * MS), Some(5)));
    let r = of(&[request], &[]).requests.remove(0);
    assert_eq!((r.e2e_ns, r.tpot_ns), (Some(50 * MS), Some(10.0 * MS as f64)));
    assert_eq!(r.prefill_tokens_per_s, None);
}

#[test]
fn the_trend_over_the_context_is_a_line() {
    // 2 ms + 5 µs a token, exactly.
    let steps: Vec<StepRow> = (0..40u32)
        .map(|i| {
            let mut row = phase(u64::from(i), 1, Phase::Decode, i64::from(i) * 10, 0);
            row.context_len = Some(100 + i);
            row.dur_ns = 2_000_000 + 5_000 * u64::from(100 + i);
            row
        })
        .collect();
    let tokens = Tokens::of(&steps, &BTreeSet::new(), &BTreeSet::new());
    let trend = tokens.trend.unwrap();
    assert!((trend.slope_ns - 5_000.0).abs() < 1e-6 && trend.slope_ci95_ns < 1e-3);
    assert!((trend.intercept_ns - 2_000_000.0).abs() < 1e-3);
    assert_eq!((trend.n, trend.context), (40, (100, 139)));
    assert_eq!(tokens.points[39].index, 40);
    assert!(Tokens::of(&steps, &BTreeSet::from([1]), &BTreeSet::new()).points.is_empty(), "warm-up");
    assert!(Tokens::of(&steps[..7], &BTreeSet::new(), &BTreeSet::new()).trend.is_none(), "too few for a line");
    // The first ten took longer, as their kernels were recorded.
    let recorded: BTreeSet<u64> = (0..10).collect();
    let mut slowed = steps.clone();
    slowed[..10].iter_mut().for_each(|step| step.dur_ns += 400_000);
    let trend = Tokens::of(&slowed, &BTreeSet::new(), &recorded).trend.unwrap();
    assert!((trend.slope_ns - 5_000.0).abs() < 1e-6, "{trend:?}");
    assert_eq!((trend.n, trend.context), (30, (110, 139)));
    let all: BTreeSet<u64> = (0..40).collect();
    assert_eq!(Tokens::of(&steps, &BTreeSet::new(), &all).trend.unwrap().n, 40, "no other is there");
}

/// A request of a prompt of 20 tokens and 100 output tokens: prefill 40 ms from 10 ms on, then a token every 5 ms; the
/// last at 545 ms. A schedule leaves only `kept` of its 100 steps.
fn scheduled(number: u64, start: i64, kept: impl Fn(u32) -> bool) -> (RequestRecord, Vec<StepRow>) {
    let steps = (0..100u32).filter(|i| kept(*i)).map(|i| {
        let (kind, at, dur) = match i {
            0 => (Phase::Prefill, 10, 40),
            _ => (Phase::Decode, 45 + 5 * i64::from(i), 5),
        };
        let mut row = phase(u64::from(i), number, kind, start + at, dur);
        row.context_len = Some(20 + i);
        row.tokens = Some(if i == 0 { 20 } else { 1 });
        row
    });
    let record = with(request(number, start * MS as i64, 560 * MS), |r| {
        r.ttft_ns = Some(50 * MS);
        r.last_token_ns = Some(545 * MS);
        r.queue_ns = Some(10 * MS);
        r.prompt_tokens = Some(20);
        r.output_tokens = Some(100);
    });
    (record, steps.collect())
}

#[test]
fn a_schedule_leaves_the_requests_figures_as_they_are() {
    let of_kept = |kept: fn(u32) -> bool, whole: bool| {
        let made: Vec<_> = (0..8).map(|i| scheduled(i + 1, 600 * i as i64, kept)).collect();
        let requests: Vec<RequestRecord> = made.iter().map(|(request, _)| request.clone()).collect();
        let steps: Vec<StepRow> = made.into_iter().flat_map(|(_, steps)| steps).collect();
        Latency::of(&requests, &steps, &BTreeSet::new(), whole)
    };
    let all = of_kept(|_| true, true);
    // Ten in a hundred, including the prefill; and every other step, so that no two are adjacent.
    for sampled in [of_kept(|i| i < 10, false), of_kept(|i| i % 2 == 1, false), of_kept(|_| false, false)] {
        for (a, b) in [
            (&all.queue, &sampled.queue),
            (&all.ttft, &sampled.ttft),
            (&all.tpot, &sampled.tpot),
            (&all.e2e, &sampled.e2e),
            (&all.decode_tokens_per_s, &sampled.decode_tokens_per_s),
        ] {
            assert!(a.is_some());
            assert_eq!(a, b);
        }
        assert_eq!((all.output_tokens_per_s, all.output_tokens), (sampled.output_tokens_per_s, sampled.output_tokens));
        assert_eq!(all.prompt_tokens, sampled.prompt_tokens);
    }
    let truth = all.requests.first().unwrap();
    assert_eq!((truth.queue_ns, truth.e2e_ns, truth.tpot_ns), (Some(10 * MS), Some(545 * MS), Some(5.0 * MS as f64)));
    assert!((truth.decode_tokens_per_s.unwrap() - 200.0).abs() < 1e-9, "99 tokens in 495 ms");
    assert!((all.output_tokens_per_s.unwrap() - 800.0 / 4.76).abs() < 1e-9, "eight requests of 100 tokens in 4.76 s");
    // Gaps are between neighbours only: ten consecutive steps have nine, every other step has none.
    let first_ten = of_kept(|i| i < 10, false);
    assert_eq!(first_ten.itl.as_ref().map(|d| (d.n, d.units, d.median, d.max)), Some((72, 8, 5e6, 5e6)));
    assert_eq!(of_kept(|i| i % 2 == 1, false).itl, None, "a gap over two tokens is no gap between two");
    assert_eq!(all.itl.unwrap().n, 8 * 99);
    assert_eq!(of_kept(|i| i % 2 == 1, false).prefill_tokens_per_s, None, "no prefill has a record");
    assert!((first_ten.prefill_tokens_per_s.unwrap().median - 500.0).abs() < 1e-9, "20 tokens in 40 ms");
}

#[test]
fn an_old_run_counts_nothing_from_steps_that_may_be_missing() {
    let old = |record: RequestRecord| with(record, |r| (r.last_token_ns, r.queue_ns) = (None, None));
    // The number of tokens is stated, the time of the last token is not: if each step follows the one before, the last
    // step tells it.
    let (record, steps) = scheduled(1, 0, |_| true);
    let r = Latency::of(&[old(record)], &steps, &BTreeSet::new(), false).requests.remove(0);
    assert_eq!((r.e2e_ns, r.itl_ns.len(), r.queue_ns), (Some(545 * MS), 99, None));
    // With a gap, or without the last step, only the request's own end is known.
    for kept in [|i: u32| !(40..50).contains(&i), |i: u32| i < 90] {
        let (record, steps) = scheduled(1, 0, kept);
        let r = Latency::of(&[old(record)], &steps, &BTreeSet::new(), false).requests.remove(0);
        assert_eq!(r.e2e_ns, Some(560 * MS));
        assert_eq!(r.itl_ns, vec![5 * MS; if steps.last().unwrap().context_len == Some(119) { 88 } else { 89 }]);
    }
    // The number of tokens is not stated: ten recorded steps of a hundred are not ten tokens.
    let (record, steps) = scheduled(1, 0, |i| i < 10);
    let untold = with(old(record), |r| (r.output_tokens, r.ttft_ns) = (None, None));
    let latency = Latency::of(&[untold], &steps, &BTreeSet::new(), false);
    let r = &latency.requests[0];
    assert_eq!((r.ttft_ns, r.output_tokens, r.tpot_ns, r.decode_tokens_per_s), (Some(50 * MS), None, None, None));
    assert_eq!((latency.output_tokens_per_s, latency.output_tokens), (None, None), "missing, not ten");
    // If the first token's step has no record, its time is not known.
    let (record, steps) = scheduled(1, 0, |i| i >= 10);
    let untold = with(record, |r| r.ttft_ns = None);
    let r = Latency::of(&[untold], &steps, &BTreeSet::new(), false).requests.remove(0);
    assert_eq!((r.ttft_ns, r.tpot_ns), (None, None), "not 95 ms, the end of the first step that was recorded");
}

#[test]
fn totals_count_every_sequence_and_lack_what_one_request_lacks() {
    // Thirteen requests with a batch of 4 and a prompt of 32 tokens: 1,664 prompt tokens, not 416.
    let of_batch = |number: u64| {
        with(request(number, number as i64 * 100 * MS as i64, 50 * MS), |r| {
            (r.prompt_tokens, r.output_tokens, r.batch) = (Some(32), Some(40), Some(4))
        })
    };
    let mut requests: Vec<RequestRecord> = (1..=13).map(of_batch).collect();
    let latency = of(&requests, &[]);
    assert_eq!((latency.prompt_tokens, latency.output_tokens), (Some(1_664), Some(520)));
    assert_eq!(latency.requests[0].prompt_tokens, Some(32), "of one sequence");
    requests[3].output_tokens = None;
    let latency = of(&requests, &[]);
    assert_eq!((latency.output_tokens, latency.output_tokens_per_s), (None, None));
}

#[test]
fn ended_sequences_yield_no_tokens() {
    // A batch of 4 of which three end with the first token: 4 tokens, then one with each of three steps.
    let mut steps = steps();
    for (i, step) in steps.iter_mut().enumerate() {
        step.batch = Some(4);
        step.tokens = Some(if i == 0 { 80 } else { 4 });
        step.new_tokens = Some(if i == 0 { 80 } else { 1 });
        step.sequences = Some(if i == 0 { 4 } else { 1 });
        step.context_len = Some(20 + i as u32);
    }
    let r = of(&[with(request(1, 0, 150 * MS), |r| r.batch = Some(4))], &steps).requests.remove(0);
    assert_eq!(r.output_tokens, Some(7), "not 16");
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64), "three gaps in 90 ms");
    assert!((r.decode_tokens_per_s.unwrap() - 3.0 / 0.09).abs() < 1e-9);
}

#[test]
fn gaps_of_one_request_are_no_independent_measurements() {
    // Six requests whose tokens come every 1.0, 1.2, … 2.0 ms: 600 gaps, but only six independent values.
    let mut all = Vec::new();
    let mut steps = Vec::new();
    for r in 0..6u64 {
        all.push(with(request(r + 1, r as i64 * 1_000 * MS as i64, 500 * MS), |r| r.output_tokens = Some(101)));
        for i in 0..101u32 {
            let kind = if i == 0 { Phase::Prefill } else { Phase::Decode };
            let mut row = phase(u64::from(i), r + 1, kind, 0, 1);
            row.start_ns = T0 + r as i64 * 1_000 * MS as i64 + i64::from(i) * (1_000_000 + 200_000 * r as i64);
            row.context_len = Some(20 + i);
            steps.push(row);
        }
    }
    let itl = of(&all, &steps).itl.unwrap();
    assert_eq!((itl.n, itl.units), (600, 6));
    assert_eq!(itl.median_ci95, Some((1e6, 2e6)), "resampled by request; as 600 samples it would be 1.4 to 1.6 ms");
    let five = of(&all[..5], &steps).itl.unwrap();
    let range = five.range.unwrap();
    assert_eq!(
        (five.median_ci95, range.low, range.high),
        (None, 1e6, 1.8e6),
        "five requests: the range of their medians"
    );
}
