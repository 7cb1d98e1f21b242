//! GPU time from marks and from kernels, on a scripted device.
#![allow(missing_docs)]
mod common;
mod scripted;

use candlescope_core::gpu::{GpuTiming, NoMark};
use candlescope_core::llm::{self, Request, Tokens};
use candlescope_core::run::{KernelAccount, RunManifest, Severity};
use candlescope_core::{
    Batch, GpuSource, GpuTier, HostNs, KernelsRefused, MemoryExporter, Schedule, Session, SpanRecord,
};
use candlescope_testkit::{SOON, wait_until};
use common::{record, sorted};
use scripted::{Clock, Device, Graph, Recorder, Says};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tracing::{Span, trace_span};

/// A model of two blocks, each an attention of two linears and an mlp of one, with 5 µs of work outside the layers.
struct Model {
    blocks: Vec<(Span, Span, [Span; 2], Span, Span)>,
    device: Device,
}

impl Model {
    fn new(device: &Device) -> Self {
        let block = |_| {
            let linears = [trace_span!("linear"), trace_span!("linear")];
            (trace_span!("block"), trace_span!("attn"), linears, trace_span!("mlp"), trace_span!("linear"))
        };
        Self { blocks: (0..2).map(block).collect(), device: device.clone() }
    }

    fn forward(&self) {
        for (block, attn, linears, mlp, linear) in &self.blocks {
            let _b = block.enter();
            {
                let _a = attn.enter();
                for (linear, ns) in linears.iter().zip([10_000, 20_000]) {
                    let _l = linear.enter();
                    self.device.launch("gemm<bf16>", ns);
                }
                self.device.launch("softmax", 5_000);
            }
            let _m = mlp.enter();
            let _l = linear.enter();
            self.device.launch("gemm<bf16>", 40_000);
        }
    }
}

fn steps(device: &Device, n: usize) {
    let model = Model::new(device);
    let step = trace_span!("decode", candlescope.phase = "decode");
    for _ in 0..n {
        let _s = step.enter();
        model.forward();
    }
}

fn timed(tier: GpuTier, device: &Device, n: usize) -> (Batch, RunManifest) {
    record(Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(tier)), |_| steps(device, n))
}

/// Expected GPU time by path without ordinals.
fn expected(rollup: &str, path: &str) -> u64 {
    match rollup {
        "decode" => 150_000,
        "decode/block" => 75_000,
        "decode/block/attn" => 35_000,
        "decode/block/attn/linear" if path.ends_with("[0]") => 10_000,
        "decode/block/attn/linear" => 20_000,
        "decode/block/mlp" | "decode/block/mlp/linear" => 40_000,
        other => panic!("{other}"),
    }
}

fn assert_times(batch: &Batch, source: GpuSource) {
    for span in &batch.spans {
        if let Some(gpu) = span.gpu {
            assert_eq!(gpu.dur_ns, expected(&span.path.rollup, &span.path.path), "{}", span.path.path);
            assert_eq!(gpu.source, source);
        }
    }
}

fn with_gpu<'a>(batch: &'a Batch, rollup: &'a str) -> impl Iterator<Item = &'a SpanRecord> {
    batch.spans.iter().filter(move |s| s.path.rollup == rollup && s.gpu.is_some())
}

fn finding<'a>(m: &'a RunManifest, code: &str) -> &'a candlescope_core::run::Finding {
    let found = m.verdict.findings.iter().find(|f| f.code == code);
    found.unwrap_or_else(|| panic!("no finding {code} among {:?}", m.verdict.findings))
}

#[test]
fn requests_have_their_shares_of_the_device_and_all_of_its_time_is_shared_out() {
    let device = Device::new();
    let (batch, _) = record(Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::All)), |_| {
        let model = Model::new(&device);
        let (one, two) = (Request::new("chat", "m"), Request::new("chat", "m"));
        for n in 0..20 {
            let _step = llm::decode(Tokens::new(4));
            model.forward();
            llm::serves(&one, Tokens::new(3), 1);
            if n < 10 {
                llm::serves(&two, Tokens::new(1), 1);
            }
        }
    });
    // Each step takes 150 µs: of ten of them the first request has three quarters, and of the other ten all.
    let mut requests: Vec<_> = batch.requests.iter().collect();
    requests.sort_by_key(|request| request.request);
    let found: Vec<_> = requests.iter().map(|r| (r.step_count, r.device_step_count, r.device_share_ns)).collect();
    assert_eq!(found, [(Some(20), Some(20), Some(2_625_000)), (Some(10), Some(10), Some(375_000))]);
    let all: u64 = batch.steps.iter().filter_map(|step| step.gpu).map(|gpu| gpu.dur_ns).sum();
    assert_eq!(all, 2_625_000 + 375_000);
    let host: u64 = batch.steps.iter().map(|step| step.host_dur_ns).sum();
    let shared: u64 = requests.iter().filter_map(|r| r.step_share_ns).sum();
    assert!(host.abs_diff(shared) <= 2, "{shared} of {host} ns");
}

#[test]
fn every_interval_has_the_time_of_its_work() {
    let device = Device::new();
    let (batch, m) = timed(GpuTier::All, &device, 20);
    assert_eq!(batch.spans.len(), 20 * 13);
    assert!(batch.spans.iter().all(|s| s.gpu.is_some()));
    assert_times(&batch, GpuSource::Event);
    // Steps have their root interval's time; starts are on the host's time line and in order.
    assert!(batch.steps.iter().all(|s| s.gpu.is_some_and(|g| g.dur_ns == 150_000)));
    let starts: Vec<_> = sorted(&batch).iter().map(|s| s.gpu.unwrap().start).collect();
    assert!(starts.windows(2).all(|w| w[0] <= w[1]));
    assert_eq!(starts[0].0, device.origin);
    let gpu = m.gpu.as_ref().unwrap();
    assert_eq!(gpu.intervals["timed"], 260);
    assert_eq!(gpu.marks["recorded"], gpu.marks["timed"]);
    assert_eq!((gpu.marks["lost"], gpu.marks["outstanding"], gpu.outside_parent), (0, 0, 0));
    assert_eq!((gpu.steps_full, gpu.steps_partial, gpu.steps_unmarked), (20, 0, 0));
    assert_eq!((gpu.devices[0].uuid.as_str(), gpu.devices[0].skew_bound_ns), ("GPU-paper", 25));
    assert!(m.verdict.ok, "{:?}", m.verdict);
    common::assert_conserved(&m);
}

#[test]
fn tiers_mark_what_they_say() {
    let (off, m) = timed(GpuTier::Off, &Device::new(), 3);
    assert!(off.spans.iter().all(|s| s.gpu.is_none()));
    assert_eq!(m.gpu.unwrap().steps_unmarked, 3);

    let (steps, m) = timed(GpuTier::Steps, &Device::new(), 3);
    assert_eq!(with_gpu(&steps, "decode").count(), 3);
    assert_eq!(steps.spans.iter().filter(|s| s.gpu.is_some()).count(), 3);
    assert_eq!(m.gpu.unwrap().steps_partial, 3);

    let (blocks, m) = timed(GpuTier::Blocks, &Device::new(), 10);
    assert_times(&blocks, GpuSource::Event);
    assert_eq!(with_gpu(&blocks, "decode").count(), 10);
    // The first step teaches what a block is: its first block is not yet known to be one, nor that it repeats.
    assert_eq!(with_gpu(&blocks, "decode/block").count(), 19);
    let inside: usize = ["decode/block/attn", "decode/block/mlp"].iter().map(|p| with_gpu(&blocks, p).count()).sum();
    assert_eq!(inside, 0);
    assert_eq!(blocks.spans.iter().filter(|s| s.gpu.is_some()).count(), 29);
    assert!(m.verdict.ok);
}

#[test]
fn marks_are_shared_only_where_nothing_can_lie_between() {
    let device = Device::new().calls_take(Duration::from_micros(40));
    let (batch, m) = timed(GpuTier::All, &device, 40);
    assert_times(&batch, GpuSource::Event);
    let gpu = m.gpu.unwrap();
    assert_eq!(gpu.intervals["timed"], 40 * 13);
    let (recorded, shared) = (gpu.marks["recorded"], gpu.marks["shared"]);
    assert_eq!(recorded + shared, 2 * 40 * 13);
    // Of the 26 ends of a step's intervals, 8 need a mark: those around six launches, and two outside the leaves.
    assert!(recorded <= 16 + 40 * 12, "{recorded} recorded, {shared} shared");
    assert!(gpu.mark_cost_ns.unwrap() >= 40_000.0);
    assert!(m.overhead.application_ns >= recorded * 40_000);
}

#[test]
fn the_adaptive_tier_keeps_to_its_budget() {
    let device = Device::new().calls_take(Duration::from_micros(5));
    let timing = GpuTiming::tier(GpuTier::Adaptive).budget(0.01);
    let (batch, m) = record(Session::builder().gpu(Clock(device.clone()), timing), |_| {
        let model = Model::new(&device);
        let step = trace_span!("decode");
        for _ in 0..300 {
            let _s = step.enter();
            model.forward();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    assert_times(&batch, GpuSource::Event);
    let gpu = m.gpu.unwrap();
    assert_eq!(gpu.steps_full + gpu.steps_partial + gpu.steps_unmarked, 300);
    // On a busy machine a thread is sometimes interrupted within a mark, which then seems expensive: fewer steps are in
    // full.
    assert!(gpu.steps_full >= 2 && gpu.steps_full < 290, "{gpu:?}");
    let step_ns: u64 = batch.steps.iter().map(|s| s.host_dur_ns).sum();
    let share = gpu.marks_ns as f64 / step_ns as f64;
    // If all steps were in full, marks would take 6 %.
    assert!(share < 0.03, "marks took {share}");
    // Steps without detail still have their own time.
    assert_eq!(with_gpu(&batch, "decode").count() as u64, gpu.steps_full + gpu.steps_partial);
    assert_eq!(with_gpu(&batch, "decode/block/mlp/linear").count() as u64, 2 * gpu.steps_full);
}

#[test]
fn waiting_is_no_cost_of_marks_and_does_not_starve_the_adaptive_tier() {
    // A mark costs 4 µs; three of four wait 60 µs longer, as if the launch queue were full.
    let device = Device::new().calls_take(Duration::from_micros(4)).marks_wait(4, Duration::from_micros(60));
    let timing = GpuTiming::tier(GpuTier::Adaptive).budget(0.05);
    let (_, m) = record(Session::builder().gpu(Clock(device.clone()), timing), |_| {
        let model = Model::new(&device);
        let step = trace_span!("decode");
        for _ in 0..100 {
            let _s = step.enter();
            model.forward();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let gpu = m.gpu.unwrap();
    let recorded = gpu.marks["recorded"];
    assert!((4_000.0..9_000.0).contains(&gpu.mark_cost_ns.unwrap()), "{gpu:?}");
    // Interrupted marks have waited too, so the sum is no less than the scripted waits, except those of shared marks.
    assert!(gpu.marks_wait_ns > recorded / 2 * 60_000, "{} of {recorded}", gpu.marks_wait_ns);
    // At 5 % of 5 ms, some twenty marks of 4 µs fit in two steps of three; if waits counted, in one of six.
    assert!(gpu.steps_full >= 35, "{gpu:?}");
}

/// Four threads with 30 calls each of one kind. The first call of each is cold: it takes 30 times as long on the
/// device.
fn encode_on_four_threads(device: &Device) -> (Batch, RunManifest) {
    let timing = GpuTiming::tier(GpuTier::Adaptive).budget(0.05);
    record(Session::builder().gpu(Clock(device.clone()), timing), |_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(&dispatch, || {
                        let model = Model::new(device);
                        let step = trace_span!("encode", candlescope.phase = "encode");
                        for call in 0..30 {
                            let _s = step.enter();
                            model.forward();
                            let ms = if call == 0 { 40 } else { 4 };
                            std::thread::sleep(Duration::from_millis(ms));
                        }
                    });
                });
            }
        });
    })
}

#[test]
fn calls_in_full_are_spread_over_the_run_and_its_threads_and_none_is_cold() {
    let device = Device::new().calls_take(Duration::from_micros(2));
    let (batch, m) = encode_on_four_threads(&device);
    let gpu = m.gpu.as_ref().unwrap();
    // Position of each call on its thread.
    let mut position = std::collections::BTreeMap::new();
    let mut calls: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
    let mut steps: Vec<_> = batch.steps.iter().collect();
    steps.sort_by_key(|s| s.seq);
    for step in steps {
        let n = calls.entry(step.thread.index).or_default();
        position.insert(step.step, (step.thread.index, *n));
        *n += 1;
    }
    assert_eq!((position.len(), calls.len()), (120, 4));
    let mut full: Vec<(u32, u64)> =
        with_gpu(&batch, "encode/block/mlp/linear").map(|s| position[&s.step.unwrap()]).collect();
    full.sort_unstable();
    full.dedup();
    assert!(full.iter().all(|(_, call)| *call > 0), "a cold call is in full: {full:?}");
    assert_eq!(full.len() as u64, gpu.steps_full);
    assert!(full.len() >= 24, "{} of 120 in full: {full:?}", full.len());
    for thread in calls.keys() {
        let of_thread = full.iter().filter(|(t, _)| t == thread).count();
        assert!(of_thread >= 4, "{of_thread} on one thread: {full:?}");
    }
    for third in 0..3 {
        let there = full.iter().filter(|(_, call)| call / 10 == third).count();
        assert!(there >= 4, "{there} in a third of the run: {full:?}");
    }
    // One cold call was marked in full, in case it remained the only one.
    assert_eq!((gpu.intervals["cold"], gpu.cold_steps.len()), (12, 0));
    assert_eq!(gpu.steps_full + gpu.steps_partial + gpu.steps_unmarked, 120);
    // Every call has its own time, cold ones too, unless even that would have cost too much.
    assert_eq!(with_gpu(&batch, "encode").count() as u64, gpu.steps_full + gpu.steps_partial);
    common::assert_conserved(&m);
}

#[test]
fn a_kind_that_comes_once_has_its_detail_and_is_said_to_be_cold() {
    let device = Device::new();
    let (batch, m) = timed(GpuTier::Adaptive, &device, 1);
    assert!(batch.spans.iter().all(|s| s.gpu.is_some()));
    let gpu = m.gpu.as_ref().unwrap();
    assert_eq!((&*gpu.cold_steps, gpu.steps_full), (&[batch.steps[0].step][..], 1));
    // With a second step, the parts of the cold one lose their times.
    let (batch, m) = timed(GpuTier::Adaptive, &Device::new(), 2);
    let gpu = m.gpu.as_ref().unwrap();
    assert_eq!((gpu.cold_steps.len(), gpu.steps_full, gpu.steps_partial), (0, 1, 1));
    let first = batch.steps.iter().map(|s| s.step).min();
    let of_first = batch.spans.iter().filter(|s| s.step == first && s.gpu.is_some()).count();
    assert_eq!((of_first, batch.spans.iter().filter(|s| s.gpu.is_some()).count()), (1, 14));
}

#[test]
fn intervals_wait_for_the_device_and_nothing_waits_for_them() {
    let device = Device::new();
    device.running.store(false, Ordering::Relaxed);
    let memory = MemoryExporter::new();
    let builder = Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::All));
    let (layer, session) = builder.exporter(memory.clone()).start().unwrap();
    use tracing_subscriber::prelude::*;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        // If the steps waited for the device, they would wait forever.
        steps(&device, 5);
        // There is no event to wait for if nothing comes, so this gives it some time.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(memory.batch().spans.len(), 0, "held back until the device has got that far");
        device.running.store(true, Ordering::Relaxed);
        wait_until(|| memory.batch().spans.len() >= 65, "the device has got that far");
        assert_eq!(memory.batch().spans.len(), 65);
        assert_times(&memory.batch(), GpuSource::Event);
    });
    drop(session);
}

#[test]
fn a_device_that_never_answers_costs_gpu_time_and_nothing_else() {
    let device = Device::new();
    device.running.store(false, Ordering::Relaxed);
    let began = Instant::now();
    let (batch, m) = timed(GpuTier::All, &device, 5);
    assert!(began.elapsed() < SOON);
    assert_eq!(batch.spans.len(), 65);
    assert!(batch.spans.iter().all(|s| s.gpu.is_none() && s.host_dur_ns > 0));
    assert_eq!(m.gpu.as_ref().unwrap().intervals["late"], 65);
    assert_eq!(finding(&m, "gpu_time_late").severity, Severity::Warning);
    common::assert_conserved(&m);
}

#[test]
fn intervals_that_end_while_the_end_waits_for_the_device_are_recorded() {
    use tracing_subscriber::prelude::*;
    let device = Device::new();
    device.running.store(false, Ordering::Relaxed);
    let memory = MemoryExporter::new();
    let builder = Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::All));
    let (layer, session) = builder.exporter(memory.clone()).start().unwrap();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let (inside, is_inside) = mpsc::channel();
    let (ended, has_ended) = mpsc::channel::<()>();
    let m = std::thread::scope(|scope| {
        let (dispatch, device) = (&dispatch, &device);
        scope.spawn(move || {
            tracing::dispatcher::with_default(dispatch, || {
                steps(device, 1);
                let (step, inner) = (trace_span!("decode", candlescope.phase = "decode"), trace_span!("block"));
                let _step = step.enter();
                {
                    let _inner = inner.enter();
                    inside.send(()).unwrap();
                    // Into the end, which waits longer than this for a device that does not answer.
                    std::thread::sleep(Duration::from_millis(200));
                }
                // The step is open until all is over.
                let _ = has_ended.recv();
            });
        });
        is_inside.recv().unwrap();
        let manifest = session.finish();
        drop(ended);
        manifest
    });
    assert_eq!((m.counts["spans"], memory.batch().spans.len(), m.loss.open_at_end), (14, 14, 1), "{:?}", m.loss);
    common::assert_conserved(&m);
}

#[test]
fn lost_marks_are_counted() {
    let device = Device::new();
    device.lose.store(true, Ordering::Relaxed);
    let (batch, m) = timed(GpuTier::All, &device, 2);
    assert!(batch.spans.iter().all(|s| s.gpu.is_none()));
    let gpu = m.gpu.as_ref().unwrap();
    assert_eq!((gpu.intervals["lost"], gpu.marks["lost"]), (26, gpu.marks["recorded"]));
    assert!(finding(&m, "gpu_marks_lost").message().contains("never reached"));
}

#[test]
fn refusals_are_told_apart() {
    for (why, name, code) in [
        (NoMark::NoContext, "no_context", "no CUDA context"),
        (NoMark::NoContext, "no_context", "no thread that entered"),
        (NoMark::Capturing, "capturing", "capturing a CUDA graph"),
        (NoMark::Failed, "failed", "refused every mark"),
    ] {
        let device = Device::new();
        *device.refuse.lock().unwrap() = Some(why);
        let (batch, m) = timed(GpuTier::All, &device, 2);
        assert!(batch.spans.iter().all(|s| s.gpu.is_none()));
        let gpu = m.gpu.as_ref().unwrap();
        assert_eq!(gpu.marks[name], 52);
        let found = finding(&m, "no_gpu_time");
        assert!(found.message().contains(code) || code == "no CUDA context", "{}", found.message());
        assert_eq!(found.severity, Severity::Error);
    }
}

#[test]
fn a_captured_graph_has_no_time_and_its_replay_is_one_interval() {
    let device = Device::new();
    let (batch, m) = record(Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::All)), |_| {
        let (capture, replay) = (trace_span!("capture"), trace_span!("replay"));
        *device.refuse.lock().unwrap() = Some(NoMark::Capturing);
        capture.in_scope(|| ());
        *device.refuse.lock().unwrap() = None;
        replay.in_scope(|| device.launch("graph", 70_000));
    });
    let by_name = |name: &str| batch.spans.iter().find(|s| &*s.path.name == name).unwrap();
    assert_eq!(by_name("capture").gpu, None);
    assert_eq!(by_name("replay").gpu.unwrap().dur_ns, 70_000);
    assert_eq!(m.gpu.unwrap().marks["capturing"], 2);
}

/// Decodes: the first step captures a graph, and each replays it below an interval of its own. The kernels of three steps
/// are recorded, the first among them or not.
fn replays(device: &Device, captured_in_window: bool) -> (Batch, RunManifest) {
    let first = Schedule { skip_first: 0, wait: 0, warmup: 0, active: 3, repeat: 1 };
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), captured_in_window.then_some(first));
    record(builder, |handle| {
        let model = Model::new(device);
        let step = trace_span!("decode", candlescope.phase = "decode");
        let launch = trace_span!("cuda_graph", flops = 1_000_u64, bytes = 70_u64);
        let mut graph = None;
        let mut decode = || {
            let _s = step.enter();
            device.launch("upload", 1_000);
            let graph = graph.get_or_insert_with(|| {
                device.begin_capture();
                model.forward();
                device.end_capture()
            });
            let _l = launch.enter();
            device.replay(graph);
        };
        if captured_in_window {
            handle.wait_for_kernels(SOON);
            (0..3).for_each(|_| decode());
            return;
        }
        decode();
        handle.capture_kernels(3).expect("a recorder that is free");
        let is_on = || {
            decode();
            device.enables.load(Ordering::Relaxed) > 0
        };
        wait_until(is_on, "the recorder is on");
        // It begins with a step a little later.
        for _ in 0..20 {
            decode();
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

#[test]
fn replays_have_the_intervals_that_their_graph_was_captured_in() {
    for captured_in_window in [true, false] {
        let device = Device::new().follows_graphs();
        let (batch, m) = replays(&device, captured_in_window);
        let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
        assert_eq!(
            (account.of_graphs, account.of_captured),
            (3 * 8, 3 * 8),
            "captured in the window: {captured_in_window}"
        );
        assert_kernels_conserved(&account, &batch);
        // The graph's kernels, and what was launched beside it.
        assert_eq!(batch.kernels.len(), 3 * 9);
        for kernel in &batch.kernels {
            let span = batch.spans.iter().find(|s| Some(s.seq) == kernel.seq).expect("its interval");
            assert_eq!((kernel.span_id, kernel.step), (Some(span.span_id), span.step));
            assert_eq!(kernel.path.as_ref(), Some(&span.path));
            let expected = match &*kernel.name {
                "upload" => ("decode", None),
                "softmax" => ("attn", Some(3)),
                _ => ("linear", Some(3)),
            };
            assert_eq!((&*span.path.name, kernel.graph), expected);
            assert_eq!(kernel.graph_node.is_some(), kernel.graph.is_some());
        }
        // Each replay has the tree of the model, with the time of its work and none on the host.
        let replayed: Vec<&SpanRecord> = batch.spans.iter().filter(|s| s.graph.is_some()).collect();
        // The step that captures the graph entered them itself.
        assert_eq!(replayed.len(), if captured_in_window { 2 } else { 3 } * 12);
        for span in &replayed {
            assert_eq!(span.gpu.map(|g| g.dur_ns), Some(expected(&span.path.rollup, &span.path.path)), "{span:?}");
            assert_eq!((span.host_dur_ns, span.host_time()), (0, None));
            let parent = batch.spans.iter().find(|s| Some(s.seq) == span.parent_seq).expect("what is around it");
            assert_eq!((span.step, span.depth), (parent.step, parent.depth + 1));
            assert_eq!(parent.graph.is_some(), &*span.path.name != "block", "below the step, as when it was captured");
            let launcher = batch.spans.iter().find(|s| s.step == span.step && &*s.path.name == "cuda_graph").unwrap();
            assert_eq!(span.host_start, launcher.host_start);
        }
        let mut seqs: Vec<u64> = batch.spans.iter().map(|s| s.seq).collect();
        seqs.sort_unstable();
        assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "each number once");
        // A step has what it launched itself and the replay, once.
        let whole = batch.steps.iter().filter(|s| s.gpu.is_some_and(|g| g.source == GpuSource::Cupti));
        assert_eq!(whole.map(|s| s.gpu.unwrap().dur_ns).collect::<Vec<_>>(), [151_000; 3]);
        let launches: Vec<_> = batch.spans.iter().filter(|s| &*s.path.name == "cuda_graph").collect();
        assert!(launches.iter().all(|s| s.gpu.is_none()), "its kernels are others'");
        assert!(launches.iter().all(|s| (s.flops, s.bytes) == (Some(1_000), Some(70))), "no layer states any");
    }
}

/// A session of which kernels of all steps are recorded.
fn whole(device: &Device, work: impl FnOnce()) -> Batch {
    whole_run(device, work).0
}

fn whole_run(device: &Device, work: impl FnOnce()) -> (Batch, RunManifest) {
    let first = Schedule { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 };
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Off))
        .kernels(Recorder(device.clone()), Some(first));
    record(builder, |handle| {
        handle.wait_for_kernels(SOON);
        work();
    })
}

/// Path, step and time on the device of each replayed interval, in the order of the rows.
fn replayed(batch: &Batch) -> Vec<(&str, u64, u64)> {
    let of_graph = batch.spans.iter().filter(|s| s.graph.is_some());
    of_graph.map(|s| (s.path.path.as_str(), s.step.unwrap(), s.gpu.map_or(0, |gpu| gpu.dur_ns))).collect()
}

/// The step that captures a graph has its layers; what launches is the step itself, and samples afterwards.
#[test]
fn replays_that_the_step_itself_launches_stand_where_they_were_launched() {
    let device = Device::new().follows_graphs();
    let batch = whole(&device, || {
        let (step, layer, sample) = (
            trace_span!("decode", candlescope.phase = "decode", flops = 100_u64, flops_executed = 160_u64),
            trace_span!("layer", flops = 80_u64, bytes = 9_u64),
            trace_span!("sample"),
        );
        let mut graph = None;
        for _ in 0..3 {
            let _s = step.enter();
            let graph = graph.get_or_insert_with(|| {
                device.begin_capture();
                layer.in_scope(|| device.launch("gemm", 3_000));
                device.end_capture()
            });
            device.replay(graph);
            device.replay(graph);
            std::thread::sleep(Duration::from_millis(1));
            sample.in_scope(|| device.launch("argmax", 500));
        }
    });
    // Twice in each step, and once where it was captured: there it was entered.
    assert_eq!(
        replayed(&batch),
        [("decode/layer", 1, 3_000); 2].into_iter().chain([("decode/layer", 2, 3_000); 2]).collect::<Vec<_>>()
    );
    let first: Vec<_> =
        batch.spans.iter().filter(|s| s.step == Some(0)).map(|s| (&*s.path.name, s.gpu.map(|g| g.dur_ns))).collect();
    assert_eq!(first, [("decode", Some(6_500)), ("layer", Some(6_000)), ("sample", Some(500))]);
    // Rows of a replay stand before what was entered after its launch.
    let second: Vec<_> = batch.spans.iter().filter(|s| s.step == Some(1)).map(|s| &*s.path.name).collect();
    assert_eq!(second, ["decode", "layer", "layer", "sample"]);
    // Work once: two replays of 80 needed FLOPs where the step states 100.
    let of_step = |part: fn(&SpanRecord) -> Option<u64>| {
        batch.spans.iter().filter(|s| s.step == Some(2)).filter_map(part).sum::<u64>()
    };
    assert_eq!((of_step(|s| s.flops), of_step(|s| s.flops_executed)), (100, 160));
    assert_eq!(of_step(|s| s.bytes), 18, "the step states none");
}

/// Captured in one phase of a request that ends with it, replayed in another one.
#[test]
fn what_was_captured_elsewhere_stands_below_its_launch() {
    let device = Device::new().follows_graphs();
    let batch = whole(&device, || {
        let layer = trace_span!("layer");
        let graph = {
            let request = trace_span!("request", gen_ai.request.model = "m");
            let _r = request.enter();
            let warm = trace_span!("prefill", candlescope.phase = "prefill");
            let _w = warm.enter();
            device.begin_capture();
            layer.in_scope(|| device.launch("gemm", 3_000));
            device.end_capture()
        };
        let step = trace_span!("decode", candlescope.phase = "decode");
        for _ in 0..2 {
            let _s = step.enter();
            device.replay(&graph);
        }
    });
    let expected = [1, 2].map(|step| [("prefill", step, 3_000), ("prefill/layer", step, 3_000)]).concat();
    assert_eq!(replayed(&batch), expected);
    for span in batch.spans.iter().filter(|s| s.graph.is_some()) {
        assert_eq!(span.phase.map(|phase| phase.as_str()), Some("decode"), "that of the step");
    }
    let steps: Vec<_> = batch.spans.iter().filter(|s| &*s.path.name == "decode").filter_map(|s| s.gpu).collect();
    assert_eq!(steps.iter().map(|gpu| gpu.dur_ns).collect::<Vec<_>>(), [3_000; 2]);
}

#[test]
fn kernels_of_a_replay_that_cannot_have_taken_so_long_are_lost() {
    let device = Device::new().follows_graphs();
    let batch = whole(&device, || {
        let (step, layers) =
            (trace_span!("decode", candlescope.phase = "decode"), [trace_span!("first"), trace_span!("others")]);
        let mut graph = None;
        for n in 0..4 {
            let _s = step.enter();
            let graph = graph.get_or_insert_with(|| {
                device.begin_capture();
                layers[0].in_scope(|| device.launch("gemm", 3_000));
                layers[1].in_scope(|| (0..20).for_each(|_| device.launch("gemm", 1_000)));
                device.end_capture()
            });
            // In two replays, one of them the graph's first in a window, the first seems to run on until long after all others.
            device.replay_with(graph, if n == 2 || n == 0 { 100_000 } else { 0 });
        }
    });
    let of = |step: u64, name: &str| {
        let mut spans = batch.spans.iter().filter(|s| s.step == Some(step) && &*s.path.name == name);
        spans.next().expect("it has a row").gpu.map(|gpu| gpu.dur_ns)
    };
    assert_eq!([1, 2, 3].map(|step| of(step, "first")), [Some(3_000), None, Some(3_000)]);
    assert_eq!([1, 2, 3].map(|step| of(step, "others")), [Some(20_000); 3]);
    assert_eq!([1, 2, 3].map(|step| of(step, "decode")), [Some(23_000), None, Some(23_000)], "one is missing in it");
    assert_eq!(batch.kernels.len(), 4 * 21 - 2);
}

#[test]
fn kernels_that_a_replay_has_not_are_lost_once_whether_or_not_the_recorder_says_whose_they_were() {
    for says in [Says::ThatTheyAre, Says::Whose] {
        let device = Device::new().follows_graphs();
        let (batch, m) = whole_run(&device, || {
            let (step, layers) =
                (trace_span!("decode", candlescope.phase = "decode"), [trace_span!("first"), trace_span!("last")]);
            let mut graph = None;
            for n in 0..4 {
                let _s = step.enter();
                let graph = graph.get_or_insert_with(|| {
                    device.begin_capture();
                    layers
                        .iter()
                        .for_each(|layer| layer.in_scope(|| (0..5).for_each(|_| device.launch("gemm", 1_000))));
                    device.end_capture()
                });
                device.replay_losing(graph, if n == 2 { 3 } else { 0 }, says);
            }
        });
        let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
        assert_eq!((account.dropped, account.mistimed), (3, 0), "{says:?}");
        assert_eq!((account.attributed, account.late), (4 * 10 - 3, 0), "{says:?}");
        assert_kernels_conserved(&account, &batch);
        finding(&m, "kernels_dropped");
        let of = |step: u64, name: &str| {
            let mut spans = batch.spans.iter().filter(|s| s.step == Some(step) && &*s.path.name == name);
            spans.next().expect("it has a row").gpu.map(|gpu| gpu.dur_ns)
        };
        assert_eq!(
            ["decode", "first", "last"].map(|name| of(2, name)),
            [None; 3],
            "{says:?}: what it took is not known"
        );
        // Where nobody knows whose they were, other steps may lack some, too.
        if says == Says::Whose {
            assert_eq!([0, 1, 3].map(|step| of(step, "decode")), [Some(10_000); 3], "{says:?}");
        }
    }
}

#[test]
fn replays_of_several_graphs_in_one_step_add_up() {
    let device = Device::new().follows_graphs();
    let (batch, m) = whole_run(&device, || {
        let (step, layer) = (trace_span!("decode", candlescope.phase = "decode"), trace_span!("layer"));
        let mut graphs = Vec::new();
        for n in 0..6 {
            let _s = step.enter();
            if n < 2 {
                device.begin_capture();
                layer.in_scope(|| (0..5 + 20 * n).for_each(|_| device.launch("gemm", 1_000)));
                graphs.push(device.end_capture());
            }
            graphs.iter().for_each(|graph| device.replay(graph));
        }
    });
    let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((account.of_captured, account.dropped), (6 * 5 + 5 * 25, 0));
    let steps: Vec<_> =
        batch.spans.iter().filter(|s| &*s.path.name == "decode").map(|s| s.gpu.unwrap().dur_ns).collect();
    assert_eq!(steps, [5_000, 30_000, 30_000, 30_000, 30_000, 30_000]);
}

/// Captures what a model does as a graph, in a step of its own.
fn captured_in_a_step(device: &Device) -> Graph {
    let (model, step) = (Model::new(device), trace_span!("decode", candlescope.phase = "decode"));
    let _s = step.enter();
    device.begin_capture();
    model.forward();
    device.end_capture()
}

#[test]
fn a_replay_that_was_launched_before_the_session_is_nobodys() {
    let device = Device::new().follows_graphs();
    let (graph, launched) = (captured_in_a_step(&device), HostNs::now());
    let (batch, m) = whole_run(&device, || {
        // It still runs once the recorder is on, which saw its launch or did not.
        device.runs_on(&graph, Some(launched));
        device.runs_on(&graph, None);
        std::thread::sleep(Duration::from_millis(5));
        let step = trace_span!("decode", candlescope.phase = "decode");
        for _ in 0..2 {
            let _s = step.enter();
            device.replay(&graph);
        }
    });
    let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((account.attributed, account.outside_window), (2 * 8, 2 * 8), "{account:?}");
    assert_eq!((account.of_graphs, account.of_captured), (2 * 8, 0), "nobody saw its capture");
    assert_eq!((account.dropped, account.late, account.unattributed), (0, 0, 0), "{account:?}");
    assert_kernels_conserved(&account, &batch);
    let steps: Vec<_> = batch.spans.iter().map(|s| (&*s.path.name, s.gpu.map(|gpu| gpu.dur_ns))).collect();
    assert_eq!(steps, [("decode", Some(150_000)); 2], "each has its own replay alone");
}

#[test]
fn replays_while_recording_is_paused_are_counted_and_nobodys() {
    let device = Device::new().follows_graphs();
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Off))
        .kernels(Recorder(device.clone()), Some(ALWAYS));
    let (batch, m) = record(builder, |handle| {
        handle.wait_for_kernels(SOON);
        let graph = captured_in_a_step(&device);
        let step = trace_span!("decode", candlescope.phase = "decode");
        let decode = |graph: &Graph| {
            let _s = step.enter();
            device.replay(graph);
        };
        decode(&graph);
        handle.stop();
        (0..3).for_each(|_| decode(&graph));
        let while_paused = captured_in_a_step(&device);
        decode(&while_paused);
        handle.start();
        decode(&graph);
        // Nobody saw what was captured meanwhile. It runs what the other one runs, whose layers are known.
        decode(&while_paused);
    });
    let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((account.attributed, account.outside_window), (3 * 8, 4 * 8), "{account:?}");
    assert_eq!((account.of_graphs, account.of_captured, account.of_derived), (3 * 8, 2 * 8, 8), "{account:?}");
    assert_eq!((account.dropped, account.late, account.unattributed), (0, 0, 0), "{account:?}");
    assert_kernels_conserved(&account, &batch);
    // The first step captured and launched nothing; of those that replayed, each has all of its replay.
    let times: Vec<_> = batch.steps.iter().map(|s| s.gpu.map_or(0, |gpu| gpu.dur_ns)).collect();
    assert_eq!(times, [0, 150_000, 150_000, 150_000], "{:?}", batch.steps);
    let layers = batch.spans.iter().filter(|s| s.graph.is_some()).map(|s| (s.step.unwrap(), s.derived));
    let layers: std::collections::BTreeSet<(u64, Option<bool>)> = layers.collect();
    let of = [1, 2, 3].map(|n| (batch.steps[n].step, (n == 3).then_some(true)));
    assert_eq!(layers.into_iter().collect::<Vec<_>>(), of);
}

#[test]
fn a_replay_in_a_step_that_is_open_when_the_session_ends_is_late_and_nothing_waits_for_it() {
    let device = Device::new().follows_graphs();
    let ((launched, was_launched), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Off))
        .kernels(Recorder(device.clone()), Some(ALWAYS));
    let mut worker = None;
    let (batch, m) = record(builder, |handle| {
        handle.wait_for_kernels(SOON);
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let device = device.clone();
        let decode = move || {
            let graph = captured_in_a_step(&device);
            let step = trace_span!("decode", candlescope.phase = "decode");
            step.in_scope(|| device.replay(&graph));
            let _s = step.enter();
            device.replay(&graph);
            launched.send(()).expect("the test waits for it");
            // The session is gone when it goes on.
            let _ = ends.recv();
            device.replay(&graph);
        };
        worker = Some(std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, decode)));
        was_launched.recv_timeout(SOON).expect("it launches");
    });
    // By now the session has ended, although the step has not.
    end.send(()).expect("it waits");
    worker.expect("it was begun").join().expect("it ends");
    let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((account.attributed, account.late, account.outside_window), (8, 8, 0), "{account:?}");
    assert_eq!((account.dropped, account.unattributed), (0, 0), "{account:?}");
    assert_kernels_conserved(&account, &batch);
    assert_eq!(m.loss.open_at_end, 1, "its step has no record");
    let of_step = |step: Option<u64>| batch.kernels.iter().filter(|k| k.step == step).count();
    assert_eq!((batch.steps.len(), of_step(Some(batch.steps[1].step)), of_step(None)), (2, 8, 8));
    assert!(batch.kernels.iter().all(|k| k.path.is_some() == k.step.is_some()), "what is late is no other step's");
    finding(&m, "kernels_late");
}

#[test]
fn a_graph_that_nobody_saw_captured_is_its_launchers() {
    // Captured in a step outside of windows, whose intervals the recorder does not want.
    let (batch, m) = replays(&Device::new(), false);
    let account = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((account.of_graphs, account.of_captured), (3 * 8, 0));
    assert!(batch.spans.iter().all(|s| s.graph.is_none()));
    let launches = batch.spans.iter().filter(|s| &*s.path.name == "cuda_graph").filter_map(|s| s.gpu);
    assert_eq!(launches.map(|gpu| gpu.dur_ns).collect::<Vec<_>>(), [150_000; 3]);
    let of_graph = batch.kernels.iter().filter(|k| k.graph.is_some());
    assert!(
        of_graph.clone().count() == 24 && of_graph.clone().all(|k| &*k.path.as_ref().unwrap().name == "cuda_graph")
    );
}

#[test]
fn kernels_after_intervals_that_cross_belong_to_the_one_that_goes_on() {
    let device = Device::new();
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Off))
        .kernels(Recorder(device.clone()), Some(ALWAYS));
    let (batch, m) = record(builder, |handle| {
        handle.wait_for_kernels(SOON);
        let ranges = handle.ranges();
        let name = |name| ranges.name(name, "m", candlescope_core::RangeKind::Interval);
        ranges.enter(name("step"), 1);
        ranges.enter(name("outer"), 2);
        ranges.enter(name("inner"), 3);
        ranges.enter(name("innermost"), 4);
        ranges.exit(2);
        device.launch("first", 1_000);
        ranges.exit(4);
        device.launch("second", 1_000);
        ranges.exit(3);
        device.launch("third", 1_000);
        ranges.exit(1);
    });
    let of = |kernel: &str| {
        batch.kernels.iter().find(|k| &*k.name == kernel)?.path.as_ref().map(|path| path.name.to_string())
    };
    assert_eq!(["first", "second", "third"].map(of), ["innermost", "inner", "step"].map(|name| Some(name.to_string())));
    assert_kernels_conserved(m.gpu.as_ref().unwrap().kernels.as_ref().unwrap(), &batch);
}

/// Of a program that stays in one range for long: windows count what is inside of it.
#[test]
fn a_step_inside_of_a_range_has_a_place_of_its_own_in_a_window() {
    use candlescope_core::RangeKind;
    for places in [3, 2] {
        let device = Device::new();
        let builder = Session::builder()
            .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Off))
            .kernels(Recorder(device.clone()), None);
        let (batch, m) = record(builder, |handle| {
            let ranges = handle.ranges();
            let outer = ranges.name("generate", "m", RangeKind::Interval);
            let token = ranges.name("token", "m", RangeKind::Step(None));
            let tokens = |n: usize| {
                for _ in 0..n {
                    ranges.enter(token, 2);
                    device.launch("linear", 1_000);
                    ranges.exit(2);
                }
            };
            let window = || {
                handle.capture_kernels(places).expect("none is open");
                assert!(handle.wait_for_kernels(SOON));
            };
            // The range takes a place itself where it begins in the window.
            let is_in_window = places == 3;
            if is_in_window {
                window();
            }
            ranges.enter(outer, 1);
            if !is_in_window {
                tokens(1);
                window();
            }
            tokens(4);
            ranges.exit(1);
        });
        let of_tokens = batch.kernels.iter().filter(|k| k.path.as_ref().is_some_and(|path| path.path == "token"));
        assert_eq!((of_tokens.count(), batch.kernels.len()), (2, 2), "{places}");
        assert_eq!(m.gpu.as_ref().unwrap().kernels.as_ref().unwrap().steps, places);
        let parents: Vec<_> = batch.spans.iter().filter(|s| &*s.path.name == "token").map(|s| s.parent_seq).collect();
        let generate = batch.spans.iter().find(|s| &*s.path.name == "generate").expect("recorded").seq;
        assert!(parents.len() >= 4 && parents.iter().all(|parent| *parent == Some(generate)), "{parents:?}");
        assert_eq!(batch.steps.len(), parents.len() + 1, "each is a step, and so is the range around them");
    }
}

#[test]
fn every_thread_has_a_lane_of_its_own() {
    let device = Device::new();
    let builder = Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::All));
    let (batch, m) = record(builder, |_| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| tracing::dispatcher::with_default(&dispatch, || steps(&device, 10)));
            }
        });
    });
    assert_eq!(batch.spans.iter().filter(|s| s.gpu.is_some()).count(), 4 * 130);
    assert_eq!(m.gpu.unwrap().intervals["timed"], 520);
}

fn recorded(schedule: Option<Schedule>, tier: GpuTier, device: &Device, n: usize) -> (Batch, RunManifest) {
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(tier))
        .kernels(Recorder(device.clone()), schedule);
    record(builder, |handle| {
        // The window of a schedule that begins at once is open as soon as the recorder is on, if that is possible.
        handle.wait_for_kernels(SOON);
        steps(device, n);
    })
}

const ALWAYS: Schedule = Schedule { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 };

#[test]
fn kernels_find_their_intervals_and_are_the_truth() {
    let device = Device::new();
    let (batch, m) = recorded(Some(ALWAYS), GpuTier::All, &device, 6);
    assert_eq!(batch.kernels.len(), 6 * 8);
    assert!(batch.spans.iter().all(|s| s.gpu.is_some()));
    assert_times(&batch, GpuSource::Cupti);
    assert!(batch.steps.iter().all(|s| s.gpu.is_some_and(|g| g.dur_ns == 150_000 && g.source == GpuSource::Cupti)));
    for kernel in &batch.kernels {
        let span = batch.spans.iter().find(|s| Some(s.seq) == kernel.seq).expect("its interval");
        assert_eq!((kernel.span_id, kernel.step), (Some(span.span_id), span.step));
        assert_eq!(kernel.path.as_ref(), Some(&span.path));
        let inner = if &*kernel.name == "softmax" { "attn" } else { "linear" };
        assert_eq!(&*span.path.name, inner);
        assert_eq!(kernel.queue_delay_ns, Some(500));
    }
    let gpu = m.gpu.as_ref().unwrap();
    let kernels = gpu.kernels.as_ref().unwrap();
    assert_eq!((kernels.steps, kernels.recorded, kernels.unattributed, kernels.late), (6, 48, 0, 0));
    // Steps of 150 µs have both; on the scripted device no time lies between a mark and its first kernel.
    let check = gpu.cross_check.unwrap();
    assert_eq!((check.n, check.median_ratio), (6, 1.0));
    assert!(m.verdict.ok, "{:?}", m.verdict);
    common::assert_conserved(&m);
}

#[test]
fn without_marks_kernels_still_come_in() {
    let device = Device::new();
    let (batch, _) = recorded(Some(ALWAYS), GpuTier::Off, &device, 3);
    assert_eq!(batch.kernels.len(), 24);
    assert_times(&batch, GpuSource::Cupti);
    assert!(batch.spans.iter().all(|s| s.gpu.is_some()));
}

/// Where others use the device, too, it is far behind when a window ends.
#[test]
fn kernels_that_still_run_when_their_window_ends_are_waited_for() {
    let device = Device::new().lags(Duration::from_millis(25));
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), Some(Schedule { skip_first: 0, wait: 5, warmup: 0, active: 6, repeat: 0 }));
    let (batch, m) = record(builder, |_| {
        let three_windows = || {
            steps(&device, 1);
            std::thread::sleep(Duration::from_millis(2));
            device.enables.load(Ordering::Relaxed) > 3
        };
        wait_until(three_windows, "windows come and go");
    });
    let kernels = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((kernels.dropped, kernels.late, kernels.unattributed), (0, 0, 0), "{kernels:?}");
    assert_eq!((kernels.steps, kernels.attributed), (batch.kernels.len() as u64 / 8, kernels.steps * 8));
    assert!(kernels.steps >= 18, "{kernels:?}");
    let of_kernels = |gpu: &candlescope_core::GpuTime| gpu.source == GpuSource::Cupti;
    let whole = batch.steps.iter().filter_map(|step| step.gpu).filter(of_kernels);
    assert_eq!(whole.filter(|gpu| gpu.dur_ns == 150_000).count() as u64, kernels.steps);
    assert_kernels_conserved(&kernels, &batch);
}

#[test]
fn an_interval_whose_kernel_was_lost_has_no_gpu_time_from_kernels() {
    let device = Device::new().lags(Duration::from_secs(3_600));
    let (batch, m) = recorded(Some(ALWAYS), GpuTier::Steps, &device, 3);
    let kernels = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((kernels.dropped, kernels.steps), (24, 3));
    assert!(finding(&m, "kernels_dropped").severity == Severity::Warning);
    let sources: Vec<_> = batch.spans.iter().filter_map(|span| Some(span.gpu?.source)).collect();
    assert_eq!(sources, [GpuSource::Event; 3], "the marks of the steps stay");
}

#[test]
fn a_window_on_request_takes_its_steps_and_switches_off() {
    let device = Device::new();
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), None);
    let (batch, m) = record(builder, |handle| {
        steps(&device, 5);
        for round in 1..=2_u64 {
            // The recorder of the previous round is switched off in the background.
            let begins = || handle.capture_kernels(3).inspect_err(|refused| assert!(round > 1, "{refused}")).is_ok();
            wait_until(begins, "the recorder is free");
            assert!(matches!(handle.capture_kernels(3), Err(KernelsRefused::Busy { .. })));
            // Steps go on as before while the recorder gets ready, and until it is off again.
            let is_on = || {
                steps(&device, 1);
                device.enables.load(Ordering::Relaxed) >= round
            };
            wait_until(is_on, "the recorder is on");
            steps(&device, 5);
        }
    });
    let windows = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((windows.windows, windows.steps), (2, 6));
    let with_kernels = batch.steps.iter().filter(|s| s.gpu.is_some_and(|g| g.source == GpuSource::Cupti)).count();
    assert_eq!(with_kernels, 6);
    assert!(batch.steps.len() > 6 && batch.steps.iter().all(|s| s.gpu.is_some()), "the others have marks");
    let attributed = batch.kernels.iter().filter(|k| k.path.is_some()).count();
    assert_eq!(attributed, 6 * 8);
    // The recorder is on a little longer than the window: the kernels of that time have no rows, and are counted.
    assert_eq!((attributed, windows.unattributed), (batch.kernels.len(), 0));
    assert_kernels_conserved(&windows, &batch);
}

/// Switching a recorder on and off takes longer than a window: a program that asks for few says how far apart.
#[test]
fn windows_keep_their_distance_and_begin_when_the_program_is_warm() {
    const APART: Duration = Duration::from_secs(2);
    let device = Device::new();
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), Some(Schedule { skip_first: 0, wait: 0, warmup: 1, active: 3, repeat: 0 }))
        .kernels_apart(APART)
        .kernels_held(true);
    let warm = 50;
    let mut began = Vec::new();
    let (batch, m) = record(builder, |handle| {
        steps(&device, warm);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(device.enables.load(Ordering::Relaxed), 0, "none while the program warms up");
        let before = Instant::now();
        assert!(!handle.wait_for_kernels(SOON) && before.elapsed() < SOON / 2, "nobody waits for what does not begin");
        handle.begin_kernel_windows();
        for window in 1..=3 {
            let is_on = || {
                steps(&device, 1);
                std::thread::sleep(Duration::from_millis(1));
                device.enables.load(Ordering::Relaxed) >= window
            };
            wait_until(is_on, "the next window");
            began.push(Instant::now());
        }
        // The last window has its steps only once the recorder has said that it is on.
        let is_over = || {
            steps(&device, 1);
            std::thread::sleep(Duration::from_millis(1));
            !device.recording()
        };
        wait_until(is_over, "the last window is over");
    });
    // They are seen late by a step and the recorder's next look, which a busy machine makes longer.
    let apart: Vec<_> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(began[2] - began[0] >= APART && apart.iter().all(|apart| *apart >= APART / 2), "{apart:?}");
    let windows = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((windows.windows, windows.windows_missed), (3, 0), "a window that still waits is none");
    assert_eq!((windows.steps, windows.attributed), (9, 9 * 8));
    let mut all: Vec<_> = batch.steps.iter().collect();
    all.sort_by_key(|step| step.step);
    assert!(all[..warm].iter().all(|step| step.gpu.is_some_and(|gpu| gpu.source == GpuSource::Event)));
    assert_eq!(m.options["kernels_apart_s"], 2.0);
    assert_kernels_conserved(&windows, &batch);
}

fn assert_kernels_conserved(k: &KernelAccount, batch: &Batch) {
    assert_eq!(k.recorded, k.attributed + k.unattributed + k.late + k.outside_window, "{k:?}");
    assert_eq!(batch.kernels.len() as u64, k.recorded - k.outside_window, "{k:?}");
}

#[test]
fn what_steps_outside_the_window_launch_is_not_outside_every_interval() {
    let device = Device::new();
    // Wanted before the first step, so the recorder is on while the model loads.
    let window = Schedule { skip_first: 0, wait: 0, warmup: 0, active: 6, repeat: 1 };
    // Steps 0 to 3 are not recorded at all.
    let steps_of = Schedule { skip_first: 4, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 };
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), Some(window))
        .schedule(steps_of);
    let mut outside = 0;
    let (batch, m) = record(builder, |handle| {
        assert!(handle.wait_for_kernels(Duration::from_secs(20)));
        // Kernels of loading weights.
        (0..50).for_each(|_| device.launch("generate_seed_pseudo", 1_000));
        steps(&device, 4);
        // These kernels are distinguished by their times only, so the times must lie apart.
        std::thread::sleep(Duration::from_millis(5));
        outside += 50 + 4 * 8;
        // The window. Between its steps something is launched outside all intervals.
        steps(&device, 3);
        std::thread::sleep(Duration::from_millis(2));
        (0..5).for_each(|_| device.launch("in between", 1_000));
        std::thread::sleep(Duration::from_millis(2));
        steps(&device, 3);
        // The recorder is still on for a moment.
        while device.recording() && outside < 5_000 {
            steps(&device, 1);
            outside += u64::from(device.recording()) * 8;
        }
        std::thread::sleep(Duration::from_millis(2));
    });
    let kernels = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((kernels.attributed, kernels.unattributed, kernels.late), (48, 5, 0), "{kernels:?}");
    assert!(kernels.outside_window >= 82 && kernels.outside_window.abs_diff(outside) <= 8, "{kernels:?}, {outside}");
    assert_kernels_conserved(&kernels, &batch);
    assert!(batch.kernels.iter().all(|k| &*k.name != "generate_seed_pseudo"));
    let loose: Vec<&str> = batch.kernels.iter().filter(|k| k.path.is_none()).map(|k| &*k.name).collect();
    assert_eq!(loose, ["in between"; 5]);
}

#[test]
fn threads_whose_steps_are_not_in_the_window_are_told_apart_too() {
    let device = Device::new();
    let builder = Session::builder().kernels(Recorder(device.clone()), None);
    let (batch, m) = record(builder, |handle| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let model = Model::new(&device);
        let open = trace_span!("decode");
        std::thread::scope(|scope| {
            // A step that begins before the window and goes on through all of it.
            let inside = open.enter();
            handle.capture_kernels(3).expect("none is open");
            assert!(handle.wait_for_kernels(Duration::from_secs(20)));
            let worker = scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || steps(&device, 2));
            });
            worker.join().expect("ends");
            model.forward();
            let worker = scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || steps(&device, 1));
            });
            worker.join().expect("ends");
            drop(inside);
        });
    });
    let kernels = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    let told = (kernels.recorded, kernels.attributed, kernels.unattributed, kernels.outside_window);
    assert_eq!(told, (32, 24, 0, 8), "{kernels:?}");
    assert_kernels_conserved(&kernels, &batch);
}

#[test]
fn kernels_that_begin_before_their_launch_bound_the_clocks() {
    let account = |start_after: i64, recorder_bound| {
        let mut device = Device::new();
        (device.start_after, device.recorder_bound) = (start_after, recorder_bound);
        let (batch, m) = recorded(Some(ALWAYS), GpuTier::Off, &device, 2);
        assert!(batch.kernels.iter().all(|k| k.queue_delay_ns == Some((start_after - 400).max(0) as u64)));
        (m.gpu.clone().unwrap().kernels.unwrap(), m)
    };
    let early = |k: &KernelAccount| (k.negative_delays, k.most_negative_ns, k.clock_bound_ns);
    // The call takes 400 ns, and the kernel starts after 900.
    assert_eq!(early(&account(900, None).0), (0, 0, None), "nothing was said of the clock");
    assert_eq!(early(&account(900, Some(70)).0), (0, 0, Some(70)));
    // The device was quicker than the call, which is no error of the clocks.
    assert_eq!(early(&account(300, Some(70)).0), (16, 100, Some(70)));
    // It cannot have been quicker than the beginning of the call.
    let (k, m) = account(-5_000, Some(70));
    assert_eq!((early(&k), m.verdict.ok), ((16, 5_400, Some(5_000)), true));
    assert!(m.verdict.findings.is_empty(), "{:?}", m.verdict);
    let (k, m) = account(-250_000, None);
    assert_eq!((k.clock_bound_ns, m.gpu.as_ref().unwrap().clock_bound_ns()), (Some(250_000), Some(250_000)));
    let found = finding(&m, "gpu_clock_uncertain");
    assert!(found.message().contains("250 µs") && found.message().contains("queue delays"), "{found:?}");
    assert_eq!(found.severity, Severity::Warning);
}

#[test]
fn a_clock_that_is_not_known_is_said_so() {
    let mut device = Device::new();
    device.anchor_bound = 7_330_000_000;
    let (batch, m) = timed(GpuTier::All, &device, 3);
    assert_times(&batch, GpuSource::Event);
    assert_eq!(m.gpu.as_ref().unwrap().devices[0].skew_bound_ns, 7_330_000_000);
    let found = finding(&m, "gpu_clock_uncertain");
    assert!(found.message().contains("7.33 s") && found.remedy().contains("durations are right"), "{found:?}");
    assert_eq!(found.severity, Severity::Warning);
    let mut device = Device::new();
    device.anchor_bound = 99_000;
    let (_, m) = timed(GpuTier::All, &device, 3);
    assert!(m.verdict.findings.is_empty(), "{:?}", m.verdict);
}

#[test]
fn a_capture_has_every_interval_and_the_kernels_whatever_the_tier() {
    let device = Device::new();
    let (captured, again) = (MemoryExporter::new(), MemoryExporter::new());
    let session = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), None);
    let mut run = None;
    let (batch, _) = record(session, |handle| {
        steps(&device, 4);
        let capture = handle.capture(captured.clone(), 3).expect("begins");
        assert_eq!(capture.steps(), 4..7);
        steps(&device, 20);
        run = capture.wait(Duration::from_secs(20));
        // Directly after the first capture, when the recorder's window may still be closing.
        let capture = handle.capture(again.clone(), 3).expect("begins");
        steps(&device, 20);
        capture.wait(Duration::from_secs(20)).expect("written");
    });
    assert_eq!(again.batch().kernels.len(), 24);
    let (run, captured) = (run.expect("written"), captured.batch());
    assert_eq!((captured.steps.len(), captured.spans.len()), (3, 39));
    assert!(captured.spans.iter().all(|s| s.gpu.is_some_and(|g| g.source == GpuSource::Cupti)));
    // Eight launches per step.
    assert_eq!((captured.kernels.len(), run.counts["kernels"]), (24, 24));
    assert!(captured.kernels.iter().all(|k| k.step.is_some_and(|step| (4..7).contains(&step))));
    // Before the capture, and after the recorder's window, steps are marked as the tier says.
    let marked_layers =
        with_gpu(&batch, "decode/block").filter(|s| s.gpu.is_some_and(|g| g.source == GpuSource::Event));
    assert_eq!(marked_layers.count(), 0);
    assert!(batch.spans.iter().any(|s| s.step == Some(20) && s.path.path == "decode" && s.gpu.is_some()));
    // Without a recorder a capture has only marks, but all of them.
    let device = Device::new();
    let captured = MemoryExporter::new();
    let (batch, _) = record(Session::builder().gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps)), |handle| {
        let capture = handle.capture(captured.clone(), 3).expect("begins");
        steps(&device, 20);
        capture.wait(Duration::from_secs(20)).expect("written");
    });
    assert_times(&captured.batch(), GpuSource::Event);
    let taken = captured.batch();
    let without: Vec<&str> = taken.spans.iter().filter(|s| s.gpu.is_none()).map(|s| s.path.path.as_str()).collect();
    assert!(without.is_empty(), "{without:?}");
    assert_eq!(with_gpu(&batch, "decode").count(), 20);
    assert_eq!(with_gpu(&batch, "decode/block").count(), 6);
}

#[test]
fn a_capture_shares_the_recorder_with_a_window_that_is_open() {
    let device = Device::new();
    let memory = MemoryExporter::new();
    let builder = Session::builder().kernels(Recorder(device.clone()), Some(ALWAYS));
    let (batch, m) = record(builder, |handle| {
        assert!(handle.wait_for_kernels(Duration::from_secs(20)));
        steps(&device, 2);
        let asked = Instant::now();
        let capture = handle.capture(memory.clone(), 3).expect("begins");
        assert!(asked.elapsed() < Duration::from_secs(5), "it waits for nothing");
        steps(&device, 5);
        capture.wait(Duration::from_secs(20)).expect("written");
        assert!(device.recording(), "the other window goes on");
    });
    assert_eq!(memory.batch().kernels.len(), 3 * 8);
    assert_eq!(batch.kernels.len(), 7 * 8);
    let kernels = m.gpu.as_ref().unwrap().kernels.clone().unwrap();
    assert_eq!((kernels.windows, kernels.steps, kernels.attributed), (2, 7, 56), "{kernels:?}");
    assert_eq!(device.enables.load(Ordering::Relaxed), 1);
}

#[test]
fn a_capture_leaves_the_recorder_off_however_it_ends() {
    let device = Device::new();
    let session = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), None)
        .paused(true);
    let off = || wait_until(|| !device.recording(), "the recorder is off");
    record(session, |handle| {
        // Only the captured steps are recorded, so there are no others that use up the rest of the recorder's window.
        let memory = MemoryExporter::new();
        let capture = handle.capture(memory.clone(), 40).expect("begins");
        assert!(device.recording());
        steps(&device, 50);
        capture.wait(Duration::from_secs(20)).expect("written");
        assert_eq!(memory.batch().kernels.len(), 40 * 8);
        off();
        // Ended before any step came.
        let capture = handle.capture(MemoryExporter::new(), 3).expect("begins");
        capture.end();
        assert_eq!(capture.wait(Duration::from_secs(20)).expect("written").counts["steps"], 0);
        off();
        // The next capture finds the recorder free.
        let memory = MemoryExporter::new();
        let capture = handle.capture(memory.clone(), 2).expect("begins");
        steps(&device, 5);
        capture.wait(Duration::from_secs(20)).expect("written");
        assert_eq!(memory.batch().kernels.len(), 16);
    });
}

/// As a benchmark does it: the steps it asks for, and then the end, at once.
#[test]
fn a_capture_that_is_ended_waits_for_the_kernels_of_its_steps() {
    for asked in [10, 40] {
        let device = Device::new();
        let memory = MemoryExporter::new();
        let session = Session::builder()
            .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::All))
            .kernels(Recorder(device.clone()), None)
            .paused(true);
        record(session, |handle| {
            let capture = handle.capture(memory.clone(), asked).expect("begins");
            {
                let request = candlescope_core::llm::Request::new("text_completion", "tiny");
                let _in_request = request.enter();
                steps(&device, 10);
            }
            capture.end();
            // What comes after it is none of it.
            steps(&device, 3);
            let run = capture.wait(Duration::from_secs(20)).expect("written");
            let taken = memory.batch();
            assert_eq!((taken.steps.len(), taken.spans.len(), taken.kernels.len()), (10, 130, 80), "asked for {asked}");
            assert!(taken.spans.iter().all(|s| s.gpu.is_some_and(|g| g.source == GpuSource::Cupti)));
            let cut: Vec<String> =
                run.verdict.findings.iter().filter(|f| f.code == "capture_cut_short").map(|f| f.message()).collect();
            match asked {
                10 => assert!(cut.is_empty(), "{cut:?}"),
                _ => assert!(cut[0].contains("10 of the 40 steps"), "{cut:?}"),
            }
            assert_eq!(run.steps.unwrap().open_at_end, 0, "{:?}", run.steps);
            // Its row comes with its last steps, or the run says that it lacks it.
            assert_eq!(taken.requests.len() as u64 + run.loss.requests_open_at_end, 1);
            wait_until(|| !device.recording(), "the recorder is off");
        });
    }
}

#[test]
fn a_captured_step_that_goes_on_does_not_keep_the_recorder_on_for_the_others() {
    let device = Device::new();
    let memory = MemoryExporter::new();
    let session = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps))
        .kernels(Recorder(device.clone()), None);
    record(session, |handle| {
        let capture = handle.capture(memory.clone(), 2).expect("begins");
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let ((begun, begins), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
        std::thread::scope(|scope| {
            let device = &device;
            let long = move || {
                let _step = trace_span!("long").entered();
                device.launch("early", 10_000);
                trace_span!("inner").in_scope(|| device.launch("early", 10_000));
                begun.send(()).expect("waited for");
                let _ = ends.recv();
                device.launch("unseen", 30_000);
            };
            scope.spawn(|| tracing::dispatcher::with_default(&dispatch, long));
            begins.recv().expect("begins");
            steps(device, 3);
            wait_until(|| !device.recording(), "the recorder is off");
            assert!(capture.wait(Duration::ZERO).is_none(), "the capture waits on");
            drop(end);
        });
        capture.wait(SOON).expect("written");
    });
    let captured = memory.batch();
    let gpu = |path| with_gpu(&captured, path).next().and_then(|s| s.gpu).expect("has GPU time").source;
    assert_eq!([gpu("decode"), gpu("long"), gpu("long/inner")], [GpuSource::Cupti, GpuSource::Event, GpuSource::Cupti]);
}

#[test]
fn a_recorder_that_cannot_says_why_and_costs_nothing_else() {
    for (error, said) in [("no permission: ask the administrator", "no permission"), ("panic", "panicked")] {
        let device = Device::new();
        *device.kernel_error.lock().unwrap() = Some(error);
        let (batch, m) = recorded(Some(ALWAYS), GpuTier::All, &device, 3);
        assert_eq!((batch.spans.len(), batch.kernels.len()), (39, 0));
        assert_times(&batch, GpuSource::Event);
        let found = finding(&m, "no_kernels");
        assert!(found.message().contains(said), "{}", found.message());
        assert_eq!(found.severity, Severity::Warning);
    }
}

#[test]
fn a_budget_that_is_no_share_is_refused() {
    let timing = GpuTiming::default().budget(2.0);
    let error = Session::builder().gpu(Clock(Device::new()), timing).start().expect_err("refused");
    assert!(error.to_string().contains("budget of GPU timing is 2"), "{error}");
    let refused = Session::builder().start().unwrap().1.handle().capture_kernels(1);
    assert_eq!(refused, Err(KernelsRefused::NoRecorder));
}

#[test]
fn a_clock_that_was_added_just_in_case_may_stay_unused() {
    let device = Device::new();
    *device.refuse.lock().unwrap() = Some(NoMark::NoContext);
    let builder = Session::builder().gpu(Clock(device.clone()), GpuTiming::default()).expect_gpu(false);
    let (_, m) = record(builder, |_| steps(&device, 2));
    assert!(m.gpu.is_none() && m.verdict.findings.is_empty(), "{:?}", m.verdict);
}

#[test]
fn what_was_noticed_while_setting_up_is_in_the_verdict() {
    let finding = candlescope_core::run::Finding::new("no_gpu_time", "no driver", "install it");
    let finding = finding.severity(Severity::Warning);
    let (_, m) = record(Session::builder().finding(finding.clone()), |_| steps(&Device::new(), 1));
    assert_eq!(m.verdict.findings, [finding]);
}
