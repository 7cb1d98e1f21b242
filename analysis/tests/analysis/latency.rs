//! TTFT, TPOT, ITL and throughput, by hand.

use crate::common::{T0, step};
use candlescope_analysis::passes::StepRow;
use candlescope_analysis::passes::latency::{Latency, warmup_requests};
use candlescope_analysis::passes::tokens::Tokens;
use candlescope_core::run::RunManifest;
use candlescope_core::{HostNs, Phase, RequestRecord, SpanId, TraceId};
use serde_json::json;
use std::collections::BTreeSet;

const MS: u64 = 1_000_000;

fn request(number: u64, start: i64, dur: u64) -> RequestRecord {
    RequestRecord {
        request: number,
        trace_id: TraceId(7),
        span_id: SpanId(9),
        parent_span_id: None,
        caller_sampled: None,
        operation: "chat".into(),
        model: "m".into(),
        host_start: HostNs(T0 + start),
        host_dur_ns: dur,
        ttft_ns: None,
        last_token_ns: None,
        queue_ns: None,
        prompt_tokens: None,
        output_tokens: None,
        batch: None,
    }
}

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
    Latency::of(requests, steps, &BTreeSet::new())
}

#[test]
fn one_request_by_hand() {
    let request = RequestRecord { output_tokens: Some(4), ..request(1, 0, 150 * MS) };
    let latency = of(&[request], &steps());
    let r = &latency.requests[0];
    assert_eq!(r.ttft_ns, Some(50 * MS), "to the end of the prefill step");
    assert_eq!(r.e2e_ns, Some(140 * MS), "to the last token, not to the end of the request");
    assert_eq!(r.itl_ns, [30 * MS, 20 * MS, 40 * MS]);
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64), "(140 − 50) / 3");
    assert!((r.prefill_tps.unwrap() - 500.0).abs() < 1e-9, "20 tokens in 40 ms");
    assert!((r.decode_tps.unwrap() - 1000.0 / 30.0).abs() < 1e-9, "3 tokens in 90 ms");
    assert!((latency.output_tps.unwrap() - 4.0 / 0.15).abs() < 1e-9, "4 tokens in 150 ms");
    assert_eq!(latency.itl.unwrap().median, 30.0 * MS as f64);
}

#[test]
fn what_the_request_says_comes_first() {
    let request = RequestRecord { ttft_ns: Some(45 * MS), output_tokens: Some(4), ..request(1, 0, 150 * MS) };
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.ttft_ns, Some(45 * MS));
    assert!((r.tpot_ns.unwrap() - 95.0 / 3.0 * MS as f64).abs() < 1e-3);
}

#[test]
fn a_single_token_has_no_tpot() {
    let request = RequestRecord { output_tokens: Some(1), ..request(1, 0, 60 * MS) };
    let latency = of(&[request], &steps()[..1]);
    let r = &latency.requests[0];
    assert_eq!((r.ttft_ns, r.tpot_ns, r.decode_tps), (Some(50 * MS), None, None));
    assert_eq!(latency.tpot, None, "missing, not zero");
    assert!(r.itl_ns.is_empty());
}

#[test]
fn a_batch_counts_gaps_along_one_sequence() {
    // Four sequences, 16 tokens in all: 4 each, 3 gaps of 30 ms.
    let request = RequestRecord { output_tokens: Some(16), batch: Some(4), ..request(1, 0, 150 * MS) };
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64));
    assert!((r.decode_tps.unwrap() - 12.0 / 0.09).abs() < 1e-9, "12 tokens of all sequences in 90 ms");
}

#[test]
fn sequences_that_stop_early_do_not_shorten_the_longest() {
    // Four sequences of 4, 2, 1 and 1 tokens: the longest has the 3 gaps of 30 ms that the steps show.
    let request = RequestRecord { output_tokens: Some(8), batch: Some(4), ..request(1, 0, 150 * MS) };
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(30.0 * MS as f64));
    assert!((r.decode_tps.unwrap() - 4.0 / 0.09).abs() < 1e-9, "4 tokens after the first of each in 90 ms");
}

#[test]
fn a_step_may_yield_several_tokens() {
    // Speculative decoding: ten tokens in four steps.
    let request = RequestRecord { output_tokens: Some(10), ..request(1, 0, 150 * MS) };
    let r = of(&[request], &steps()).requests.remove(0);
    assert_eq!(r.tpot_ns, Some(10.0 * MS as f64), "(140 − 50) / 9");
    assert!((r.decode_tps.unwrap() - 9.0 / 0.09).abs() < 1e-9);
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
    // Request 1 is gone, the oldest segments had to make room: what is left was measured.
    assert!(warmup_requests(&manifest(json!(1)), &requests[1..]).is_empty());
    assert_eq!(warmup_requests(&manifest(json!(2)), &requests[1..]), BTreeSet::from([2]));
    let latency = Latency::of(&requests, &[], &warmup);
    let e2e = latency.e2e.unwrap();
    assert_eq!((e2e.n, e2e.min, e2e.max), (2, 10.0 * MS as f64, 20.0 * MS as f64));
    assert_eq!(latency.wall_ns, 120 * MS, "from the second request on");
}

#[test]
fn requests_without_steps_still_have_a_length() {
    let request = RequestRecord { ttft_ns: Some(10 * MS), output_tokens: Some(5), ..request(1, 0, 50 * MS) };
    let r = of(&[request], &[]).requests.remove(0);
    assert_eq!((r.e2e_ns, r.tpot_ns), (Some(50 * MS), Some(10.0 * MS as f64)));
    assert_eq!(r.prefill_tps, None);
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
    let tokens = Tokens::of(&steps, &BTreeSet::new());
    let trend = tokens.trend.unwrap();
    assert!((trend.slope_ns - 5_000.0).abs() < 1e-6 && trend.slope_ci95_ns < 1e-3);
    assert!((trend.intercept_ns - 2_000_000.0).abs() < 1e-3);
    assert_eq!((trend.n, trend.context), (40, (100, 139)));
    assert_eq!(tokens.points[39].index, 40);
    assert!(Tokens::of(&steps, &BTreeSet::from([1])).points.is_empty(), "warm-up");
    assert!(Tokens::of(&steps[..7], &BTreeSet::new()).trend.is_none(), "too few for a line");
}
