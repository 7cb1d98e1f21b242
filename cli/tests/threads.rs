//! How many threads compute: settled by option, key, variable or default, told in every file, the same when a run is made
//! again; and what a run says of a machine that others use.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SHORT: &[&str] = &["--prompt-tokens", "4", "--max-new-tokens", "2", "--repeats", "1", "--no-progress"];

/// A profile with these variables, in a directory of its own.
fn profile(out: &Path, variables: &[(&str, &str)], more: &[&str]) -> Value {
    let mut command = candlescope();
    command.env_remove("RAYON_NUM_THREADS").env_remove("CANDLE_NUM_THREADS");
    command.envs(variables.iter().copied()).args(["profile", "--out"]).arg(out).args(SHORT).args(more);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    manifest(out)["environment"].clone()
}

fn threads(environment: &Value) -> (Value, Value, Value) {
    let key = |key: &str| environment[key].clone();
    (key("compute_threads"), key("compute_threads_from"), key("rayon_num_threads"))
}

#[test]
fn the_number_of_threads_is_settled_recorded_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let of = |n: u64, from: &str| (json!(n), json!(from), json!(n.to_string()));
    let by_default = profile(&at("default"), &[], &[]);
    assert_eq!(threads(&by_default), of(1, "default"), "the embedded model");
    assert_eq!(by_default["candle_num_threads"], "1");
    for key in ["cpu_available", "build_profile", "build_opt_level", "candle", "candle_features", "allocator"] {
        assert!(!by_default[key].is_null(), "{key} is missing from {by_default}");
    }
    let variable = profile(&at("variable"), &[("RAYON_NUM_THREADS", "2")], &[]);
    assert_eq!(threads(&variable), of(2, "RAYON_NUM_THREADS"));
    let option = profile(&at("option"), &[("RAYON_NUM_THREADS", "2")], &["--threads", "3"]);
    assert_eq!(threads(&option), of(3, "option"));
    if cfg!(target_os = "linux") {
        // The thread that runs the model is the third.
        assert!(option["unnamed_threads"].as_u64() >= Some(2), "rayon's pool was seen: {option}");
        assert_eq!(option["caller_computes"], true);
    }
    fs::write(at("a.toml"), "[hardware]\nthreads = 2\n").unwrap();
    let file = profile(&at("file"), &[], &["--config", at("a.toml").to_str().unwrap()]);
    assert_eq!(threads(&file), of(2, "option"));
    // Made again from inputs.yaml, with another variable set.
    let inputs = fs::read_to_string(at("variable").join("inputs.yaml")).unwrap();
    assert!(inputs.contains("threads: 2"), "{inputs}");
    let inputs = at("variable").join("inputs.yaml");
    let again = profile(&at("again"), &[("RAYON_NUM_THREADS", "1")], &["--config", inputs.to_str().unwrap()]);
    assert_eq!(threads(&again), of(2, "option"));
    assert_eq!(json(&fs::read_to_string(at("again").join("env.json")).unwrap())["environment"]["compute_threads"], 2);
    assert!(fails(&["profile", "--threads", "0"]).contains("--threads is 0"));
    assert!(ok(&["profile", "--help"]).contains("RAYON_NUM_THREADS"));
}

#[test]
fn each_combination_has_its_threads() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("many");
    let (out_text, mut args) = (out.to_str().unwrap(), vec!["profile", "-m", "hardware.threads=1,2", "--out"]);
    args.extend([out_text].iter().chain(SHORT));
    ok(&args);
    let mut seen: Vec<u64> = fs::read_dir(&out)
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().join("run.json").is_file())
        .map(|entry| manifest(&entry.path())["environment"]["compute_threads"].as_u64().unwrap())
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}

#[test]
fn a_study_keeps_its_threads_for_every_process() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let latency = ["bench", "latency", "--quick", "--runs", "1", "--prompt-tokens", "4", "--output-tokens", "2"];
    let study = ["--no-progress", "--out", out.to_str().unwrap()];
    ok(&[&latency[..], &study, &["--threads", "2"]].concat());
    let manifest = json(&fs::read_to_string(out.join("study.json")).unwrap());
    assert_eq!(
        (&manifest["options"]["threads"], &manifest["environment"]["rayon_num_threads"]),
        (&json!(2), &json!("2"))
    );
    assert_eq!(manifest["environment"]["compute_threads_from"], "option");
    let other = fails(&[&latency[..], &study, &["--threads", "1", "--resume"]].concat());
    assert!(other.contains("threads was 2, and now is 1"), "{other}");
    // The recorded run, which the process of a round made.
    let run = manifest_of_any_run(&out.join("runs"));
    assert_eq!(run["environment"]["compute_threads"], 2);
}

fn manifest_of_any_run(folder: &Path) -> Value {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if folder.join("run.json").is_file() {
            return manifest(&folder);
        }
        folders.extend(fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    panic!("there is no run");
}

#[test]
fn threads_are_tuned_in_turns() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("tuned");
    let short = ["--quick", "--counts", "1,2", "--prompt-tokens", "4", "--output-tokens", "2", "--runs", "1"];
    let tune = [&["tune", "threads", "--no-progress", "--out", out.to_str().unwrap()], &short[..]].concat();
    let said = ok(&tune);
    assert!(said.contains("Undecided; ") && said.contains("takes 6 (--rounds 6)"), "two rounds decide nothing: {said}");
    assert!(said.contains("Until more rounds decide: --threads"), "{said}");
    let tuned = json(&fs::read_to_string(out.join("threads.json")).unwrap());
    let points = tuned["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| point["threads"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert!(points.iter().all(|point| point["rounds_ns"].as_array().unwrap().len() == 2), "{tuned}");
    let study = json(&fs::read_to_string(out.join("round-1-threads-2/study.json")).unwrap());
    assert_eq!(study["environment"]["compute_threads"], 2);
    assert!(fails(&tune).contains("is not empty"));
    assert!(fails(&["tune", "threads", "--threads", "2"]).contains("--counts 2"));
}

/// Children that use every processor, until dropped.
struct Others(Vec<Child>);

impl Others {
    fn on_every_processor() -> Self {
        let n = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let burn = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().expect("sh");
        Self((0..n).map(burn).collect())
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A second or more of generation.
fn long(out: &Path) -> Value {
    let args = ["profile", "--prompt-tokens", "8", "--max-new-tokens", "100", "--ignore-eos", "--repeats", "60"];
    ok(&[&args[..], &["--no-progress", "--out", out.to_str().unwrap()]].concat());
    manifest(out)
}

fn busy(run: &Value) -> Option<&Value> {
    run["verdict"]["findings"].as_array().unwrap().iter().find(|finding| finding["code"] == "machine_busy")
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_beside_others_says_that_its_times_are_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("disturbed");
    let run = {
        let _others = Others::on_every_processor();
        long(&out)
    };
    let machine = &run["machine"];
    let number = |key: &str| machine[key].as_f64().unwrap_or_else(|| panic!("{key} is missing from {machine}"));
    assert!(number("others_s") > 0.3 * number("sampled_s"), "{machine}");
    assert!(number("disturbed_s") > 0.5 * number("sampled_s") && number("switches_involuntary") > 0.0, "{machine}");
    let message = busy(&run).expect("machine_busy")["message"].as_str().unwrap();
    assert!(message.contains("other processes used") && message.contains("not the program's alone"), "{message}");
    assert!(!run["environment"]["disturbances_before"].as_array().expect("profile looked before").is_empty());
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(!report.contains("data can be trusted"), "{report}");
    assert!(report.contains("machine was busy: times are not the program's alone"), "{report}");
    // Read again, it says the same.
    assert!(ok(&["report", out.to_str().unwrap()]).contains("times are not the program's alone"));

    // Without these children the run says what its samples say, whoever else may be at work here.
    let run = long(&dir.path().join("after"));
    let machine = &run["machine"];
    let share = machine["disturbed_s"].as_f64().expect("sampled") / machine["sampled_s"].as_f64().unwrap();
    assert_eq!(busy(&run).is_some(), share >= 0.1, "{machine}");
}
