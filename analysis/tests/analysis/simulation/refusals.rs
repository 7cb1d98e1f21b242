//! Where nothing can be said, and how changes are written.

use super::steps::{Maker, free, run_of, simulation};
use crate::common::{T0, manifest, span, step, thread, write_run};
use candlescope_predict::simulation::{Abstain, Change, Simulation, SimulationOptions, parse_changes, what_if};
use candlescope_reader::Run;
use candlescope_report::what_if as render;
use candlescope_schema::run::{GpuAccount, InPlaceKind, InPlaceOverhead, KernelAccount};
use candlescope_schema::{Batch, KernelRecord, Phase, SpanRecord};
use candlescope_testkit::scenario::{Scenario, make};
use candlescope_testkit::with;

fn small() -> Maker {
    let mut step = Maker::new();
    for _ in 0..5 {
        step.host(4_000);
        step.launch("gemv", 2_000, 1);
    }
    step.fetch(400);
    step
}

/// An interval of a step.
fn part_of(step: u64, seq: u64, parent: Option<u64>, text: &str, at: i64, ns: u64) -> SpanRecord {
    with(span(seq, parent, text, at, ns), |r| r.step = Some(step))
}

/// A decode of a CPU: `mlp` takes 6 µs of 10.
fn on_cpu(steps: u64) -> Batch {
    let mut batch = Batch::default();
    for number in 0..steps {
        let (at, seq) = (20_000 * number as i64, 10 * number);
        batch.spans.push(part_of(number, seq, None, "decode", at, 10_000));
        batch.spans.push(part_of(number, seq + 1, Some(seq), "decode/block[0]", at + 1_000, 8_000));
        batch.spans.push(part_of(number, seq + 2, Some(seq + 1), "decode/block[0]/mlp", at + 2_000, 6_000));
        batch.steps.push(with(step(number, "decode", at, 10_000), |r| {
            (r.seq, r.phase, r.intervals) = (seq, Some(Phase::Decode), 3);
        }));
    }
    batch
}

#[test]
fn a_cpu_s_steps_have_host_and_paths() {
    let batch = on_cpu(4);
    let mut manifest = manifest(&batch);
    manifest.overhead.per_interval_ns = 40.0;
    let typical = simulation(&batch, &manifest).unwrap().groups()[0].typical().unwrap();
    // 100 ns for each of three intervals.
    assert!((typical.unobserved.seconds.mid * 1e9 - 9_700.0).abs() < 1e-3, "{typical:?}");
    assert_eq!((typical.unobserved.idle_seconds, typical.outside), (None, None));
    // Steps that were left plain say how well that fits.
    let kind = InPlaceKind { n_plain: 9, ratio: 10_000.0 / 9_700.0 - 1.0, ..InPlaceKind::default() };
    let kinds = [("decode".to_string(), kind)].into();
    let mut beside_plain = manifest.clone();
    beside_plain.overhead.in_place = Some(InPlaceOverhead { kinds, ..InPlaceOverhead::default() });
    let checked = simulation(&batch, &beside_plain).unwrap().groups()[0].typical().unwrap();
    assert!(checked.check.unwrap().abs() < 1e-9, "{checked:?}");
    let simulation = simulation(&batch, &manifest).unwrap();
    let group = &simulation.groups()[0];
    let ns = |text: &str| group.simulate(&parse_changes(text).unwrap()).map(|outcome| outcome.seconds.mid * 1e9);
    assert!((ns("host×0.5").unwrap() - 4_850.0).abs() < 1e-3);
    // The interval's own begin, and the end of another, are in the 5,900 ns that are left of it.
    assert!((ns("path=mlp×0.5").unwrap() - (9_700.0 - 5_950.0 / 2.0)).abs() < 1e-3, "{:?}", ns("path=mlp×0.5"));
    assert!((ns("path=decode/block[0]*0").unwrap() - (9_700.0 - 7_850.0)).abs() < 101.0);
    for text in ["graph", "kernel=gemv×0.5", "fuse=mlp", "bits=8", "clock=2"] {
        let refused = ns(text).unwrap_err();
        assert!(matches!(refused, Abstain::NoDeviceWork { .. }) && refused.to_string().contains("host×f"), "{refused}");
    }
    let refused = ns("path=elsewhere×0.5").unwrap_err();
    assert!(matches!(refused, Abstain::NothingToChange { .. }), "{refused}");
}

/// The same of one sequence, and a prompt of 32 tokens, whose `mlp` takes 12 µs for 32 times the work.
fn beside_a_prompt() -> Batch {
    let mut batch = on_cpu(3);
    for number in [3, 4] {
        let (at, seq) = (20_000 * number as i64, 10 * number);
        batch.spans.push(part_of(number, seq, None, "prefill", at, 18_000));
        batch.spans.push(part_of(number, seq + 1, Some(seq), "prefill/block[0]", at + 1_000, 15_200));
        batch.spans.push(part_of(number, seq + 2, Some(seq + 1), "prefill/block[0]/mlp", at + 2_000, 12_000));
        batch.steps.push(with(step(number, "prefill", at, 18_000), |r| {
            (r.seq, r.phase, r.intervals, r.tokens) = (seq, Some(Phase::Prefill), 3, Some(32));
        }));
    }
    for step in batch.steps.iter_mut().filter(|step| step.phase == Some(Phase::Decode)) {
        (step.tokens, step.batch) = (Some(1), Some(1));
    }
    for span in batch.spans.iter_mut().filter(|span| span.path.path.ends_with("mlp")) {
        let rows = if span.path.path.starts_with("prefill") { 32 } else { 1 };
        (span.flops, span.bytes) = (Some(1_000 * rows), Some(500));
    }
    batch
}

#[test]
fn more_sequences_on_a_cpu_take_what_a_prompt_s_rows_take() {
    let batch = beside_a_prompt();
    let mut manifest = manifest(&batch);
    // Nothing for recording, as nearly as it can be said.
    manifest.overhead.per_interval_ns = 1e-6;
    let simulation = simulation(&batch, &manifest).unwrap();
    let decode = simulation.groups().iter().find(|group| group.name() == "decode").unwrap();
    let four = decode.simulate(&parse_changes("batch=4").unwrap()).unwrap();
    // A row of `mlp` takes 375 ns, one of `block` 100 ns, one of the step itself 87.5 ns. At best that is all; at worst a
    // tile of eight comes on top of what one takes; and as expected something between one's time and that.
    let near = |seconds: f64, ns: f64| assert!((seconds * 1e9 - ns).abs() < 1.0, "{four:?}: {ns}");
    near(four.seconds.low, 4.0 * (375.0 + 100.0 + 87.5));
    near(four.seconds.high, 10_000.0 + 8.0 * (375.0 + 100.0 + 87.5));
    near(four.seconds.mid, 10_000.0 + 4.0 * (375.0 + 100.0 + 87.5));
    near(four.seconds_per_sequence.unwrap().mid, four.seconds.mid * 1e9 / 4.0);

    // Without a prompt nothing tells, and a prefill is no step to which sequences are added.
    let mut short = batch.clone();
    short.steps.iter_mut().for_each(|step| step.tokens = step.tokens.map(|tokens| tokens.min(4)));
    let short = super::steps::simulation(&short, &manifest).unwrap();
    let decode = short.groups().iter().find(|group| group.name() == "decode").unwrap();
    let refused = decode.simulate(&parse_changes("batch=4").unwrap()).unwrap_err();
    assert!(matches!(refused, Abstain::NoManyRows { .. }) && refused.to_string().contains("prompts"), "{refused}");
    let prefill = short.groups().iter().find(|group| group.name() == "prefill").unwrap();
    let refused = prefill.simulate(&parse_changes("batch=4").unwrap()).unwrap_err();
    assert!(matches!(refused, Abstain::NothingToChange { .. }), "{refused}");
}

#[test]
fn what_is_missing_is_said_with_how_to_record_it() {
    let made = small().end();
    let (batch, manifest) = run_of(&made, 1, 5, made.ns);
    let simulated = simulation(&batch, &manifest).unwrap();
    let one = simulated.groups()[0].typical().unwrap_err();
    assert!(matches!(one, Abstain::OneStep { .. }) && one.to_string().contains("Record more"), "{one}");

    let (mut batch, mut manifest) = run_of(&made, 3, 0, 0);
    batch.kernels.iter_mut().for_each(|kernel| kernel.launch_start = None);
    let calls = simulation(&batch, &manifest).unwrap_err();
    assert_eq!(calls, Abstain::NoLaunchCalls);

    let kernels = KernelAccount { clock_bound_ns: Some(1_000_000), ..KernelAccount::default() };
    manifest.gpu = Some(GpuAccount { kernels: Some(kernels), ..GpuAccount::default() });
    assert_eq!(simulation(&batch, &manifest).unwrap_err(), Abstain::ClocksApart { bound_ns: 1_000_000 });

    // A run of a GPU without kernels: waiting and working cannot be told apart.
    batch.kernels.clear();
    let marks = [("recorded".to_string(), 8)].into();
    manifest.gpu = Some(GpuAccount { marks, ..GpuAccount::default() });
    let kernels = simulation(&batch, &manifest).unwrap_err();
    assert!(kernels == Abstain::NoKernels && kernels.to_string().contains("--cupti"), "{kernels}");

    batch.steps.clear();
    assert_eq!(simulation(&batch, &manifest).unwrap_err(), Abstain::NoSteps);
}

/// A run of `copies` of a step, the kernels of the last of which `edit` changes.
fn with_last(copies: u64, edit: impl Fn(&mut KernelRecord)) -> Simulation {
    let (mut batch, manifest) = run_of(&small().end(), copies, 0, 0);
    batch.kernels.iter_mut().filter(|kernel| kernel.step == Some(copies - 1)).for_each(edit);
    simulation(&batch, &manifest).unwrap()
}

#[test]
fn a_change_that_finds_nothing_in_one_step_leaves_it_as_it_is() {
    let changes = parse_changes("kernel=gemv×0").unwrap();
    let renamed = with_last(4, |kernel| {
        if &*kernel.name == "gemv" {
            kernel.name = "other".into();
        }
    });
    let outcome = renamed.groups()[0].simulate(&changes).unwrap();
    assert!(outcome.share_of_step.mid > 0.0, "{outcome:?}");
    let nowhere = renamed.groups()[0].simulate(&parse_changes("kernel=gemv×0+kernel=absent×0").unwrap()).unwrap_err();
    assert!(matches!(&nowhere, Abstain::NothingToChange { change, .. } if change.contains("absent")), "{nowhere}");
}

#[test]
fn figures_of_a_typical_step_are_of_the_replayed_ones() {
    // The device is busy with something else for most of the last step.
    let late = |kernel: &mut KernelRecord| kernel.gpu_start = kernel.gpu_start.plus_ns(60_000);
    let one = with_last(2, late).groups()[0].typical().unwrap_err();
    assert!(matches!(one, Abstain::OneStep { .. }), "{one}");
    let (usual, three) = (with_last(2, |_| {}), with_last(3, late));
    let (usual, three) = (usual.groups()[0].typical().unwrap(), three.groups()[0].typical().unwrap());
    assert_eq!((three.steps, three.measured_seconds), (2, usual.measured_seconds));
}

#[test]
fn steps_that_are_not_alone_on_the_device_are_not_judged() {
    let made = small().end();
    let (mut batch, manifest) = run_of(&made, 3, 0, 0);
    // Another thread's step over all of them.
    let end = batch.steps[2].host_start.0 - T0 + made.ns as i64;
    batch.steps.push(with(step(9, "decode", 0, end as u64), |r| {
        (r.seq, r.thread, r.phase) = (7 << 41, thread(2, "other"), Some(Phase::Decode));
    }));
    batch.kernels.push(with(batch.kernels[0].clone(), |r| (r.step, r.seq) = (Some(9), Some(7 << 41))));
    let refused = simulation(&batch, &manifest).unwrap_err();
    assert!(matches!(refused, Abstain::Concurrent { .. }), "{refused}");
    // The device works on something else for most of the step.
    let mut late = Maker::new();
    late.host(4_000);
    late.launch_after("gemv", 2_000, 1, 60_000);
    for _ in 0..5 {
        late.host(4_000);
        late.launch("gemv", 2_000, 1);
    }
    late.fetch(400);
    let (batch, manifest) = run_of(&late.end(), 3, 0, 0);
    let simulated = simulation(&batch, &manifest).unwrap();
    let refused = simulated.groups()[0].typical().unwrap_err();
    assert!(matches!(refused, Abstain::Backlog { share } if share > 0.3), "{refused}");
}

#[test]
fn changes_are_read_as_they_are_written() {
    let read = |text: &str| parse_changes(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(read("graph"), ["graph"]);
    assert_eq!(read("graph+host*0.5,bits=8"), ["graph", "host×0.5", "bits=8"]);
    assert_eq!(read("kernel=gemv.*×0.5"), ["kernel=gemv.*×0.5"]);
    assert_eq!(read("kernel=gemv.**0.5"), ["kernel=gemv.*×0.5"]);
    assert_eq!(read("kernel=a{1,2}+b×2+batch=8"), ["kernel=a{1,2}+b×2", "batch=8"], "a joint inside the expression");
    assert_eq!(read("path=decode/block[3]/mlp×0 + clock=1.25"), ["path=decode/block[3]/mlp×0", "clock=1.25"]);
    assert_eq!(read("fuse=model.layers.*.mlp"), ["fuse=model.layers.*.mlp"]);
    for (text, token) in [
        ("", ""),
        ("grap", "grap"),
        ("graph+", ""),
        ("graph+bogus=1", "bogus=1"),
        ("bits=5", "bits=5"),
        ("bits=8+host", "host"),
        ("host×-1", "host×-1"),
        ("host×fast", "host×fast"),
        ("clock=0", "clock=0"),
        ("batch=1.5", "batch=1.5"),
        ("kernel=gemv", "kernel=gemv"),
        ("kernel=(×0.5", "kernel=(×0.5"),
        ("kernel=×0.5", "kernel=×0.5"),
        ("fuse=a//b", "fuse=a//b"),
        ("path=×0.5", "path=×0.5"),
        ("kernel=a×nan", "kernel=a×nan"),
    ] {
        let error = parse_changes(text).unwrap_err();
        assert_eq!(error.token, token, "{text}: {error}");
        let said = error.to_string();
        assert!(said.contains("kernel=REGEX×f") && said.contains("batch=n"), "{said}");
    }
    assert_eq!(parse_changes("batch=3").unwrap(), [Change::Batch { sequences: 3 }]);
}

#[test]
fn text_and_object_say_the_same() {
    let made = small().end();
    let (batch, manifest) = run_of(&made, 3, 8, made.ns);
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest, 1_000);
    let scenarios = ["graph", "bits=8", "host×2"].map(|text| parse_changes(text).unwrap());
    let (told, seen) = what_if(&Run::open(dir.path()).unwrap(), &SimulationOptions::default(), &scenarios);
    assert!(seen.is_empty(), "{seen:?}");
    let text = render::text(&told);
    for shown in [
        "decode: a typical step, of 3 replayed",
        "unobserved",
        "No answer to bits=8: `bits=8` needs the device's memory bandwidth",
        "Gap in a graph: 0 ns to 640 ns",
        "costs ",
        "saves ",
        "Check: a step outside the windows of kernels",
    ] {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let object = serde_json::to_value(&told).unwrap();
    let steps = &object["steps"][0];
    assert_eq!((steps["name"].as_str(), steps["typical"]["steps"].as_u64()), (Some("decode"), Some(3)));
    let scenarios = steps["scenarios"].as_array().unwrap();
    assert_eq!(scenarios[0]["changes"], "graph");
    assert!(scenarios[0]["outcome"]["share_of_step"]["mid"].as_f64().unwrap() > 0.2);
    assert_eq!(
        (&scenarios[1]["outcome"].is_null(), scenarios[1]["abstains"]["reason"]["code"].as_str()),
        (&true, Some("no_peak"))
    );
    assert_eq!(simulated_names(&object), ["absent", "steps"]);
}

fn simulated_names(object: &serde_json::Value) -> Vec<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// A run as a session makes it: windows in the middle, warm-up, steps outside the windows.
#[test]
fn a_whole_run_is_replayed() {
    let (batch, manifest) = make(&Scenario::on_gpu());
    let simulation = simulation(&batch, &manifest).unwrap();
    let group = simulation.groups().iter().find(|group| group.name() == "decode").unwrap();
    let typical = group.typical().unwrap();
    assert_eq!(typical.steps, 8);
    assert!(typical.largest_error < 1e-6 && typical.outside.is_some(), "{typical:?}");
    assert!(simulation.absent().iter().any(|(name, abstain)| name == "prefill" && *abstain == Abstain::NoKernels));
    let graph = group.simulate(&[Change::Graph]).unwrap();
    assert!(graph.share_of_step.mid > 0.0 && graph.seconds.low <= graph.seconds.mid, "{graph:?}");
    assert!(free(&small().end()).absent().is_empty());
}
