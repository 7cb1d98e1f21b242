//! What a report answers follows from the figures.

use candlescope_lab::method::*;
use candlescope_lab::study::{CaseSummary, Records, summaries};
use candlescope_lab::suites::{Answer, answers, lines};
use serde_json::json;
use std::path::Path;

/// A case of `suite` with requests of which each has these figures.
fn sample(suite: &str, params: [(&str, u64); 3], process: u32, host_ns: u64, figures: &[(&str, f64)]) -> Sample {
    let case = params.iter().fold(CaseId::new(suite), |id, (name, value)| id.param(*name, *value));
    let measurement = figures.iter().fold(Measurement::new(host_ns), |m, (name, value)| m.figure(*name, *value));
    let (reading, verdict) = (Reading::default(), SampleVerdict::Ok);
    Sample { case, process, repetition: 0, mode: Mode::Plain, ended_ns: 1, measurement, reading, verdict }
}

fn throughput(batch: u64, tps: f64, tpot_ms: f64) -> Sample {
    let params = [("batch", batch), ("prompt_tokens", 32), ("output_tokens", 64)];
    sample("throughput", params, 0, 1_000_000, &[("output_tps", tps), ("tpot_ns", tpot_ms * 1e6)])
}

fn seqlen(prompt: u64, ttft_ms: f64) -> Sample {
    let params = [("batch", 1), ("prompt_tokens", prompt), ("output_tokens", 50)];
    sample("seqlen", params, 0, 9_000_000, &[("ttft_ns", ttft_ms * 1e6), ("tpot_ns", 1e6)])
}

fn summarised(samples: Vec<Sample>, stopped: Vec<Stopped>) -> Vec<CaseSummary> {
    let mut ids: Vec<CaseId> = Vec::new();
    for id in samples.iter().map(|s| &s.case).chain(stopped.iter().map(|s| &s.case)) {
        if !ids.contains(id) {
            ids.push(id.clone());
        }
    }
    summaries(&ids, &Records { samples, stopped, ..Records::default() })
}

fn answer(summaries: &[CaseSummary], code: &str) -> Answer {
    answers(Path::new("/nowhere"), summaries).into_iter().find(|answer| answer.code == code).expect("a question")
}

#[test]
fn batching_pays_until_it_gains_less_than_a_tenth() {
    let case = throughput(16, 0.0, 0.0).case;
    let refused = Stopped {
        case,
        process: 0,
        round: 0,
        profiled: false,
        reason: StopReason::Refused,
        detail: Some("needs 9 GiB".into()),
        samples: 0,
        warmup: 0,
        warmup_settled: false,
    };
    let samples = vec![throughput(1, 100.0, 10.0), throughput(4, 360.0, 11.0), throughput(8, 370.0, 21.6)];
    let all = summarised(samples, vec![refused]);
    let found = answer(&all, "batching");
    assert!(found.text.starts_with("At 4: a batch of 4 gives 360 tokens/s, 3.6 times those of 1"), "{}", found.text);
    assert!(
        found.text.contains("8 gives +3 % tokens/s") && found.text.contains("1.96 times as long"),
        "{}",
        found.text
    );
    assert!(found.text.contains("A batch of 16 gave no figures: not tried: needs 9 GiB."), "{}", found.text);
    assert_eq!(found.figures["pays_up_to"], 4);
    // Eight times the rows in 2.16 times the time: (2.16 − 1) ÷ 7 of a step is work on rows.
    let bound = answer(&all, "bound");
    assert!(bound.text.contains("2.16 times") && bound.text.contains("what all rows share"), "{}", bound.text);
    assert_eq!(
        lines(&all),
        [
            "Batch size 1: Throughput = 100 tokens/sec (1.0x)",
            "Batch size 4: Throughput = 360 tokens/sec (3.6x)",
            "Batch size 8: Throughput = 370 tokens/sec (3.7x)",
            "Batch size 16: not tried: needs 9 GiB",
        ]
    );

    let still = answer(&summarised(vec![throughput(1, 100.0, 10.0), throughput(2, 190.0, 10.5)], vec![]), "batching");
    assert!(still.text.starts_with("Not up to 2"), "{}", still.text);
}

/// A machine that is up to six times as slow in some starts as in others, and a gain of 30, then of 11 to 16 % a doubling.
#[test]
fn batches_are_compared_within_process_starts() {
    let mut samples = Vec::new();
    for process in 0..6u32 {
        let slow = f64::from(process + 1);
        for (batch, tps) in [(1, 100.0), (2, 130.0), (4, 130.0 * (1.11 + 0.01 * slow))] {
            let mut sample = throughput(batch, tps / slow, 10.0);
            sample.process = process;
            samples.push(sample);
        }
    }
    let found = answer(&summarised(samples.clone(), vec![]), "batching");
    assert_eq!(found.figures["settled"], json!(true), "{}", found.text);
    assert_eq!(found.figures["pays_up_to"], 4);
    let gain = |n: usize| found.figures["batches"][n]["gain_ci95"].clone();
    assert!((gain(1)[0].as_f64().unwrap() - 0.3).abs() < 1e-9 && gain(0).is_null(), "{:?}", found.figures);
    assert!((gain(2)[0].as_f64().unwrap() - 0.12).abs() < 1e-9, "{:?}", found.figures);

    // Between 8 and 13 %: 10 % is in the interval.
    for sample in samples.iter_mut().filter(|sample| sample.case.int("batch") == Some(4)) {
        let slow = f64::from(sample.process + 1);
        sample.measurement.figures.insert("output_tps".into(), 130.0 * (1.07 + 0.01 * slow) / slow);
    }
    let found = answer(&summarised(samples.clone(), vec![]), "batching");
    assert_eq!((&found.figures["settled"], &found.figures["pays_up_to"]), (&json!(false), &json!(4)), "{}", found.text);
    assert!(found.text.contains("do not settle it: 10 % for each doubling"), "{}", found.text);
    // One start says nothing about another.
    samples.retain(|sample| sample.process == 0);
    let found = answer(&summarised(samples, vec![]), "batching");
    assert!(found.figures["settled"].is_null() && !found.text.contains("95 %"), "{}", found.text);
}

#[test]
fn doubling_a_prompt() {
    // Four times the prompt in sixteen times the time: each doubling takes four times as long.
    let square = answer(&summarised(vec![seqlen(50, 1.0), seqlen(200, 16.0)], vec![]), "prompt_length");
    assert!(
        square.text.starts_with("No, longer") && square.text.contains("4.00 times from 50 to 200"),
        "{}",
        square.text
    );
    let line = answer(&summarised(vec![seqlen(50, 1.0), seqlen(100, 2.0)], vec![]), "prompt_length");
    assert!(line.text.starts_with("Yes, about"), "{}", line.text);
    let flat = answer(&summarised(vec![seqlen(50, 1.0), seqlen(100, 1.1)], vec![]), "prompt_length");
    assert!(flat.text.starts_with("No, less"), "{}", flat.text);
}

#[test]
fn what_was_not_measured_is_not_answered() {
    let none = summarised(vec![seqlen(50, 1.0)], vec![]);
    for code in ["batching", "prompt_length", "gpu_busy", "bound", "spread"] {
        let answer = answer(&none, code);
        assert!(answer.text.starts_with("Not ") && answer.figures.is_null(), "{}", answer.text);
    }
}

#[test]
fn starts_that_differ_are_told() {
    let params = [("batch", 1), ("prompt_tokens", 8), ("output_tokens", 8)];
    let of = |process, ns| sample("latency", params, process, ns, &[("ttft_ns", 1e6)]);
    let two = summarised(vec![of(0, 100), of(0, 102), of(1, 119), of(1, 121)], vec![]);
    let found = answer(&two, "spread");
    // Medians 101 and 120 around 110.5.
    assert!(found.text.contains("Medians of process starts differ by up to 17.2 %"), "{}", found.text);
}
