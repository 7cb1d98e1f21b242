//! What commands print with `--json` is what `docs/schemas` says, without a field more.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Map, Value, json as object};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Answers by schema.
#[derive(Default)]
struct Answers(Map<String, Value>);

impl Answers {
    /// Adds what a command prints. Outcomes of comparisons are statuses.
    fn take(&mut self, schema: &str, args: &[&str]) -> Value {
        let output = candlescope().args(args).arg("--json").output().unwrap();
        let status = output.status.code();
        let fine = matches!(args[0], "compare" | "gate") && matches!(status, Some(0..=2));
        assert!(fine || status == Some(0), "{args:?}: {}", text(&output.stderr));
        let answer = json(&text(&output.stdout));
        let list = self.0.entry(schema).or_insert_with(|| object!([]));
        list.as_array_mut().unwrap().push(answer.clone());
        answer
    }
}

fn gpu(name: &str, into: &Path) -> PathBuf {
    let to = into.join(name);
    copy(&Path::new(ROOT).join("cli/tests/recorded/gpu").join(name), &to);
    to
}

/// Runs of this machine, and what is asked of them.
fn of_this_machine(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let profile = ["profile", "--model", "embedded", "--max-new-tokens", "12", "--no-progress", "--out"];
    let more = ["--repeats", "6", "--overhead-probe", "3", "--price-per-hour", "2"];
    answers.take("profile", &[&profile[..], &[&path("runs/a"), "--repeats", "3"]].concat());
    answers.take("profile", &[&profile[..], &[&path("runs/b")], &more].concat());
    let (runs, a, b) = (path("runs"), path("runs/a"), path("runs/b"));
    // An archive takes runs as they were recorded.
    copy(&dir.join("runs"), &dir.join("moved"));
    for run in [&a, &b] {
        answers.take("metrics", &["report", run]);
        answers.take("analyze", &["analyze", run, "--what-if", "host×0.9"]);
        answers.take("overview", &["overview", run]);
        answers.take("request", &["report", run, "--request", "2"]);
    }
    answers.take("analyze", &["analyze", &a, &b, "--top", "0"]);
    answers.take("overview-folder", &["overview", &runs]);
    answers.take(
        "query",
        &[
            "query",
            "SELECT phase, count(*) AS n, avg(host_dur_ns) AS x, NULL AS y, true AS z FROM steps GROUP BY phase",
            &runs,
        ],
    );
    answers.take("export", &["export", "perfetto", &a]);
    answers.take("compare", &["compare", &a, &b, "--allow", "all"]);
    answers.take("gate-save", &["gate", &a, "--save", &path("baseline")]);
    answers.take("gate", &["gate", &b, "--baseline", &path("baseline"), "--allow", "all"]);
    answers.take("summary", &["summary", &runs]);
    answers.take("summary", &["trend", "decode_step_ns", &runs]);
    answers.take("archive", &["archive", &path("moved"), "--to", &path("archive")]);
    answers.take("prune", &["prune", &path("archive"), "--keep", "1d"]);
    answers.take("doctor", &["doctor"]);
}

#[test]
fn answers_are_what_their_schemas_say() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let mut answers = Answers::default();
    of_this_machine(&mut answers, dir.path());
    for name in ["decode", "replays", "host", "threads", "unmodified"] {
        let run = gpu(name, dir.path());
        let run = run.to_str().unwrap();
        answers.take("metrics", &["report", run]);
        answers.take("analyze", &["analyze", run]);
        answers.take("overview", &["overview", run]);
    }
    answers.take("roofline-run", &["roofline", &path("decode"), "--out", &path("roofline")]);
    let model = ["roofline", "config:llama-3-8b", "--gpu", "h100", "--out"];
    answers.take("roofline-model", &[&model[..], &[&path("roofline-of-model")]].concat());
    let quick = ["--quick", "--no-progress"];
    let model = ["--model", "embedded", "--out"];
    for suite in ["latency", "throughput", "seqlen", "suite"] {
        answers.take("bench", &[&["bench", suite][..], &quick, &model, &[&path(suite)]].concat());
    }
    answers.take("bench-variants", &[&["bench", "variants"][..], &quick, &model, &[&path("variants")]].concat());
    // From six starts on there are intervals.
    let short = ["--batches", "1,2", "--prompt-tokens", "8", "--output-tokens", "4", "--time-limit", "1"];
    let starts = ["--processes", "6", "--no-progress"];
    for study in ["starts-a", "starts-b"] {
        let answer =
            answers.take("bench", &[&["bench", "throughput"][..], &short, &starts, &model, &[&path(study)]].concat());
        let interval = &answer["metrics"]["capacity"]["best_throughput_tps"]["median_ci95"];
        assert_eq!(interval.as_array().map(Vec::len), Some(2), "{answer}");
    }
    answers.take("compare-studies", &["compare", &path("starts-a"), &path("starts-b")]);
    answers.take("compare-studies", &["compare", &path("latency"), &path("suite")]);
    answers.take("bench-kernels", &[&["bench", "kernels", "--out", &path("kernels")][..], &quick].concat());
    answers.take("bench-peaks", &[&["bench", "peaks", "--out", &path("peaks")][..], &quick].concat());
    answers.take("tune-batch", &[&["tune", "batch"][..], &quick, &model, &[&path("batch")]].concat());
    answers.take(
        "tune-threads",
        &["tune", "threads", "--model", "embedded", "--no-progress", "--out", &path("tuned-threads")],
    );
    let program = |name: &str| format!("{ROOT}/cli/tests/recorded/programs/{name}");
    let server = prometheus([&[130.0][..], &[100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 101.0]].concat());
    answers.take("gate-prometheus", &["gate", "--prometheus", &server, "--windows", "7"]);
    answers.take("compare-programs", &["compare", &program("candle"), &program("torch")]);
    let mut child = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/check_schemas.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &answers.0).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Commands with `--json` whose answers take a server, a GPU, a tool or many minutes: docs/json.md says where they stand.
const ELSEWHERE: [&str; 4] = ["load", "ncu", "optimise", "journey"];

#[test]
fn every_command_with_json_has_a_schema_or_says_where_it_stands() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/json.md")).unwrap();
    let help = ok(&["--help"]);
    let (_, list) = help.split_once("Commands:").unwrap();
    // Continued descriptions stand further in.
    let entries = list.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names: Vec<&str> = entries.filter_map(|line| line.split_whitespace().next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.starts_with('-')).collect();
    let with_json = names.iter().filter(|name| **name != "help" && ok(&[name, "--help"]).contains("--json"));
    let mut seen = 0;
    for name in with_json {
        seen += 1;
        assert!(page.contains(&format!("`{name}")), "docs/json.md has no row for `{name}`");
    }
    assert!(seen >= 15, "{seen}");
    for name in ELSEWHERE {
        assert!(page.contains(&format!("`{name}")), "{name}");
    }
    for file in std::fs::read_dir(Path::new(ROOT).join("docs/schemas")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("(schemas/{name})")), "docs/json.md does not lead to {name}");
    }
}
