//! Figures of the device, and GPU time by source, compared with synthetic records whose true figures are known.

use super::tests::{MS, aggregate, span, spans, step, steps, text, value};
use super::*;
use candlescope_core::{GpuTime, KernelRecord, Served};
use candlescope_testkit::records;
use candlescope_testkit::with;
use serde_json::json;
use std::collections::BTreeMap;

const S: i64 = 1_000_000_000;

fn with_peaks(peaks: serde_json::Value) -> RunManifest {
    RunManifest { environment: BTreeMap::from([("peaks".to_string(), peaks)]), ..RunManifest::default() }
}

#[test]
fn utilisation_is_work_over_time_and_peak() {
    let mut a = aggregate(1);
    a.learn(&with_peaks(json!([
        { "kind": "flops", "value": 1e12, "label": "datasheet", "dtype": "bf16" },
        { "kind": "flops", "value": 5e11, "label": "measured", "dtype": "bf16" },
        { "kind": "flops", "value": 9e12, "label": "datasheet", "dtype": "f32" },
        { "kind": "bandwidth", "value": 1e11, "label": "datasheet" },
        { "kind": "bandwidth", "value": 0.0, "label": "measured" },
    ])));
    let mut of_bf16 = span(0, "a", 1, None);
    (of_bf16.flops, of_bf16.dtype) = (Some(10), Some(candlescope_core::DType::BF16));
    a.add(&spans(vec![of_bf16]));
    let mut one = step(Some(Phase::Prefill), None, 0, 100);
    (one.flops, one.bytes) = (Some(40_000_000_000), Some(1_000_000_000));
    let mut two = step(Some(Phase::Prefill), None, 100, 400);
    two.flops = Some(40_000_000_000);
    // 80 GFLOP in 0.4 s are 0.2 TFLOP/s; 1 GB in the 0.1 s of the step that states it is 10 GB/s.
    a.add(&steps(vec![one, two.clone(), step(Some(Phase::Decode), None, 0, 1)]));
    let near = |a: &Aggregate, series: &str, expected: f64| {
        let value = value(a, series).unwrap_or(f64::NAN);
        assert!((value - expected).abs() < 1e-12, "{series} is {value}");
    };
    near(&a, "candlescope_mfu_ratio{peak=\"datasheet\",phase=\"prefill\"}", 0.2);
    near(&a, "candlescope_mfu_ratio{peak=\"measured\",phase=\"prefill\"}", 0.4);
    near(&a, "candlescope_mbu_ratio{peak=\"datasheet\",phase=\"prefill\"}", 0.1);
    assert!(
        !text(&a).contains("phase=\"decode\",peak") && !text(&a).contains("ratio{peak=\"datasheet\",phase=\"decode\"")
    );
    assert_eq!(value(&a, "candlescope_flops_total{phase=\"prefill\"}"), Some(8e10));

    // If only a part of a step is in the window, the same part of its work counts: the rate stays the same.
    a.expire(HostNs(15 * S + 300 * MS as i64));
    near(&a, "candlescope_mfu_ratio{peak=\"datasheet\",phase=\"prefill\"}", 0.04 / 0.3);
    // Fifteen seconds after its end, work is out of the window, and its ratio is gone rather than zero.
    a.expire(HostNs(15 * S + 399 * MS as i64));
    assert!(text(&a).contains("candlescope_mfu_ratio{"));
    a.expire(HostNs(15 * S + 400 * MS as i64));
    assert!(!text(&a).contains("candlescope_mfu_ratio{"));

    // Only the latest work counts when new work comes.
    two.host_start = HostNs(20 * S);
    a.add(&steps(vec![two]));
    let ratio = value(&a, "candlescope_mfu_ratio{peak=\"datasheet\",phase=\"prefill\"}").unwrap();
    assert!((ratio - 0.04 / 0.3).abs() < 1e-12, "{ratio}");
}

#[test]
fn without_a_peak_for_the_type_used_there_is_no_ratio() {
    let mut a = aggregate(1);
    a.learn(&with_peaks(json!([{ "kind": "flops", "value": 1e12, "label": "datasheet", "dtype": "bf16" }, "rubbish"])));
    let mut s = step(Some(Phase::Prefill), None, 0, 100);
    s.flops = Some(1);
    a.add(&steps(vec![s]));
    assert!(!text(&a).contains("mfu_ratio{"), "f32 work says nothing against a bf16 peak");
}

/// One device of 3 GB/s. Two threads decode at the same time for 10 s; every step moves 100 MB in 100 ms. Together that
/// is 2 GB/s, so the device's MBU is 66.7 %; divided by the sum of the steps' durations, it would be 33.3 %.
#[test]
fn steps_of_two_threads_on_one_device_are_over_the_union_of_their_times() {
    let mut a = aggregate(1);
    a.learn(&with_peaks(json!([
        { "kind": "bandwidth", "value": 3e9, "label": "measured" },
        { "kind": "flops", "value": 1e10, "label": "measured" },
    ])));
    let near = |a: &Aggregate, series: &str, expected: f64| {
        let value = value(a, series).unwrap_or(f64::NAN);
        assert!((value - expected).abs() < 1e-9, "{series} is {value}, not {expected}");
    };
    let decode = |request: u64, n: u64| {
        let mut step = step(Some(Phase::Decode), Some(request), n * 100, n * 100 + 100);
        (step.step, step.bytes, step.flops) = (2 * n + request, Some(100_000_000), Some(200_000_000));
        // One of the four sequences has ended.
        (step.tokens, step.new_tokens) = (Some(4), Some(3));
        step
    };
    for n in 0..100 {
        a.add(&steps(vec![decode(0, n), decode(1, n)]));
    }
    near(&a, "candlescope_mbu_ratio{peak=\"measured\",phase=\"decode\"}", 2.0 / 3.0);
    near(&a, "candlescope_mfu_ratio{peak=\"measured\",phase=\"decode\"}", 0.4);
    near(&a, "candlescope_tokens_per_second{phase=\"decode\"}", 60.0);
    near(&a, "candlescope_step_concurrency{phase=\"decode\"}", 2.0);
    near(&a, "candlescope_step_concurrency{phase=\"all\"}", 2.0);
    assert_eq!(value(&a, "candlescope_step_tokens_total{phase=\"decode\"}"), Some(600.0), "tokens that somebody gets");

    // A prefill of a third thread in half of that time: its own rate, over its own time, and 250 steps' time over 100.
    let mut prefill = step(Some(Phase::Prefill), Some(3), 2_000, 7_000);
    (prefill.step, prefill.tokens) = (1_000, Some(1_000));
    a.add(&steps(vec![prefill, step(None, None, 0, 10_000)]));
    near(&a, "candlescope_tokens_per_second{phase=\"prefill\"}", 200.0);
    near(&a, "candlescope_step_concurrency{phase=\"all\"}", 2.5);
    near(&a, "candlescope_mbu_ratio{peak=\"measured\",phase=\"decode\"}", 2.0 / 3.0);

    // One of the threads alone, later: half of it.
    for n in 300..400 {
        a.add(&steps(vec![decode(0, n)]));
    }
    near(&a, "candlescope_mbu_ratio{peak=\"measured\",phase=\"decode\"}", 1.0 / 3.0);
    near(&a, "candlescope_tokens_per_second{phase=\"decode\"}", 30.0);
    near(&a, "candlescope_step_concurrency{phase=\"decode\"}", 1.0);
}

/// Two threads decode steps of 400 ms without a break, 200 ms apart, over 15 s: 5 tokens/s, 2 steps at once, MBU 50 %
/// of 1 GB/s. The figures are the same if six of every ten steps are recorded; without correcting for the ends of such
/// windows they would be 20 % lower.
#[test]
fn a_schedule_leaves_live_rates_as_they_are() {
    let with = |recorded: fn(u64) -> bool, sampled: bool| {
        let mut a = aggregate(1);
        let options = if sampled {
            let schedule = json!({ "skip_first": 0, "wait": 4, "warmup": 0, "active": 6, "repeat": 0 });
            BTreeMap::from([("schedule".to_string(), schedule)])
        } else {
            BTreeMap::new()
        };
        let peaks = json!([{ "kind": "bandwidth", "value": 1e9, "label": "measured" }]);
        a.learn(&RunManifest { options, ..with_peaks(peaks) });
        for n in (0..70).filter(|&n| recorded(n)) {
            let mut step = step(Some(Phase::Decode), None, 200 * n, 200 * n + 400);
            (step.step, step.thread) = (n, thread(n as u32 % 2));
            (step.bytes, step.tokens) = (Some(100_000_000), Some(1));
            a.add(&steps(vec![step]));
        }
        a
    };
    let all = with(|_| true, false);
    let some = with(|n| n % 10 >= 4, true);
    for (name, a) in [("all", &all), ("some", &some)] {
        for (series, truth) in [
            ("candlescope_tokens_per_second{phase=\"decode\"}", 5.0),
            ("candlescope_step_concurrency{phase=\"decode\"}", 2.0),
            ("candlescope_step_concurrency{phase=\"all\"}", 2.0),
            ("candlescope_mbu_ratio{peak=\"measured\",phase=\"decode\"}", 0.5),
        ] {
            let value = value(a, series).unwrap_or(f64::NAN);
            assert!((value / truth - 1.0).abs() < 0.02, "{name}: {series} is {value}, not {truth}");
        }
    }
    // One step in ten says nothing about the steps that ran beside it.
    let alone = with(|n| n % 10 == 0, true);
    assert_eq!(value(&alone, "candlescope_tokens_per_second{phase=\"decode\"}"), None);
}

/// A step that was lost half a minute ago, or a pause, does not affect rates now. Each request has a thread of its own
/// here.
#[test]
fn a_hole_of_long_ago_takes_nothing_from_live_rates() {
    let mut a = aggregate(1);
    let schedule = json!({ "skip_first": 3, "wait": 0, "warmup": 0, "active": 1000, "repeat": 0 });
    a.learn(&RunManifest { options: BTreeMap::from([("schedule".to_string(), schedule)]), ..RunManifest::default() });
    for n in (3..200u64).filter(|&n| n != 10) {
        let mut step = step(Some(Phase::Decode), None, 200 * n, 200 * n + 400);
        (step.step, step.thread, step.tokens) = (n, thread(n as u32 / 4), Some(1));
        a.add(&steps(vec![step]));
        a.expire(HostNs(((200 * n + 400) * MS) as i64));
        let rate = value(&a, "candlescope_tokens_per_second{phase=\"decode\"}");
        assert!(n < 100 || rate.is_some_and(|rate| (rate / 5.0 - 1.0).abs() < 0.02), "{n}: {rate:?}");
    }
}

/// Four threads keep a GPU busy in turns, 100 ms each of their steps of 400 ms. Kernels are recorded of ten steps in a
/// row: at the ends of that window the GPU works for steps whose kernels were not recorded.
#[test]
fn live_a_window_of_kernels_does_not_count_others_work_as_idle() {
    let mut a = aggregate(1);
    for n in 0..40u64 {
        let mut step = step(Some(Phase::Decode), None, 100 * n, 100 * n + 400);
        (step.step, step.thread) = (n, thread(n as u32 % 4));
        let recorded = (10..20).contains(&n);
        step.gpu = recorded.then(|| on_gpu(GpuSource::Cupti, 100 * MS)).flatten();
        let mut batch = steps(vec![step]);
        batch.kernels = recorded.then(|| kernel(Some(n), "GPU-1", 100 * n, 100 * n + 100)).into_iter().collect();
        a.add(&batch);
    }
    assert_eq!(value(&a, "candlescope_gpu_busy_ratio{hw_id=\"GPU-1\"}"), Some(1.0));
}

/// A cold request, in which a step of 10 s moves 1 GB in 100 tokens, then one at 100 tokens/s.
#[test]
fn warm_up_is_in_no_live_figure_but_its_own() {
    warm_up_counts_apart(false);
}

/// Such steps say whom they serve, and are of no request of their own.
#[test]
fn warm_up_of_steps_that_requests_share_is_in_no_live_figure_but_its_own() {
    warm_up_counts_apart(true);
}

fn warm_up_counts_apart(shared: bool) {
    let told = |warmup: u64| {
        let mut a = aggregate(10);
        let options = BTreeMap::from([("warmup".to_string(), json!(warmup))]);
        let peaks = json!([{ "kind": "bandwidth", "value": 1e9, "label": "measured" }]);
        a.learn(&RunManifest { options, ..with_peaks(peaks) });
        for (request, start, end) in [(1, 0, 10_000), (2, 10_000, 11_000)] {
            let mut one = step(Some(Phase::Decode), Some(request), start, end);
            (one.step, one.bytes, one.tokens) = (request, Some(1_000_000_000), Some(100));
            if shared {
                (one.request, one.serves) = (None, vec![Served::new(request, 100, 100)]);
            }
            let mut batch = spans(vec![span(0, "decode", (end - start) * MS, None)]);
            batch.spans[0].step = Some(request);
            batch.steps = vec![one];
            batch.kernels = vec![kernel(Some(request), "GPU-1", start, start + 500)];
            let mut ended = super::tests::request(request, "m", end - start, Some(end - start), Some(100));
            ended.span_id = candlescope_core::SpanId(request);
            batch.requests = vec![ended];
            a.add(&batch);
        }
        a
    };
    let (a, all) = (told(1), told(0));
    for (series, truth, with_all) in [
        ("candlescope_tokens_per_second{phase=\"decode\"}", 100.0, 200.0 / 11.0),
        ("candlescope_mbu_ratio{peak=\"measured\",phase=\"decode\"}", 1.0, 2.0 / 11.0),
        ("candlescope_gpu_busy_ratio{hw_id=\"GPU-1\"}", 0.5, 1.0 / 11.0),
        ("candlescope_span_duration_seconds_count{clock=\"host\",path=\"decode\"}", 1.0, 2.0),
        ("candlescope_steps_total{phase=\"decode\"}", 1.0, 2.0),
        ("candlescope_tokens_total{type=\"output\"}", 100.0, 200.0),
        ("candlescope_kernels_total{kind=\"kernel\"}", 1.0, 2.0),
    ] {
        for (a, truth) in [(&a, truth), (&all, with_all)] {
            let value = value(a, series).unwrap_or(f64::NAN);
            assert!((value - truth).abs() < 1e-9, "{series} is {value}, not {truth}");
        }
    }
    assert_eq!(value(&a, "candlescope_warmup_steps_total{phase=\"decode\"}"), Some(1.0));
    assert_eq!(value(&a, "candlescope_warmup_requests_total"), Some(1.0));
    assert_eq!(value(&all, "candlescope_warmup_requests_total"), Some(0.0));
    let ended = |a: &Aggregate| {
        let text = text(a);
        let counts = text.lines().filter(|line| line.starts_with(&format!("{}_count", cat::REQUEST.name)));
        counts.map(|line| line.rsplit(' ').next().map(str::to_string)).collect::<Vec<_>>()
    };
    assert_eq!((ended(&a), ended(&all)), (vec![Some("1".to_string())], vec![Some("2".to_string())]));
}

fn thread(index: u32) -> Arc<candlescope_core::ThreadInfo> {
    records::thread(index, "worker")
}

fn kernel(step: Option<u64>, device: &str, start_ms: u64, end_ms: u64) -> KernelRecord {
    let gpu_start = HostNs((start_ms * MS) as i64);
    with(records::kernel(device, 0, (end_ms - start_ms) * MS), |r| {
        (r.seq, r.step, r.gpu_start) = (step.map(|_| 1), step, gpu_start)
    })
}

fn on_gpu(source: GpuSource, dur_ns: u64) -> Option<GpuTime> {
    Some(GpuTime { start: HostNs(0), dur_ns, source })
}

/// Two threads' kernels alternate on one device, 10 ms each: it is busy all of 100 ms, each thread's kernels half of
/// that.
#[test]
fn a_device_that_two_threads_keep_busy_is_busy() {
    let mut a = aggregate(1);
    let mut batch = Batch::default();
    for thread in 0..2 {
        let mut step = step(Some(Phase::Decode), Some(thread), 0, 100);
        (step.step, step.gpu) = (thread, on_gpu(GpuSource::Cupti, 50 * MS));
        batch.steps.push(step);
        for n in 0..5 {
            let start = n * 20 + thread * 10;
            batch.kernels.push(kernel(Some(thread), "GPU-1", start, start + 10));
        }
    }
    a.add(&batch);
    assert_eq!(value(&a, "candlescope_gpu_busy_ratio{hw_id=\"GPU-1\"}"), Some(1.0));

    // A step without recorded kernels is not idle time; a recorded step is, while nothing ran.
    let mut idle = step(Some(Phase::Decode), Some(0), 200, 300);
    (idle.step, idle.gpu) = (3, on_gpu(GpuSource::Cupti, 10 * MS));
    batch = steps(vec![step(Some(Phase::Decode), Some(0), 100, 200), idle]);
    batch.kernels = vec![kernel(Some(3), "GPU-1", 210, 220), kernel(Some(3), "GPU-1", 215, 220)];
    a.add(&batch);
    let busy = value(&a, "candlescope_gpu_busy_ratio{hw_id=\"GPU-1\"}").unwrap();
    assert!((busy - 0.55).abs() < 1e-9, "{busy}");
}

/// Two devices that each do 1 GB/s of 2: each is at half its peak, and so is their mean. Against one peak it would be
/// 100 %.
#[test]
fn work_of_several_devices_is_held_against_as_many_peaks() {
    let mut a = aggregate(1);
    a.learn(&with_peaks(json!([{ "kind": "bandwidth", "value": 2e9, "label": "measured" }])));
    let mut batch = Batch::default();
    for device in 0..2 {
        let mut step = step(Some(Phase::Decode), Some(device), 0, 1_000);
        (step.step, step.bytes) = (device, Some(1_000_000_000));
        batch.steps.push(step);
        batch.kernels.push(kernel(Some(device), &format!("GPU-{device}"), 0, 500));
    }
    a.add(&batch);
    let mbu = value(&a, "candlescope_mbu_ratio{peak=\"measured\",phase=\"decode\"}").unwrap();
    assert!((mbu - 0.5).abs() < 1e-9, "{mbu}");
    assert_eq!(value(&a, "candlescope_gpu_busy_ratio{hw_id=\"GPU-1\"}"), Some(0.5));
}

/// Of a path's 12 intervals ten are in a step whose kernels were recorded, one of them launched a kernel of 1 ms; two
/// have marks, of 3 ms. By kernels that is 0.1 ms per call, by marks 3 ms, and the two are never added up.
#[test]
fn sources_of_gpu_time_are_apart_and_a_recorded_interval_without_kernels_counts() {
    let mut a = aggregate(10);
    let mut batch = spans((0..12).map(|_| span(0, "decode/mlp", 5 * MS, None)).collect());
    for (n, span) in batch.spans.iter_mut().enumerate() {
        span.step = Some(u64::from(n >= 10));
    }
    batch.spans[0].gpu = on_gpu(GpuSource::Cupti, MS);
    batch.spans[10].gpu = on_gpu(GpuSource::Event, 3 * MS);
    batch.spans[11].gpu = on_gpu(GpuSource::Event, 3 * MS);
    // Entered in the recorded step, too, and host work only.
    batch.spans.push(span(1, "decode/tokenise", MS, None));
    let mut recorded = step(Some(Phase::Decode), None, 0, 50);
    recorded.gpu = on_gpu(GpuSource::Cupti, MS);
    let mut marked = step(Some(Phase::Decode), None, 50, 100);
    (marked.step, marked.gpu) = (1, on_gpu(GpuSource::Event, 6 * MS));
    batch.steps = vec![recorded, marked];
    batch.kernels = vec![kernel(Some(0), "GPU-1", 10, 11)];
    a.add(&batch);
    let of = |what: &str, path: &str, source: &str| {
        let labels = format!("clock=\"gpu\",path=\"{path}\",source=\"{source}\"");
        value(&a, &format!("candlescope_span_duration_seconds_{what}{{{labels}}}"))
    };
    let mean = |source| of("sum", "decode/mlp", source).unwrap() / of("count", "decode/mlp", source).unwrap();
    assert!((mean("cupti") - 0.000_1).abs() < 1e-12, "{}", mean("cupti"));
    assert!((mean("event") - 0.003).abs() < 1e-12, "{}", mean("event"));
    assert_eq!(of("count", "decode/tokenise", "cupti"), Some(1.0), "recorded, and nothing");
    assert_eq!(of("count", "decode/tokenise", "event"), None, "not marked is not nothing");
    for (source, seconds) in [("cupti", 0.001), ("event", 0.006)] {
        let labels = format!("clock=\"gpu\",phase=\"decode\",source=\"{source}\"");
        assert_eq!(value(&a, &format!("candlescope_phase_seconds_total{{{labels}}}")), Some(seconds));
        let labels = format!("phase=\"decode\",source=\"{source}\"");
        assert_eq!(value(&a, &format!("candlescope_gpu_steps_total{{{labels}}}")), Some(1.0));
    }
}

/// While one thread adds batches, another gathers: after the first value there always is one.
#[test]
fn a_reader_never_meets_a_gap() {
    let mut a = aggregate(1);
    a.learn(&with_peaks(json!([
        { "kind": "flops", "value": 1e12, "label": "measured" },
        { "kind": "bandwidth", "value": 1e12, "label": "measured" },
    ])));
    let told = |n: u64| {
        let mut step = step(Some(Phase::Decode), Some(1), n, n + 1);
        (step.flops, step.bytes, step.tokens) = (Some(1_000), Some(1_000), Some(1));
        step
    };
    a.add(&steps(vec![told(0)]));
    let registry = a.registry();
    let done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut gathered = 0u64;
            while !done.load(order) || gathered < 100 {
                let families = registry.gather();
                for name in [
                    "candlescope_mfu_ratio",
                    "candlescope_mbu_ratio",
                    "candlescope_tokens_per_second",
                    "candlescope_step_concurrency",
                    "candlescope_run_info",
                ] {
                    let family = families.iter().find(|family| family.name() == name);
                    let n = family.map_or(0, |family| family.get_metric().len());
                    let expected = if name.ends_with("concurrency") { 2 } else { 1 };
                    assert_eq!(n, expected, "{name} after {gathered} looks");
                }
                gathered += 1;
            }
        });
        for n in 1..3_000 {
            a.add(&steps(vec![told(n)]));
            a.expire(HostNs(((n + 1) * MS) as i64));
            // The manifest has more facts than before.
            let mut run = with_peaks(json!([
                { "kind": "flops", "value": 1e12, "label": "measured" },
                { "kind": "bandwidth", "value": 1e12, "label": "measured" },
            ]));
            run.run_id = format!("r{n}");
            a.learn(&run);
        }
        done.store(true, order);
        reader.join().expect("no gap");
    });
}

/// Quantised weights are multiplied in a type of their own, for which a peak of f32 is meaningless.
#[test]
fn the_models_type_does_not_stand_in_for_the_one_that_was_used() {
    let mut a = aggregate(1);
    let mut run = with_peaks(json!([{ "kind": "flops", "value": 1e12, "label": "datasheet", "dtype": "f32" }]));
    run.model.insert("dtype".into(), "f32".into());
    a.learn(&run);
    let mut s = step(Some(Phase::Prefill), None, 0, 100);
    s.flops = Some(1_000_000);
    a.add(&steps(vec![s]));
    assert!(text(&a).contains("mfu_ratio{"), "nothing else is known than the model's type");
    let mut of_q8 = span(0, "a", 1, None);
    (of_q8.flops, of_q8.dtype) = (Some(1_000_000), Some(candlescope_core::DType::Q8_1));
    a.add(&spans(vec![of_q8]));
    assert!(!text(&a).contains("mfu_ratio{"));
}
