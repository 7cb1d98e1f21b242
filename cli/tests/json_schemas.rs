//! What commands print with `--json`, and tools for agents answer, is what `docs/schemas` says, without a field more.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::collector;
use candlescope_testkit::completions::{Server, models, stream};
use candlescope_testkit::ranks::MadeRanks;
use common::*;
use serde_json::{Map, Value, json as object};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Answers by schema.
#[derive(Default)]
struct Answers(Map<String, Value>);

impl Answers {
    /// Adds what a command prints. Outcomes of comparisons are statuses.
    fn take(&mut self, schema: &str, args: &[&str]) -> Value {
        self.take_of(schema, candlescope().args(args).arg("--json"))
    }

    /// The document that a command shows.
    fn take_document(&mut self, args: &[&str]) -> Value {
        self.take_of("document", candlescope().args(args).arg("--json=document"))
    }

    /// The same of a command with `--json` among its arguments.
    fn take_of(&mut self, schema: &str, command: &mut Command) -> Value {
        let output = command.output().unwrap();
        let status = output.status.code();
        let compares = command.get_args().next().is_some_and(|name| name == "compare" || name == "gate");
        let fine = compares && matches!(status, Some(0..=2));
        assert!(fine || status == Some(0), "{command:?}: {}", text(&output.stderr));
        let answer = json(&text(&output.stdout));
        self.add(schema, answer.clone());
        answer
    }

    fn add(&mut self, schema: &str, answer: Value) {
        let list = self.0.entry(schema).or_insert_with(|| object!([]));
        list.as_array_mut().unwrap().push(answer);
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
    // What reads text and writes none has no reason why it ended.
    if let Some(weights) = require(&MINILM) {
        let model = weights.parent().unwrap().to_str().unwrap();
        let encoder = ["profile", "--model", model, "--repeats", "2", "--no-progress", "--out"];
        answers.take("profile", &[&encoder[..], &[&path("encoder")]].concat());
        answers.take("request", &["report", &path("encoder"), "--request", "1"]);
    }
    // Steps that a budget left out, and a run of the first release, which says less.
    answers.take("profile", &[&profile[..], &[&path("budgeted"), "--repeats", "3", "--cost", "1%"]].concat());
    copy(&Path::new(ROOT).join("analysis/tests/fixtures/schema-v1"), &dir.join("first"));
    answers.take("metrics", &["report", &path("budgeted")]);
    answers.take("metrics", &["report", &path("first")]);
    answers.take("analyze", &["analyze", &path("first")]);
    let short = ["model=embedded", "max_new_tokens=4", "repeats=2", "warmup=0"];
    answers.take("profile-config", &[&["profile", "--print-config"][..], &short].concat());
    let several = ["profile", "-m", "runtime.batch=2", "--out"];
    answers.take("profile-multirun", &[&several[..], &[&path("several")], &short].concat());
    let (runs, a, b) = (path("runs"), path("runs/a"), path("runs/b"));
    // An archive takes runs as they were recorded.
    copy(&dir.join("runs"), &dir.join("moved"));
    for run in [&a, &b] {
        answers.take("metrics", &["report", run]);
        // On a CPU nothing can be said of a graph.
        let what_if = ["--what-if", "host×0.9", "--what-if", "graph", "--what-if", "batch=4"];
        answers.take("analyze", &[&["analyze", run], &what_if[..]].concat());
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
    answers.take("compare", &["compare", &a, &b, "--allow", "all"]);
    answers.take("gate-save", &["gate", &a, "--save", &path("baseline")]);
    answers.take("gate", &["gate", &b, "--baseline", &path("baseline"), "--allow", "all"]);
    answers.take("summary", &["summary", &runs]);
    answers.take("summary", &["trend", "decode_step_ns", &runs]);
    answers.take("archive", &["archive", &path("moved"), "--to", &path("archive")]);
    answers.take("prune", &["prune", &path("archive"), "--keep", "1d"]);
    answers.take("doctor", &["doctor"]);
    for code in ["launch_bound", "ring_full", "kernels"] {
        answers.take("explain", &["explain", code]);
    }
}

/// Folders of ranks: recorded here, and with findings.
fn of_ranks(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    record_ranks(&dir.join("ranks"));
    answers.take("analyze-ranks", &["analyze", &path("ranks")]);
    let made = MadeRanks { large: 20, large_ns: 2_000_000, ..MadeRanks::default() }.make();
    write_ranks(&dir.join("made-ranks"), &made);
    answers.take("analyze-ranks", &["report", &path("made-ranks"), "--out", &path("report-of-ranks")]);
    let answer = answers.take("analyze-ranks", &["analyze", &path("made-ranks")]);
    for list in ["findings", "collectives"] {
        assert!(answer[list].as_array().is_some_and(|list| !list.is_empty()), "{list}: {answer}");
    }
}

/// Every format that runs go out in. The run that was recorded on a GPU has kernels and call stacks.
fn of_exports(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let (run, gpu) = (path("runs/a"), path("host"));
    for format in ["perfetto", "chrome"] {
        answers.take("export", &["export", format, &run]);
    }
    for format in ["kineto", "firefox", "pprof", "stacks"] {
        answers.take("export", &["export", format, &gpu]);
    }
    let (address, _) = collector::serve(collector::ok);
    answers.take("export", &["export", "otlp", &run, "--endpoint", &format!("http://{address}")]);
    answers.take("export", &["export", "perfetto", &path("ranks")]);
    answers.take("export", &["export", "kineto", &path("made-ranks")]);
}

/// Predictions, and runs beside them.
fn of_rooflines(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    answers.take("roofline-run", &["roofline", &path("decode"), "--out", &path("roofline")]);
    let model = ["roofline", "config:llama-3-8b", "--gpu", "h100", "--out"];
    answers.take("roofline-model", &[&model[..], &[&path("roofline-of-model")]].concat());
    let model = ["roofline", "embedded", "--gpu", "EPYC-9654", "--out"];
    answers.take("roofline-model", &[&model[..], &[&path("roofline-of-embedded")]].concat());
    let devices = ["roofline", "qwen2.5-7b", "--gpu"];
    answers.take("roofline-devices", &[&devices[..], &["T4,A100,MI300X", "--price", "0.35,1.2,2"]].concat());
    // Of the second one no FLOP/s are published.
    answers.take("roofline-devices", &[&devices[..], &["T4,M4"]].concat());
    let runs = [path("decode"), path("host"), path("replays")];
    let calibrate = ["roofline", "--calibrate", &runs[0], &runs[1], &runs[2], "--out", &path("calibrated")];
    answers.take("roofline-calibration", &calibrate);
}

/// Documents of every command that shows one: recorded on a GPU, on a CPU, on several ranks.
fn of_documents(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let elsewhere = ["--out", &path("of-documents")];
    let runs = ["decode", "host", "replays", "threads", "runs/a", "first", "made-ranks"];
    for run in runs {
        let document = answers.take_document(&[&["report", &path(run)], &elsewhere[..]].concat());
        assert!(document["sections"].as_array().is_some_and(|list| !list.is_empty()), "{run}: {document}");
    }
    answers.take_document(&[&["report", &path("runs/a"), "--request", "2"], &elsewhere[..]].concat());
    answers.take_document(&["analyze", &path("made-ranks")]);
    answers.take_document(&["overview", &path("runs/a")]);
    answers.take_document(&["compare", &path("decode"), &path("replays"), "--allow", "all"]);
    answers.take_document(&["gate", &path("runs/b"), "--baseline", &path("baseline"), "--allow", "all"]);
    answers.take_document(&["summary", &path("runs"), &path("decode"), &path("host")]);
    answers.take_document(&["trend", "decode_step_ns", &path("runs")]);
    answers.take_document(&[&["roofline", &path("decode")], &elsewhere[..]].concat());
    answers.take_document(&["roofline", "config:llama-3-8b", "--gpu", "h100"]);
    answers.take_document(&["roofline", "qwen2.5-7b", "--gpu", "T4,A100,MI300X"]);
    answers.take_document(
        &[&["roofline", "--calibrate", &path("decode"), &path("host"), &path("replays")], &elsewhere[..]].concat(),
    );
    // What stands after `--json` alone is no value of it.
    answers.take_of("overview", candlescope().args(["overview", "--json", &path("runs/a")]));
    answers.take_of("overview", candlescope().args(["overview", "--json=figures", &path("runs/a")]));
    // Of a run `analyze` prints no document, and says where it is.
    let refused = candlescope().args(["analyze", &path("decode"), "--json=document"]).output().unwrap();
    assert!(!refused.status.success() && text(&refused.stderr).contains("candlescope report RUN --json=document"));
}

/// All of a model at once, with a prediction and without.
fn of_everything(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let short = ["--duration", "1", "--set", "prompt-tokens=16", "--set", "max-new-tokens=8", "--no-progress", "--out"];
    let full = [&["analyze", "--full", "embedded"], &short[..]].concat();
    let answer = answers.take("analyze-full", &[&full[..], &[&path("full")]].concat());
    assert!(answer["static"].is_null(), "{answer}");
    let answer = answers.take("analyze-full", &[&full[..], &[&path("predicted"), "--gpu", "EPYC-9654"]].concat());
    assert!(answer["static"].is_object(), "{answer}");
    answers.take_document(&[&full[..], &[&path("full-document")]].concat());
    answers.take("roofline-run", &["roofline", &path("predicted/run"), "--out", &path("roofline-of-a-cpu")]);
}

/// A load, and accounts of what was tried, with the studies that are here.
fn of_servers_and_journeys(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let server = Server::start(|request| models(request).unwrap_or_else(|| stream(5, 1, 1, 9)));
    let url = server.url();
    let load = ["load", &url, "--requests", "20", "--warmup", "2", "--prompt", "x", "--no-progress"];
    let clients = ["--concurrency", "1,2", "--slo", "ttft=10s,tpot=10s", "--out", &path("load")];
    answers.take("load", &[&load[..], &clients].concat());
    let rate =
        ["--rate", "100", "--price-per-hour", "3.6", "--body", "{\"top_k\":1}", "--out", &path("load-at-a-rate")];
    answers.take("load", &[&load[..], &rate].concat());
    let results = path("load/load_test_results.json");
    let beside = ["roofline", &results, "llama-3-8b", "--gpu", "H200", "--out", &path("load-beside-roofs")];
    let answer = answers.take("roofline-load", &beside);
    answers.take_document(&beside);
    assert!(answer["load"][0]["tpot"]["predicted_ns"].is_object(), "{answer}");
    answers.take("journey", &["journey", &path("starts-a"), &path("starts-b"), "--out", &path("journey")]);
    let loads = [path("load"), path("load-at-a-rate") + "=100 requests/s"];
    let goal = ["--goal", "throughput", "--out", &path("journey-of-loads")];
    answers.take("journey", &[&["journey", &loads[0], &loads[1]], &goal[..]].concat());
}

/// What tools for agents answer. Of a tool that hands a command's answer on, that is held above.
fn of_tools(answers: &mut Answers, dir: &Path) {
    let root = dir.join("for-agents");
    copy(&dir.join("runs/a"), &root.join("a"));
    copy(&dir.join("latency"), &root.join("latency"));
    let calls = [
        ("list_runs", object!({})),
        ("views", object!({})),
        ("views", object!({ "table": "steps" })),
        ("views", object!({ "table": "operators" })),
        ("finding", object!({ "code": "launch_bound" })),
    ];
    for ((tool, _), answer) in calls.iter().zip(mcp_answers(&root, &calls)) {
        let schema = match *tool {
            "list_runs" => "mcp-list-runs",
            "views" => "mcp-views",
            _ => "explain",
        };
        if *tool == "list_runs" {
            let has = |list: &str| answer[list].as_array().is_some_and(|list| !list.is_empty());
            assert!(has("runs") && has("studies"), "{answer}");
        }
        answers.add(schema, answer);
    }
}

/// What starts programs by a shell: a study of remedies, for which the time is too short (tests/optimise.rs holds one in
/// which they are tried), a comparison in turns, and Nsight Compute.
#[cfg(unix)]
fn of_programs(answers: &mut Answers, dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let short = ["--prompt-tokens", "8", "--max-new-tokens", "12", "--repeats", "2", "--pairs", "8", "--budget", "1s"];
    let more = ["--no-ledger", "--no-progress", "--out", &path("optimised")];
    answers.take("optimise", &[&["optimise", "embedded"], &short[..], &more].concat());
    answers.take("journey", &["journey", &path("optimised"), &path("latency"), "--out", &path("journey-of-all")]);
    // Programs that are over at once: they copy what was recorded before.
    let [a, b] = ["runs/a", "runs/b"].map(|run| format!("cp -r '{}' {{out}}", path(run)));
    let turns = ["--pairs", "2", "--allow", "all", "--no-progress", "--out", &path("turns")];
    let answer = answers.take("compare", &[&["compare", "--run", &a, &b], &turns[..]].concat());
    assert_eq!(answer["step"]["estimate"]["n"], object!([2, 2]), "{answer}");
    fake_ncu(dir, r#"touch "$out.ncu-rep""#);
    let mut command = candlescope();
    command.args(["ncu", "--json", "--out", &path("counters"), "--", "true"]).env("CANDLESCOPE_NCU", dir.join("ncu"));
    answers.take_of("ncu", &mut command);
}

#[test]
fn answers_are_what_their_schemas_say() {
    if require(&PYTHON).is_none() {
        return;
    }
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
    answers.take("analyze", &["analyze", &path("replays"), "--what-if", "eager"]);
    answers.take("summary", &["summary", &path("runs"), &path("decode"), &path("host")]);
    answers.take("compare", &["compare", &path("decode"), &path("replays"), "--allow", "all"]);
    of_rooflines(&mut answers, dir.path());
    of_ranks(&mut answers, dir.path());
    of_exports(&mut answers, dir.path());
    of_documents(&mut answers, dir.path());
    of_everything(&mut answers, dir.path());
    let quick = ["--quick", "--no-progress"];
    let model = ["--model", "embedded", "--out"];
    for suite in ["latency", "throughput", "seqlen", "suite"] {
        answers.take("bench", &[&["bench", suite][..], &quick, &model, &[&path(suite)]].concat());
    }
    let answer = answers.take("overview-folder", &["overview", &path("latency")]);
    assert_eq!(answer["kind"], "study", "{answer}");
    answers.take("bench-variants", &[&["bench", "variants"][..], &quick, &model, &[&path("variants")]].concat());
    answers.take_document(&[&["bench", "latency"][..], &quick, &model, &[&path("document-of-latency")]].concat());
    answers.take_document(&[&["bench", "variants"][..], &quick, &model, &[&path("document-of-variants")]].concat());
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
    answers.take_document(&["compare", &path("starts-a"), &path("starts-b")]);
    answers.take("compare-studies", &["compare", &path("latency"), &path("suite")]);
    answers.take("bench-kernels", &[&["bench", "kernels", "--out", &path("kernels")][..], &quick].concat());
    answers.take_document(&[&["bench", "kernels", "--out", &path("document-of-kernels")][..], &quick].concat());
    answers.take("bench-peaks", &[&["bench", "peaks", "--out", &path("peaks")][..], &quick].concat());
    answers.take("tune-batch", &[&["tune", "batch"][..], &quick, &model, &[&path("batch")]].concat());
    answers.take_document(&[&["tune", "batch"][..], &quick, &model, &[&path("document-of-batches")]].concat());
    answers.take(
        "tune-threads",
        &["tune", "threads", "--model", "embedded", "--no-progress", "--out", &path("tuned-threads")],
    );
    let program = |name: &str| format!("{ROOT}/cli/tests/recorded/programs/{name}");
    // One that is asked answers in order.
    let server = || prometheus([&[130.0][..], &[100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 101.0]].concat());
    answers.take("gate-prometheus", &["gate", "--prometheus", &server(), "--windows", "7"]);
    answers.take_document(&["gate", "--prometheus", &server(), "--windows", "7"]);
    answers.take("compare-programs", &["compare", &program("candle"), &program("torch")]);
    answers.take_document(&["compare", &program("candle"), &program("torch")]);
    of_servers_and_journeys(&mut answers, dir.path());
    of_tools(&mut answers, dir.path());
    #[cfg(unix)]
    of_programs(&mut answers, dir.path());
    hold_against_schemas(&Value::Object(answers.0), cfg!(unix));
}

/// All commands that take `--json`, as they are typed, with those below others: `bench latency`.
fn commands_with_json() -> BTreeSet<String> {
    let mut with_json = BTreeSet::new();
    let mut left: Vec<Vec<String>> = commands(&[]).into_iter().map(|name| vec![name]).collect();
    while let Some(command) = left.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        left.extend(commands(&words).into_iter().map(|name| [command.clone(), vec![name]].concat()));
        let help = ok(&[&words[..], &["--help"]].concat());
        if help.lines().any(|line| line.trim_start().starts_with("--json")) {
            with_json.insert(command.join(" "));
        }
    }
    with_json
}

#[test]
fn every_command_with_json_has_a_schema() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/json.md")).unwrap();
    let with_json = commands_with_json();
    assert!(with_json.len() >= 24 && with_json.contains("bench latency"), "{with_json:?}");
    // What is asked in rows that lead to a schema.
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let cells = rows.filter(|(_, rest)| rest.contains("(schemas/")).map(|(cell, _)| cell);
    let asked: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let is_of = |asked: &str, command: &str| {
        asked.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    for command in &with_json {
        let has_row = asked.iter().any(|asked| is_of(asked, command));
        assert!(has_row, "docs/json.md has no row for `{command}`: write its name as it is typed");
    }
    // An option that is named beside a command begins with a dash.
    for asked in asked.iter().filter(|asked| !asked.starts_with('-')) {
        assert!(with_json.iter().any(|command| is_of(asked, command)), "docs/json.md: `{asked}` takes no --json");
    }
    for file in std::fs::read_dir(Path::new(ROOT).join("docs/schemas")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("(schemas/{name})")), "docs/json.md does not lead to {name}");
    }
}
