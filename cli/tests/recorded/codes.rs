//! Which codes a recorded run reaches. A code that no run here has needs a reason, and the file of the test that makes it
//! with a session and a scripted device, or on a damaged run; a new code with neither fails.

use super::common::*;
use super::{Recorded, analysed, every, profiled, recorded};
use candlescope_core::run::Code;
use candlescope_figures::advice::{AdviceCode, Missing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const GPU: &str = "needs recorded kernels of a GPU";
const MADE: &str = "analysis/tests/analysis/bottlenecks/gpu.rs";
const OPERATIONS: &str = "analysis/tests/analysis/bottlenecks/operations.rs";
const CPU: &str = "analysis/tests/analysis/bottlenecks/cpu.rs";
/// Programs whose truth is known.
const HOST: &str = "tests/tests/host_truth.rs";
/// Several ranks, whose runs are read as one.
const RANKS: &str = "tests/tests/ranks_with_kernels.rs";
const SEVERAL: &str = "needs several ranks: a run alone has none beside it";
/// The machine, not the program, decides whether it happens.
const BY_CHANCE: &str = "depends on what else the machine does";

/// Findings with gains and what may be missing that no run here has for certain: why, and where a test makes them.
const ADVICE_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("sync_drain", GPU, MADE),
    ("exposed_copy", GPU, MADE),
    ("wave_tail", GPU, MADE),
    ("clocks_low", GPU, OPERATIONS),
    ("dequantise", GPU, MADE),
    ("allocator", "calls that allocate are not recorded by any recorder yet", "docs/findings.md"),
    ("prefix_recomputed", "needs a data set whose prompts begin alike", "cli/tests/continuous.rs"),
    ("recomputed", "the command line has a cache but in `bench variants`", "cli/tests/bench_variants.rs"),
    ("weight_streaming", "the built-in model's weights stay in caches", OPERATIONS),
    ("straggler_layer", "the built-in model has four layers", OPERATIONS),
    ("padding", BY_CHANCE, CPU),
    ("kv_bandwidth", BY_CHANCE, OPERATIONS),
    ("below_roof", BY_CHANCE, CPU),
    ("threads_wait", BY_CHANCE, CPU),
    ("straggler_rank", SEVERAL, RANKS),
    ("rank_imbalance", SEVERAL, RANKS),
    ("exposed_communication", SEVERAL, RANKS),
    ("bus_bandwidth", SEVERAL, RANKS),
    ("between_steps", BY_CHANCE, CPU),
    ("host_sampling", BY_CHANCE, CPU),
    ("straggler_step", BY_CHANCE, CPU),
    ("warmup_unsettled", BY_CHANCE, CPU),
    ("hot_overhead", BY_CHANCE, HOST),
    ("preempted", BY_CHANCE, HOST),
    ("blocked", BY_CHANCE, HOST),
    ("page_faults", BY_CHANCE, HOST),
    ("serial_part", BY_CHANCE, HOST),
    ("stacks", "the command line samples stacks", HOST),
    ("free_processors", BY_CHANCE, CPU),
    ("cpu_samples", "a session without the host collector", CPU),
    ("work", "the built-in model states its work", CPU),
    ("new_tokens", "the built-in model's batches say how many tokens are new", CPU),
    ("sample_phase", "the built-in model marks sampling", CPU),
    ("whole_requests", "the command line marks requests", CPU),
    ("kernels", GPU, MADE),
    ("launch_calls", GPU, MADE),
    ("common_clock", GPU, "analysis/findings/src/bottlenecks/sync_drain.rs"),
    ("processors", GPU, MADE),
    ("clock_samples", GPU, OPERATIONS),
    ("highest_clock", GPU, "analysis/findings/src/bottlenecks/clocks_low.rs"),
    ("allocator_calls", GPU, "analysis/findings/src/bottlenecks/allocator.rs"),
    ("layers", "the built-in model has blocks", "analysis/findings/src/bottlenecks/straggler_layer.rs"),
];

const SESSIONS: &str = "sdk/core/tests/session.rs";
const SAMPLED: &str = "sdk/core/tests/sampling.rs";
const DEVICE: &str = "sdk/core/tests/gpu.rs";
const MODULES: &str = "tests/tests/modules/bad_input.rs";
const DAMAGE: &str = "analysis/tests/analysis/damage.rs";
const RULES: &str = "analysis/tests/analysis/findings.rs";
const COUNTED: &str = "sdk/core/tests/counted.rs";
const JUDGE: &str = "schema/src/run/judge.rs";
/// A session of another crate's tests makes it.
const SESSION: &str = "a session made to do it, in the tests of the crate that says it";
const SCRIPTED: &str = "a session with a scripted device";

/// Findings of the verdict that no run here has: why, and where they are made.
const VERDICT_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("no_spans", SESSION, "sdk/core/tests/intervals.rs"),
    ("no_model_spans", SESSION, SAMPLED),
    ("static_level", "a build without the trace level: `tests/without_spans`", "sdk/core/src/verdict.rs"),
    ("recording_off", SESSION, SAMPLED),
    ("schedule_recorded_nothing", SESSION, SAMPLED),
    ("steps_open", SESSION, SAMPLED),
    ("steps_sampled", SESSION, "analysis/tests/analysis/sampling.rs"),
    ("requests_open", SESSION, SESSIONS),
    ("requests_paused", SESSION, SAMPLED),
    ("capture_cut_short", SESSION, "sdk/core/tests/capture.rs"),
    ("second_session_in_registry", SESSION, "sdk/core/tests/registries.rs"),
    ("layer_added_twice", SESSION, "sdk/core/tests/registries.rs"),
    ("phases_unmarked", "a run of candle's own model", "analysis/tests/analysis/reading.rs"),
    ("prompts_hold_up", "needs requests that are under way at once", "cli/tests/continuous.rs"),
    ("replay_disagrees", "a replay that holds agrees", "analysis/findings/src/replay_disagrees.rs"),
    ("graphs_not_replayed", "graphs that were refused: our own device can be captured", RULES),
    ("program_failed", SESSION, SESSIONS),
    ("forked_process", SESSION, "sdk/core/tests/fork.rs"),
    ("modules_unnamed", SESSION, MODULES),
    ("callsites_unknown", "a version of candle that is not known yet", "schema/src/run/judge_modules.rs"),
    ("weights_unowned", SESSION, MODULES),
    ("rows_unknown", SESSION, MODULES),
    ("model_loaded_before", SESSION, MODULES),
    ("config_contradicts_weights", SESSION, MODULES),
    ("ring_full", SESSION, SESSIONS),
    ("threads_without_ring", SESSION, "sdk/core/tests/threads.rs"),
    ("requests_lost", SESSION, COUNTED),
    ("samples_lost", SESSION, COUNTED),
    ("too_deep", SESSION, "sdk/core/tests/intervals.rs"),
    ("after_shutdown", "a race with the closing of the account, of microseconds", JUDGE),
    ("unresolved", "only a bug makes it", JUDGE),
    ("exporter_dropped", SESSION, SESSIONS),
    ("exporter_limit", SESSION, COUNTED),
    ("exporter_error", SESSION, COUNTED),
    ("exporter_unresponsive", SESSION, SESSIONS),
    ("exporter_finish_failed", SESSION, SESSIONS),
    ("collector_failed", SESSION, SESSIONS),
    ("collector_unresponsive", SESSION, SESSIONS),
    ("pipeline_panicked", SESSION, "sdk/core/tests/problems.rs"),
    ("pipeline_stuck", "only a bug makes it", "sdk/core/src/session/ending.rs"),
    ("tap_panicked", SESSION, "sdk/core/tests/problems.rs"),
    ("not_conserved", "only a bug makes it", RULES),
    ("unmatched_exits", SESSION, "sdk/core/tests/forgotten_guards.rs"),
    ("guards_forgotten", SESSION, "sdk/core/tests/forgotten_guards.rs"),
    ("orphans", SESSION, "sdk/core/tests/forgotten_guards.rs"),
    ("parent_shorter_than_children", SESSION, "sdk/core/tests/intervals.rs"),
    ("unaccounted", BY_CHANCE, "analysis/figures/src/verdict/unaccounted.rs"),
    ("clock_set", "the system's clock is not the tests' to set", "schema/src/run/judge_clock.rs"),
    ("overhead_high", BY_CHANCE, RULES),
    ("decode_slows_with_context", BY_CHANCE, "analysis/figures/src/verdict/context_growth.rs"),
    ("memory_undersampled", BY_CHANCE, "analysis/figures/src/verdict/memory_sampling.rs"),
    ("utilisation_above_one", "only wrong figures make it", RULES),
    ("no_gpu_time", SCRIPTED, DEVICE),
    ("no_gpu_samples", "a machine with a GPU and without NVML", "sdk/candlescope/src/gpu.rs"),
    ("gpu_marks_lost", SCRIPTED, DEVICE),
    ("gpu_time_late", SCRIPTED, DEVICE),
    ("gpu_outside_parent", "only a device that tells wrong times makes it", "schema/src/run/judge_gpu.rs"),
    ("gpu_parent_shorter_than_children", GPU, RULES),
    ("gpu_time_untold", GPU, "analysis/figures/src/verdict/gpu_time_untold.rs"),
    ("gpu_outlasts_steps", GPU, RULES),
    ("gpu_throttled", GPU, "analysis/tests/analysis/energy.rs"),
    ("energy_sensors_disagree", GPU, RULES),
    ("no_stacks", SESSION, "sdk/core/tests/stacks.rs"),
    ("stacks_lost", BY_CHANCE, "schema/src/run/judge_stacks.rs"),
    ("no_kernels", SCRIPTED, DEVICE),
    ("no_kernel_window", SESSION, COUNTED),
    ("kernels_dropped", GPU, RULES),
    ("kernels_late", GPU, RULES),
    ("kernels_unattributed", GPU, RULES),
    ("kernels_without_step", GPU, "analysis/figures/src/verdict/kernels_outside.rs"),
    ("nsys_no_ranges", "a profile of Nsight Systems", "cli/tests/nsys.rs"),
    ("nsys_other_run", "a profile of Nsight Systems", "analysis/tests/analysis/nsys.rs"),
    ("nsys_ranges_unknown", "a profile of Nsight Systems", "analysis/tests/analysis/nsys.rs"),
    ("nsys_no_kernels", "a profile of Nsight Systems", "tests/tests/nsys.rs"),
    ("spans_filtered", SESSION, "tests/tests/subscribers.rs"),
    ("rayon_threads_unset", SESSION, "tests/tests/rayon_threads.rs"),
    ("spans_outside_phases", SESSION, "sdk/core/tests/application_spans.rs"),
    ("machine_busy", BY_CHANCE, "cli/tests/threads.rs"),
    ("cpu_throttled", BY_CHANCE, "schema/src/run/judge_machine.rs"),
    ("system_time_high", BY_CHANCE, "schema/src/run/judge_machine.rs"),
    ("run_incomplete", "a run whose program was killed", DAMAGE),
    ("more_segments", "many damaged segments", "analysis/reader/src/discover.rs"),
    ("limit_reached", "a run above a limit", "cli/tests/hostile_files/hostile_segments.rs"),
    ("rows_malformed", "crafted files", "analysis/tests/analysis/hostile.rs"),
    ("segment_foreign", "files of other programs", DAMAGE),
    ("no_readable_spans", "all segments damaged", DAMAGE),
];

/// The only segment of a table.
fn segment(run: &Path, table: &str) -> PathBuf {
    run.join(table).join("part-00000.parquet")
}

/// A run with this done to its files.
fn damaged(recorded: &Recorded, name: &str, damage: impl FnOnce(&Path)) -> PathBuf {
    let run = recorded.dir.join(name);
    copy(&recorded.short, &run);
    damage(&run);
    run
}

/// Runs with one fault each, made by options, by what happened to the files, or by the program.
fn faulty(recorded: &Recorded) -> Vec<PathBuf> {
    let write = |path: PathBuf, bytes: &[u8]| std::fs::write(path, bytes).expect("written");
    let manifest = |run: &Path| run.join("run.json");
    let without = |run: &Path, key: &str| {
        let mut object = json(&std::fs::read_to_string(manifest(run)).expect("run.json"));
        object.as_object_mut().expect("an object").remove(key);
        write(manifest(run), object.to_string().as_bytes());
    };
    vec![
        damaged(recorded, "no_manifest", |run| std::fs::remove_file(manifest(run)).expect("removed")),
        damaged(recorded, "bad_manifest", |run| write(manifest(run), b"{\"schema_version\": 1, ")),
        damaged(recorded, "no_version", |run| without(run, "schema_version")),
        damaged(recorded, "unfinished", |run| write(run.join("spans/part-00009.parquet.inprogress"), b"PAR1")),
        damaged(recorded, "cut", |run| {
            let bytes = std::fs::read(segment(run, "steps")).expect("a segment");
            write(segment(run, "steps"), &bytes[..bytes.len() / 2]);
        }),
        damaged(recorded, "fewer", |run| std::fs::remove_file(segment(run, "samples")).expect("removed")),
        damaged(recorded, "twice", |run| {
            std::fs::copy(segment(run, "steps"), run.join("steps/part-00001.parquet")).expect("copied");
        }),
        damaged(recorded, "mixed", |run| {
            std::fs::copy(segment(&recorded.unset, "steps"), run.join("steps/part-00001.parquet")).expect("copied");
        }),
    ]
}

/// Fails for a code that is neither reached nor listed, and for a reference to a file that does not name it.
fn account(what: &str, all: &BTreeMap<&str, String>, reached: &BTreeSet<String>, listed: &[(&str, &str, &str)]) {
    for (code, variant) in all {
        let entry = listed.iter().find(|(of, ..)| of == code);
        match (reached.contains(*code), entry) {
            (false, None) => panic!("{what} `{code}`: no recorded run reaches it, and no reason is listed"),
            // What else the machine does makes some of them, too.
            (true, Some((_, why, _))) => println!("{what} `{code}` is reached, and listed ({why})"),
            (true, None) => {}
            (false, Some((_, why, file))) => {
                let text = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default();
                let named = text.contains(&format!("::{variant}")) || text.contains(*code);
                assert!(named, "{what} `{code}` ({why}): {file} does not name it");
            }
        }
    }
    let unknown: Vec<_> = listed.iter().filter(|(code, ..)| !all.contains_key(code)).collect();
    assert!(unknown.is_empty(), "{what}: {unknown:?} are no codes");
    println!("{what}: {} of {} are reached by recorded runs", reached.len(), all.len());
}

#[test]
fn every_code_is_reached_by_a_recorded_run_or_has_a_reason() {
    let recorded = recorded();
    let (mut advice, mut verdict) = (BTreeSet::new(), BTreeSet::new());
    let other = profiled(&recorded.dir, "two_threads", Some("2"), &["--repeats", "20", "--warmup", "0"]);
    let mut runs = every();
    runs.push(other);
    for run in &runs {
        let object = analysed(run);
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_string();
        advice.extend(super::findings(&object).iter().map(|finding| text(&finding["code"])));
        advice.extend(object["abstained"].as_array().expect("a list").iter().map(|one| text(&one["missing"])));
    }
    runs.extend(faulty(recorded));
    for run in &runs {
        let report = candlescope_reader::Run::open(run).map(|run| candlescope_figures::Analysis::of(&run));
        let analysis = report.unwrap_or_else(|error| panic!("{}: {error}", run.display()));
        verdict.extend(analysis.verdict.findings.iter().map(|finding| finding.code.to_string()));
    }
    let codes = AdviceCode::ALL.iter().map(|code| (code.as_str(), format!("{code:?}")));
    let missing = Missing::ALL.iter().map(|missing| (missing.as_str(), format!("{missing:?}")));
    account("advice", &codes.chain(missing).collect(), &advice, ADVICE_ELSEWHERE);
    let codes = Code::ALL.iter().map(|code| (code.as_str(), format!("{code:?}")));
    account("finding", &codes.collect(), &verdict, VERDICT_ELSEWHERE);
}
