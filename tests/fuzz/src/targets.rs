//! What is fuzzed: every reader of files, and every parser of text from outside.

use candlescope_compare::{CompareOptions, compare};
use candlescope_core::run::RunManifest;
use candlescope_document::{Document, html, json};
use candlescope_exporters::{chrome, firefox, fuzz, perfetto, pprof};
use candlescope_figures::Analysis;
use candlescope_figures::nsys::Profile;
use candlescope_lab::compare::{BASELINE_FILE, Baseline};
use candlescope_lab::peaks::DeviceIdentity;
use candlescope_lab::study::{State, Study};
use candlescope_markers::recorder::parts;
use candlescope_models::chat::{ChatTemplate, Message};
use candlescope_predict::roofline::{LoadTest, Outlook, Scenario, Thresholds, load_stages};
use candlescope_reader::{ReadLimits, Run};
use candlescope_report::{self as render, ReportOptions, write_report};
use candlescope_work::devices::{Format, known_device, peaks_device};
use candlescope_work::known_models::known_model;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A reader or parser.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line, and its folder in the corpus.
    pub name: &'static str,
    /// Inputs that it gets per hundred requested.
    pub weight: u64,
    /// Seeds for mutations.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Reads bytes, with a directory for files; whether they were accepted.
    pub run: fn(&Path, &[u8]) -> bool,
}

macro_rules! segment {
    ($table:literal) => {
        Target {
            name: $table,
            weight: 100,
            seeds: || corpus($table),
            run: |scratch, bytes| in_run(scratch, concat!($table, "/part-00000.parquet"), bytes),
        }
    };
}

/// Those that start a process for each input, whose code no fuzzer sees.
pub const APART: [&str; 2] = ["command-line", "inputs-yaml"];

/// All of them.
pub static ALL: &[Target] = &[
    segment!("spans"),
    segment!("steps"),
    segment!("requests"),
    segment!("samples"),
    segment!("kernels"),
    Target { name: "run-json", weight: 100, seeds: || corpus("run-json"), run: |s, b| in_run(s, "run.json", b) },
    Target { name: "nsys-sqlite", weight: 200, seeds: || corpus("nsys-sqlite"), run: nsys },
    Target { name: "chat-template", weight: 200, seeds: || corpus("chat-template"), run: |_, b| chat(b) },
    Target { name: "command-line", weight: 10, seeds: || corpus("command-line"), run: command_line },
    Target { name: "inputs-yaml", weight: 10, seeds: || corpus("inputs-yaml"), run: inputs_yaml },
    Target { name: "dataset", weight: 200, seeds: || corpus("dataset"), run: dataset },
    Target { name: "variable", weight: 200, seeds: || corpus("variable"), run: |_, b| variable(b) },
    Target { name: "limits", weight: 100, seeds: || corpus("limits"), run: |_, b| limits(b) },
    Target { name: "otlp-settings", weight: 200, seeds: || corpus("otlp-settings"), run: |_, b| otlp(b) },
    Target { name: "http-request", weight: 200, seeds: || corpus("http-request"), run: |_, b| fuzz::http_request(b) },
    Target { name: "study", weight: 20, seeds: || corpus("study"), run: |s, b| study(s, "study.json", b) },
    Target { name: "journal", weight: 20, seeds: || corpus("journal"), run: |s, b| study(s, "journal.jsonl", b) },
    Target { name: "baseline", weight: 50, seeds: || corpus("baseline"), run: baseline },
    Target { name: "load-results", weight: 50, seeds: || corpus("load-results"), run: |_, b| load_results(b) },
    Target { name: "peaks", weight: 100, seeds: || corpus("peaks"), run: peaks },
    Target { name: "tokenizer", weight: 100, seeds: || corpus("tokenizer"), run: tokenizer },
    Target { name: "traceparent", weight: 200, seeds: || corpus("traceparent"), run: |_, b| traceparent(b) },
];

/// Targets that go wrong, for the supervisor's own test.
pub static WRONG: &[Target] = &[
    Target { name: "self-panic", weight: 0, seeds: || vec![vec![]], run: |_, _| panic!("as it should") },
    Target { name: "self-abort", weight: 0, seeds: || vec![vec![]], run: |_, _| std::process::abort() },
    Target { name: "self-memory", weight: 0, seeds: || vec![vec![]], run: |_, _| fill_memory() },
];

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|path| fs::read(path).ok()).collect()
}

/// A whole run in `scratch` with `bytes` in place of one of its files, through every reader of runs. Returns whether
/// the file was accepted without a complaint.
fn in_run(scratch: &Path, file: &str, bytes: &[u8]) -> bool {
    let dir = scratch.join("run");
    if !dir.is_dir() {
        for (table, name) in [
            ("spans", "spans/part-00000.parquet"),
            ("steps", "steps/part-00000.parquet"),
            ("requests", "requests/part-00000.parquet"),
            ("samples", "samples/part-00000.parquet"),
            ("kernels", "kernels/part-00000.parquet"),
            ("run-json", "run.json"),
        ] {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&dir)).expect("a folder in the scratch directory");
            fs::write(path, corpus(table).remove(0)).expect("a file in the scratch directory");
        }
    }
    let path = dir.join(file);
    let whole = fs::read(&path).expect("the file that was written before");
    fs::write(&path, bytes).expect("a file in the scratch directory");
    let accepted = read_run(&dir, bytes);
    fs::write(path, whole).expect("a file in the scratch directory");
    accepted
}

fn read_run(dir: &Path, bytes: &[u8]) -> bool {
    let Ok(run) = Run::open(dir) else { return false };
    // Not every reader for every input; the input selects them, so that a failure can be repeated.
    match bytes.len() % 8 {
        0 => drop(write_report(dir, &ReportOptions { out: Some(dir.join("out")), ..ReportOptions::default() })),
        1 => {
            let manifest = run.manifest().cloned().unwrap_or_default();
            export(&manifest, &run);
        }
        _ => {
            let analysis = Analysis::of(&run);
            drop(render::json::metrics(&analysis).to_string());
            drop(render::markdown::report(&analysis));
        }
    }
    let mut batches = run.batches();
    batches.by_ref().for_each(drop);
    batches.findings().is_empty()
}

fn export(manifest: &RunManifest, run: &Run) {
    let mut out = std::io::sink();
    // Writing to memory does not fail.
    let _ = chrome::write(&mut out, manifest, run.batches());
    let _ = perfetto::write(&mut out, manifest, run.batches());
    let _ = firefox::write(&mut out, manifest, run.batches());
    let _ = pprof::write(&mut out, manifest, run.batches());
}

fn nsys(scratch: &Path, bytes: &[u8]) -> bool {
    let path = scratch.join("profile.sqlite");
    fs::write(&path, bytes).expect("a file in the scratch directory");
    Profile::open(&path).is_ok()
}

fn chat(bytes: &[u8]) -> bool {
    let template = ChatTemplate::new(&String::from_utf8_lossy(bytes), "<s>", "</s>");
    let turns = [Message::new("system", "Be brief."), Message::new("user", "Hello")];
    // First like a program without isolated processes, then rendered anyway: what is counted is bounded in both cases.
    let _ = template.render(&turns, true);
    template.trusted().render(&turns, true).is_ok()
}

/// The first line is a value for `--set`, the second an argument, the rest a configuration. There is no model, so
/// nothing runs: accepted input fails at the model's name.
fn command_line(scratch: &Path, bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).replace('\0', "");
    let mut lines = text.splitn(3, '\n');
    let (set, argument, config) = (lines.next(), lines.next(), lines.next());
    let file = scratch.join("options.toml");
    fs::write(&file, config.unwrap_or_default()).expect("a file in the scratch directory");
    let set = format!("--set={}", set.unwrap_or_default());
    profile(scratch, &file, [set.as_str()].into_iter().chain(argument.filter(|argument| !argument.is_empty())))
}

/// A run's configuration, read again.
fn inputs_yaml(scratch: &Path, bytes: &[u8]) -> bool {
    let file = scratch.join("inputs.yaml");
    fs::write(&file, bytes).expect("a file in the scratch directory");
    profile(scratch, &file, std::iter::empty())
}

/// `candlescope profile` of a model that does not exist; whether that is what it says.
fn profile<'a>(scratch: &Path, config: &Path, arguments: impl Iterator<Item = &'a str>) -> bool {
    let exe = std::env::current_exe().expect("this program's own file");
    let candlescope = exe.ancestors().skip(1).map(|dir| dir.join("candlescope")).find(|path| path.is_file());
    let candlescope = candlescope.expect("candlescope beside this program: cargo build -p candlescope-cli");
    let mut command = Command::new(candlescope);
    command.arg("profile").arg(format!("--config={}", config.display()));
    command.args(arguments);
    command.args(["--model", "/nowhere/model.gguf", "--no-progress"]).current_dir(scratch).env_remove("CANDLESCOPE");
    let output = command.stdin(Stdio::null()).output().expect("candlescope runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 3), "{}: {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
    said.contains("/nowhere/model.gguf")
}

/// The same bytes in every form that a data set may have.
fn dataset(scratch: &Path, bytes: &[u8]) -> bool {
    let folder = scratch.join("dataset");
    fs::create_dir_all(&folder).expect("a folder in the scratch directory");
    let put = |name: &str| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a file in the scratch directory");
        path
    };
    let files = ["data.jsonl", "data.json", "data.txt"].map(put);
    let read = |path: &Path| candlescope_prompts::read(path, None).is_ok();
    let accepted = files.iter().filter(|file| read(file)).count();
    let described = ["metadata.toml", "metadata.json"].map(|name| {
        let path = put(name);
        let accepted = ["a", "b"].iter().any(|v| candlescope_prompts::read(&folder, Some(v)).is_ok());
        fs::remove_file(path).expect("the file just written");
        accepted
    });
    accepted > 0 || described.contains(&true)
}

fn variable(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    match candlescope::env::EnvConfig::parse(&text) {
        Ok(_) => true,
        Err(error) => error.to_string().is_empty(),
    }
}

fn limits(bytes: &[u8]) -> bool {
    ReadLimits::default().parse(&String::from_utf8_lossy(bytes)).is_ok()
}

/// Lines `NAME=VALUE`: the standard variables, and `url` for the address in the program.
fn otlp(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
    fuzz::otlp_settings(|name| lines.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
}

fn traceparent(bytes: &[u8]) -> bool {
    let Some((trace_id, parent_id, sampled)) = parts(&String::from_utf8_lossy(bytes)) else { return false };
    let said = format!("00-{trace_id:032x}-{parent_id:016x}-{:02x}", u8::from(sampled));
    assert_eq!(parts(&said), Some((trace_id, parent_id, sampled)), "what it says reads as itself");
    true
}

/// A whole study with `bytes` in place of one of its files: read, and its tables written.
fn study(scratch: &Path, file: &str, bytes: &[u8]) -> bool {
    let dir = scratch.join("study");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a folder in the scratch directory");
    for (name, corpus_of) in [("study.json", "study"), ("journal.jsonl", "journal")] {
        let own = corpus(corpus_of).into_iter().next().unwrap_or_default();
        fs::write(dir.join(name), if name == file { bytes } else { own.as_slice() })
            .expect("a file in the scratch directory");
    }
    let Ok(mut study) = Study::open(&dir) else { return false };
    let resumed = Study::resume(&dir, &study.manifest().clone()).is_ok();
    let finished = study.finish(State::Done).is_ok();
    resumed && finished
}

/// A baseline, compared with itself.
fn baseline(scratch: &Path, bytes: &[u8]) -> bool {
    fs::write(scratch.join(BASELINE_FILE), bytes).expect("a file in the scratch directory");
    let Ok(baseline) = Baseline::read(scratch) else { return false };
    let side = baseline.side(scratch);
    let Ok(comparison) = compare(&side, &side, &CompareOptions::default()) else { return false };
    drop(render::compare::text(&comparison, true));
    drawn(&render::compare::document(&comparison))
}

/// Results of a load test under a roofline.
fn load_results(bytes: &[u8]) -> bool {
    let Ok(test) = LoadTest::read(bytes) else { return false };
    let shape = known_model("tinyllama-1.1b").expect("a model of the table");
    let device = known_device("L4").expect("a device of the table");
    let scenario = Scenario::new(Format::named("bf16").expect("a format of the table"));
    let stages = load_stages(&test, &shape, &device, &scenario, &Thresholds::default());
    drop(render::roofline::load_json(&shape.name, &stages).to_string());
    drawn(&render::roofline::load_document(&Outlook::of(&shape, &device, &scenario), &stages))
}

/// As a page, and as JSON.
fn drawn(document: &Document) -> bool {
    !html::page(document).is_empty() && json::draw(document).is_object()
}

/// Peaks, as `bench peaks` keeps them and as `roofline` takes them from anybody.
fn peaks(scratch: &Path, bytes: &[u8]) -> bool {
    let path = scratch.join("peaks.json");
    fs::write(&path, bytes).expect("a file in the scratch directory");
    let kept = candlescope_lab::peaks::read(&path, &DeviceIdentity::cpu()).is_ok();
    let Ok(device) = peaks_device(&String::from_utf8_lossy(bytes), None) else { return kept };
    let shape = known_model("tinyllama-1.1b").expect("a model of the table");
    let scenario = Scenario::new(Format::named("f32").expect("a format of the table"));
    drop(render::roofline::static_text(&Outlook::of(&shape, &device, &scenario), 100));
    true
}

/// A tokenizer, with a text and a few tokens.
fn tokenizer(scratch: &Path, bytes: &[u8]) -> bool {
    let path = scratch.join("tokenizer.json");
    fs::write(&path, bytes).expect("a file in the scratch directory");
    let Ok(tokenizer) = candlescope_models::Tokenizer::from_file(&path) else { return false };
    let encoded = tokenizer.encode("A text: naïve \u{1f56f}\u{fdfa}, 12 words\n", true);
    let _ = tokenizer.decode(&[0, 1, 2, 40, 90, u32::MAX]);
    encoded.is_ok_and(|tokens| tokenizer.decode(&tokens).is_ok())
}

fn fill_memory() -> bool {
    let mut all: Vec<Vec<u8>> = Vec::new();
    while all.len() < 4096 {
        all.push(vec![1; 1 << 20]);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    all.len() > 1
}
