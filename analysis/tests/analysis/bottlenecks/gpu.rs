//! Findings that rest on recorded kernels.

use super::made::{Piece, diagnose, gpu_run, gpu_run_of, near, piece, queued, with_result};
use crate::common::{T0, kernel, thread};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, LeftShape, Missing};
use candlescope_schema::{HostNs, Ran, Shape};
use candlescope_testkit::with;

/// 100 kernels of 2 µs, each launched 20 µs after the one before and starting 3 µs later; two in each interval.
fn eager() -> Vec<Piece> {
    let names = ["decode/rotary", "decode/norm"];
    let one = |n: i64| {
        let launch = 10_000 + 20_000 * n;
        let path = names[(n / 2 % 2) as usize];
        Piece { interval: n as u64 / 2, ..piece(path, "badd_f32", launch, launch + 3_000, 2_000) }
    };
    (0..100).map(one).collect()
}

/// 100 matrix kernels of 40 µs, all launched in time.
fn busy() -> (Vec<Piece>, u64) {
    with_result(queued(&[("decode/linear", "gemm", 40_000, 0); 100]))
}

#[test]
fn launch_bound_promises_what_a_graph_would_take() {
    let found = diagnose(&gpu_run(&eager(), 2_000_000));
    let advice = found.one(AdviceCode::LaunchBound);
    // 200 µs of kernels instead of 2 ms, and at most 1 µs between two of them.
    let t = found.diagnosis.steps[0].unobserved_ns;
    let (least, most) = (1.0 - 300e3 / t, 1.0 - 200e3 / t);
    assert!(advice.gain.high >= least && advice.gain.high <= most, "{advice:?}");
    // The others are what the same takes at 87.5 and 75 % of that.
    let after = 1.0 - advice.gain.high;
    near(advice.gain, 1.0 - after / 0.75, 1.0 - after / 0.875, advice.gain.high, 1e-6);
    assert_eq!((advice.place.phase.as_str(), advice.place.path.as_deref()), ("decode", None));
    assert!(advice.figure("late").unwrap() > 0.8, "{advice:?}");
    assert_eq!(advice.figure("kernels"), Some(100.0));
    assert_eq!(advice.confidence.level, ConfidenceLevel::Medium, "all steps were recorded with their kernels");
    assert_eq!(found.diagnosis.findings[0].code, AdviceCode::LaunchBound, "it gains most");
}

/// A graph also closes gaps before work that was queued in time, as between windows of a busy driver: they did not wait
/// for the host, so they are no part of what this finding promises.
#[test]
fn launch_bound_promises_no_more_than_what_waited() {
    // 50 kernels of 2 µs that wait for their launch, then 50 of 10 µs that were queued and start 10 µs apart all the same.
    let late = (0..50).map(|n: i64| (10_000 + 20_000 * n, 13_000 + 20_000 * n, 2_000));
    let in_time = (0..50).map(|n: i64| (1_010_000 + 2_000 * n, 1_030_000 + 20_000 * n, 10_000));
    let one = |(n, (launch, start, ns))| Piece { interval: n, ..piece("decode/norm", "badd_f32", launch, start, ns) };
    let pieces: Vec<Piece> = (0..).zip(late.chain(in_time)).map(one).collect();
    let found = diagnose(&gpu_run(&pieces, 2_040_000));
    let advice = found.one(AdviceCode::LaunchBound);
    let waited = advice.figure("late_at_most").unwrap();
    assert!((0.4..0.55).contains(&waited), "{advice:?}");
    assert!((advice.gain.high - waited).abs() < 1e-9, "the graph itself would save more: {advice:?}");
}

#[test]
fn a_device_that_is_kept_busy_is_not_launch_bound() {
    let (pieces, ns) = busy();
    let found = diagnose(&gpu_run(&pieces, ns));
    for code in [AdviceCode::LaunchBound, AdviceCode::KernelCount, AdviceCode::Unfused, AdviceCode::SyncDrain] {
        found.none(code);
    }
    for code in [AdviceCode::ExposedCopy, AdviceCode::Upcast, AdviceCode::DataMovement, AdviceCode::Dequantise] {
        found.none(code);
    }
}

#[test]
fn steps_that_were_to_be_graphs_and_never_were_are_found_with_their_causes_and_shapes() {
    let ran = |ran: fn(u64) -> Ran| {
        let (mut batch, manifest) = gpu_run_of(12, &eager(), 2_000_000);
        batch.steps.iter_mut().for_each(|step| step.ran = Some(ran(step.step)));
        let steps = batch.spans.iter_mut().filter(|span| span.parent_seq.is_none());
        steps.for_each(|span| span.shape = Some(Shape::new(&[1, 256])));
        (batch, manifest)
    };
    let (mut batch, manifest) = ran(|step| if step < 2 { Ran::WarmUp } else { Ran::CaptureFailed });
    let found = diagnose(&(batch.clone(), manifest.clone()));
    let advice = found.one(AdviceCode::LeftGraph);
    let figures = ["eager_steps", "eager_tokens", "warm_up", "capture_failed", "eager_mean_ns"];
    assert_eq!(
        figures.map(|name| advice.figure(name)),
        [Some(12.0), Some(12.0), Some(2.0), Some(10.0), Some(2e6)],
        "{advice:?}"
    );
    assert_eq!((advice.figure("replay_ns"), advice.figure("excess_ns")), (None, None), "there is no replay");
    // As a graph: 200 µs of kernels instead of 2 ms, and at most 1 µs between two of them.
    let t = found.diagnosis.steps[0].unobserved_ns;
    assert!((1.0 - 300e3 / t..=1.0 - 200e3 / t).contains(&advice.gain.high), "{advice:?}");
    assert_eq!(advice.confidence.level, ConfidenceLevel::Medium, "that is simulated");
    let shape = LeftShape { shape: "1x256".into(), steps: 12, tokens: 12, took_ns: 24_000_000, excess_ns: None };
    assert_eq!(advice.place.shapes, [shape]);

    // What a graph would take is not known without kernels. The verdict says that there is none.
    batch.kernels.clear();
    let found = diagnose(&(batch, manifest));
    found.none(AdviceCode::LeftGraph);
    assert_eq!(found.lacks(AdviceCode::LeftGraph), Some(Missing::Kernels));

    let found = diagnose(&ran(|_| Ran::NotAsked));
    found.none(AdviceCode::LeftGraph);
    assert_eq!(found.lacks(AdviceCode::LeftGraph), None, "nobody asked for one");
}

#[test]
fn a_step_that_leaves_its_graph_costs_what_it_takes_longer_than_a_replay() {
    let (mut batch, manifest) = gpu_run_of(20, &eager(), 2_000_000);
    for step in &mut batch.steps {
        step.ran = Some(if step.step % 5 == 0 { Ran::CaptureFailed } else { Ran::Replay });
        step.host_dur_ns += if step.step % 5 == 0 { 2_000_000 } else { 0 };
    }
    let steps = batch.spans.iter_mut().filter(|span| span.parent_seq.is_none());
    steps.for_each(|span| span.host_dur_ns += if span.step.unwrap() % 5 == 0 { 2_000_000 } else { 0 });
    // All steps have kernels: they are compared with each other.
    let found = diagnose(&(batch, manifest));
    let advice = found.one(AdviceCode::LeftGraph);
    let figures = ["eager_steps", "capture_failed", "eager_mean_ns", "replay_ns", "excess_ns"];
    assert_eq!(figures.map(|name| advice.figure(name)), [Some(4.0), Some(4.0), Some(4e6), Some(2e6), Some(8e6)]);
    let share = 8e6 / (4.0 * 4e6 + 16.0 * 2e6);
    assert!((advice.gain.high - share).abs() < 1e-9, "{advice:?}");
    assert_eq!(advice.confidence.level, ConfidenceLevel::High);
    assert!(advice.place.shapes.is_empty(), "nothing says which");
}

#[test]
fn without_kernels_nothing_is_guessed() {
    let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
    batch.kernels.clear();
    let found = diagnose(&(batch, manifest));
    for code in [
        AdviceCode::LaunchBound,
        AdviceCode::KernelCount,
        AdviceCode::Unfused,
        AdviceCode::SyncDrain,
        AdviceCode::ExposedCopy,
        AdviceCode::Upcast,
        AdviceCode::DataMovement,
        AdviceCode::Dequantise,
        AdviceCode::WaveTail,
        AdviceCode::BelowRoof,
        AdviceCode::KvBandwidth,
        AdviceCode::WeightStreaming,
        AdviceCode::Allocator,
    ] {
        found.none(code);
        assert_eq!(found.lacks(code), Some(Missing::Kernels), "{code}");
    }
    assert_eq!(found.lacks(AdviceCode::ClocksLow), Some(Missing::ClockSamples));
}

#[test]
fn without_launch_calls_or_a_common_clock_the_host_is_not_blamed() {
    let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
    let (mut uncertain, far) = (manifest.clone(), batch.clone());
    batch.kernels = batch
        .kernels
        .into_iter()
        .map(|kernel| {
            with(kernel, |r| {
                (r.launch, r.launch_start, r.launch_dur_ns) = (None, None, None);
            })
        })
        .collect();
    let found = diagnose(&(batch, manifest));
    assert_eq!(found.lacks(AdviceCode::LaunchBound), Some(Missing::LaunchCalls));
    assert_eq!(found.lacks(AdviceCode::SyncDrain), Some(Missing::LaunchCalls));
    if let Some(kernels) = uncertain.gpu.as_mut().and_then(|gpu| gpu.kernels.as_mut()) {
        kernels.clock_bound_ns = Some(50_000);
    }
    let found = diagnose(&(far, uncertain));
    let advice = found.one(AdviceCode::LaunchBound);
    assert_eq!(advice.confidence.level, ConfidenceLevel::Low, "by replay alone: {advice:?}");
}

#[test]
fn the_price_of_many_kernels() {
    let found = diagnose(&gpu_run(&eager(), 2_000_000));
    let advice = found.one(AdviceCode::KernelCount);
    // Each of 50 intervals has one kernel too many, which costs the host 20 µs of 2 ms: half of what lies between two
    // calls goes with it, or none, or all.
    assert!((advice.gain.high - 0.5).abs() < 0.02 && (advice.gain.mid - 0.26).abs() < 0.03, "{advice:?}");
    assert!(advice.gain.low < 0.1, "{advice:?}");
    assert_eq!(advice.figure("could_join"), Some(50.0));
    assert!((advice.figure("launch_ns").unwrap() - 20_000.0).abs() < 2_000.0, "{advice:?}");
}

#[test]
fn several_kernels_for_one_norm() {
    // 20 norms of two kernels of 50 µs, 20 products of 50 µs, and one kernel of 5 µs, which is the shortest.
    let mut list = Vec::new();
    for n in 0..20 {
        list.push(("decode/norm", "usqr_f32", 50_000, n));
        list.push(("decode/norm", "bmul_f32", 50_000, n));
        list.push(("decode/linear", "gemm", 50_000, n));
    }
    list.push(("decode/head", "gemm", 5_000, 0));
    let (pieces, ns) = with_result(queued(&list));
    let found = diagnose(&gpu_run(&pieces, ns));
    let advice = found.one(AdviceCode::Unfused);
    assert_eq!(advice.place.path.as_deref(), Some("decode/norm"));
    assert_eq!(advice.place.kernel.as_deref(), Some("bmul_f32 + usqr_f32"));
    // Without bytes, one kernel takes as long as the longer of the two: 20 × 50 µs and 20 gaps are gained.
    let t = ns as f64;
    near(
        advice.gain,
        (20.0 * 101e3 - 20.0 * 50e3 / 0.75) / t,
        (20.0 * 101e3 - 20.0 * 50e3 / 0.875) / t,
        20.0 * 51e3 / t,
        0.01,
    );
    assert_eq!(advice.confidence.level, ConfidenceLevel::Low);

    // With bytes, what reading them takes: 1 MB at 1 TB/s is 1 µs, and no kernel is shorter than 5 µs.
    let (mut batch, manifest) = gpu_run(&pieces, ns);
    batch
        .spans
        .iter_mut()
        .filter(|span| span.path.path == "decode/norm")
        .for_each(|span| span.io_bytes = Some(1_000_000));
    let found = diagnose(&(batch, manifest));
    let advice = found.one(AdviceCode::Unfused);
    let right = (20.0 * 101e3 - 100e3) / t;
    near(advice.gain, right, right, right, 0.015);
    assert_eq!(advice.confidence.level, ConfidenceLevel::Medium);
}

#[test]
fn kernels_of_neighbouring_intervals_are_not_one_operation() {
    let mut list = Vec::new();
    for n in 0..20 {
        list.push(("decode/block", "badd_f32", 50_000, n));
        list.push(("decode/linear", "gemm", 50_000, n));
        list.push(("decode/block", "badd_f32", 50_000, n));
        list.push(("decode/linear", "gemm", 50_000, n));
    }
    let (pieces, ns) = with_result(queued(&list));
    diagnose(&gpu_run(&pieces, ns)).none(AdviceCode::Unfused);
}

/// `n` matrix kernels of 100 µs, and after each one of `ns` named `name`.
fn between(n: usize, name: &'static str, path: &'static str, ns: u64) -> (Vec<Piece>, u64) {
    let pair = [("decode/linear", "gemm", 100_000, 0), (path, name, ns, 0)];
    with_result(queued(&(0..2 * n).map(|at| pair[at % 2]).collect::<Vec<_>>()))
}

#[test]
fn kernels_that_convert_move_and_expand() {
    for (code, name, path) in [
        (AdviceCode::Upcast, "cast_bf16_f32", "decode/attn/softmax"),
        (AdviceCode::DataMovement, "ucopy_bf16", "decode/attn"),
        (AdviceCode::Dequantise, "dequantize_block_q4_K_f16", "decode/mlp/down_proj"),
    ] {
        let (pieces, ns) = between(20, name, path, 20_000);
        let found = diagnose(&gpu_run(&pieces, ns));
        let advice = found.one(code);
        // 20 × 20 µs and 20 gaps of a step that the device fills.
        let share = 20.0 * 21e3 / ns as f64;
        near(advice.gain, 0.75 * share, 0.875 * share, share, 0.01);
        assert_eq!((advice.place.path.as_deref(), advice.place.kernel.as_deref()), (Some(path), Some(name)));
        let others = [AdviceCode::Upcast, AdviceCode::DataMovement, AdviceCode::Dequantise];
        others.into_iter().filter(|other| *other != code).for_each(|other| found.none(other));
    }
}

#[test]
fn a_wait_that_lets_the_queue_run_dry() {
    // 300 µs of kernels, a blocking copy until 400 µs, the next launch at 600 µs, 300 µs of kernels.
    let mut pieces = vec![piece("decode/linear", "gemm", 10_000, 90_000, 300_000)];
    let copy = piece("decode/route", "dtoh", 20_000, 395_000, 4_000);
    pieces.push(Piece { launch_ns: 380_000, copies: Some(64), ..copy });
    pieces.push(piece("decode/linear", "gemm", 600_000, 610_000, 300_000));
    let found = diagnose(&gpu_run(&pieces, 1_000_000));
    let advice = found.one(AdviceCode::SyncDrain);
    near(advice.gain, 0.15, 0.175, 0.2, 0.005);
    assert_eq!(advice.place.path.as_deref(), Some("decode/route"));
    // A copy to the device that has ended when its call returns is nothing that was waited for.
    pieces[1].name = "htod";
    diagnose(&gpu_run(&pieces, 1_000_000)).none(AdviceCode::SyncDrain);
    // The next launch follows at once.
    pieces[1].name = "dtoh";
    pieces[2].launch = 401_000;
    diagnose(&gpu_run(&pieces, 1_000_000)).none(AdviceCode::SyncDrain);
}

#[test]
fn a_copy_that_no_kernel_hides() {
    let copy = |stream, start| {
        let made = piece("decode/embed", "htod", 5_000, start, 300_000);
        Piece { copies: Some(1_000_000), stream, ..made }
    };
    let kernel = |start| piece("decode/linear", "gemm", 8_000, start, 600_000);
    let found = diagnose(&gpu_run(&[copy(7, 10_000), kernel(311_000)], 920_000));
    let advice = found.one(AdviceCode::ExposedCopy);
    near(advice.gain, 0.75 * 300.0 / 920.0, 0.875 * 300.0 / 920.0, 300.0 / 920.0, 0.01);
    assert_eq!((advice.place.path.as_deref(), advice.place.kernel.as_deref()), (Some("decode/embed"), Some("htod")));
    diagnose(&gpu_run(&[copy(9, 50_000), kernel(10_000)], 620_000)).none(AdviceCode::ExposedCopy);
}

#[test]
fn a_last_wave_that_is_nearly_empty() {
    // Two blocks of 1,024 threads fit each of 10 multiprocessors: 30 blocks are a wave and a half.
    let mut pieces = queued(&[("decode/linear", "gemm", 100_000, 0); 10]);
    pieces.iter_mut().for_each(|piece| piece.grid = 30);
    let (pieces, ns) = with_result(pieces);
    let (batch, mut manifest) = gpu_run(&pieces, ns);
    assert_eq!(diagnose(&(batch.clone(), manifest.clone())).lacks(AdviceCode::WaveTail), Some(Missing::Processors));
    manifest.environment.get_mut("gpus").unwrap()[0]["multiprocessors"] = 10.into();
    let found = diagnose(&(batch.clone(), manifest.clone()));
    let advice = found.one(AdviceCode::WaveTail);
    let share = 0.25 * 1e6 / ns as f64;
    near(advice.gain, 0.75 * share, 0.875 * share, share, 0.01);
    assert_eq!(advice.figure("waves"), Some(1.5));
    // Another GPU of the machine, listed first.
    let mut several = manifest.clone();
    let own = manifest.environment["gpus"][0].clone();
    let mut other = own.clone();
    (other["uuid"], other["multiprocessors"]) = ("GPU-0".into(), 15.into());
    several.environment.insert("gpus".into(), vec![other, own].into());
    diagnose(&(batch.clone(), several)).one(AdviceCode::WaveTail);
    manifest.environment.get_mut("gpus").unwrap()[0]["multiprocessors"] = 15.into();
    diagnose(&(batch, manifest)).none(AdviceCode::WaveTail);
}

#[test]
fn recording_is_taken_out_of_the_step() {
    let (mut batch, mut manifest) = gpu_run(&eager(), 2_000_000);
    // As many steps again without kernels, a fifth quicker.
    for n in 0..8 {
        batch.steps.push(super::made::decode(100 + n, (100 + n as i64) * 100_000_000, 1_600_000, 120));
    }
    manifest.overhead.per_interval_ns = 100.0;
    let found = diagnose(&(batch.clone(), manifest.clone()));
    let step = &found.diagnosis.steps[0];
    assert_eq!((step.observed_ns, step.n, step.device_ns), (1_600_000.0, 8, Some(200_000.0)));
    assert!(step.unobserved_ns < 1_600_000.0 && step.unobserved_ns > 1_550_000.0, "{step:?}");
    let advice = found.one(AdviceCode::LaunchBound);
    let (least, most) = (1.0 - 300e3 / step.unobserved_ns, 1.0 - 200e3 / step.unobserved_ns);
    assert!(advice.gain.high >= least && advice.gain.high <= most, "{advice:?}");
    assert_eq!(advice.confidence.level, ConfidenceLevel::High);
}

#[test]
fn gains_together_are_less_than_their_sum() {
    let found = diagnose(&gpu_run(&eager(), 2_000_000));
    let together = &found.diagnosis.together[0];
    assert!(together.codes.contains(&AdviceCode::LaunchBound) && together.codes.len() >= 2, "{together:?}");
    let parts: Vec<_> = found.diagnosis.findings.iter().map(|advice| advice.gain.high).collect();
    let most = parts.iter().copied().fold(0.0, f64::max);
    assert!(
        together.gain.high >= most - 1e-9 && together.gain.high < parts.iter().sum::<f64>(),
        "{together:?} {parts:?}"
    );
    assert!(together.gain.high <= 1.0);
}

#[test]
fn a_graph_s_kernels_are_not_launched_one_by_one() {
    let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
    batch.kernels.iter_mut().for_each(|kernel| kernel.graph = Some(1));
    let found = diagnose(&(batch, manifest));
    found.none(AdviceCode::LaunchBound);
    found.none(AdviceCode::KernelCount);
}

#[test]
fn steps_that_are_late_on_the_device_s_line_alone_gain_nothing_from_quicker_kernels() {
    // Launch-bound: fusing kernels saves launches, but their own time is hidden behind the host.
    let mut pieces = eager();
    pieces.iter_mut().enumerate().for_each(|(n, piece)| piece.interval = n as u64);
    pieces.iter_mut().step_by(2).for_each(|piece| piece.name = "cast_bf16_f32");
    let found = diagnose(&gpu_run(&pieces, 2_000_000));
    let advice = found.one(AdviceCode::Upcast);
    // 50 launches of 20 µs, and none of the 100 µs that they take on the device.
    near(advice.gain, 0.375, 0.4375, 0.5, 0.01);
}

#[test]
fn a_cache_that_the_device_copies_at_every_token() {
    // A kernel of 5 ms and 8 µs a token of context; reading the cache takes next to nothing.
    let pieces = vec![
        piece("decode/linear", "ucopy_bf16", 2_000, 5_000, 90_000),
        piece("decode/attn", "ucopy_bf16", 4_000, 96_000, 80_000),
        piece("decode/attn/kv_cache", "ucopy_bf16", 6_000, 177_000, 10_000),
        piece("decode/linear", "gemm", 8_000, 188_000, 1),
    ];
    let (mut batch, mut manifest) = gpu_run(&pieces, 1);
    for n in 0..batch.steps.len() {
        let context = 100 * (n as u32 + 1);
        let ns = 5_000_000 + 8_000 * u64::from(context);
        let (step, span) = (batch.steps[n].step, batch.steps[n].seq);
        (batch.steps[n].context_len, batch.steps[n].host_dur_ns) = (Some(context), ns + 190_000);
        let grown = 8_000 * u64::from(context);
        for kernel in batch.kernels.iter_mut().filter(|kernel| kernel.step == Some(step)) {
            match &*kernel.name {
                "gemm" => (kernel.gpu_start, kernel.gpu_dur_ns) = (kernel.gpu_start.plus_ns(grown), 5_000_000),
                _ if kernel.path.as_ref().is_some_and(|path| path.path.ends_with("kv_cache")) => {
                    kernel.gpu_dur_ns = grown
                }
                _ => {}
            }
        }
        batch.spans.iter_mut().filter(|own| own.seq == span).for_each(|own| own.host_dur_ns = ns + 190_000);
    }
    for (key, value) in [("layers", 2), ("kv_heads", 2), ("head_dim", 64)] {
        manifest.model.insert(key.into(), value.into());
    }
    let with_growth = (batch, manifest);
    let found = diagnose(&with_growth);
    // The mean context is 450 tokens. The device is busy for nearly all of the step.
    let share = 8e3 * 450.0 / found.diagnosis.steps[0].unobserved_ns;
    let advice = found.one(AdviceCode::CacheCopied);
    near(advice.gain, 0.75 * share, 0.875 * share, share, 0.01);
    assert_eq!(advice.place.path.as_deref(), Some("decode/attn/kv_cache"), "{advice:?}");
    // Where what moves data there takes less than the step grew by, that is all that can be had.
    let fewer = |batch: &mut candlescope_schema::Batch| {
        let moves = batch
            .kernels
            .iter_mut()
            .filter(|kernel| kernel.path.as_ref().is_some_and(|path| path.path.ends_with("kv_cache")));
        moves.for_each(|kernel| kernel.gpu_dur_ns /= 4);
    };
    let (mut batch, manifest) = with_growth;
    fewer(&mut batch);
    let mut run = (batch, manifest);
    let gain = diagnose(&run).one(AdviceCode::CacheCopied).gain;
    assert!(gain.high < 0.3 * share, "{gain:?} of {share}");
    // In a program without modules nobody knows where they are.
    let of_step = run.0.spans.iter().find(|span| span.seq == run.0.steps[0].seq).unwrap().path.clone();
    run.0.kernels.iter_mut().for_each(|kernel| kernel.path = Some(of_step.clone()));
    let found = diagnose(&run);
    let advice = found.one(AdviceCode::CacheCopied);
    assert_eq!(advice.confidence.level, ConfidenceLevel::Low, "{advice:?}");
    assert!(advice.gain.high < 0.4 * share, "{:?} of {share}", advice.gain);
    // Where nothing copies, as in a graph whose cache is written in place, what grows is something else.
    run.0
        .kernels
        .iter_mut()
        .filter(|kernel| &*kernel.name != "gemm")
        .for_each(|kernel| kernel.name = "softmax_f32".into());
    diagnose(&run).none(AdviceCode::CacheCopied);
}

#[test]
fn a_synchronisation_is_no_work_of_the_host() {
    // The host waits for all kernels in a call that is not recorded, then fetches the result in a short one.
    let (mut pieces, ns) = between(20, "cast_bf16_f32", "decode/attn/softmax", 20_000);
    let copy = pieces.last_mut().unwrap();
    copy.launch = copy.start - 500;
    copy.launch_ns = 2_000;
    let found = diagnose(&gpu_run(&pieces, ns + 500));
    let share = 20.0 * 21e3 / ns as f64;
    near(found.one(AdviceCode::Upcast).gain, 0.75 * share, 0.875 * share, share, 0.01);
}

#[test]
fn a_graph_does_not_take_over_what_other_threads_run() {
    // The same on a second thread at the same time, its kernels 10 µs later.
    let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
    let other = |seq: u64| seq + (1 << 40);
    let second = thread(2, "other");
    for step in batch.steps.clone() {
        let thread = second.clone();
        batch.steps.push(with(step, |r| (r.step, r.seq, r.thread) = (r.step + 100, other(r.seq), thread)));
    }
    for span in batch.spans.clone() {
        let (thread, step) = (second.clone(), span.step.map(|step| step + 100));
        let parent_seq = span.parent_seq.map(other);
        batch.spans.push(with(span, |r| {
            (r.seq, r.parent_seq, r.step, r.thread) = (other(r.seq), parent_seq, step, thread);
        }));
    }
    for kernel in batch.kernels.clone() {
        batch.kernels.push(with(kernel, |r| {
            (r.seq, r.step) = (r.seq.map(other), r.step.map(|step| step + 100));
            (r.gpu_start, r.correlation) = (r.gpu_start.plus_ns(10_000), r.correlation + 10_000);
            r.launch_start = r.launch_start.map(|at| at.plus_ns(10_000));
        }));
    }
    let found = diagnose(&(batch, manifest));
    // 200 µs of its own kernels and 200 µs of the other's.
    let advice = found.one(AdviceCode::LaunchBound);
    let most = 1.0 - 400e3 / found.diagnosis.steps[0].unobserved_ns;
    assert!(advice.gain.high <= most + 0.002 && advice.gain.high > most - 0.06, "{advice:?} {most}");
}

#[test]
fn a_step_recorded_on_another_device_is_not_plain() {
    let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
    for n in 0..8 {
        let begin = (100 + n as i64) * 100_000_000;
        batch.steps.push(super::made::decode(100 + n, begin, 1_600_000, 120));
        batch.kernels.push(with(kernel("GPU-2", begin + 1_000, 2_000), |r| {
            (r.step, r.launch_start) = (Some(100 + n), Some(HostNs(T0 + begin)));
        }));
    }
    let step = &diagnose(&(batch, manifest)).diagnosis.steps[0];
    assert_eq!((step.n, step.observed_ns > 1_700_000.0), (16, true), "{step:?}");
}

#[test]
fn a_place_is_where_most_of_the_time_is() {
    // One kernel of 100 µs at one path, two kinds of 60 µs at another.
    let list = [
        ("decode/mlp", "ucopy_bf16", 100_000, 0),
        ("decode/attn", "ucopy_f32", 60_000, 0),
        ("decode/attn", "copy2d_bf16", 60_000, 0),
        ("decode/linear", "gemm", 500_000, 0),
    ];
    let (pieces, ns) = with_result(queued(&list));
    let found = diagnose(&gpu_run(&pieces, ns));
    assert_eq!(found.one(AdviceCode::DataMovement).place.path.as_deref(), Some("decode/attn"));
}

#[test]
fn late_gaps_are_those_of_the_unobserved_step() {
    // 99 gaps of 18 µs; steps without recorded kernels are 0.8 ms shorter, by what recording adds to the gaps.
    let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
    for n in 0..8 {
        batch.steps.push(super::made::decode(100 + n, (100 + n as i64) * 100_000_000, 1_200_000, 104));
    }
    let found = diagnose(&(batch, manifest));
    let t = found.diagnosis.steps[0].unobserved_ns;
    assert!((t - 1.2e6).abs() < 50e3, "{t}");
    let late = found.one(AdviceCode::LaunchBound).figure("late").unwrap();
    assert!((late - (99.0 * 18e3 - (2e6 - t)) / t).abs() < 0.01, "{late}");
}

#[test]
fn a_replay_without_a_check_has_to_agree_with_the_steps_that_are_known() {
    // Steps without recorded kernels are of other contexts, so that none is near enough for a check.
    let step = |plain_ns: u64| {
        let (mut batch, manifest) = gpu_run(&eager(), 2_000_000);
        for n in 0..8 {
            batch.steps.push(super::made::decode(100 + n, (100 + n as i64) * 100_000_000, plain_ns, 4_000));
        }
        diagnose(&(batch, manifest)).diagnosis.steps[0].clone()
    };
    assert!(step(2_000_000).basis.starts_with("steps replayed"), "{:?}", step(2_000_000));
    assert!(step(3_000_000).unobserved_ns > 2_900_000.0, "{:?}", step(3_000_000));
    assert!(step(3_000_000).basis.starts_with("median of steps without"), "{:?}", step(3_000_000));
}

/// Two threads that each launch 100 kernels of 2 µs a step. Four calls in five take 15 µs, 10 µs of them while the other thread is
/// in one; the others take 3 µs alone.
#[test]
fn launches_that_wait_for_another_thread() {
    let one = |n: i64| {
        let (launch, launch_ns) = (10_000 + 20_000 * n, if n % 5 == 0 { 3_000 } else { 15_000 });
        Piece { launch_ns, ..piece("decode/norm", "badd_f32", launch, launch + launch_ns as i64, 2_000) }
    };
    let pieces: Vec<Piece> = (0..100).map(one).collect();
    let (mut batch, manifest) = gpu_run(&pieces, 2_020_000);
    let alone = diagnose(&(batch.clone(), manifest.clone()));
    alone.none(AdviceCode::ContendedLaunches);
    let (other, later) = (1 << 40, 5_000);
    for mut record in batch.steps.clone() {
        (record.seq, record.step, record.request) = (record.seq + other, record.step + 1_000, Some(2));
        record.host_start = record.host_start.plus_ns(later);
        batch.steps.push(record);
    }
    for mut record in batch.spans.clone() {
        (record.seq, record.step) = (record.seq + other, record.step.map(|step| step + 1_000));
        record.parent_seq = record.parent_seq.map(|seq| seq + other);
        record.host_start = record.host_start.plus_ns(later);
        batch.spans.push(record);
    }
    for mut record in batch.kernels.clone() {
        (record.seq, record.step) = (record.seq.map(|seq| seq + other), record.step.map(|step| step + 1_000));
        record.launch_start = record.launch_start.map(|start| start.plus_ns(later));
        record.gpu_start = record.gpu_start.plus_ns(later);
        record.correlation += 1_000_000;
        batch.kernels.push(record);
    }
    let found = diagnose(&(batch, manifest));
    let advice = found.one(AdviceCode::ContendedLaunches);
    assert_eq!((advice.figure("threads"), advice.figure("alone_ns")), (Some(2.0), Some(3_000.0)), "{advice:?}");
    assert_eq!(advice.figure("call_ns"), Some(15_000.0), "{advice:?}");
    assert!((advice.figure("beside_share").unwrap() - 0.8).abs() < 1e-9, "{advice:?}");
    // 80 calls, each 12 µs longer than alone, of 2.02 ms: the unobserved step has its part of that.
    let (t, share) = (found.diagnosis.steps[0].unobserved_ns, 960e3 / 2_020e3);
    assert!((advice.figure("more_ns").unwrap() - share * t).abs() < 1.0, "{advice:?}");
    near(advice.gain, 0.75 * share, 0.875 * share, share, 0.01);
    assert_eq!(advice.confidence.level, ConfidenceLevel::Medium);
}
