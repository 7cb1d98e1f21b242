//! Call stacks of a run that the command recorded, read back from each form that they go out in: time by function is that of
//! the run's tables.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::{Batch, KERNEL_FRAME, StackRecord, ThreadState};
use candlescope_figures::Analysis;
use candlescope_reader::Run;
use candlescope_testkit::records::join;
use common::*;
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const NO_STACK: &str = "[no stack]";

/// Number and nanoseconds by the function that the time was in.
type ByFunction = BTreeMap<String, (u64, u64)>;

struct Recorded {
    dir: tempfile::TempDir,
    rows: Batch,
}

impl Recorded {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let work = ["--repeats", "40", "--max-new-tokens", "64", "--ignore-eos", "--stacks"];
        ok(&[&["profile", "--model", "embedded", "--out", run.to_str().unwrap()][..], &work].concat());
        let rows = join(Run::open(&run).unwrap().batches());
        Self { dir, rows }
    }

    fn run(&self) -> String {
        self.dir.path().join("run").to_str().unwrap().to_string()
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_string()
    }

    fn by_function(&self, of: impl Fn(ThreadState) -> bool) -> ByFunction {
        let stacks: BTreeMap<u64, &StackRecord> = self.rows.stacks.iter().map(|stack| (stack.stack, stack)).collect();
        let mut all = ByFunction::new();
        for sample in self.rows.stack_samples.iter().filter(|sample| of(sample.state)) {
            let function = match sample.stack.and_then(|stack| stacks.get(&stack)) {
                _ if sample.kernel == Some(true) && sample.state == ThreadState::Running => KERNEL_FRAME.to_string(),
                Some(stack) => stack.name().to_string(),
                None => NO_STACK.to_string(),
            };
            let sum = all.entry(function).or_default();
            *sum = (sum.0 + 1, sum.1 + sample.weight_ns);
        }
        all
    }
}

#[test]
fn time_by_function_is_that_of_the_tables_in_every_form() {
    let recorded = Recorded::new();
    let on_cpu = recorded.by_function(|state| state == ThreadState::Running);
    let samples: u64 = on_cpu.values().map(|(count, _)| count).sum();
    assert!(samples > 50, "{samples} samples");
    firefox(&recorded, &on_cpu);
    pprof(&recorded, &on_cpu);
    collapsed(&recorded);
    perfetto(&recorded, &on_cpu);
}

fn firefox(recorded: &Recorded, on_cpu: &ByFunction) {
    let told = json(&ok(&["export", "firefox", &recorded.run(), "--json"]));
    let mut text = String::new();
    let file = std::fs::File::open(told["file"].as_str().unwrap()).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let profile = json(&text);
    let at = |value: &Value, index: &Value| value[index.as_u64().unwrap() as usize].clone();
    let (mut found, mut markers) = (BTreeMap::<String, (u64, f64)>::new(), BTreeMap::<String, (u64, f64)>::new());
    let threads = profile["threads"].as_array().unwrap();
    for thread in threads {
        let strings =
            if thread["stringArray"].is_array() { &thread["stringArray"] } else { &profile["shared"]["stringArray"] };
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "tracing-ms");
        for (stack, weight) in samples["stack"].as_array().unwrap().iter().zip(samples["weight"].as_array().unwrap()) {
            let function = match stack {
                Value::Null => NO_STACK.to_string(),
                stack => {
                    let frame = at(&thread["stackTable"]["frame"], stack);
                    let func = at(&thread["frameTable"]["func"], &frame);
                    at(strings, &at(&thread["funcTable"]["name"], &func)).as_str().unwrap().to_string()
                }
            };
            let sum = found.entry(function).or_default();
            *sum = (sum.0 + 1, sum.1 + weight.as_f64().unwrap() * 1e6);
        }
        let table = &thread["markers"];
        for (row, data) in table["data"].as_array().unwrap().iter().enumerate() {
            let time = |column: &str| table[column][row].as_f64().unwrap();
            let sum = markers.entry(data["type"].as_str().unwrap().to_string()).or_default();
            *sum = (sum.0 + 1, sum.1 + (time("endTime") - time("startTime")) * 1e6);
        }
    }
    assert_eq!(found.keys().collect::<Vec<_>>(), on_cpu.keys().collect::<Vec<_>>());
    for (function, (count, ns)) in &found {
        let expected = on_cpu[function];
        assert_eq!(*count, expected.0, "{function}");
        assert!((ns - expected.1 as f64).abs() <= 1_000.0 * *count as f64, "{function}: {ns} {}", expected.1);
    }
    let off: Vec<u64> =
        recorded.rows.stack_samples.iter().filter(|s| s.state != ThreadState::Running).map(|s| s.weight_ns).collect();
    let (count, ns) = markers.get("OffCpu").copied().unwrap_or_default();
    assert_eq!((count, told["off_cpu"].as_u64()), (off.len() as u64, Some(off.len() as u64)));
    assert!((ns - off.iter().sum::<u64>() as f64).abs() <= off.len() as f64, "off the CPU");
    assert_eq!(markers["Interval"].0, recorded.rows.spans.len() as u64);
    assert_eq!((told["spans"].as_u64(), told["spans_left_out"].as_u64()), (Some(markers["Interval"].0), Some(0)));
    // Intervals are on the thread whose samples fall into them.
    let main =
        threads.iter().find(|t| t["markers"]["data"].as_array().unwrap().iter().any(|d| d["type"] == "Interval"));
    assert!(!main.unwrap()["samples"]["weight"].as_array().unwrap().is_empty(), "the thread that computes has samples");
}

/// The part of pprof's `profile.proto` that is looked at.
#[derive(Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<Pair>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Message)]
struct Pair {
    #[prost(int64, tag = "1")]
    first: i64,
    #[prost(int64, tag = "2")]
    second: i64,
}

#[derive(Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Pair>,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

fn pprof(recorded: &Recorded, on_cpu: &ByFunction) {
    ok(&["export", "pprof", &recorded.run()]);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(Path::new(&recorded.run()).join("pprof.pb.gz")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let profile = Profile::decode(bytes.as_slice()).unwrap();
    let text = |at: i64| profile.string_table[at as usize].as_str();
    let types: Vec<_> = profile.sample_type.iter().map(|pair| (text(pair.first), text(pair.second))).collect();
    let ns = "nanoseconds";
    assert_eq!(types, [("cpu", ns), ("blocked", ns), ("preempted", ns), ("samples", "count")]);
    let name_of = |location: u64| {
        let location = profile.location.iter().find(|l| l.id == location).expect("a location");
        let function = profile.function.iter().find(|f| f.id == location.line[0].function_id).expect("a function");
        text(function.name).to_string()
    };
    let (mut found, mut off_cpu) = (ByFunction::new(), ByFunction::new());
    let mut by_path = BTreeMap::<String, u64>::new();
    for sample in &profile.sample {
        let [cpu, blocked, preempted, samples] = sample.value[..] else { panic!("{:?}", sample.value) };
        let label = |key: &str| sample.label.iter().find(|pair| text(pair.first) == key).map(|pair| text(pair.second));
        let state = label("state").unwrap();
        assert!(label("thread").is_some());
        let function = name_of(sample.location_id[0]);
        if state == "running" {
            assert_eq!((blocked, preempted), (0, 0));
            let sum = found.entry(function).or_default();
            *sum = (sum.0 + samples as u64, sum.1 + cpu as u64);
            *by_path.entry(label("path").unwrap_or("").to_string()).or_default() += cpu as u64;
        } else {
            assert_eq!((cpu, samples), (0, 0));
            off_cpu.entry(function).or_default().1 += (blocked + preempted) as u64;
        }
    }
    assert_eq!(&found, on_cpu);
    let mut expected = recorded.by_function(|state| state != ThreadState::Running);
    expected.values_mut().for_each(|sum| sum.0 = 0);
    assert_eq!(off_cpu, expected);
    let mut paths = BTreeMap::<String, u64>::new();
    for sample in recorded.rows.stack_samples.iter().filter(|sample| sample.state == ThreadState::Running) {
        let path = sample.path.as_ref().map_or("", |path| &path.path);
        *paths.entry(path.to_string()).or_default() += sample.weight_ns;
    }
    assert_eq!(by_path, paths);
}

fn collapsed(recorded: &Recorded) {
    let read = |args: &[&str], file: &str| -> Vec<(Vec<String>, u64)> {
        ok(&[&["export", "stacks", &recorded.run(), "--out", &recorded.file(file)][..], args].concat());
        let text = std::fs::read_to_string(recorded.file(file)).unwrap();
        let line = |line: &str| {
            let (frames, ns) = line.rsplit_once(' ').unwrap();
            (frames.split(';').map(str::to_string).collect(), ns.parse().unwrap())
        };
        text.lines().map(line).collect()
    };
    let host = Analysis::of(&Run::open(recorded.run()).unwrap()).host.expect("figures of stacks");
    let total = |lines: &[(Vec<String>, u64)]| lines.iter().map(|(_, ns)| ns).sum::<u64>();
    let on = read(&[], "on");
    assert_eq!(total(&on), host.all.cpu_ns());
    assert!(on.iter().all(|(frames, _)| frames[0] == "prefill" || frames[0] == "decode" || frames[0] == "sample"));
    let of_tables: u64 =
        recorded.rows.stack_samples.iter().filter(|s| s.state == ThreadState::Running).map(|s| s.weight_ns).sum();
    assert!(total(&on) <= of_tables && total(&on) * 4 > of_tables, "{} of {of_tables}", total(&on));
    for function in host.functions.iter().filter(|function| function.own.cpu_ns() > 0) {
        let name = candlescope_figures::flame::frame_name(&function.name.function);
        let is_in = |frames: &Vec<String>| match &frames[..] {
            [.., caller, last] if last == KERNEL_FRAME => *caller == name,
            [.., last] => *last == name,
            [] => false,
        };
        let ns: u64 = on.iter().filter(|(frames, _)| is_in(frames)).map(|(_, ns)| ns).sum();
        let same: u64 =
            host.functions.iter().filter(|f| f.name.function == function.name.function).map(|f| f.own.cpu_ns()).sum();
        assert_eq!(ns, same, "{name}");
    }
    if host.all.blocked_ns + host.all.preempted_ns > 0 {
        let off = read(&["--off-cpu"], "off");
        assert_eq!(total(&off), host.all.blocked_ns + host.all.preempted_ns);
    }
}

fn perfetto(recorded: &Recorded, on_cpu: &ByFunction) {
    let trace = recorded.file("t.pftrace");
    ok(&["export", "perfetto", &recorded.run(), "--out", &trace]);
    let Some(python) = require(&PYTHON) else { return };
    // A sample without a stack has no function there.
    let name = |function: &String| if function == NO_STACK { String::new() } else { function.clone() };
    let counts: BTreeMap<String, u64> = on_cpu.iter().map(|(function, sum)| (name(function), sum.0)).collect();
    std::fs::write(recorded.file("samples.json"), json!(counts).to_string()).unwrap();
    let output = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/check_perfetto.py"))
        .args([&trace, "--samples", &recorded.file("samples.json")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_run_without_stacks_is_refused_with_the_remedy() {
    let old = Path::new(ROOT).join("analysis/tests/fixtures/schema-v1");
    let (old, dir) = (old.to_str().unwrap(), tempfile::tempdir().unwrap());
    let out = dir.path().join("x");
    for format in ["firefox", "pprof", "stacks"] {
        let said = fails(&["export", format, old, "--out", out.to_str().unwrap()]);
        assert!(said.contains("has no call stacks") && said.contains("--stacks"), "{said}");
        let said = fails(&["export", format, old, "--endpoint", "http://localhost:1"]);
        assert!(said.contains("--endpoint is for otlp"), "{said}");
    }
    let said = fails(&["export", "chrome", old, "--off-cpu"]);
    assert!(said.contains("--off-cpu is for stacks"), "{said}");
    assert!(!out.exists());
}
