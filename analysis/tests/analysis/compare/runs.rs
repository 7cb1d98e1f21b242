//! Runs on disk with a known difference.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_compare::{
    Clock, CompareError, CompareOptions, Comparison, DecidedBy, Outcome, RunFacts, Side, compare, kernel_times,
};
use candlescope_document::html;
use candlescope_reader::Run;
use candlescope_report::compare::{document, text};
use candlescope_schema::run::{MachineUse, RunManifest, StepCounts, env_key};
use candlescope_schema::{Batch, KernelKind, Phase, SampleRecord};
use candlescope_work::slo::Slo;
use serde_json::json;

/// The facts of a run that `change` has altered.
fn facts(scenario: &Scenario, change: impl FnOnce(&mut Batch, &mut RunManifest)) -> RunFacts {
    let dir = tempfile::tempdir().unwrap();
    let (mut batch, mut manifest) = make(scenario);
    change(&mut batch, &mut manifest);
    write_run(dir.path(), &batch, &manifest, 10_000);
    RunFacts::of(&Run::open(dir.path()).unwrap())
}

fn side(name: &str, run: RunFacts) -> Side {
    Side { name: name.to_string(), runs: vec![run] }
}

fn compared(a: RunFacts, b: RunFacts) -> Result<Comparison, CompareError> {
    compare(&side("before", a), &side("after", b), &CompareOptions::default())
}

fn small() -> Scenario {
    Scenario { layers: 3, output: 24, ..Scenario::default() }
}

/// Makes each interval whose path ends in `path`, and those around it, longer by `ns`.
fn slow(batch: &mut Batch, path: &str, ns: u64) {
    let slowed: Vec<u64> =
        batch.spans.iter().filter(|span| span.path.path.ends_with(path)).map(|span| span.seq).collect();
    assert!(!slowed.is_empty(), "no interval of {path}");
    for seq in slowed {
        let mut at = Some(seq);
        while let Some(seq) = at {
            let span = batch.spans.iter_mut().find(|span| span.seq == seq).expect("a parent is there");
            span.host_dur_ns += ns;
            at = span.parent_seq;
            if let Some(step) = batch.steps.iter_mut().find(|step| step.seq == seq) {
                step.host_dur_ns += ns;
                break;
            }
        }
    }
}

#[test]
fn a_run_is_equivalent_to_itself() {
    let run = || facts(&small(), |_, _| ());
    let found = compared(run(), run()).unwrap();
    let step = found.step.as_ref().unwrap();
    assert_eq!(step.estimate.unwrap().change, 0.0);
    assert!(found.counts.iter().all(|count| count.equal) && found.counts.len() > 5, "{:?}", found.counts);
    assert!(found.paths.changed.is_empty() && found.differences.is_empty());
    assert_ne!(found.outcome, Outcome::Worse);
}

#[test]
fn goodput_is_of_the_requests_of_a_run_that_keep_all_limits() {
    let dir = tempfile::tempdir().unwrap();
    let (mut batch, manifest) = make(&small());
    let limit = batch.requests.iter().filter_map(|request| request.ttft_ns).max().unwrap();
    // Two of the five measured requests get their first token late. The warm-up does, too, and does not count.
    for request in batch.requests.iter_mut().filter(|request| [1, 3, 5].contains(&request.request)) {
        request.ttft_ns = Some(limit + 1_000);
    }
    let measured = || batch.requests.iter().filter(|request| request.request > 1);
    let start = measured().map(|request| request.host_start.0).min().unwrap();
    let end = measured().map(|request| request.host_start.0 + request.host_dur_ns as i64).max().unwrap();
    write_run(dir.path(), &batch, &manifest, 10_000);
    let run = Run::open(dir.path()).unwrap();
    let slo: Slo = format!("ttft={limit}ns,e2e=1000s").parse().unwrap();
    let found = RunFacts::within(&run, Some(&slo)).goodput.unwrap();
    assert!((found - 3e9 / (end - start) as f64).abs() < 1e-9 * found, "{found}");
    assert_eq!(RunFacts::of(&run).goodput, None, "without limits there is none");
    let strict: Slo = format!("ttft={limit}ns,e2e=1ns").parse().unwrap();
    assert_eq!(RunFacts::within(&run, Some(&strict)).goodput, Some(0.0));
}

#[test]
fn steps_of_a_request_are_counted_with_those_that_have_no_record() {
    let of = |begun: u64| {
        let counts = StepCounts { begun, perturbed: 60, ..StepCounts::default() };
        facts(&small(), |_, manifest| manifest.steps = Some(counts)).steps_per_request
    };
    // Six requests. Some of their steps may only choose a token.
    let (few, many) = (of(60 + 600).expect("counted"), of(60 + 1_200).expect("counted"));
    assert!((many / few - 2.0).abs() < 1e-9 && (40.0..=100.0).contains(&few), "{few} and {many}");
    assert_eq!(facts(&small(), |_, manifest| manifest.steps = None).steps_per_request, None);
}

#[test]
fn requests_have_a_median_and_a_mean_of_which_a_few_change_the_mean_alone() {
    let of = |slow: u64| {
        let run = facts(&small(), |batch, _| {
            // Five are measured. The warm-up does not count.
            for request in &mut batch.requests {
                request.last_token_ns = Some(match request.request {
                    1 => 1_000_000_000,
                    2 => slow,
                    _ => 10_000_000,
                });
            }
        });
        let figure = |name: &str| run.figures.get(name).map(|sampled| sampled.value);
        (figure("e2e_ns"), figure("e2e_mean_ns"))
    };
    assert_eq!(of(60_000_000), (Some(10e6), Some(20e6)));
    assert_eq!(of(10_000_000), (Some(10e6), Some(10e6)));
}

#[test]
fn kernels_are_summed_up_by_name_for_a_recorded_step_of_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let (batch, manifest) = make(&Scenario { layers: 3, output: 24, ..Scenario::on_gpu() });
    write_run(dir.path(), &batch, &manifest, 10_000);
    let times = kernel_times(&Run::open(dir.path()).unwrap());
    let decode: Vec<u64> =
        batch.steps.iter().filter(|step| step.phase == Some(Phase::Decode)).map(|step| step.step).collect();
    let kernels = || batch.kernels.iter().filter(|kernel| kernel.step.is_some_and(|step| decode.contains(&step)));
    let steps: std::collections::BTreeSet<Option<u64>> = kernels().map(|kernel| kernel.step).collect();
    assert!(steps.len() > 1 && steps.len() < decode.len(), "some steps are recorded, and not all");
    let all: f64 = kernels().map(|kernel| kernel.gpu_dur_ns as f64).sum::<f64>() / steps.len() as f64;
    let of_decode: f64 = times.iter().filter(|time| time.kind == "decode").map(|time| time.ns).sum();
    assert!((of_decode - all).abs() < 1e-6 * all, "{of_decode} and {all}");
    assert!(times.windows(2).all(|pair| pair[0].ns >= pair[1].ns), "the most time first");
}

#[test]
fn a_layer_that_takes_longer_is_named_with_its_share() {
    let scenario = small();
    let a = facts(&scenario, |_, _| ());
    let slowed = a.paths.iter().find(|path| path.kind == "decode" && path.path.contains("[1]")).unwrap().path.clone();
    let tail = slowed.strip_prefix("decode/").unwrap().to_string();
    let b = facts(&scenario, |batch, _| slow(batch, &tail, 800_000));
    // One run of each: nothing is decided, and no path is named, though the largest difference is shown as such.
    let alone = compared(a.clone(), b.clone()).unwrap();
    assert_eq!((alone.outcome, alone.decided_by, alone.paths.changed.len()), (Outcome::Undecided, None, 0));
    assert!(alone.paths.unproven[0].path.ends_with(&tail), "{:?}", alone.paths.unproven);
    let shown = text(&alone, false);
    assert!(shown.starts_with("Undecided: ") && shown.contains("One run of each does not show"), "{shown}");

    // In turns, fourteen of each.
    let turns = |run: &RunFacts, first: i64| -> Vec<RunFacts> {
        let again = |n: i64| RunFacts { started_ns: 1_000 * (2 * n + (n + first) % 2) + 1, ..run.clone() };
        (0..14).map(again).collect()
    };
    let (a, b) = (turns(&a, 0), turns(&b, 1));
    let sides = [("before", a), ("after", b)].map(|(name, runs)| Side { name: name.to_string(), runs });
    let found = compare(&sides[0], &sides[1], &CompareOptions::default()).unwrap();
    let first = &found.paths.changed[0];
    assert!(first.path.ends_with(&tail) && first.clock == Clock::Host, "{:?}", found.paths.changed);
    assert_eq!((found.outcome, found.decided_by), (Outcome::Worse, Some(DecidedBy::Times)));
    // All of the change is in that layer, of prefill or decode.
    let share: f64 = found.paths.changed.iter().map(|path| path.share_of_change.unwrap()).sum();
    assert!((share - 1.0).abs() < 0.1, "{share}");
    let shown = text(&found, false);
    assert!(shown.starts_with("Worse: a step takes ") && shown.contains("by more than the margin of 2.0 %"), "{shown}");
    assert!(shown.contains("Paths that changed") && shown.contains("[1]"), "{shown}");
    let html = html::page(&document(&found));
    assert_eq!(html.matches("<iframe class=\"flame\"").count(), 3, "A, B and their difference");
}

#[test]
fn one_kernel_more_in_each_step_is_seen_exactly() {
    let scenario = Scenario { layers: 2, output: 24, ..Scenario::on_gpu() };
    let a = facts(&scenario, |_, _| ());
    let b = facts(&scenario, |batch, _| {
        let mut steps = std::collections::BTreeSet::new();
        let more: Vec<_> = batch
            .kernels
            .iter()
            .filter(|kernel| kernel.kind == KernelKind::Kernel && steps.insert(kernel.step))
            .cloned()
            .map(|mut kernel| {
                kernel.correlation += 1_000_000;
                kernel
            })
            .collect();
        batch.kernels.extend(more);
    });
    let kernels = |run: &RunFacts| run.kinds["decode"].counts["kernels"];
    assert_eq!(kernels(&b) - kernels(&a), 1.0);
    // The manifest counts one row less.
    let allowed = CompareOptions::default().allow(vec!["damage".into()]);
    let found = compare(&side("before", a), &side("after", b), &allowed).unwrap();
    let counts: Vec<_> = found.counts.iter().filter(|count| !count.equal).map(|count| count.name.as_str()).collect();
    assert!(counts.contains(&"kernels") && counts.contains(&"launches"), "{counts:?}");
}

#[test]
fn what_is_not_the_same_is_refused_or_asked_about() {
    let a = || facts(&small(), |_, _| ());
    let other = facts(&small(), |_, manifest| drop(manifest.model.insert("layers".into(), json!(99))));
    let error = compared(a(), other).unwrap_err().to_string();
    assert!(error.contains("model layers is 3 in A, and 99 in B"), "{error}");
    let quantised = || facts(&small(), |_, manifest| drop(manifest.model.insert("dtype".into(), json!("q8_0"))));
    let error = compared(a(), quantised()).unwrap_err().to_string();
    assert!(error.contains("--allow dtype"), "{error}");
    let allowed = CompareOptions::default().allow(vec!["dtype".into()]);
    let found = compare(&side("a", a()), &side("b", quantised()), &allowed).unwrap();
    assert!(found.differences.iter().any(|difference| difference.what == "dtype" && difference.allowed));
    let longer = facts(&Scenario { output: 30, ..small() }, |_, _| ());
    let error = compared(a(), longer).unwrap_err().to_string();
    assert!(error.contains("tokens") || error.contains("options"), "{error}");
    let empty = facts(&small(), |batch, _| batch.steps.clear());
    let error = compared(a(), empty).unwrap_err().to_string();
    assert!(error.contains("no measured step"), "{error}");
}

#[test]
fn what_runs_say_of_threads_and_of_others_comes_before_times() {
    let with = |variable: serde_json::Value, load: f64| {
        facts(&small(), |batch, manifest| {
            manifest.environment.insert("rayon_num_threads".into(), variable);
            manifest.environment.insert("cpu_available".into(), json!(2));
            let device: std::sync::Arc<str> = "host".into();
            for step in &batch.steps {
                for (metric, value) in [("system_load_1m", load), ("process_cpu_ratio", 1.2)] {
                    batch.samples.push(SampleRecord::new(step.host_start, device.clone(), metric, value, ""));
                }
            }
        })
    };
    let (a, b) = (with(json!(null), 1.4), with(json!("2"), 8.1));
    let found = compared(a, b).unwrap();
    assert_eq!(found.differences[0].key, "rayon_num_threads");
    let shown = text(&found, false);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "The run of B was disturbed: the load average was 8.10 on 2 processors.", "{shown}");
    assert_eq!(lines[1], "Not the same on both sides: rayon num threads: not set → 2.", "{shown}");
    assert!(lines[2].starts_with("Undecided"), "{shown}");
    assert!(html::page(&document(&found)).contains("not set → 2"));
}

/// What was seen before the work began is not what happened while it ran: the run's verdict asks the samples of that
/// time, and so does a comparison.
#[test]
fn a_run_that_its_own_verdict_calls_free_is_not_called_disturbed() {
    let with = |disturbed_s: f64| {
        facts(&small(), |_, manifest| {
            let before = "other processes use 1.6 of 2 cores: times are longer and vary more than on an idle machine";
            manifest.environment.insert(env_key::DISTURBANCES.name().into(), json!([before]));
            let (sampled_s, others_s) = (10.0, Some(disturbed_s * 1.5));
            manifest.machine = Some(MachineUse {
                sampled_s,
                others_s,
                processors: Some(2.0),
                disturbed_s: Some(disturbed_s),
                ..MachineUse::default()
            });
        })
    };
    let found = compared(with(0.0), with(8.0)).unwrap();
    let of_b = "The run of B was disturbed: other processes used 1.20 of 2 processors while steps ran";
    assert_eq!(found.disturbed, [of_b]);
}

#[test]
fn facts_survive_being_stored() {
    let run = facts(&Scenario { layers: 2, output: 16, ..Scenario::on_gpu() }, |_, _| ());
    let stored: RunFacts = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    // But for the last digit of some numbers.
    assert_eq!(
        (&stored.fingerprint, &stored.damage, stored.stacks.len()),
        (&run.fingerprint, &run.damage, run.stacks.len())
    );
    assert!((stored.step_ns.unwrap().value / run.step_ns.as_ref().unwrap().value - 1.0).abs() < 1e-12);
    assert_eq!((&stored.paths, &stored.kinds), (&run.paths, &run.kinds));
    assert!(run.paths.iter().any(|path| path.gpu_ns.is_some()), "marks give paths a time on the device");
    assert!(run.fingerprint.clocks.keys().any(|key| key.starts_with("sm_hertz")), "{:?}", run.fingerprint.clocks);
}

#[test]
fn json_has_its_keys() {
    let run = || facts(&small(), |_, _| ());
    let value = serde_json::to_value(compared(run(), run()).unwrap()).unwrap();
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    let wanted = [
        "a",
        "allocations",
        "alpha",
        "b",
        "counts",
        "decided_by",
        "differences",
        "disturbed",
        "false_discoveries",
        "figures",
        "margin",
        "modules",
        "outcome",
        "paths",
        "schema",
        "step",
    ];
    assert_eq!(keys, wanted);
    assert_eq!(value["step"]["estimate"]["basis"], "parts");
}

/// The steps of a run with a GPU whose clock is `hertz`.
fn beside_a_gpu(hertz: f64, change: impl FnOnce(&mut Batch, &mut RunManifest)) -> RunFacts {
    facts(&small(), |batch, manifest| {
        let device: std::sync::Arc<str> = "GPU-1".into();
        for step in &batch.steps {
            let sample = (step.host_start, device.clone(), "candlescope_gpu_clock_hertz_sm", hertz, "Hz");
            batch.samples.push(SampleRecord::new(sample.0, sample.1, sample.2, sample.3, sample.4));
        }
        change(batch, manifest);
    })
}

#[test]
fn the_clock_of_a_gpu_that_rests_does_not_count() {
    let on_a_cpu = |hertz: f64| beside_a_gpu(hertz, |_, _| ());
    assert!(compared(on_a_cpu(345e6), on_a_cpu(840e6)).is_ok());
    let on_it =
        |hertz: f64| beside_a_gpu(hertz, |_, manifest| drop(manifest.options.insert("device".into(), "cuda:0".into())));
    let error = compared(on_it(345e6), on_it(840e6)).unwrap_err().to_string();
    assert!(error.contains("clocks sm_hertz is 345000000.0 in A") && error.contains("--allow clocks"), "{error}");
}
