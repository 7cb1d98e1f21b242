//! What bounds a phase, where batching stops paying, what is a bound and what only usual, and which device is meant.

use crate::common::{self, request, span, step, write_run};
use candlescope_figures::Analysis;
use candlescope_predict::roofline::{
    Bound, LoadTest, LoadTestError, Outlook, PointKind, RunRoofline, Scenario, Thresholds, device_row, facts_shape,
    load_stages, phase_points, step_times,
};
use candlescope_reader::Run;
use candlescope_report::roofline::{devices_json, devices_text, dynamic_text, load_text, static_text};
use candlescope_schema::{Batch, DType, Phase};
use candlescope_work::devices::{
    DRIVER_LAUNCH_NS, Device, Format, KERNEL_LEAST_NS, LAUNCH_ANYWHERE_NS, LAUNCH_NS, known_device, peaks_device,
};
use candlescope_work::known_models::{known_model, stored_format};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

fn bf16() -> Scenario {
    Scenario::new(Format::named("bf16").unwrap())
}

fn predicted(model: &str, device: &str, scenario: &Scenario) -> Outlook {
    Outlook::of(&known_model(model).unwrap(), &known_device(device).unwrap(), scenario)
}

/// Ten decoding steps of two operations of 5 ms, one of which moves bytes and one computes. The machine has 1 TFLOP/s
/// and 20 GB/s: each is at 80 % of its own roof.
fn mixed() -> (Batch, candlescope_schema::run::RunManifest) {
    let mut batch = Batch::default();
    let mut asked = request(1, 0, 105 * MS);
    (asked.prompt_tokens, asked.output_tokens, asked.batch) = (Some(8), Some(11), Some(1));
    (asked.ttft_ns, asked.last_token_ns) = (Some(5 * MS), Some(105 * MS));
    batch.requests.push(asked);
    let work = [(1_000_000, 80_000_000), (4_000_000_000, 1_000_000)];
    for at in 0..10u64 {
        let start = (5 + 10 * at) as i64 * MS as i64;
        let mut made = step(at, "decode", start, 10 * MS);
        (made.phase, made.request, made.tokens) = (Some(Phase::Decode), Some(1), Some(1));
        made.flops = Some(work.iter().map(|(flops, _)| flops).sum());
        (made.bytes, made.io_bytes) = (made.flops.map(|_| 81_000_000), Some(81_000_000));
        batch.steps.push(made);
        let mut whole = span(10 * at, None, "decode", start, 10 * MS);
        (whole.step, whole.phase) = (Some(at), Some(Phase::Decode));
        batch.spans.push(whole);
        for (number, ((flops, bytes), name)) in work.into_iter().zip(["gate_proj", "scores"]).enumerate() {
            let begin = start + (number as u64 * 5 * MS) as i64;
            let seq = 10 * at + number as u64 + 1;
            let mut own = span(seq, Some(10 * at), &format!("decode/{name}"), begin, 5 * MS);
            (own.step, own.phase, own.dtype) = (Some(at), Some(Phase::Decode), Some(DType::F32));
            (own.flops, own.bytes, own.io_bytes) = (Some(flops), Some(bytes), Some(bytes));
            batch.spans.push(own);
        }
    }
    let mut manifest = common::manifest(&batch);
    manifest.environment.insert("cpu_model".into(), "a processor".into());
    manifest.environment.insert("peaks".into(), peaks("f32"));
    manifest.model.insert("compute_dtype".into(), "f32".into());
    (batch, manifest)
}

fn peaks(dtype: &str) -> Value {
    json!([
        { "kind": "flops", "value": 1e12, "label": "measured", "source": "made up", "dtype": dtype },
        { "kind": "bandwidth", "value": 20e9, "label": "measured", "source": "made up" },
    ])
}

fn open(dir: &std::path::Path, (batch, manifest): &(Batch, candlescope_schema::run::RunManifest)) -> (Run, Analysis) {
    write_run(dir, batch, manifest, 1_000);
    let run = Run::open(dir).unwrap();
    let analysis = Analysis::of(&run);
    (run, analysis)
}

#[test]
fn a_phase_is_held_against_the_sum_of_its_operations_roofs() {
    let dir = tempfile::tempdir().unwrap();
    let (run, analysis) = open(dir.path(), &mixed());
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let phase = measured.points.iter().find(|point| point.kind == PointKind::Phase).unwrap();
    // 4 ms at the memory's roof and 4 ms at the other, of 10 ms; at the intensity of both together it would be 40.5 %.
    let share = phase.utilisation().unwrap();
    assert!((share - 0.8).abs() < 0.01, "{share}");
    let [decode] = measured.bottlenecks.as_slice() else { panic!("{:?}", measured.bottlenecks) };
    assert!(matches!(decode.bound, Some(Bound::Memory | Bound::Compute)), "{decode:?}");
    // The suites' answers rest on the same points.
    let wall = phase_points(&analysis, None).into_iter().find(|point| point.over == "wall").unwrap();
    assert_eq!(wall.utilisation(), phase.utilisation());
}

/// What a step of quantised weights moves bounds it, below every ridge, also where int8 has no FLOP/s.
#[test]
fn without_flops_of_int8_memory_answers_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (mut batch, mut manifest) = mixed();
    manifest.model.insert("compute_dtype".into(), "i8".into());
    for span in &mut batch.spans {
        span.dtype = Some(DType::Q8_0);
        span.flops = span.flops.map(|flops| flops.min(1_000_000));
    }
    batch.steps.iter_mut().for_each(|step| step.flops = Some(2_000_000));
    let (run, analysis) = open(dir.path(), &(batch, manifest));
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let phase = measured.points.iter().find(|point| point.kind == PointKind::Phase).unwrap();
    assert!(phase.utilisation().is_some_and(|share| (share - 0.405).abs() < 0.01), "{:?}", phase.under);
    assert_eq!(phase.under[0].bound, Some(Bound::Memory));
}

#[test]
fn points_of_a_processor_are_not_drawn_under_another_devices_roof() {
    let dir = tempfile::tempdir().unwrap();
    let (run, analysis) = open(dir.path(), &mixed());
    let gpu = known_device("L4").unwrap();
    let measured = RunRoofline::of(&run, &analysis, Some(&gpu), &Thresholds::default());
    assert!(measured.roofs.iter().all(|roof| !roof.source().contains("L4")), "{:?}", measured.roofs);
    assert!(measured.comparisons.is_empty() && measured.points.iter().all(|point| point.predicted_ns.is_none()));
    assert!(measured.notes[0].contains("L4 is not the device of this run"), "{:?}", measured.notes);
    assert!(dynamic_text(&[measured], None, 120).contains("L4 is not the device"));
}

#[test]
fn dimensions_and_loads_that_nothing_has_end_in_an_error() {
    let mut model = json!({
        "architecture": "llama", "vocab_size": 259, "hidden_size": 128, "intermediate_size": 384, "layers": 4,
        "heads": 4, "kv_heads": 2, "head_dim": 32, "context_length": 2048, "parameters": 853_888,
    });
    let facts = |model: &Value| facts_shape(&model.as_object().unwrap().clone().into_iter().collect());
    assert!(facts(&model).is_ok());
    for key in ["heads", "vocab_size", "hidden_size", "layers", "kv_heads", "head_dim", "intermediate_size"] {
        let before = model[key].take();
        for value in [1_800_000_000_000_000_000_u64, 100_000_000] {
            model[key] = value.into();
            assert!(facts(&model).is_err(), "{key} = {value}");
        }
        model[key] = before;
    }
    let load = |in_flight: f64| {
        let spread = json!({ "n": 5, "median": 64.0, "p95": null });
        let figures = json!({ "in_flight": in_flight, "output_tokens_per_s": 100.0, "ttft_ns": spread,
            "tpot_ns": { "n": 5, "median": 9e6, "p95": null }, "prompt_tokens": spread, "output_tokens": spread });
        let stage = json!({ "level": { "kind": "concurrency", "value": 1 }, "figures": figures });
        json!({ "schema_version": 1, "target": { "model": "smollm2-135m" }, "stages": [stage] }).to_string()
    };
    assert!(LoadTest::read(load(8.0).as_bytes()).is_ok());
    for wrong in [1e308, 1e19, -1.0] {
        let error = LoadTest::read(load(wrong).as_bytes()).unwrap_err();
        assert!(matches!(error, LoadTestError::Damaged { figure: "in_flight", .. }), "{error}");
    }
    let other = LoadTest::read(r#"{ "stages": [] }"#.as_bytes()).unwrap_err();
    let chain = std::iter::successors(Some(&other as &dyn std::error::Error), |error| error.source());
    assert_eq!(chain.filter(|error| error.to_string().contains("schema_version")).count(), 1, "said once: {other}");
    // A scenario that somebody builds stays within what can be reckoned with.
    let outlook = predicted("gpt2", "H100", &bf16().batch(u64::MAX).tokens(u64::MAX, u64::MAX).devices(u64::MAX));
    assert!(outlook.decode.ns.is_some());
}

#[test]
fn a_load_is_predicted_like_for_like() {
    let spread = |median: f64| json!({ "n": 5, "median": median, "p95": null });
    let figures = json!({ "in_flight": 1.0, "output_tokens_per_s": 15.1, "ttft_ns": spread(1e9), "tpot_ns": spread(6e6),
        "prompt_tokens": spread(64.0), "output_tokens": spread(24.0) });
    let test = json!({ "schema_version": 1, "target": { "model": "smollm2-135m" },
        "stages": [{ "level": { "kind": "concurrency", "value": 1 }, "figures": figures }] });
    let test = LoadTest::read(test.to_string().as_bytes()).unwrap();
    let (shape, device) = (known_model("smollm2-135m").unwrap(), known_device("H200").unwrap());
    let stages = load_stages(&test, &shape, &device, &bf16(), &Thresholds::default());
    let [stage] = stages.as_slice() else { panic!("{stages:?}") };
    let (ttft, tpot) = step_times(&shape, &device, &bf16().tokens(64, 24));
    let request = ttft.unwrap().mid + 23.0 * tpot.unwrap().mid;
    assert!((stage.predicted_tokens_per_s.unwrap() / (24.0 / request * 1e9) - 1.0).abs() < 1e-9);
    assert!(stage.predicted_decode_tokens_per_s > stage.predicted_tokens_per_s);
    let point = stage.point.unwrap();
    let outlook = test.outlook(&shape, &device, &bf16());
    assert_eq!((outlook.scenario.prompt, outlook.scenario.output, outlook.scenario.batch), (64, 24, 1));
    assert_eq!(point.intensity, outlook.decode.intensity);
    assert!((point.flops_per_s - outlook.decode.flops / 6e6 * 1e9).abs() < 1.0);
    let text = load_text(&outlook, &stages, 120);
    assert!(text.contains("64 prompt tokens, 24 to generate"), "{text}");
}

/// Against the plainest search: every batch from one.
#[test]
fn the_knee_is_the_smallest_batch_that_reaches_it() {
    let scenario = bf16();
    for (model, device) in [("llama-3-8b", "L4"), ("llama-2-7b", "H100"), ("smollm2-135m", "H200"), ("gpt2", "T4")] {
        let outlook = predicted(model, device, &scenario);
        let fitting = || outlook.batches.iter().filter(|row| row.fits != Some(false));
        let highest = fitting().filter_map(|row| row.tokens_per_s).fold(0.0, f64::max);
        let first = (1..).find(|batch| outlook.tokens_per_s_at(*batch).is_some_and(|rate| rate >= 0.8 * highest));
        assert_eq!(outlook.recommended.knee, first, "{model} on {device}");
        // Whatever batch was asked for.
        let asked = predicted(model, device, &scenario.clone().batch(25));
        assert_eq!(asked.recommended.knee, first, "{model} on {device}, asked for 25");
    }
}

#[test]
fn the_limit_that_fails_is_named() {
    let asked = |goal: &str| predicted("llama-3-8b", "H100", &bf16().goal(goal.parse().unwrap())).recommended.reason;
    let reason = asked("ttft=1us,tpot=1s");
    assert!(reason.contains("ttft is") && !reason.contains("tpot is"), "{reason}");
    let reason = asked("ttft=100s,tpot=9ms");
    assert!(reason.contains("with one more sequence tpot is") && !reason.contains("ttft"), "{reason}");
}

#[test]
fn the_share_of_memory_is_a_choice() {
    let of = |share: f64| predicted("llama-3-8b", "H100", &bf16().memory_share(share)).largest_batch.unwrap();
    assert!(of(0.95) > of(0.9) && of(0.9) > of(0.5));
    assert_eq!(of(0.9), predicted("llama-3-8b", "H100", &bf16()).largest_batch.unwrap());
    let said = predicted("llama-3-8b", "H100", &bf16().memory_share(0.95)).assumptions.join("\n");
    assert!(said.contains("95 % of the device"), "{said}");
}

#[test]
fn more_than_the_models_context_is_said_above_the_figures() {
    let beyond = predicted("llama-2-7b", "H100", &bf16().tokens(8_000, 128));
    assert!(beyond.warnings[0].contains("8128") && beyond.warnings[0].contains("4096"), "{:?}", beyond.warnings);
    let text = static_text(&beyond, 120);
    assert!(text.find("Beware") < text.find("Latency") && text.contains("Beware"), "{text}");
    assert_eq!(predicted("llama-2-7b", "H100", &bf16()).warnings, Vec::<String>::new());
}

/// A step of few tokens does not meet all experts.
#[test]
fn a_mixture_reads_the_experts_that_are_expected() {
    let read = |batch: u64| {
        let outlook = predicted("mixtral-8x7b", "H200", &bf16().batch(batch));
        let up = outlook.decode.operations.iter().find(|timed| timed.operation.name == "up_proj").unwrap();
        up.operation.cost.weight_bytes / (4096.0 * 14_336.0 * 2.0)
    };
    assert_eq!(read(1), 2.0);
    let expected = |batch: i32| 8.0 * (1.0 - 0.75_f64.powi(batch));
    assert!((read(4) - expected(4)).abs() < 1e-9 && (expected(4) - 5.47).abs() < 0.01);
    assert!((read(64) - 8.0).abs() < 1e-6);
}

#[test]
fn small_kernels_have_a_usual_time_and_a_shortest_one() {
    let outlook = predicted("smollm2-135m", "H200", &bf16());
    let said = outlook.assumptions.join("\n");
    assert!(!said.contains("lower bound") && said.contains("no bound") && said.contains("1.17 µs"), "{said}");
    // Nothing hides the kernels of this device.
    let alone =
        Device { launch: Some(candlescope_work::estimate::Estimate::exact(1.0)), ..known_device("H200").unwrap() };
    let outlook = Outlook::of(&known_model("smollm2-135m").unwrap(), &alone, &bf16());
    let ns = outlook.decode.ns.unwrap();
    assert!(ns.low < ns.mid && ns.low > KERNEL_LEAST_NS * outlook.decode.kernels, "{ns:?}");
    assert_eq!(ns.mid, outlook.decode.device_ns.unwrap());
}

/// On a host of an H100 tokens took 1.33, 1.27, 1.69, 1.52 and 2.04 times what an H200's host makes of them.
#[test]
fn launches_of_other_hosts_are_within_the_range() {
    let measured =
        [("smollm2-135m", 0.75), ("gpt2", 0.79), ("tinyllama-1.1b", 0.59), ("qwen2.5-7b", 0.66), ("llama-3-8b", 0.49)];
    for (model, share) in measured {
        let outlook = predicted(model, "H100-SXM", &bf16());
        let ns = outlook.decode.ns.unwrap();
        assert!(ns.high * 1.005 > ns.mid / share, "{model}: {ns:?}");
        let text = static_text(&outlook, 120);
        assert!(text.contains("bench peaks") && text.contains(" – "), "{text}");
    }
    // A machine whose driver takes twice as long to launch.
    let text = json!({
        "format": "candlescope-peaks", "device": { "kind": "cuda", "name": "NVIDIA H100 80GB HBM3" },
        "figures": [
            { "kind": "flops", "dtype": "bf16", "value": 6e14 }, { "kind": "read", "value": 2.8e12 },
            { "kind": "launch", "value": 2.0 * DRIVER_LAUNCH_NS / 1e9 },
        ],
    });
    let device = peaks_device(&text.to_string(), None).unwrap();
    let launch = device.launch.unwrap();
    assert!((launch.mid / LAUNCH_NS.mid - 2.0).abs() < 1e-9 && launch.high != LAUNCH_ANYWHERE_NS.high, "{launch:?}");
    assert!(device.launch_source.as_deref().is_some_and(|source| source.contains("in proportion")));
}

#[test]
fn devices_stand_side_by_side_with_what_compares() {
    let all: Vec<_> = [("B200", Some(4.0)), ("MI300X", Some(2.0)), ("M4", None)]
        .into_iter()
        .map(|(device, price)| {
            let outlook = predicted("qwen2.5-0.5b", device, &bf16());
            let row = device_row(&outlook, price);
            (outlook, row)
        })
        .collect();
    let [(b200, of_b200), (mi300x, of_mi300x), (_, of_m4)] = all.as_slice() else { panic!("three") };
    assert!(!of_b200.launches_unknown && of_mi300x.launches_unknown);
    // Where launches are left out the whole time is no figure to compare.
    assert!(of_mi300x.tpot_ns.unwrap().mid < of_b200.tpot_ns.unwrap().mid / 10.0);
    let device = |row: &candlescope_predict::roofline::DeviceRow| row.tpot_on_device_ns.unwrap();
    assert!((0.05..2.0).contains(&(device(of_mi300x) / device(of_b200))));
    assert_eq!((of_m4.tokens_per_s, of_m4.price_per_million), (None, None), "nothing is made up");
    let price = of_b200.price_per_million.unwrap();
    assert!((price - 4.0 / 3600.0 / b200.tokens_per_s.unwrap() * 1e6).abs() < 1e-9);
    let text = devices_text(&all, 160);
    for shown in ["≥ ", "≤ ", "least", "what launches cost on MI300X, M4 is not known", "price an hour"] {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
    }
    let alone = static_text(mi300x, 160);
    for shown in ["at least ", "(launches unknown)", "lower bounds", "Output: ≤ "] {
        assert!(alone.contains(shown), "{shown} is not in\n{alone}");
    }
    assert_eq!(devices_json(&all)["devices"][1]["launches_unknown"], true);
}

#[test]
fn names_say_how_weights_are_stored() {
    for (name, model, format) in [
        ("TheBloke/Llama-2-7B-AWQ", "llama-2-7b", Some("int4")),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", Some("int4")),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", Some("int8")),
        ("TheBloke/Llama-2-7B-Chat-fp16", "llama-2-7b", Some("f16")),
        ("RedHatAI/Meta-Llama-3-8B-Instruct-FP8", "llama-3-8b", Some("fp8")),
        ("TheBloke/Llama-2-7B-GGUF", "llama-2-7b", None),
        ("config:llama-3-8b", "llama-3-8b", None),
    ] {
        assert_eq!(known_model(name).unwrap().name, known_model(model).unwrap().name, "{name}");
        assert_eq!(stored_format(name), format, "{name}");
        assert!(format.is_none_or(|format| Format::named(format).is_ok()));
    }
}
