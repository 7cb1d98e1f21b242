//! Changes whose effect is known.

use super::steps::{CALL, DELAY, GAP, Made, Maker, WAKE, free, run_of, simulation};
use candlescope_predict::simulation::{
    Abstain, Change, Outcome, Simulation, SimulationOptions, parse_changes, simulate,
};
use candlescope_schema::run::RunManifest;
use candlescope_schema::{Batch, DType, HostNs, KernelKind, Side};
use serde_json::json;

fn outcome(simulation: &Simulation, text: &str) -> Outcome {
    simulation.groups()[0].simulate(&parse_changes(text).unwrap()).unwrap_or_else(|abstain| panic!("{text}: {abstain}"))
}

fn near(left: f64, right: f64) {
    assert!((left - right).abs() < 5.0, "{left} and {right}");
}

/// `prefix` of host work, 50 small kernels with 6 µs of host work before each, a fetch.
fn launch_bound(prefix: i64) -> Made {
    let mut step = Maker::new();
    step.host(prefix);
    for _ in 0..50 {
        step.host(6_000);
        step.launch("gemv", 2_000, 1);
    }
    step.fetch(400);
    step.end()
}

/// What a graph's launch takes at best, for so many nodes.
fn best_launch(nodes: i64) -> i64 {
    2_500 + nodes
}

#[test]
fn a_launch_bound_step_as_a_graph_takes_the_sum_of_its_kernels() {
    let made = launch_bound(0);
    let simulation = free(&made);
    let graph = outcome(&simulation, "graph");
    // The work before the first launch stays.
    let expected = 6_000 + best_launch(50) + DELAY + 50 * 2_000 + GAP + 400 + WAKE;
    near(graph.seconds.low * 1e9, expected as f64);
    // Documented bounds of a launch and of gaps: 10 µs and 0.2 µs a node, 0.64 µs a gap.
    near(graph.seconds.high * 1e9, (expected - best_launch(50) + 10_000 + 50 * 200 + 49 * 640) as f64);
    assert!(graph.share_of_step.low > 0.5 && graph.share_of_step.high < 0.75, "{graph:?}");
    assert!(made.ns as f64 / (graph.seconds.mid * 1e9) > 2.5, "{graph:?}");
}

#[test]
fn host_work_before_the_graph_bounds_it() {
    let (short, long) = (free(&launch_bound(1_000)), free(&launch_bound(201_000)));
    let ns = |simulation: &Simulation| outcome(simulation, "graph").seconds;
    near((ns(&long).mid - ns(&short).mid) * 1e9, 200_000.0);
    assert!(outcome(&long, "graph").share_of_step.mid < outcome(&short, "graph").share_of_step.mid);
    // With half the host's time, half of the prefix goes, but none of the graph.
    near((ns(&long).mid - outcome(&long, "graph+host×0.5").seconds.mid) * 1e9, (201_000 + 6_000) as f64 / 2.0);
}

#[test]
fn a_wait_in_the_middle_makes_two_graphs() {
    let mut step = Maker::new();
    for half in 0..2 {
        for _ in 0..10 {
            step.host(6_000);
            step.launch("gemv", 2_000, 1);
        }
        step.fetch(400);
        // The host decides what comes next.
        step.host(30_000 * (1 - half));
    }
    let simulation = free(&step.end());
    let graph = outcome(&simulation, "graph");
    let half = 6_000 + best_launch(10) + DELAY + 10 * 2_000 + GAP + 400 + WAKE;
    near(graph.seconds.low * 1e9, (2 * half + 30_000) as f64);
}

#[test]
fn a_graph_holds_what_copies_within_it_bring() {
    let mut step = Maker::new();
    // The token: it comes before the graph.
    step.upload(1_500);
    for _ in 0..10 {
        step.host(3_000);
        step.upload(900);
        step.host(3_000);
        step.launch("gemv", 2_000, 1);
    }
    step.fetch(400);
    let simulation = free(&step.end());
    let graph = outcome(&simulation, "graph").seconds.map(|seconds| seconds * 1e9);
    // The first kernel's own copy is before the first kernel, too.
    let before = CALL + 3_000 + CALL + 3_000;
    let fetched = GAP + 400 + WAKE;
    near(graph.low, (before + best_launch(19) + DELAY + 10 * 2_000 + fetched) as f64);
    near(graph.high, (before + 10_000 + 19 * 200 + DELAY + 10 * 2_000 + 9 * 900 + 18 * 640 + fetched) as f64);
}

#[test]
fn a_step_that_one_graph_launches_cannot_become_one() {
    let mut step = Maker::new();
    step.host(5_000);
    step.launch("gemv", 2_000, 1);
    let call = (step.kernels[0].launch_start, step.kernels[0].correlation);
    let mut second = step.kernels[0].clone();
    second.gpu_start = second.gpu_start.plus_ns(2_000);
    (second.launch_start, second.correlation) = call;
    step.kernels.push(second);
    step.synchronize();
    step.host(10_000);
    let simulation = free(&step.end());
    let refused = simulation.groups()[0].simulate(&[Change::Graph]).unwrap_err();
    assert!(matches!(refused, Abstain::NothingToChange { .. }), "{refused}");
    assert!(refused.to_string().contains("two calls in a row"), "{refused}");
}

/// 5 µs of host work, 40 kernels of a graph whose launch returns when half of them have run, a fetch.
fn replayed() -> Made {
    let mut step = Maker::new();
    step.host(5_000);
    step.enter("mlp");
    step.replay("gemv", 40, 2_000, 60_000);
    step.leave();
    step.fetch(400);
    step.end()
}

#[test]
fn kernels_in_a_graph_can_be_made_faster_whenever_its_launch_returns() {
    let made = replayed();
    let simulation = free(&made);
    near(made.ns as f64, (5_000 + DELAY + 40 * 2_000 + 39 * GAP + GAP + 400 + WAKE) as f64);
    near(outcome(&simulation, "kernel=gemv×1").seconds.mid * 1e9, made.ns as f64);
    for text in ["kernel=gemv×0.5", "path=mlp@device×0.5", "path=mlp×0.5"] {
        near(outcome(&simulation, text).seconds.mid * 1e9, (made.ns - 40 * 1_000) as f64);
    }
    // Nobody waits for the launch's return, and the gaps stay.
    near(outcome(&simulation, "host×0.5").seconds.mid * 1e9, (made.ns - 2_500) as f64);
}

/// Three steps of a graph and two of the same kernels call by call, each 6 µs of host work after the one before.
fn mixed() -> (Batch, RunManifest) {
    let (mut batch, manifest) = run_of(&replayed(), 3, 8, replayed().ns);
    let (mut eager, _) = run_of(&launch_bound(0), 2, 0, 0);
    let after = 20;
    eager.steps.iter_mut().for_each(|step| {
        (step.step, step.seq) = (step.step + after, step.seq + 1_000_000);
        step.host_start.0 += 1_000_000_000;
    });
    eager.spans.iter_mut().for_each(|span| {
        (span.step, span.seq) = (span.step.map(|step| step + after), span.seq + 1_000_000);
        span.parent_seq = span.parent_seq.map(|seq| seq + 1_000_000);
        span.host_start.0 += 1_000_000_000;
    });
    eager.kernels.iter_mut().for_each(|kernel| {
        (kernel.step, kernel.seq) = (kernel.step.map(|step| step + after), kernel.seq.map(|seq| seq + 1_000_000));
        kernel.gpu_start.0 += 1_000_000_000;
        kernel.launch_start = kernel.launch_start.map(|at| HostNs(at.0 + 1_000_000_000));
    });
    batch.steps.append(&mut eager.steps);
    batch.spans.append(&mut eager.spans);
    batch.kernels.append(&mut eager.kernels);
    (batch, manifest)
}

#[test]
fn a_step_that_leaves_its_graph_launches_as_the_run_s_other_steps_do() {
    let (batch, manifest) = mixed();
    let simulation = simulation(&batch, &manifest).unwrap();
    let model = |step: u64| simulation.groups()[0].models().iter().find(|model| model.step() == step).unwrap();
    let launches = model(0).facts().eager_launches.clone().expect("two steps show it");
    assert!(launches.source.starts_with("measured: 2 of these steps"), "{launches:?}");
    // 50 calls of 1 µs and 49 times 6 µs of work between them; recording a call took 0.6 to 1.7 µs, by documents.
    let each = |recorded: f64| (50.0 * (CALL as f64 - recorded).max(0.0) + 49.0 * 6_000.0 - more(recorded)) / 50.0;
    // Which of the recorder's costs falls between two calls, and which beside the first or the last, is open by one call.
    let about = |left: f64, right: f64| assert!((left / right - 1.0).abs() < 0.01, "{left} and {right}");
    about(launches.host_ns.mid, each(1_300.0));
    about(launches.host_ns.high, each(600.0));
    about(launches.host_ns.low, each(1_700.0));
    near(launches.delay_ns, DELAY as f64);
    let eager = simulate(model(0), &[Change::Eager]).unwrap();
    // The last kernel begins after 40 calls, and is fetched.
    let expected = 5_000.0 + 40.0 * launches.host_ns.mid + (DELAY + 2_000 + GAP + 400 + WAKE) as f64;
    assert!((eager.seconds.mid * 1e9 / expected - 1.0).abs() < 0.02, "{eager:?} is not {expected}");
    assert!(eager.share_of_step.mid < -0.7, "it takes nearly twice as long: {eager:?}");
    // A step that launches by itself has no graph to leave, and other changes hold for the calls as they do for others'.
    let refused = simulate(model(20), &[Change::Eager]).unwrap_err();
    assert!(refused.to_string().contains("no graph launches"), "{refused}");
    let quicker = simulate(model(0), &parse_changes("host×0.8+eager").unwrap()).unwrap();
    let saved = (eager.seconds.mid - quicker.seconds.mid) * 1e9;
    near(saved, 0.2 * (5_000.0 + 40.0 * launches.host_ns.mid));
}

/// What a call's cost takes of the work beside it, where the call is shorter than that.
fn more(recorded: f64) -> f64 {
    50.0 * (recorded - CALL as f64).max(0.0)
}

#[test]
fn without_steps_that_launch_by_themselves_a_calibration_says_what_a_launch_takes_at_least() {
    let (batch, mut manifest) = run_of(&replayed(), 3, 8, replayed().ns);
    let asked = |batch: &Batch, manifest: &RunManifest| {
        simulation(batch, manifest).unwrap().groups()[0]
            .simulate(&[Change::Eager])
            .map_err(|abstain| abstain.to_string())
    };
    let text = asked(&batch, &manifest).unwrap_err();
    assert!(text.contains("time to launch") && text.contains("bench peaks"), "{text}");
    manifest.environment.insert(
        "measured_peaks".into(),
        json!([{ "kind": "launch", "value": 4e-6, "label": "measured", "source": "bench peaks of GPU" }]),
    );
    let eager = asked(&batch, &manifest).unwrap();
    near(eager.seconds.mid * 1e9, (5_000 + 40 * 4_000 + DELAY + 1_000 + 2_000 + GAP + 400 + WAKE) as f64);
    let simulation = simulation(&batch, &manifest).unwrap();
    let launches = simulation.groups()[0].models()[0].facts().eager_launches.clone().unwrap();
    assert!(launches.source.starts_with("calibration of bench peaks of GPU: launches alone"), "{launches:?}");
}

#[test]
fn the_host_and_paths_of_a_step_scale() {
    let made = launch_bound(0);
    let simulation = free(&made);
    let after_last = DELAY + 2_000 + GAP + 400 + WAKE;
    let host = 50 * (6_000 + CALL);
    near(made.ns as f64, (host + after_last) as f64);
    near(outcome(&simulation, "host×0.5").seconds.mid * 1e9, (host / 2 + after_last) as f64);
    near(outcome(&simulation, "kernel=gemv×0.5").seconds.mid * 1e9, (host + after_last - 1_000) as f64);
    // Together they are not the sum of both.
    let both = outcome(&simulation, "host×0.1+kernel=gemv×0.5").seconds.mid * 1e9;
    near(both, (700 + DELAY + 50 * 1_000 + 49 * GAP + GAP + 400 + WAKE) as f64);
    near(outcome(&simulation, "path=decode×0.5").seconds.mid * 1e9, both_by_hand(host));
}

/// Where no kernel waited in a queue, the copy at the end, which takes 5 µs to begin, says nothing of kernels.
#[test]
fn a_copy_does_not_say_what_lies_between_kernels() {
    let mut made = launch_bound(0);
    let gap = |made: &mut Made, ns: i64| {
        let copy = made.kernels.iter_mut().find(|kernel| kernel.kind == KernelKind::Memcpy).unwrap();
        copy.gpu_start = HostNs(copy.gpu_start.0 + ns);
        copy.launch_dur_ns = copy.launch_dur_ns.map(|dur| dur + ns as u64);
        made.ns += ns as u64;
        made.spans[0].host_dur_ns += ns as u64;
    };
    gap(&mut made, 4_000);
    // The host is so fast that only the kernels count: 50 of 2 µs with the documented 1.45 µs between.
    let quick = outcome(&free(&made), "host×0.1").seconds.mid * 1e9;
    assert!((50.0 * 3_450.0..50.0 * 3_450.0 + 12_000.0).contains(&quick), "{quick}");
}

/// All of `decode` at half its time: host, kernels, and the copy.
fn both_by_hand(host: i64) -> f64 {
    (host / 2 + DELAY + 1_000 + GAP + 200 + WAKE) as f64
}

/// 12 norms of three kernels each, which say that they move 20 kB, and 12 products of 2 MB.
fn annotated() -> Made {
    let mut step = Maker::new();
    for layer in 0..12 {
        step.enter(&format!("norm[{layer}]"));
        for name in ["square", "mean", "scale"] {
            step.host(1_000);
            step.launch(name, 20_000, 1);
        }
        (step.own().io_bytes, step.own().bytes) = (Some(20_000), Some(1_000));
        step.leave();
        step.enter(&format!("linear[{layer}]"));
        step.host(1_000);
        step.launch("gemv", 40_000, 1);
        let own = step.own();
        (own.flops, own.bytes, own.io_bytes) = (Some(2_000_000), Some(2_000_000), Some(2_010_000));
        own.dtype = Some(DType::BF16);
        step.leave();
    }
    step.fetch(400);
    step.end()
}

/// At 100 GB/s a product's weights take half of its 40 µs; a TFLOP/s is far from binding.
fn with_peaks(made: &Made) -> Simulation {
    let (batch, mut manifest) = run_of(made, 3, 8, made.ns);
    manifest.model.insert("dtype".into(), json!("bf16"));
    let peak = |kind: &str, value: f64| {
        let dtype = (kind == "flops").then_some("bf16");
        json!({ "kind": kind, "value": value, "label": "datasheet", "source": "paper", "dtype": dtype })
    };
    manifest.environment.insert("peaks".into(), json!([peak("bandwidth", 1e11), peak("flops", 1e12)]));
    simulation(&batch, &manifest).unwrap()
}

#[test]
fn paths_say_what_they_take_before_changes_and_after() {
    let simulation = with_peaks(&annotated());
    let times = |changes: &str, side: Side, path: &str| {
        let changes = parse_changes(changes).unwrap();
        let all = simulation.groups()[0].path_times(&changes, side).unwrap();
        let found = all.into_iter().find(|time| time.path == path).unwrap_or_else(|| panic!("{path}"));
        (found.before_ns, found.after_ns)
    };
    let is = |(before, after): (f64, f64), expected: (i64, i64)| {
        near(before, expected.0 as f64);
        near(after, expected.1 as f64);
    };
    is(times("path=linear×0.5", Side::Device, "decode/linear[3]"), (40_000, 20_000));
    is(times("path=linear×0.5", Side::Device, "decode/norm[3]"), (60_000, 60_000));
    is(times("path=linear×0.5", Side::Host, "decode/linear[3]"), (1_000 + CALL, (1_000 + CALL) / 2));
    // What becomes one kernel takes no less than one of the three.
    is(times("fuse=norm", Side::Device, "decode/norm[0]"), (60_000, 20_000));
    let nowhere = parse_changes("path=attention×0.5").unwrap();
    let refused = simulation.groups()[0].path_times(&nowhere, Side::Host).unwrap_err();
    assert!(matches!(refused, Abstain::NothingToChange { .. }), "{refused}");
}

#[test]
fn kernels_of_a_path_become_one() {
    let made = annotated();
    let simulation = with_peaks(&made);
    let fused = outcome(&simulation, "fuse=norm");
    // 20 kB at 100 GB/s would take 0.2 µs: the shortest kernel of the step bounds it, 20 µs. Two kernels and two gaps go
    // from each; the device bounds the step. The first begins later by half of the host's work between its launches.
    near(made.ns as f64 - fused.seconds.mid * 1e9, (12 * 2 * (20_000 + GAP) - 1_000) as f64);
    // Products are single kernels.
    let refused = simulation.groups()[0].simulate(&parse_changes("fuse=linear").unwrap()).unwrap_err();
    assert!(matches!(refused, Abstain::NothingToChange { .. }), "{refused}");
    // Without bytes only the gaps go.
    let mut silent = made.clone();
    silent.spans.iter_mut().for_each(|span| span.io_bytes = None);
    let fused = outcome(&with_peaks(&silent), "fuse=decode/norm");
    near(made.ns as f64 - fused.seconds.mid * 1e9, (12 * 2 * GAP - 1_000) as f64);
    // One of them.
    let one = outcome(&with_peaks(&silent), "fuse=norm[3]");
    near(made.ns as f64 - one.seconds.mid * 1e9, (2 * GAP) as f64);
}

#[test]
fn a_fused_kernel_takes_its_bytes_at_a_share_of_the_bandwidth() {
    let mut step = Maker::new();
    step.launch("other", 1_000, 1);
    step.enter("mlp");
    for _ in 0..3 {
        step.launch("part", 100_000, 1);
    }
    step.own().io_bytes = Some(10_000_000);
    step.leave();
    step.fetch(400);
    let made = step.end();
    let fused = outcome(&with_peaks(&made), "fuse=mlp").seconds.map(|seconds| made.ns as f64 - seconds * 1e9);
    // 10 MB at 100 GB/s are 100 µs, at 75 % 133 µs, instead of 300; two gaps go as well. Launches are hidden.
    near(fused.low, 200_000.0 + 2.0 * GAP as f64);
    near(fused.mid, 300_000.0 - 100_000.0 / 0.875 + 2.0 * GAP as f64);
    near(fused.high, 300_000.0 - 100_000.0 / 0.75 + 2.0 * GAP as f64);
}

#[test]
fn fewer_bits_shorten_what_streams_weights() {
    let made = annotated();
    let simulation = with_peaks(&made);
    // 8.5 of 16 bits: at worst the bytes at the peak (20 µs of 40), at best all of the kernel but its activations.
    let ratio = 8.5 / 16.0;
    let saved = outcome(&simulation, "bits=8").seconds.map(|seconds| made.ns as f64 - seconds * 1e9);
    let norms = |per_byte: f64| 12.0 * 1_000.0 * (1.0 - ratio) * per_byte;
    near(saved.high, 12.0 * 2e6 * (1.0 - ratio) / 100.0 + norms(1.0 / 100.0));
    near(saved.low, 12.0 * 40_000.0 * (2e6 / 2.01e6) * (1.0 - ratio) + 12.0 * 60_000.0 * (1.0 / 20.0) * (1.0 - ratio));
    // A projection of attention reads weights like any other.
    let mut projections = made.clone();
    for span in projections.spans.iter_mut().filter(|span| span.flops.is_some()) {
        let text = span.path.path.replace("linear", "attn_q");
        span.path = crate::common::path(&text);
    }
    near(
        outcome(&with_peaks(&projections), "bits=8").seconds.mid * 1e9,
        outcome(&simulation, "bits=8").seconds.mid * 1e9,
    );
    assert!(outcome(&simulation, "bits=4").seconds.mid < outcome(&simulation, "bits=8").seconds.mid);
    let unknown = free(&made).groups()[0].simulate(&[Change::Bits { bits: 8 }]).unwrap_err();
    assert!(matches!(unknown, Abstain::NoPeak { .. }) && unknown.to_string().contains("bench peaks"), "{unknown}");
}

#[test]
fn more_sequences_read_weights_once() {
    let made = annotated();
    let simulation = with_peaks(&made);
    let four = outcome(&simulation, "batch=4");
    // At best a product's activations take three times 10 kB more at the peak, and a norm's 19 kB.
    near(four.seconds.low * 1e9 - made.ns as f64, 12.0 * 3.0 * (10_000.0 + 19_000.0) / 100.0);
    let each = four.seconds_per_sequence.unwrap();
    assert!((each.mid - four.seconds.mid / 4.0).abs() < 1e-12);
    assert!(four.share_of_step.high < 0.0, "the step itself takes longer");
    near(outcome(&simulation, "batch=1").seconds.high * 1e9, made.ns as f64);
    let silent = launch_bound(0);
    let unknown = with_peaks(&silent).groups()[0].simulate(&parse_changes("batch=4").unwrap()).unwrap_err();
    assert!(matches!(unknown, Abstain::UnknownWork { share, .. } if share > 0.99), "{unknown}");
}

#[test]
fn a_clock_changes_what_computes() {
    let mut made = annotated();
    // Norms are bound by memory. These products now compute for longer than they move: 40 MFLOP take 40 µs.
    made.spans.iter_mut().filter(|span| span.flops.is_some()).for_each(|span| span.flops = Some(40_000_000));
    let simulation = with_peaks(&made);
    let half = outcome(&simulation, "clock=0.5");
    near(half.seconds.mid * 1e9 - made.ns as f64, 12.0 * 40_000.0);
    near(half.seconds.low * 1e9, half.seconds.high * 1e9);
    let memory = with_peaks(&annotated());
    near(outcome(&memory, "clock=0.5").seconds.mid * 1e9, made.ns as f64);
}

#[test]
fn peaks_of_a_file_stand_before_the_run_s() {
    let made = annotated();
    let (batch, manifest) = run_of(&made, 3, 8, made.ns);
    let dir = tempfile::tempdir().unwrap();
    crate::common::write_run(dir.path(), &batch, &manifest, 10_000);
    let run = candlescope_reader::Run::open(dir.path()).unwrap();
    let file = json!({ "figures": [
        { "kind": "flops", "dtype": "bf16", "value": 1e12 }, { "kind": "read", "value": 2e11 },
        { "kind": "graph_gap", "value": 1e-6 } ] });
    let options = SimulationOptions::default().peaks_file(&file.to_string()).unwrap();
    let simulation = Simulation::of(&run, &options).unwrap();
    let facts = simulation.groups()[0].models()[0].facts();
    assert_eq!((facts.bandwidth, facts.flops), (Some(2e11), Some(1e12)));
    near(facts.graph_gap_ns.high, 1_000.0);
    assert!(SimulationOptions::default().peaks_file("{}").is_err(), "neither bandwidth nor FLOP/s");
}
