//! Findings that hold operations against what the device allows: 10 TFLOP/s, 1 TB/s.

use super::made::{Piece, diagnose, gpu_run, near, queued, with_result};
use crate::common::span;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, FigureSource, Missing};
use candlescope_schema::run::RunManifest;
use candlescope_schema::{Batch, DType, HostNs, SampleRecord};
use candlescope_testkit::with;
use serde_json::json;

/// 10 kernels of 100 µs at `path`, with what each interval there does.
fn run(path: &'static str, flops: u64, bytes: u64, io_bytes: u64) -> (Batch, RunManifest, f64) {
    let list: Vec<_> = (0..10).map(|n| (path, "gemm", 100_000, n)).collect();
    let (pieces, ns) = with_result(queued(&list));
    let (mut batch, manifest) = gpu_run(&pieces, ns);
    for span in batch.spans.iter_mut().filter(|span| span.path.path == path) {
        (span.flops, span.bytes, span.io_bytes) = (Some(flops), Some(bytes), Some(io_bytes));
        span.dtype = Some(DType::BF16);
    }
    (batch, manifest, ns as f64)
}

#[test]
fn recorded_steps_that_are_longer_ones_gain_no_more_than_their_share() {
    // Eight recorded steps of 1 ms, four fifths of it one kernel; forty others, not recorded, take a fifth of that.
    let list = [("decode/linear", "gemm", 800_000, 0), ("decode/head", "gemm", 1_000, 0)];
    let (pieces, _) = with_result(queued(&list));
    let (mut batch, manifest) = gpu_run(&pieces, 1_000_000);
    for span in batch.spans.iter_mut().filter(|span| span.path.path == "decode/linear") {
        (span.flops, span.bytes, span.io_bytes) = (Some(1_000), Some(1_000_000), Some(1_000_000));
    }
    for n in 100..140 {
        let (begin, seq) = (n as i64 * 100_000_000, (1 << 40) + n * 1_000_000);
        batch.spans.push(with(span(seq, None, "decode", begin, 200_000), |r| r.step = Some(n)));
        batch.steps.push(with(super::made::decode(n, begin, 200_000, 110), |r| r.seq = seq));
    }
    let mut counted = crate::common::manifest(&batch);
    (counted.gpu, counted.options, counted.environment) = (manifest.gpu, manifest.options, manifest.environment);
    counted.model = manifest.model;
    let found = diagnose(&(batch, counted));
    let gain = found.one(AdviceCode::BelowRoof).gain;
    assert!(gain.high <= 0.81, "{gain:?}");
}

#[test]
fn a_product_far_below_its_roof() {
    // 10 MB in 100 µs is 0.1 TB/s, a tenth of the roof; a short kernel shows how short they can be.
    let (batch, manifest, ns) = run("decode/linear", 1_000, 10_000_000, 10_000_000);
    let found = diagnose(&(batch.clone(), manifest.clone()));
    found.none(AdviceCode::WeightStreaming);
    // Without a shorter one, no kernel is known to be possible below 100 µs.
    found.none(AdviceCode::BelowRoof);

    let list = (0..10).map(|n| ("decode/linear", "gemm", 100_000, n)).chain([("decode/head", "gemm", 1_000, 0)]);
    let (pieces, _) = with_result(queued(&list.collect::<Vec<_>>()));
    let (mut batch, manifest) = gpu_run(&pieces, ns as u64 + 2_000);
    for span in batch.spans.iter_mut().filter(|span| span.path.path == "decode/linear") {
        (span.flops, span.bytes, span.io_bytes) = (Some(1_000), Some(10_000_000), Some(10_000_000));
    }
    let found = diagnose(&(batch.clone(), manifest.clone()));
    let advice = found.one(AdviceCode::BelowRoof);
    let share = 1e6 / (ns + 2e3);
    near(advice.gain, share * (1.0 - 0.1 / 0.75), share * (1.0 - 0.1 / 0.875), share * 0.9, 0.01);
    assert_eq!(advice.place.path.as_deref(), Some("decode/linear"));
    assert!((advice.figure("of_roof").unwrap() - 0.1).abs() < 1e-6);
    assert_eq!(advice.confidence.level, ConfidenceLevel::Medium);

    // What steps without recorded kernels compute is in none of the kernels' time.
    let mut longer = batch.clone();
    for n in 0..8 {
        let begin = (100 + n as i64) * 100_000_000;
        let seq = (1 << 40) + (100 + n) * 1_000_000;
        let own = with(super::made::decode(100 + n, begin, ns as u64, 110), |r| r.seq = seq);
        longer.spans.push(with(span(seq, None, "decode", begin, ns as u64), |r| r.step = Some(100 + n)));
        for at in 0..10 {
            longer.spans.push(with(span(seq + 1 + at, Some(seq), "decode/linear", begin + 10, 10), |r| {
                (r.step, r.flops) = (Some(100 + n), Some(1_000));
                (r.bytes, r.io_bytes) = (Some(100_000_000), Some(100_000_000));
            }));
        }
        longer.steps.push(own);
    }
    let found = diagnose(&(longer, manifest.clone()));
    assert!((found.one(AdviceCode::BelowRoof).figure("of_roof").unwrap() - 0.1).abs() < 1e-6);

    // The datasheet is trusted less, and without any peak nothing is said.
    let mut datasheet = manifest.clone();
    let peaks = datasheet.environment.remove("measured_peaks").unwrap();
    let peaks = peaks.to_string().replace("measured", "datasheet");
    datasheet.environment.insert("peaks".into(), serde_json::from_str(&peaks).unwrap());
    let found = diagnose(&(batch.clone(), datasheet));
    let advice = found.one(AdviceCode::BelowRoof);
    assert_eq!(advice.confidence.level, ConfidenceLevel::Low);
    let bandwidth = advice.evidence.iter().find(|figure| figure.name == "bandwidth").unwrap();
    assert_eq!(bandwidth.source, FigureSource::Datasheet);
    let mut unknown = manifest;
    unknown.environment.remove("measured_peaks");
    assert_eq!(diagnose(&(batch, unknown)).lacks(AdviceCode::BelowRoof), Some(Missing::Peaks));
}

#[test]
fn weights_at_the_memory_s_rate_want_fewer_bits() {
    // 80 MB in 100 µs: 0.8 of the bandwidth.
    let (batch, mut manifest, ns) = run("decode/linear", 80_000_000, 80_000_000, 81_000_000);
    manifest.model.insert("parameters".into(), json!(1_000_000));
    manifest.model.insert("weight_bytes".into(), json!(2_000_000));
    let (mut list, ns) = (batch, ns);
    // A short kernel, so that shorter ones are known to be possible.
    let short = list
        .kernels
        .iter()
        .find(|kernel| kernel.path.as_ref().is_some_and(|path| path.path == "decode/linear"))
        .unwrap();
    let mut short = short.clone();
    short.gpu_start = HostNs(short.gpu_start.0 - 5_000);
    short.gpu_dur_ns = 1_000;
    short.path = Some(crate::common::path("decode/norm"));
    list.kernels.insert(0, short);
    let found = diagnose(&(list.clone(), manifest.clone()));
    let advice = found.one(AdviceCode::WeightStreaming);
    let share = 1e6 / ns;
    near(advice.gain, share * (1.0 - 0.5 / 0.75), share * (1.0 - 0.5 / 0.875), share * (1.0 - 4.5 / 16.0), 0.01);
    assert_eq!((advice.figure("bits"), advice.figure("to_bits")), (Some(16.0), Some(8.0)));
    found.none(AdviceCode::BelowRoof);
    // 4-bit weights have nothing left to give.
    manifest.model.insert("weight_bytes".into(), json!(562_500));
    diagnose(&(list, manifest)).none(AdviceCode::WeightStreaming);
}

#[test]
fn a_cache_that_is_read_slowly() {
    let (mut batch, manifest, ns) = run("decode/attn/scores", 1_000, 20_000_000, 20_000_000);
    let mut short = batch.kernels[0].clone();
    short.gpu_start = HostNs(short.gpu_start.0 - 5_000);
    short.gpu_dur_ns = 1_000;
    short.path = Some(crate::common::path("decode/norm"));
    batch.kernels.insert(0, short);
    let found = diagnose(&(batch, manifest));
    let advice = found.one(AdviceCode::KvBandwidth);
    let share = 1e6 / ns;
    near(advice.gain, share * (1.0 - 0.2 / 0.75), share * (1.0 - 0.2 / 0.875), share * 0.8, 0.01);
    found.none(AdviceCode::BelowRoof);
    let (quick, manifest, _) = run("decode/attn/scores", 1_000, 80_000_000, 80_000_000);
    diagnose(&(quick, manifest)).none(AdviceCode::KvBandwidth);
}

#[test]
fn clocks_that_power_holds_down() {
    // 800 MFLOP in 100 µs are 8 of 10 TFLOP/s: bound by computing.
    let (mut batch, manifest, ns) = run("decode/linear", 800_000_000, 1_000, 2_000);
    let sample = |batch: &mut Batch, hertz: f64, capped: f64| {
        batch.samples.clear();
        for (n, step) in batch.steps.clone().iter().enumerate() {
            let mut add = |metric, value, unit| {
                let at = HostNs(step.host_start.0 + 1_000);
                batch.samples.push(SampleRecord::new(at, super::made::DEVICE, metric, value, unit));
            };
            add("candlescope_gpu_clock_hertz_sm", if n == 0 { 2e9 } else { hertz }, "hertz");
            add("candlescope_gpu_throttled_sw_power_cap", capped, "count");
            // Of an engine that computes nothing.
            add("candlescope_gpu_clock_hertz_video", 4e9, "hertz");
        }
    };
    assert_eq!(diagnose(&(batch.clone(), manifest.clone())).lacks(AdviceCode::ClocksLow), Some(Missing::ClockSamples));
    sample(&mut batch, 2e9, 0.0);
    diagnose(&(batch.clone(), manifest.clone())).none(AdviceCode::ClocksLow);
    sample(&mut batch, 1e9, 1.0);
    // Without kernels, or without what they compute, it is not known what a higher clock would bring.
    let mut without = batch.clone();
    without.kernels.clear();
    assert_eq!(diagnose(&(without, manifest.clone())).lacks(AdviceCode::ClocksLow), Some(Missing::Kernels));
    let mut silent = batch.clone();
    silent.spans.iter_mut().for_each(|span| (span.flops, span.bytes, span.io_bytes) = (None, None, None));
    assert_eq!(diagnose(&(silent, manifest.clone())).lacks(AdviceCode::ClocksLow), Some(Missing::Work));
    // Those of a GPU on which nothing ran are not this one's.
    let mut other = batch.clone();
    other.samples.iter_mut().for_each(|sample| sample.device = "GPU-0".into());
    assert_eq!(diagnose(&(other, manifest.clone())).lacks(AdviceCode::ClocksLow), Some(Missing::ClockSamples));
    let found = diagnose(&(batch, manifest));
    let advice = found.one(AdviceCode::ClocksLow);
    // One of eight samples has 2 GHz: the mean is 1.125.
    let share = 1e6 / ns * (1.0 - 1.125 / 2.0);
    near(advice.gain, 0.75 * share, 0.875 * share, share, 0.01);
    assert_eq!(advice.figure("highest_hertz"), Some(2e9));
}

#[test]
fn layers_and_their_siblings_on_the_device() {
    let paths = [
        "decode/block[0]",
        "decode/block[1]",
        "decode/block[2]",
        "decode/block[3]",
        "decode/block[4]",
        "decode/block[5]",
    ];
    let run = |slow: u64, kernels: bool, derived: bool| {
        let list: Vec<_> =
            paths.iter().enumerate().map(|(n, path)| (*path, "gemm", if n == 3 { slow } else { 100_000 }, 0)).collect();
        let (pieces, ns): (Vec<Piece>, u64) = with_result(queued(&list));
        let (mut batch, manifest) = gpu_run(&pieces, ns);
        let times: std::collections::HashMap<u64, u64> =
            batch.kernels.iter().filter_map(|kernel| Some((kernel.seq?, kernel.gpu_dur_ns))).collect();
        for span in &mut batch.spans {
            span.gpu = times.get(&span.seq).map(|ns| candlescope_schema::GpuTime {
                start: span.host_start,
                dur_ns: *ns,
                source: candlescope_schema::GpuSource::Cupti,
            });
            span.derived = span.gpu.and(derived.then_some(true));
        }
        if !kernels {
            batch.kernels.clear();
        }
        (diagnose(&(batch, manifest)), ns as f64)
    };
    for derived in [false, true] {
        let (found, ns) = run(200_000, true, derived);
        let advice = found.one(AdviceCode::StragglerLayer);
        assert_eq!(advice.place.path.as_deref(), Some("decode/block[3]"));
        near(advice.gain, 75e3 / ns, 87.5e3 / ns, 100e3 / ns, 0.005);
        // Of a graph that nobody saw captured, which kernels are a layer's is not measured.
        let source = if derived { FigureSource::Derived } else { FigureSource::Measured };
        for name in ["mean_ns", "siblings_ns"] {
            let figure = advice.evidence.iter().find(|figure| figure.name == name).expect(name);
            assert_eq!(figure.source, source, "{figure:?}");
        }
        assert_eq!(advice.confidence.reason.contains("derived"), derived, "{:?}", advice.confidence);
    }
    run(100_000, true, false).0.none(AdviceCode::StragglerLayer);
    assert_eq!(run(200_000, false, false).0.lacks(AdviceCode::StragglerLayer), Some(Missing::Kernels));
}
