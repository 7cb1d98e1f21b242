//! Graphs whose capture nobody saw, and records that a recorder loses without a word of it, on a scripted device.
#![allow(missing_docs)]
mod common;
mod scripted;

use candlescope_core::gpu::GpuTiming;
use candlescope_core::run::{KernelAccount, RunManifest};
use candlescope_core::{Batch, GpuTier, KernelRecord, Schedule, Session};
use candlescope_testkit::SOON;
use common::record;
use scripted::{Clock, Device, Graph, Recorder, Says};
use tracing::{Span, trace_span};

/// Layers of an attention and an mlp each.
struct Model {
    layers: Vec<[Span; 2]>,
    device: Device,
}

impl Model {
    fn new(device: &Device, layers: usize) -> Self {
        let layer = |_| [trace_span!("attn"), trace_span!("mlp")];
        Self { layers: (0..layers).map(layer).collect(), device: device.clone() }
    }

    /// Four kernels a layer, of 10 µs.
    fn forward(&self) {
        for [attn, mlp] in &self.layers {
            attn.in_scope(|| {
                self.device.launch("norm", 1_000);
                self.device.launch("gemm", 2_000);
                self.device.launch("softmax", 3_000);
            });
            mlp.in_scope(|| self.device.launch("gemm", 4_000));
        }
    }

    fn captured(&self) -> Graph {
        self.device.begin_capture();
        self.forward();
        self.device.end_capture()
    }
}

/// A session of which kernels of all steps are recorded.
fn run(device: &Device, work: impl FnOnce()) -> (Batch, RunManifest, KernelAccount) {
    let all = Schedule { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 };
    let builder = Session::builder()
        .gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Off))
        .kernels(Recorder(device.clone()), Some(all));
    let (batch, m) = record(builder, |handle| {
        handle.wait_for_kernels(SOON);
        work();
    });
    let account = m.gpu.as_ref().and_then(|gpu| gpu.kernels.clone()).expect("kernels were recorded");
    (batch, m, account)
}

/// A step's kernels in order.
fn of_step(batch: &Batch, step: u64) -> Vec<&KernelRecord> {
    let mut kernels: Vec<_> = batch.kernels.iter().filter(|kernel| kernel.step == Some(step)).collect();
    kernels.sort_by_key(|kernel| kernel.gpu_start);
    kernels
}

fn paths<'b>(kernels: &[&'b KernelRecord]) -> Vec<&'b str> {
    kernels.iter().filter_map(|kernel| Some(kernel.path.as_ref()?.path.as_str())).collect()
}

#[test]
fn a_graph_from_before_the_session_has_derived_layers_where_a_step_ran_the_same_call_by_call() {
    // Of a part of what a step launches more has to be the same: of the 80 kernels of twenty layers it is enough.
    for (layers, copies_out) in [(6, false), (20, true)] {
        let device = Device::new();
        let graph = Model::new(&device, layers).captured();
        let (batch, _, account) = run(&device, || {
            let (model, step) = (Model::new(&device, layers), trace_span!("decode", candlescope.phase = "decode"));
            step.in_scope(|| {
                model.forward();
                if copies_out {
                    device.launch("copy", 500);
                }
            });
            let launch = trace_span!("cuda_graph");
            (0..3).for_each(|_| step.in_scope(|| launch.in_scope(|| device.replay(&graph))));
        });
        let each = 4 * layers as u64;
        assert_eq!(
            (account.of_graphs, account.of_captured, account.of_derived),
            (3 * each, 0, 3 * each),
            "{account:?}"
        );
        assert_eq!(account.recorded, account.attributed + account.outside_window, "{account:?}");
        let mut eager = of_step(&batch, 0);
        eager.truncate(4 * layers);
        assert!(eager.iter().all(|kernel| kernel.derived.is_none()), "it was launched by its layers");
        for step in 1..4 {
            let replay = of_step(&batch, step);
            assert_eq!(paths(&replay), paths(&eager), "step {step}");
            assert!(replay.iter().all(|kernel| kernel.derived == Some(true) && kernel.graph.is_some()));
            let rows = || batch.spans.iter().filter(|span| span.step == Some(step) && span.graph.is_some());
            assert_eq!(rows().count(), 2 * layers);
            assert!(rows().all(|row| row.derived == Some(true)));
            let time: u64 = rows().filter_map(|row| Some(row.gpu?.dur_ns)).sum();
            assert_eq!(time, 10_000 * layers as u64);
            let whole = batch.spans.iter().find(|span| span.step == Some(step) && span.parent_seq.is_none()).unwrap();
            assert_eq!((whole.gpu.unwrap().dur_ns, whole.derived), (10_000 * layers as u64, None), "it was entered");
        }
    }
}

#[test]
fn what_the_first_replay_had_no_record_of_has_its_layer_in_the_next_ones() {
    let device = Device::new();
    let graph = Model::new(&device, 20).captured();
    let (batch, _, account) = run(&device, || {
        let (model, step) = (Model::new(&device, 20), trace_span!("decode", candlescope.phase = "decode"));
        step.in_scope(|| model.forward());
        let launch = trace_span!("cuda_graph");
        for lost in [1, 0, 0] {
            step.in_scope(|| launch.in_scope(|| device.replay_losing(&graph, lost, Says::Nothing)));
        }
    });
    assert_eq!((account.of_graphs, account.of_captured, account.of_derived), (79 + 80 + 80, 0, 79 + 80 + 80));
    let eager = of_step(&batch, 0);
    for (step, lost) in [(1, 1), (2, 0), (3, 0)] {
        assert_eq!(paths(&of_step(&batch, step)), paths(&eager)[..80 - lost], "step {step}");
    }
}

#[test]
fn of_two_graphs_of_one_step_only_one_can_be_what_is_known() {
    for together in [false, true] {
        let device = Device::new().follows_graphs();
        let before = Model::new(&device, 6).captured();
        let (batch, _, account) = run(&device, || {
            let (model, step) = (Model::new(&device, 6), trace_span!("decode", candlescope.phase = "decode"));
            let launch = trace_span!("cuda_graph");
            let known = step.in_scope(|| model.captured());
            for _ in 0..3 {
                let replay = |graph| launch.in_scope(|| device.replay(graph));
                step.in_scope(|| {
                    replay(&known);
                    if together {
                        replay(&before);
                    }
                });
                if !together {
                    step.in_scope(|| replay(&before));
                }
            }
        });
        let derived = if together { 0 } else { 3 * 24 };
        assert_eq!((account.of_graphs, account.of_captured, account.of_derived), (6 * 24, 3 * 24, derived));
        let of_launch =
            batch.kernels.iter().filter(|kernel| kernel.path.as_ref().is_some_and(|path| &*path.name == "cuda_graph"));
        assert_eq!(of_launch.count() as u64, 3 * 24 - derived, "together: {together}");
    }
}

#[test]
fn a_graph_that_runs_something_else_stays_one_row_with_its_kernels_beneath() {
    let device = Device::new();
    let graph = Model::new(&device, 6).captured();
    let (batch, _, account) = run(&device, || {
        let (model, step) = (Model::new(&device, 5), trace_span!("decode", candlescope.phase = "decode"));
        step.in_scope(|| model.forward());
        let launch = trace_span!("cuda_graph");
        (0..2).for_each(|_| step.in_scope(|| launch.in_scope(|| device.replay(&graph))));
    });
    assert_eq!((account.of_graphs, account.of_captured, account.of_derived), (48, 0, 0));
    for step in [1, 2] {
        let replay = of_step(&batch, step);
        assert_eq!(paths(&replay), ["decode/cuda_graph"; 24]);
        assert!(replay.iter().all(|kernel| kernel.derived.is_none()));
    }
    assert!(batch.spans.iter().all(|span| span.graph.is_none() && span.derived.is_none()));
}

#[test]
fn a_replay_with_fewer_kernels_than_the_others_has_no_time_although_nobody_told_of_a_loss() {
    let device = Device::new().follows_graphs();
    let (batch, m, account) = run(&device, || {
        let (model, step) = (Model::new(&device, 2), trace_span!("decode", candlescope.phase = "decode"));
        let mut graph = None;
        for n in 0..20 {
            let _s = step.enter();
            let graph = graph.get_or_insert_with(|| model.captured());
            device.replay_losing(graph, if n == 15 { 3 } else { 0 }, Says::Nothing);
        }
    });
    assert_eq!((account.untold, account.dropped, account.late), (3, 0, 0), "{account:?}");
    let times = |n: u64| batch.steps.iter().find(|step| step.step == n).and_then(|step| step.gpu);
    for n in 0..20 {
        assert_eq!(times(n).map(|gpu| gpu.dur_ns), (n != 15).then_some(20_000), "step {n}");
    }
    let of_step = |n: u64| batch.spans.iter().filter(move |span| span.step == Some(n) && span.graph.is_some());
    assert!(of_step(15).count() > 0 && of_step(15).all(|span| span.gpu.is_none()), "it may be missing anywhere");
    let found = m.verdict.findings.iter().find(|finding| finding.code == "kernels_dropped").expect("it is said");
    assert!(found.message().contains("lost 3 records without a word of it"), "{}", found.message());
}

#[test]
fn a_graph_with_a_condition_loses_nothing() {
    let device = Device::new().follows_graphs();
    let (batch, _, account) = run(&device, || {
        let (model, step) = (Model::new(&device, 2), trace_span!("decode", candlescope.phase = "decode"));
        let mut graph = None;
        for n in 0..20 {
            let _s = step.enter();
            let graph = graph.get_or_insert_with(|| model.captured());
            // Every third step takes the shorter way.
            device.replay_losing(graph, if n % 3 == 2 { 3 } else { 0 }, Says::Nothing);
        }
    });
    assert_eq!(account.untold, 0, "{account:?}");
    assert!(batch.steps.iter().all(|step| step.gpu.is_some()));
}

#[test]
fn a_branch_that_is_seldom_taken_is_a_loss_only_until_it_comes_again() {
    let device = Device::new().follows_graphs();
    let (batch, m, account) = run(&device, || {
        let (model, step) = (Model::new(&device, 2), trace_span!("decode", candlescope.phase = "decode"));
        let mut graph = None;
        for n in 0..60 {
            let _s = step.enter();
            let graph = graph.get_or_insert_with(|| model.captured());
            // Every twelfth step takes the shorter way, in which the same nodes do not run.
            device.replay_losing(graph, if n % 12 == 11 { 3 } else { 0 }, Says::Nothing);
        }
    });
    assert_eq!((account.untold, account.dropped, account.late), (0, 0, 0), "{account:?}");
    let found = m.verdict.findings.iter().find(|finding| finding.code == "kernels_dropped");
    assert!(found.is_none(), "nothing was lost: {found:?}");
    // The first two were given up before it was known.
    let without_time: Vec<u64> = batch.steps.iter().filter(|step| step.gpu.is_none()).map(|step| step.step).collect();
    assert_eq!(without_time, [11, 23]);
}

#[test]
fn a_branch_that_comes_again_within_one_interval_is_no_loss_either() {
    let device = Device::new().follows_graphs();
    let (batch, _, account) = run(&device, || {
        let (model, step) = (Model::new(&device, 2), trace_span!("decode", candlescope.phase = "decode"));
        let graph = step.in_scope(|| model.captured());
        let _s = step.enter();
        (0..60).for_each(|n| device.replay_losing(&graph, if n % 12 == 11 { 3 } else { 0 }, Says::Nothing));
    });
    assert_eq!((account.untold, account.dropped, account.late), (0, 0, 0), "{account:?}");
    assert_eq!(batch.kernels.len(), 60 * 8 - 5 * 3);
    let step = batch.steps.iter().find(|step| step.step == 1).expect("the step with the replays");
    assert!(step.gpu.is_some(), "nothing was given up: {step:?}");
}
