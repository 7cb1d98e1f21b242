//! What a report answers follows from the figures.

use candlescope_lab::method::*;
use candlescope_lab::study::{CaseSummary, Manifest, Records, Study, summaries};
use candlescope_lab::suites::{Answer, answers, caution, lines, write_results};
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

fn summarised(samples: Vec<Sample>, stopped: Vec<CaseEnd>) -> Vec<CaseSummary> {
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
    let refused = CaseEnd {
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
    assert!(found.text.contains("Some batches were measured only once"), "{}", found.text);
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

/// Starts that differ: the factor is that within each of them, and says so beside medians of all, which are 4 to 1.
#[test]
fn a_factor_within_starts_says_so() {
    let in_start = |process: u32, batch: u64, tps: f64| Sample { process, ..throughput(batch, tps, 10.0) };
    let starts = [(100.0, 200.0), (1000.0, 1100.0), (120.0, 480.0)];
    let samples = (0..).zip(starts).flat_map(|(n, (one, four))| [in_start(n, 1, one), in_start(n, 4, four)]);
    assert_eq!(
        lines(&summarised(samples.collect(), vec![])).last().map(String::as_str),
        Some("Batch size 4: Throughput = 480 tokens/sec (2.0x within process starts)")
    );
}

#[test]
fn a_pause_is_no_end() {
    // 9.5 % for each doubling up to 4, and then 1.9 and 3.2 times those of 1.
    let curve = [(1, 100.0), (4, 120.0), (8, 190.0), (16, 320.0)];
    let all = |curve: &[(u64, f64)]| {
        summarised(curve.iter().map(|(batch, tps)| throughput(*batch, *tps, 10.0)).collect(), vec![])
    };
    let found = answer(&all(&curve), "batching");
    assert!(found.text.starts_with("Not up to 16, the largest batch measured"), "{}", found.text);
    assert!(
        found.text.contains("3.2 times those of 1") && found.text.contains("a pause at 4: from 1"),
        "{}",
        found.text
    );
    assert_eq!((&found.figures["pays_up_to"], &found.figures["best_batch"]), (&json!(16), &json!(16)));
    assert_eq!(found.figures["pauses"], json!([4]));

    // It ends where nothing larger pays, whatever lies in between.
    let found = answer(&all(&[(1, 100.0), (2, 101.0), (4, 180.0), (8, 182.0), (16, 190.0)]), "batching");
    assert!(found.text.starts_with("At 4: a batch of 4 gives 180 tokens/s"), "{}", found.text);
    assert!(found.text.contains("The most tokens/s were measured at 16 (190)"), "{}", found.text);
    assert_eq!((&found.figures["pays_up_to"], &found.figures["best_batch"]), (&json!(4), &json!(16)));
    assert_eq!(found.figures["pauses"], json!([2]));
}

/// A batch and its tokens a second, from a table that `bench throughput` wrote.
fn recorded(table: &str) -> Vec<(u64, f64)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/measurements/lab").join(table);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let place = |name: &str| heads.iter().position(|head| *head == name).expect("a column");
    let (batch, tps) = (place("batch"), place("output_tps"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[batch].parse().expect("a batch"), cells[tps].parse().expect("a rate"))
    };
    lines.map(row).collect()
}

#[test]
fn the_answer_on_recorded_studies_is_the_last_batch_that_pays() {
    for (table, pays, best) in [
        ("cpu-smollm2-throughput.csv", 1, 32),
        ("h200-smollm2-throughput.csv", 32, 32),
        ("h200-smollm2-throughput-six-starts.csv", 32, 32),
        ("h200-llama-8b-throughput.csv", 32, 32),
    ] {
        let rows = recorded(table);
        let samples = rows.iter().map(|(batch, tps)| throughput(*batch, *tps, 10.0)).collect();
        let found = answer(&summarised(samples, vec![]), "batching");
        let figures = (found.figures["pays_up_to"].as_u64(), found.figures["best_batch"].as_u64());
        assert_eq!(figures, (Some(pays), Some(best)), "{table}: {}", found.text);
        let at = rows.iter().find(|(batch, _)| *batch == pays).expect("it was measured").1;
        for (batch, tps) in rows.iter().filter(|(batch, _)| *batch > pays) {
            let doublings = (*batch as f64 / pays as f64).log2();
            assert!((tps / at).powf(1.0 / doublings) < 1.1, "{table}: {batch} pays as well: {}", found.text);
        }
    }
}

#[test]
fn requests_that_differ_too_much_are_told_before_everything() {
    let params = [("batch", 1), ("prompt_tokens", 8), ("output_tokens", 8)];
    let of = |times: &[u64]| {
        let samples = times.iter().map(|ms| sample("latency", params, 0, ms * 1_000_000, &[("ttft_ns", 1e6)]));
        summarised(samples.collect(), vec![])
    };
    let wild = of(&[10, 12, 40, 11]);
    let text = caution(&wild).expect("it differs");
    assert!(text.contains("deviate by 80 %") && text.contains("Repeat it on an idle machine"), "{text}");
    let shown = lines(&wild);
    assert_eq!((shown[0].as_str(), shown.len()), (text.as_str(), 2), "above the figures");
    assert!(!answer(&wild, "spread").text.contains("rely"), "and not once more as the last sentence");
    let calm = of(&[10, 11, 10, 11]);
    assert!(caution(&calm).is_none() && lines(&calm)[0].starts_with("Latency"));
}

/// A study of SmolLM2-135M in Q4_1 on one thread of two cores that compilers kept busy (`bench suite --quick`,
/// 2026-11-30): of each case its suite, batch, tokens of prompt and output, and milliseconds of its requests.
const BUSY: [(&str, [u64; 3], [u64; 3]); 10] = [
    ("latency", [1, 16, 16], [1755, 3013, 2409]),
    ("throughput", [1, 16, 8], [1324, 1401, 1108]),
    ("throughput", [2, 16, 8], [2969, 2908, 2611]),
    ("throughput", [4, 16, 8], [5791, 4319, 5188]),
    ("seqlen", [1, 10, 4], [533, 831, 572]),
    ("seqlen", [1, 10, 8], [1196, 1212, 882]),
    ("seqlen", [1, 20, 4], [1451, 2180, 1205]),
    ("seqlen", [1, 20, 8], [1620, 1597, 1812]),
    ("seqlen", [1, 40, 4], [3076, 2792, 2163]),
    ("seqlen", [1, 40, 8], [2735, 2907, 3325]),
];

/// These cases.
fn busy(is: impl Fn(&str, &[u64; 3]) -> bool) -> Vec<CaseSummary> {
    let of = |(suite, [batch, prompt, output], times): (&str, [u64; 3], [u64; 3])| {
        let params = [("batch", batch), ("prompt_tokens", prompt), ("output_tokens", output)];
        times.map(|ms| {
            let tps = (batch * output * 1_000) as f64 / ms as f64;
            sample(suite, params, 0, ms * 1_000_000, &[("output_tps", tps)])
        })
    };
    summarised(BUSY.into_iter().filter(|(suite, sizes, _)| is(suite, sizes)).flat_map(of).collect(), vec![])
}

/// Requests of the middle case deviate by 17 %.
#[test]
fn cases_whose_requests_differ_too_much_are_told_before_everything_though_the_middle_one_is_calm() {
    let all = busy(|_, _| true);
    let text = caution(&all).expect("three differ");
    let widest = "Requests of seqlen/batch=1,prompt_tokens=20,output_tokens=4 deviate by 31 % of their mean";
    assert!(text.starts_with(widest), "{text}");
    assert!(text.contains("mean, those of 2 other cases by more than 25 %: that is too much"), "{text}");
    assert_eq!(lines(&all)[0], text, "above the figures");
    let found = busy(|suite, sizes| suite == "latency" || (suite == "seqlen" && sizes[2] == 8));
    let text = caution(&found).expect("one differs");
    assert!(text.starts_with("Requests of latency/batch=1,prompt_tokens=16,output_tokens=16"), "{text}");
    assert!(text.contains("deviate by 26 % of their mean: that is too much"), "{text}");
    assert_eq!(caution(&busy(|suite, _| suite == "throughput")), None);
}

#[test]
fn what_disturbed_the_machine_stands_above_the_answers() {
    let dir = tempfile::tempdir().unwrap();
    let sample = throughput(1, 100.0, 10.0);
    let manifest = Manifest::new("one", vec![sample.case.clone()], &Method::default());
    let study = Study::create(dir.path().join("s"), manifest).unwrap();
    let disturbances = [0, 1].map(|n| format!("process {n}: other processes use 2.0 of 2 cores")).to_vec();
    let records = Records { samples: vec![sample], disturbances, ..Records::default() };
    let (_, page) = write_results(&study, &records).unwrap();
    let told = "What disturbed the machine: starts 1 and 2: other processes use 2.0 of 2 cores";
    assert_eq!(page.before.iter().filter(|text| *text == told).count(), 1, "{:?}", page.before);
}

/// Going on from one sequence to two costs 9 %, and to four gains between −12 and +14 % for each doubling.
#[test]
fn ranges_that_overlap_do_not_settle_where_batching_stops_to_pay() {
    let found = answer(&busy(|suite, _| suite == "throughput"), "batching");
    assert!(found.text.starts_with("Undecided, so far at 1: a batch of 1 gives 6.0 tokens/s"), "{}", found.text);
    assert!(found.text.contains("the range of a gain that one process start gave"), "{}", found.text);
    assert_eq!((&found.figures["settled"], &found.figures["pays_up_to"]), (&json!(false), &json!(1)));
    let range = &found.figures["batches"][1]["gain_range"];
    assert!(range[0].as_f64().unwrap() < -0.2 && range[1].as_f64().unwrap() > 0.05, "{range}");

    // Ranges that are apart are an answer, though of one start alone.
    let apart = [(1, [100.0, 101.0, 102.0]), (2, [180.0, 182.0, 181.0]), (4, [182.0, 184.0, 183.0])];
    let samples = apart.into_iter().flat_map(|(batch, rates)| rates.map(|tps| throughput(batch, tps, 10.0)));
    let found = answer(&summarised(samples.collect(), vec![]), "batching");
    assert!(found.text.starts_with("At 2: a batch of 2 gives 181 tokens/s"), "{}", found.text);
    assert!(found.text.contains("from one process start, too few for an interval"), "{}", found.text);
    assert!(found.figures["settled"].is_null(), "{:?}", found.figures);
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
fn what_is_used_of_the_device_stands_beside_the_throughput() {
    let of = |cpu_ms: &[Option<f64>], gpu: Option<f64>| {
        let samples = cpu_ms.iter().map(|cpu_ms| {
            let mut sample = throughput(4, 100.0, 10.0);
            sample.measurement.host_ns = 100_000_000;
            sample.reading = Reading { cpu_ms: *cpu_ms, gpu_utilization: gpu, ..Reading::default() };
            sample
        });
        summarised(samples.collect(), vec![])
    };
    let cpu = of(&[None, Some(150.0), Some(170.0), Some(130.0)], None);
    assert_eq!(cpu[0].processors_used(), Some(1.5), "450 ms of 300");
    assert_eq!(lines(&cpu), ["Batch size 4: Throughput = 100 tokens/sec (1.0x), 1.5 processors in use"]);
    let short = of(&[Some(150.0)], None);
    assert!(short[0].processors_used().is_none(), "ticks of 10 ms say nothing of 100");
    let gpu = of(&[None, None], Some(0.97));
    assert_eq!(lines(&gpu), ["Batch size 4: Throughput = 100 tokens/sec (1.0x), GPU 97 % in use"]);
    assert_eq!(
        lines(&of(&[None], None)),
        ["Batch size 4: Throughput = 100 tokens/sec (1.0x)"],
        "not known is not zero"
    );
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
