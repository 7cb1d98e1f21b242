//! The notebooks of `examples/notebooks`, run from top to bottom as a person would: on one run, on a folder of a
//! thousand, and on a run with GPU times. Their figures are compared with those of the analysis crate, their columns
//! with `docs/run-format.md`.
#![allow(missing_docs, reason = "a test")]
mod sampled;

use candlescope_figures::Analysis;
use candlescope_figures::Distribution;
use candlescope_reader::Run;
use candlescope_testkit::tools::{PYTHON, require};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const WHERE: &str = "where_did_the_time_go";
const BATCH: &str = "batch_context_latency";
const COMPARE: &str = "compare_two_runs";

/// Number of runs in the large folder.
const MANY: usize = 1000;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn notebook(name: &str) -> PathBuf {
    workspace().join("examples/notebooks").join(name).with_extension("ipynb")
}

/// Makes real runs of the embedded model below `dir`.
fn make_runs(dir: &Path, args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_many_runs"))
        .arg(dir)
        .args(args)
        .env_remove("CANDLESCOPE")
        .output()
        .expect("many_runs runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
}

struct Executed {
    /// Bytes of each plot.
    plots: Vec<u64>,
    figures: Value,
}

/// Runs a notebook; returns its plots and the figures it printed, or its error message.
fn execute(python: &Path, name: &str, environment: &[(&str, &Path)]) -> Result<Executed, String> {
    let started = std::time::Instant::now();
    let output = Command::new(python)
        .arg(workspace().join("tests/python/run_notebook.py"))
        .arg(notebook(name))
        .envs(environment.iter().copied())
        .output()
        .expect("Python runs");
    eprintln!("{name}: {:.1} s", started.elapsed().as_secs_f64());
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let plots: Vec<u64> = said["plots"].as_array().expect("plots").iter().filter_map(Value::as_u64).collect();
    assert!(plots.iter().all(|&bytes| bytes > 5_000), "{name} has an empty plot: {plots:?}");
    Ok(Executed { plots, figures: said["figures"].clone() })
}

fn figures(python: &Path, name: &str, environment: &[(&str, &Path)], plots: usize) -> Value {
    let executed = execute(python, name, environment).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(executed.plots.len(), plots, "{name}");
    executed.figures
}

fn analysis(run: &Path) -> Analysis {
    Analysis::of(&Run::open(run).expect("a run"))
}

/// Equal except for the order of floating-point sums.
fn assert_near(name: &str, found: &Value, expected: f64) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs(),
        "{name}: the notebook says {found}, the analysis {expected}"
    );
}

fn median(samples: Vec<f64>) -> f64 {
    Distribution::of(samples).expect("samples").median
}

/// Checks the three notebooks' figures of one run, whose latency is that of `a`.
fn hold_latency(run: &Analysis, batch: &Value) {
    let decode = run.phases.rows.iter().find(|row| row.name == "decode").expect("decode");
    let decode = decode.duration.as_ref().expect("durations");
    assert_eq!(batch["decode_steps"], decode.n);
    assert_eq!(batch["requests"], run.latency.ttft.as_ref().expect("TTFT").n);
    assert_near("TTFT", &batch["ttft_median_ns"], run.latency.ttft.as_ref().expect("TTFT").median);
    let by_batch = batch["decode_median_ns"].as_object().expect("medians");
    assert_eq!(by_batch.len(), 1, "one run has one batch");
    for (size, found) in by_batch {
        assert_near("decode", found, decode.median);
        let trend = run.tokens.trend.expect("a trend");
        // Sums of squares about the mean, taken another way.
        let (slope, ci95) = (&batch["slope_ns"][size], &batch["slope_ci95_ns"][size]);
        assert!(
            (slope.as_f64().expect("slope") - trend.slope_ns).abs() < 1e-6 * trend.slope_ci95_ns,
            "{slope} {trend:?}"
        );
        assert!((ci95.as_f64().expect("interval") / trend.slope_ci95_ns - 1.0).abs() < 1e-6, "{ci95} {trend:?}");
    }
}

#[test]
fn one_run() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [cold, a, b] = ["cold", "a", "b"].map(|name| dir.path().join(name));
    // This run has no warm-up, so the report's operators and the notebook cover the same requests.
    make_runs(&cold, &["--runs", "1", "--warmup", "0", "--repeats", "3"]);
    make_runs(&a, &["--runs", "1", "--warmup", "2", "--repeats", "12"]);
    make_runs(&b, &["--runs", "1", "--warmup", "2", "--repeats", "12"]);
    let [cold, a, b] = [cold, a, b].map(|dir| dir.join("f32/run-0000"));

    let run = analysis(&cold);
    let found = figures(&python, WHERE, &[("CANDLESCOPE_RUNS", &cold)], 2);
    assert_eq!(found["runs"], 1);
    assert_eq!(found["intervals"], run.manifest.counts["spans"]);
    assert_eq!(found["measured_steps"], run.manifest.counts["steps"]);
    let expected: BTreeMap<&str, u64> =
        run.operators.iter().filter(|o| o.path != "request").map(|o| (o.path.as_str(), o.self_ns)).collect();
    let self_ns = found["self_ns"].as_object().expect("self times");
    let self_ns: BTreeMap<&str, u64> = self_ns.iter().map(|(k, v)| (k.as_str(), v.as_u64().expect("ns"))).collect();
    assert_eq!(self_ns, expected);
    for phase in &run.phases.rows {
        assert_eq!(found["phase_ns"][&phase.name], phase.total_ns, "{}", phase.name);
    }
    assert_eq!(found["gpu_operators"], 0);

    // An unmodified model's operators stand for its modules, in the report and in the notebook.
    let unmodified = dir.path().join("candle");
    make_runs(&unmodified, &["--runs", "1", "--warmup", "0", "--engine", "candle"]);
    let unmodified = unmodified.join("f32/run-0000");
    let found = figures(&python, WHERE, &[("CANDLESCOPE_RUNS", &unmodified)], 2);
    let run = analysis(&unmodified);
    assert!(run.operators.iter().any(|o| o.path == "decode/model.layers.*.mlp.down_proj"), "{:?}", run.operators);
    for operator in run.operators.iter().filter(|o| o.path != "request") {
        assert_eq!(found["self_ns"][&operator.path], operator.self_ns, "{}", operator.path);
    }

    let (run_a, run_b) = (analysis(&a), analysis(&b));
    assert_eq!(run_a.latency.warmup, 2);
    hold_latency(&run_a, &figures(&python, BATCH, &[("CANDLESCOPE_RUNS", &a)], 3));

    // B was recorded beside others, as its verdict says.
    let path = b.join("run.json");
    let mut manifest: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let told = manifest["verdict"]["findings"].as_array_mut().expect("findings");
    told.retain(|finding| finding["code"] != "machine_busy");
    told.push(
        serde_json::json!({ "severity": "warning", "code": "machine_busy", "message": "busy", "remedy": "wait" }),
    );
    std::fs::write(&path, manifest.to_string()).unwrap();
    let found = figures(&python, COMPARE, &[("CANDLESCOPE_RUN_A", &a), ("CANDLESCOPE_RUN_B", &b)], 3);
    assert_eq!((&found["cases"], &found["disturbed"]["B"]), (&1.into(), &1.into()), "{}", found["disturbed"]);
    let mut medians = BTreeMap::new();
    for (side, run) in [("A", &run_a), ("B", &run_b)] {
        assert_eq!(found["requests"][side], 12);
        let latency = &run.latency;
        for (metric, of) in [("ttft_ns", &latency.ttft), ("tpot_ns", &latency.tpot)] {
            let expected = of.as_ref().expect("known").median;
            assert_near(metric, &found[metric][side], expected);
            medians.insert((metric, side), expected);
        }
    }
    for metric in ["ttft_ns", "tpot_ns"] {
        let overall = &found["overall"][metric];
        assert_near(metric, &overall["ratio"], medians[&(metric, "B")] / medians[&(metric, "A")]);
        let [low, ratio, high] = ["low", "ratio", "high"].map(|key| overall[key].as_f64().expect("a number"));
        assert!(low <= ratio && ratio <= high && low < high, "{overall}");
    }
}

#[test]
#[ignore = "takes minutes: make test-slow"]
fn a_folder_of_a_thousand_runs() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let many = dir.path();
    make_runs(many, &["--runs", &MANY.to_string(), "--dtype", "f32,bf16"]);
    let [a, b] = ["f32", "bf16"].map(|dtype| many.join(dtype));
    let below = |dir: &Path| -> Vec<Analysis> {
        std::fs::read_dir(dir).unwrap().map(|entry| analysis(&entry.expect("an entry").path())).collect()
    };
    let mut runs = below(&a);
    let of_a = runs.len();
    runs.extend(below(&b));
    assert_eq!(runs.len(), MANY);
    let counted = |table: &str| runs.iter().map(|run| run.manifest.counts[table]).sum::<u64>();
    let phase = |name: &'static str| {
        let rows = runs.iter().flat_map(move |run| run.phases.rows.iter().filter(move |row| row.name == name));
        rows.filter_map(|row| row.duration.as_ref())
    };

    let found = figures(&python, WHERE, &[("CANDLESCOPE_RUNS", many)], 2);
    assert_eq!(found["runs"], MANY);
    assert_eq!(found["intervals"], counted("spans"));
    for name in ["prefill", "decode"] {
        let expected: f64 = phase(name).flat_map(|d| &d.samples).sum();
        assert_near(name, &found["phase_ns"][name], expected);
    }

    let found = figures(&python, BATCH, &[("CANDLESCOPE_RUNS", many)], 3);
    assert_eq!(found["runs"], MANY);
    // One request of each run warms up, one is measured.
    assert_eq!(found["requests"], counted("requests") - MANY as u64);
    assert_eq!(found["decode_steps"], phase("decode").map(|d| d.n).sum::<usize>());
    let mut by_batch: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in &runs {
        let decode = run.phases.rows.iter().find(|row| row.name == "decode").and_then(|row| row.duration.as_ref());
        let samples = decode.expect("durations").samples.iter().copied();
        by_batch.entry(run.manifest.options["batch"].to_string()).or_default().extend(samples);
    }
    assert!(by_batch.len() > 2, "batches differ");
    for (batch, samples) in by_batch {
        assert_near("decode", &found["decode_median_ns"][&batch], median(samples));
    }
    let ttft = |runs: &[Analysis]| -> Vec<f64> {
        runs.iter().flat_map(|run| run.latency.ttft.clone().expect("TTFT").samples).collect()
    };
    assert_near("TTFT", &found["ttft_median_ns"], median(ttft(&runs)));

    let found = figures(&python, COMPARE, &[("CANDLESCOPE_RUN_A", &a), ("CANDLESCOPE_RUN_B", &b)], 3);
    let (a, b) = runs.split_at(of_a);
    for (side, runs) in [("A", a), ("B", b)] {
        assert_eq!(found["runs"][side], runs.len());
        assert_near("TTFT", &found["ttft_ns"][side], median(ttft(runs)));
    }
    assert_eq!(found["cases"], 16, "every case is on both sides");
}

#[test]
#[ignore = "takes minutes: make test-slow"]
fn what_is_missing_is_said() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let environment = ["CANDLESCOPE_RUNS", "CANDLESCOPE_RUN_A", "CANDLESCOPE_RUN_B"].map(|name| (name, dir.path()));
    for name in [WHERE, BATCH, COMPARE] {
        let said = execute(&python, name, &environment).err().expect("nothing to read");
        assert!(said.contains("no run.json in or below") && said.contains("set CANDLESCOPE_RUN"), "{said}");
    }
}

/// The code of a notebook; fails if it was saved with outputs.
fn code(name: &str) -> String {
    let text = std::fs::read_to_string(notebook(name)).expect("a notebook");
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    let cells = whole["cells"].as_array().expect("cells").iter().filter(|cell| cell["cell_type"] == "code");
    let sources = cells.map(|cell| {
        let empty = cell["outputs"].as_array().is_some_and(Vec::is_empty) && cell["execution_count"].is_null();
        assert!(empty, "{name} was saved with outputs: clear them before committing");
        cell["source"].as_array().expect("lines").iter().filter_map(Value::as_str).collect::<String>()
    });
    sources.collect::<Vec<_>>().join("\n")
}

/// The texts between quotation marks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

#[test]
fn columns_are_documented() {
    let page = std::fs::read_to_string(workspace().join("docs/run-format.md")).unwrap();
    let documented: BTreeMap<&str, BTreeSet<&str>> = page
        .split("\n## `")
        .skip(1)
        .map(|section| {
            let (table, rows) = section.split_once('`').expect("a name");
            (table, rows.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect())
        })
        .collect();
    for name in [WHERE, BATCH, COMPARE] {
        let code = code(name);
        let (_, columns) = code.split_once("COLUMNS = {\n").expect("the notebook names its columns");
        let (columns, _) = columns.split_once("\n}").expect("an end");
        for line in columns.lines() {
            let (table, columns) = line.split_once(':').expect("table: columns");
            let table = quoted(table).next().expect("a table");
            for column in quoted(columns) {
                assert!(documented[table].contains(column), "{name} reads {table}.{column}, which is not documented");
            }
        }
        // No other columns can be read: the one place that opens tables takes its columns from that list.
        let reads = ["read_parquet(", "scan_parquet(", ".dataset("].iter().map(|call| code.matches(call).count());
        assert_eq!(reads.sum::<usize>(), 1, "{name} opens tables in one place");
        assert_eq!(code.matches("COLUMNS").count() - code.matches("COLUMNS = {").count(), 1, "{name}");
        for key in code.split("m[\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(documented["run.json"].contains(key), "{name} reads {key} of run.json, which is not documented");
        }
    }
}
