//! Which codes a recorded run reaches: one of this suite's runs here, or a run or session of another test, which is
//! named. What no recorded run reaches is listed with the reason, and the list may name nothing that one of the runs
//! here reaches.
//!
//! What depends on what else a machine does is no reason: a run is made in which it happens for certain (`scenes.rs`,
//! `scripted_gpu.rs`).

use super::common::*;
use super::scenes::made;
use super::scripted_gpu::scripted;
use super::{Recorded, analysed, on_gpu, profiled, recorded};
use candlescope_core::run::Code;
use candlescope_figures::Analysis;
use candlescope_figures::advice::{AdviceCode, Missing};
use candlescope_reader::{Limit, ReadLimits, Run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A code, and the test whose run or session has it: file and function.
type InTest = (&'static str, &'static str, &'static str);
/// A code that no recorded run has, why, and the file in which made rows or a unit's own values do.
type Unrecorded = (&'static str, &'static str, &'static str);

/// Programs whose truth is known.
const HOST: &str = "tests/tests/host_truth.rs";
/// Several ranks, whose runs are read as one.
const RANKS: &str = "tests/tests/ranks.rs";

/// Findings with gains, and what may be missing, that other tests have.
const ADVICE_IN_TESTS: &[InTest] = &[
    (
        "prefix_recomputed",
        "cli/tests/continuous.rs",
        "what_prompts_begin_with_is_computed_once_and_texts_stay_the_same",
    ),
    (
        "straggler_layer",
        "cli/tests/recorded/disturbed.rs",
        "what_other_programs_can_have_done_stands_behind_what_they_cannot",
    ),
    ("hot_overhead", HOST, "candle_asks_for_the_number_of_cores_at_each_product"),
    ("preempted", HOST, "a_processor_that_is_shared_is_seen"),
    ("blocked", HOST, "functions_have_the_time_of_the_intervals_that_they_ran_in"),
    ("page_faults", HOST, "memory_that_is_given_back_costs_page_faults"),
    ("serial_part", HOST, "what_one_thread_computes_alone_is_told"),
    ("straggler_rank", RANKS, "a_rank_that_is_slow_on_purpose_is_found_and_waiting_is_told_from_transfer"),
    ("exposed_communication", RANKS, "a_rank_that_is_slow_on_purpose_is_found_and_waiting_is_told_from_transfer"),
    ("rank_imbalance", RANKS, "ranks_that_take_turns_at_being_slow_are_no_stragglers"),
];

/// Those that no recorded run has.
const ADVICE_UNRECORDED: &[Unrecorded] = &[
    (
        "allocator",
        "calls that allocate are not recorded by any recorder yet",
        "analysis/findings/src/bottlenecks/allocator.rs",
    ),
    ("bus_bandwidth", "needs several GPUs with NVLink", "tests/tests/ranks_with_kernels.rs"),
    ("more_stack_samples", BY_CHANCE, "analysis/tests/analysis/bottlenecks/cpu.rs"),
];

const SESSIONS: &str = "sdk/core/tests/session.rs";
const SAMPLED: &str = "sdk/core/tests/sampling.rs";
const INTERVALS: &str = "sdk/core/tests/intervals.rs";
const GUARDS: &str = "sdk/core/tests/forgotten_guards.rs";
const PROBLEMS: &str = "sdk/core/tests/problems.rs";
const REGISTRIES: &str = "sdk/core/tests/registries.rs";
const COUNTED: &str = "sdk/core/tests/counted.rs";
/// A session with a scripted device.
const DEVICE: &str = "sdk/core/tests/gpu.rs";
const STACKS: &str = "sdk/core/tests/stacks.rs";
const MODULES: &str = "tests/tests/modules/bad_input.rs";

/// Findings of the verdict that other tests have.
const VERDICT_IN_TESTS: &[InTest] = &[
    ("no_spans", INTERVALS, "spans_made_before_the_layer_are_missing_and_the_verdict_says_so"),
    ("no_model_spans", INTERVALS, "spans_made_before_the_layer_are_missing_and_the_verdict_says_so"),
    ("spans_filtered", "tests/tests/subscribers.rs", "a_filter_that_hides_them_is_told_with_the_remedy"),
    ("recording_off", SAMPLED, "a_run_in_which_a_schedule_recorded_nothing_says_why"),
    ("schedule_recorded_nothing", SAMPLED, "a_run_in_which_a_schedule_recorded_nothing_says_why"),
    ("steps_open", SAMPLED, "a_run_in_which_a_schedule_recorded_nothing_says_why"),
    ("schedule_in_step", "tests/tests/sampled_rates.rs", "a_schedule_that_keeps_step_with_requests_is_told"),
    ("requests_open", SESSIONS, "requests_outside_of_capture_are_not_recorded_and_open_ones_are_named"),
    ("requests_paused", SAMPLED, "requests_are_left_out_only_where_recording_was_off_all_the_while"),
    ("capture_cut_short", "sdk/core/tests/capture.rs", "a_capture_that_waits_for_steps_can_be_ended"),
    ("second_session_in_registry", REGISTRIES, "of_two_sessions_in_one_registry_the_second_steps_back"),
    ("layer_added_twice", REGISTRIES, "a_layer_that_is_cloned_records_what_its_first_registry_sees"),
    ("prompts_hold_up", "cli/tests/continuous.rs", "prompts_pass_in_pieces_and_who_waits_for_them_is_told"),
    ("program_failed", SESSIONS, "a_program_that_failed_is_not_ok"),
    ("interrupted", "cli/tests/profile.rs", "an_interrupt_keeps_what_was_recorded"),
    ("forked_process", "sdk/core/tests/fork.rs", "a_forked_child_leaves_the_session_to_its_parent_at_once"),
    ("modules_unnamed", MODULES, "spans_that_own_nothing"),
    ("weights_unowned", MODULES, "weights_that_no_span_stands_for"),
    (
        "rows_unknown",
        "tests/tests/modules/recognised.rs",
        "a_form_that_several_architectures_have_gets_no_attention_and_names_the_missing_line",
    ),
    ("model_loaded_before", MODULES, "a_model_that_was_loaded_before"),
    ("config_contradicts_weights", MODULES, "a_configuration_of_another_model"),
    (
        "rayon_threads_unset",
        "tests/tests/rayon_threads.rs",
        "it_is_told_once_where_candle_reads_a_file_at_each_product",
    ),
    ("ring_full", SESSIONS, "a_full_ring_drops_the_newest_counts_it_and_keeps_the_steps"),
    ("threads_without_ring", "sdk/core/tests/threads.rs", "threads_without_room_for_a_ring_are_counted_and_told"),
    ("requests_lost", COUNTED, "requests_that_nobody_fetched"),
    ("samples_lost", COUNTED, "samples_that_nobody_fetched"),
    ("too_deep", INTERVALS, "deep_recursion_is_counted"),
    ("exporter_dropped", SESSIONS, "a_slow_exporter_delays_nobody_and_its_loss_is_counted"),
    ("exporter_limit", COUNTED, "an_exporter_at_its_limit_or_with_an_error"),
    ("exporter_error", COUNTED, "an_exporter_at_its_limit_or_with_an_error"),
    ("exporter_unresponsive", SESSIONS, "a_hanging_exporter_cannot_hold_up_the_end"),
    ("exporter_finish_failed", SESSIONS, "a_failure_at_the_very_end_is_not_swallowed"),
    ("collector_failed", SESSIONS, "collectors_sample_in_the_background_and_their_failure_is_a_finding"),
    ("collector_unresponsive", SESSIONS, "a_hanging_collector_costs_its_samples_and_nothing_else"),
    ("pipeline_panicked", PROBLEMS, "a_panic_in_the_pipeline_is_called_one"),
    ("tap_panicked", PROBLEMS, "a_tap_that_panics_is_not_called_again_and_harms_nobody"),
    ("unmatched_exits", GUARDS, "a_span_left_on_another_thread_harms_neither"),
    ("spans_outside_phases", "sdk/core/tests/application_spans.rs", "spans_before_the_first_phase_are_told"),
    ("guards_forgotten", GUARDS, "a_guard_forgotten_in_every_step_leaves_every_step_whole"),
    ("parent_shorter_than_children", INTERVALS, "spans_left_out_of_order_are_kept_and_said"),
    ("clock_set", "examples/server/tests/long_run.rs", "everything_on_and_everything_going_wrong"),
    ("machine_busy", "cli/tests/threads.rs", "a_run_beside_others_says_that_its_times_are_not_its_own"),
    ("no_gpu_time", DEVICE, "refusals_are_told_apart"),
    ("gpu_marks_lost", DEVICE, "lost_marks_are_counted"),
    ("gpu_time_late", DEVICE, "a_device_that_never_answers_costs_gpu_time_and_nothing_else"),
    ("no_stacks", STACKS, "a_sampler_that_is_refused_leaves_a_whole_run"),
    ("stacks_lost", STACKS, "a_sampler_that_loses_much_is_told"),
    ("no_kernels", DEVICE, "a_recorder_that_cannot_says_why_and_costs_nothing_else"),
    ("no_kernel_window", COUNTED, "a_window_of_kernels_that_no_step_reached"),
    ("kernels_dropped", DEVICE, "an_interval_whose_kernel_was_lost_has_no_gpu_time_from_kernels"),
    ("kernels_late", DEVICE, "a_replay_in_a_step_that_is_open_when_the_session_ends_is_late_and_nothing_waits_for_it"),
    ("nsys_no_ranges", "cli/tests/nsys.rs", "under_the_real_nsys"),
    ("nsys_no_kernels", "tests/tests/nsys.rs", "n_forwards_are_n_ranges_of_every_layer_nested_as_recorded"),
    ("run_incomplete", "sdk/candlescope/tests/process_end.rs", "an_abort_costs_the_open_segment_and_the_run_says_so"),
];

const JUDGE: &str = "schema/src/run/judge.rs";
const RULES: &str = "analysis/tests/analysis/findings.rs";
const NSYS_ROWS: &str = "analysis/tests/analysis/nsys.rs";
const WRONG_DEVICE: &str = "only a device that tells wrong times, or several streams, make it";
/// A run may have it or not.
const BY_CHANCE: &str = "depends on how busy the machine is";
const TWO_PROFILES: &str = "needs profiles of Nsight Systems with kernels, which a GPU makes";

/// Those that no recorded run has.
const VERDICT_UNRECORDED: &[Unrecorded] = &[
    ("static_level", "needs a build in which tracing's static level leaves out trace", "sdk/core/src/verdict.rs"),
    ("callsites_unknown", "needs a version of candle that is not known yet", "schema/src/run/judge_modules.rs"),
    ("after_shutdown", "a race with the closing of the account, of microseconds", JUDGE),
    ("unresolved", "only a bug makes it", JUDGE),
    ("pipeline_stuck", "only a bug makes it", "sdk/core/src/session/ending.rs"),
    ("not_conserved", "only an exporter that loses count makes it", RULES),
    ("cpu_throttled", "a control group with a quota is not the tests' to make", "schema/src/run/judge_machine.rs"),
    (
        "replay_disagrees",
        "needs a program of which the replay does not hold",
        "analysis/findings/src/replay_disagrees.rs",
    ),
    ("gpu_outside_parent", WRONG_DEVICE, "schema/src/run/judge_gpu.rs"),
    ("gpu_parent_shorter_than_children", WRONG_DEVICE, RULES),
    ("memory_undersampled", BY_CHANCE, "analysis/figures/src/verdict/memory_sampling.rs"),
    ("nsys_other_run", TWO_PROFILES, NSYS_ROWS),
    ("nsys_ranges_unknown", TWO_PROFILES, NSYS_ROWS),
    ("rows_malformed", "only crafted files have such rows", "analysis/tests/analysis/hostile.rs"),
];

/// The only segment of a table.
fn segment(run: &Path, table: &str) -> PathBuf {
    run.join(table).join("part-00000.parquet")
}

/// A copy of a run with this done to its files.
fn damaged(from: &Path, name: &str, damage: impl FnOnce(&Path)) -> PathBuf {
    let run = recorded().dir.join(name);
    copy(from, &run);
    damage(&run);
    run
}

/// Halves a file.
fn cut(file: &Path) {
    let bytes = std::fs::read(file).expect("a segment");
    std::fs::write(file, &bytes[..bytes.len() / 2]).expect("written");
}

fn remove(file: &Path) {
    std::fs::remove_file(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Runs with one fault each, made by what happened to the files.
fn faulty(recorded: &Recorded) -> Vec<PathBuf> {
    let write = |path: PathBuf, bytes: &[u8]| std::fs::write(path, bytes).expect("written");
    let manifest = |run: &Path| run.join("run.json");
    let without = |run: &Path, key: &str| {
        let mut object = json(&std::fs::read_to_string(manifest(run)).expect("run.json"));
        object.as_object_mut().expect("an object").remove(key);
        write(manifest(run), object.to_string().as_bytes());
    };
    let copied = |from: PathBuf, to: PathBuf| _ = std::fs::copy(from, to).expect("copied");
    let short = recorded.short.as_path();
    let [replays, _, _, threads, host] = on_gpu();
    vec![
        damaged(short, "no_manifest", |run| remove(&manifest(run))),
        damaged(short, "bad_manifest", |run| write(manifest(run), b"{\"schema_version\": 1, ")),
        damaged(short, "no_version", |run| without(run, "schema_version")),
        damaged(short, "unfinished", |run| write(run.join("spans/part-00009.parquet.inprogress"), b"PAR1")),
        damaged(short, "many", |run| {
            (0..120).for_each(|n| write(run.join(format!("spans/part-1{n:04}.parquet.inprogress")), b"PAR1"));
        }),
        damaged(short, "cut", |run| cut(&segment(run, "steps"))),
        damaged(short, "cut_spans", |run| cut(&segment(run, "spans"))),
        damaged(short, "fewer", |run| remove(&segment(run, "samples"))),
        damaged(short, "foreign", |run| copied(segment(run, "samples"), run.join("steps/part-00001.parquet"))),
        damaged(short, "twice", |run| copied(segment(run, "steps"), run.join("steps/part-00001.parquet"))),
        damaged(short, "mixed", |run| copied(segment(&recorded.unset, "steps"), run.join("steps/part-00001.parquet"))),
        // Of a run of several segments, what those are about that are left.
        damaged(&replays, "no_request", |run| remove(&run.join("spans/part-00001.parquet"))),
        damaged(&threads, "fewer_steps", |run| remove(&run.join("steps/part-00002.parquet"))),
        damaged(&host, "fewer_samples", |run| {
            (1..4).for_each(|n| remove(&run.join(format!("samples/part-0000{n}.parquet"))));
        }),
    ]
}

/// The functions of a file that stand at its margin, each with its text and whether it is a test.
fn functions(file: &str) -> BTreeMap<&str, (&str, bool)> {
    let (mut found, mut is_test, mut begin) = (BTreeMap::new(), false, 0);
    for line in file.split_inclusive('\n') {
        let heads = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn "];
        if line.starts_with("#[test]") {
            is_test = true;
        } else if let Some(rest) = heads.iter().find_map(|head| line.strip_prefix(head)) {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            let text = &file[begin..];
            let end = text.find("\n}\n").map_or(text.len(), |end| end + 3);
            found.insert(name, (&text[..end], std::mem::take(&mut is_test)));
        }
        begin += line.len();
    }
    found
}

/// Whether a text has a code, by either of its names.
fn names(text: &str, code: &str, variant: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let path = format!("::{variant}");
    text.contains(&format!("\"{code}\"")) || text.match_indices(&path).any(|(at, _)| ends(&text[at + path.len()..]))
}

fn source(file: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default()
}

/// What is wrong with a reference to a test: it has to be one, and it, or a function of the file that it calls, has
/// to name the code.
fn wrong((code, file, test): InTest, variant: &str) -> Option<String> {
    let text = source(file);
    let all = functions(&text);
    let Some((body, true)) = all.get(test).copied() else {
        return Some(format!("`{code}`: {file} has no test {test}"));
    };
    let calls = |name: &str| body.contains(&format!("{name}("));
    let is_named =
        names(body, code, variant) || all.iter().any(|(name, (text, _))| calls(name) && names(text, code, variant));
    (!is_named).then(|| format!("`{code}`: {test} of {file} does not name it"))
}

/// All that is wrong with the lists, given which run reaches which code.
fn account(
    what: &str,
    all: &BTreeMap<&str, String>,
    reached: &BTreeMap<String, String>,
    in_tests: &[InTest],
    unrecorded: &[Unrecorded],
) -> Vec<String> {
    let mut problems = Vec::new();
    for (code, variant) in all {
        let other = in_tests.iter().find(|(of, ..)| of == code);
        problems.extend(other.and_then(|other| wrong(*other, variant)));
        let excused = unrecorded.iter().find(|(of, ..)| of == code);
        match (reached.get(*code), other, excused) {
            (Some(run), _, Some((_, why, _))) if *why != BY_CHANCE => {
                problems.push(format!("`{code}` is listed as recorded nowhere ({why}), and {run} has it"));
            }
            (_, Some(_), Some(_)) => problems.push(format!("`{code}` is in both lists")),
            (None, None, None) => problems.push(format!("`{code}`: no recorded run has it, and no list does")),
            (None, None, Some((_, why, file))) if !names(&source(file), code, variant) => {
                problems.push(format!("`{code}` ({why}): {file} does not name it"));
            }
            _ => {}
        }
    }
    let listed = in_tests.iter().map(|(code, ..)| code).chain(unrecorded.iter().map(|(code, ..)| code));
    problems.extend(listed.filter(|code| !all.contains_key(*code)).map(|code| format!("`{code}` is no code")));
    println!(
        "{what}: of {} codes recorded runs here have {}, those of other tests {} more, and none {}",
        all.len(),
        reached.len(),
        in_tests.iter().filter(|(code, ..)| !reached.contains_key(*code)).count(),
        unrecorded.len()
    );
    problems.into_iter().map(|problem| format!("{what}: {problem}")).collect()
}

#[test]
fn every_code_is_reached_by_a_recorded_run_or_has_a_reason() {
    let recorded = recorded();
    let mut runs: Vec<PathBuf> = recorded.all().into_iter().map(Path::to_path_buf).collect();
    runs.push(profiled(&recorded.dir, "two_threads", Some("2"), &["--repeats", "20", "--warmup", "0"]));
    runs.extend(made().all());
    runs.extend(scripted().all());
    runs.extend(on_gpu());
    let (mut advice, mut verdict) = (BTreeMap::new(), BTreeMap::new());
    for run in &runs {
        let (object, name) = (analysed(run), run.display().to_string());
        let mut note = |code: &serde_json::Value| {
            advice.entry(code.as_str().expect("text").to_string()).or_insert_with(|| name.clone());
        };
        super::findings(&object).iter().for_each(|finding| note(&finding["code"]));
        object["abstained"].as_array().expect("a list").iter().for_each(|one| note(&one["missing"]));
    }
    runs.extend(faulty(recorded));
    let mut judge = |run: &Path, limits: ReadLimits| {
        let opened = Run::open_within(run, limits).unwrap_or_else(|error| panic!("{}: {error}", run.display()));
        let analysis = Analysis::of(&opened);
        for finding in &analysis.verdict.findings {
            verdict.entry(finding.code.to_string()).or_insert_with(|| run.display().to_string());
        }
    };
    runs.iter().for_each(|run| judge(run, ReadLimits::default()));
    judge(&recorded.dir.join("twice"), ReadLimits::default().with(Limit::Files, 1));

    let codes = AdviceCode::ALL.iter().map(|code| (code.as_str(), format!("{code:?}")));
    let missing = Missing::ALL.iter().map(|missing| (missing.as_str(), format!("{missing:?}")));
    let all = codes.chain(missing).collect();
    let mut problems = account("advice", &all, &advice, ADVICE_IN_TESTS, ADVICE_UNRECORDED);
    let all = Code::ALL.iter().map(|code| (code.as_str(), format!("{code:?}"))).collect();
    problems.extend(account("finding", &all, &verdict, VERDICT_IN_TESTS, VERDICT_UNRECORDED));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
