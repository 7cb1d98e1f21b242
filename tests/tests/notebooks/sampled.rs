//! Runs extended by what this machine does not have: sampled GPU times, windows of kernels, threads that share a
//! device. The true figures are computed from their records; the notebooks, the page of queries and the examples of
//! docs/analysis.md must give the same.

use super::{BATCH, COMPARE, WHERE, analysis, assert_near, figures, make_runs, median, workspace};
use candlescope_core::run::{RunManifest, StepCounts};
use candlescope_core::{Batch, Exporter, GpuSource, GpuTime, Ledger, Phase, SpanRecord, StepRecord};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_reader::{ReadLimits, Run};
use candlescope_sql::{Engine, Sources, script as script_of};
use candlescope_testkit::records::{join, kernel_of};
use candlescope_testkit::tools::{PYTHON, require};
use candlescope_testkit::with;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// Everything in `run`, as one batch, and its manifest.
fn read(run: &Path) -> (RunManifest, Batch) {
    let run = Run::open(run).unwrap();
    (run.manifest().expect("run.json").clone(), join(run.batches()))
}

fn write(manifest: &RunManifest, batch: &Batch, out: &Path) {
    let ledger = Ledger::new();
    let mut exporter = ParquetExporter::new(ParquetConfig::new(out));
    exporter.start(manifest).unwrap();
    exporter.export(batch, &ledger).unwrap();
    exporter.close(&ledger).unwrap();
    exporter.finish(manifest).unwrap();
}

/// Writes `run` again with times on a device: two thirds of the host's, in every third step.
fn with_gpu_times(run: &Path, out: &Path) {
    let (manifest, mut batch) = read(run);
    for span in batch.spans.iter_mut().filter(|span| span.step.is_some_and(|step| step % 3 == 0)) {
        let dur_ns = span.host_dur_ns * 2 / 3;
        span.gpu = Some(GpuTime { start: span.host_start, dur_ns, source: GpuSource::Event });
    }
    for step in batch.steps.iter_mut().filter(|step| step.step % 3 == 0) {
        let dur_ns = step.host_dur_ns * 2 / 3;
        step.gpu = Some(GpuTime { start: step.host_start, dur_ns, source: GpuSource::Event });
    }
    write(&manifest, &batch, out);
}

#[test]
fn a_run_with_gpu_times() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    make_runs(dir.path(), &["--runs", "1", "--warmup", "0", "--repeats", "3"]);
    let (plain, run) = (dir.path().join("f32/run-0000"), dir.path().join("gpu"));
    with_gpu_times(&plain, &run);
    let timed = analysis(&run);

    let found = figures(&python, WHERE, &[("CANDLESCOPE_RUNS", &run)], 3);
    assert_eq!(found["gpu_operators"], 15, "the longest of them");
    let totals: Vec<_> = timed.operators.iter().filter_map(|o| Some((&o.path, o.gpu.as_ref()?.total_ns))).collect();
    assert!(totals.len() > 15);
    for (path, total_ns) in totals {
        assert_near(path, &found["gpu_total_ns"]["event"][path], total_ns);
    }
    let found = figures(&python, BATCH, &[("CANDLESCOPE_RUNS", &run)], 3);
    let decode = timed.phases.rows.iter().find(|row| row.name == "decode").and_then(|row| row.gpu);
    assert_eq!(found["gpu_steps"], json!({ "event": decode.expect("GPU times").steps }));
    let found = figures(&python, COMPARE, &[("CANDLESCOPE_RUN_A", &plain), ("CANDLESCOPE_RUN_B", &run)], 3);
    let steps: u64 = timed.phases.rows.iter().filter_map(|row| row.gpu).map(|gpu| gpu.steps).sum();
    assert_eq!(found["gpu_steps"], json!({ "event": steps }));
}

/// A program that marks requests without `batch(n)`, as most do.
#[test]
#[ignore = "takes minutes: make test-slow"]
fn runs_that_state_no_batch_are_compared() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    make_runs(dir.path(), &["--runs", "1", "--warmup", "0", "--repeats", "6"]);
    let (manifest, mut batch) = read(&dir.path().join("f32/run-0000"));
    batch.requests.iter_mut().for_each(|request| request.batch = None);
    let sides = ["a", "b"].map(|side| dir.path().join(side));
    sides.iter().for_each(|side| write(&manifest, &batch, side));
    let found = figures(&python, COMPARE, &[("CANDLESCOPE_RUN_A", &sides[0]), ("CANDLESCOPE_RUN_B", &sides[1])], 3);
    assert_eq!((&found["cases"], &found["requests"]), (&json!(1), &json!({ "A": 6, "B": 6 })));
}

/// A path that launches kernels in some of its calls only.
const LAUNCHES: &str = "decode/block/mlp/up_proj";

/// Writes `run` again as a GPU in the adaptive tier with windows of kernels would have left it. Every fifth step is
/// recorded: a copy of 0.2 ms by the step itself, and a kernel of 1 ms in every tenth call of [`LAUNCHES`]. The step
/// after each of these has marks on every interval, of twice the host's time. No other interval is measured.
fn with_windows(run: &Path, out: &Path, edit: impl FnOnce(&mut RunManifest)) -> (RunManifest, Batch) {
    let (mut manifest, mut batch) = read(run);
    edit(&mut manifest);
    let at: BTreeMap<u64, usize> = batch.spans.iter().enumerate().map(|(i, span)| (span.seq, i)).collect();
    let mut launches: Vec<(usize, u64)> = Vec::new();
    let mut calls = 0;
    for (i, span) in batch.spans.iter().enumerate() {
        if span.step.is_none_or(|step| step % 5 != 0) {
            continue;
        }
        if batch.steps.iter().any(|step| step.seq == span.seq) {
            launches.push((i, 200_000));
        }
        if span.path.rollup == LAUNCHES {
            calls += 1;
            if calls % 10 == 1 {
                launches.push((i, 1_000_000));
            }
        }
    }
    for span in batch.spans.iter_mut().filter(|span| span.step.is_some_and(|step| step % 5 == 1)) {
        let dur_ns = 2 * span.host_dur_ns;
        span.gpu = Some(GpuTime { start: span.host_start, dur_ns, source: GpuSource::Event });
    }
    for (mut i, dur_ns) in launches {
        batch.kernels.push(kernel_of(&batch.spans[i], "GPU-1", dur_ns));
        // Added to everything around it, up to the step.
        let step = batch.spans[i].step;
        loop {
            let span = &mut batch.spans[i];
            let before = span.gpu.map_or(0, |gpu| gpu.dur_ns);
            let (start, dur_ns) = (span.host_start, before + dur_ns);
            span.gpu = Some(GpuTime { start, dur_ns, source: GpuSource::Cupti });
            match span.parent_seq.and_then(|seq| at.get(&seq)) {
                Some(&parent) if batch.spans[parent].step == step => i = parent,
                _ => break,
            }
        }
    }
    for step in &mut batch.steps {
        step.gpu = batch.spans[at[&step.seq]].gpu;
    }
    write(&manifest, &batch, out);
    (manifest, batch)
}

/// The true figures of such a run, computed from its records without the tested code.
struct Truth {
    /// Steps of requests after the two that warmed up.
    steps: BTreeMap<u64, StepRecord>,
    warmup_steps: usize,
    phase_ns: BTreeMap<&'static str, u64>,
    /// For [`LAUNCHES`], by source: mean of the measured calls × all calls.
    total_ns: BTreeMap<&'static str, f64>,
}

impl Truth {
    fn of(batch: &Batch, warmup: u64) -> Self {
        let measured = batch.steps.iter().filter(|step| step.request.is_none_or(|request| request > warmup));
        let steps: BTreeMap<u64, StepRecord> = measured.map(|step| (step.step, step.clone())).collect();
        let mut phase_ns: BTreeMap<&str, u64> = BTreeMap::new();
        for step in steps.values() {
            *phase_ns.entry(step.phase.expect("a phase").as_str()).or_default() += step.host_dur_ns;
        }
        let calls: Vec<&SpanRecord> = batch
            .spans
            .iter()
            .filter(|span| span.path.rollup == LAUNCHES && span.step.is_some_and(|step| steps.contains_key(&step)))
            .collect();
        let share = |source: GpuSource, of_five: u64| {
            let of_source = calls.iter().filter_map(|span| span.gpu.filter(|gpu| gpu.source == source));
            let sum: u64 = of_source.map(|gpu| gpu.dur_ns).sum();
            let seen = calls.iter().filter(|span| span.step.is_some_and(|step| step % 5 == of_five)).count();
            assert!(sum > 0 && seen > 0 && seen < calls.len());
            sum as f64 / seen as f64 * calls.len() as f64
        };
        let total_ns = BTreeMap::from([("cupti", share(GpuSource::Cupti, 0)), ("event", share(GpuSource::Event, 1))]);
        Self { warmup_steps: batch.steps.len() - steps.len(), steps, phase_ns, total_ns }
    }
}

#[test]
fn sampled_gpu_time_and_warm_up() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    make_runs(dir.path(), &["--runs", "1", "--warmup", "2", "--repeats", "8"]);
    let (plain, run) = (dir.path().join("f32/run-0000"), dir.path().join("gpu"));
    let counts = StepCounts { begun: 1_000, recorded: 100, scheduled_out: 900, ..StepCounts::default() };
    let (_, batch) = with_windows(&plain, &run, |manifest| manifest.steps = Some(counts));
    let truth = Truth::of(&batch, 2);
    assert!(truth.warmup_steps > 0);

    let found = figures(&python, WHERE, &[("CANDLESCOPE_RUNS", &run)], 3);
    assert_eq!(found["measured_steps"], truth.steps.len());
    assert_eq!(found["warmup_steps"], truth.warmup_steps);
    assert_eq!(found["steps_told_by"], 1);
    assert_eq!(found["phase_ns"], json!(truth.phase_ns));
    for (source, total_ns) in &truth.total_ns {
        assert_near(source, &found["gpu_total_ns"][source][LAUNCHES], *total_ns);
    }
    let recorded = |source: GpuSource, phase: &str| {
        let of_source = |step: &&StepRecord| step.gpu.is_some_and(|gpu| gpu.source == source);
        let of_phase = |step: &&StepRecord| phase.is_empty() || step.phase.is_some_and(|p| p.as_str() == phase);
        truth.steps.values().filter(of_source).filter(of_phase).count()
    };
    let by_source =
        |phase: &str| json!({ "event": recorded(GpuSource::Event, phase), "cupti": recorded(GpuSource::Cupti, phase) });
    let found = figures(&python, BATCH, &[("CANDLESCOPE_RUNS", &run)], 3);
    assert_eq!((&found["gpu_steps"], &found["warmup_requests"]), (&by_source("decode"), &json!(2)));
    let found = figures(&python, COMPARE, &[("CANDLESCOPE_RUN_A", &run), ("CANDLESCOPE_RUN_B", &plain)], 3);
    assert_eq!(found["gpu_steps"], by_source(""), "of the one side that has any");
    assert_eq!(found["requests"], json!({ "A": 8, "B": 8 }));

    // The queries of docs/sql.md give the same.
    let answers = sql_of_the_docs(&python, &run);
    let row = |heading: &str, is: &dyn Fn(&Value) -> bool| {
        let rows = answers[heading].as_array().unwrap_or_else(|| panic!("no answer to {heading}"));
        rows.iter().find(|row| is(row)).unwrap_or_else(|| panic!("{heading}: {rows:?}")).clone()
    };
    for (phase, total_ns) in &truth.phase_ns {
        assert_eq!(row("Time in each phase", &|row| row["phase"] == *phase)["total_ns"], *total_ns);
    }
    let warmed: u64 =
        answers["What warming up cost"].as_array().expect("rows").iter().filter_map(|row| row["steps"].as_u64()).sum();
    assert_eq!(warmed, truth.warmup_steps as u64);
    for (source, total_ns) in &truth.total_ns {
        let found = row("GPU time of each operator", &|row| row["operator"] == LAUNCHES && row["source"] == *source);
        assert_near(source, &found["gpu_ns"], *total_ns);
    }
    assert_eq!(row("Latency of requests", &|_| true)["requests"], 8);
    let steps = row("Steps that have no row", &|_| true);
    assert_eq!(
        (&steps["steps_begun"], &steps["steps_scheduled_out"], &steps["steps_lost"]),
        (&json!(1_000), &json!(900), &json!(0))
    );

    // The run ended during warm-up, so its requests count.
    let early = dir.path().join("early");
    let (_, batch) = with_windows(&plain, &early, |manifest| {
        manifest.options.insert("warmup".into(), 99.into());
        manifest.steps = None;
    });
    let found = figures(&python, WHERE, &[("CANDLESCOPE_RUNS", &early)], 3);
    assert_eq!((&found["measured_steps"], &found["warmup_steps"]), (&json!(batch.steps.len()), &json!(0)));
    assert_eq!(found["steps_told_by"], 0, "a run of an older version");
    let phases = sql_of_the_docs(&python, &early)["Time in each phase"].clone();
    let steps: u64 = phases.as_array().expect("rows").iter().filter_map(|row| row["steps"].as_u64()).sum();
    assert_eq!(steps, batch.steps.len() as u64);
}

/// Two threads decode one token each in the same 10 ms, ten times: 200 tokens a second, not 100.
#[test]
fn rates_in_sql_are_over_the_union_of_steps() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    make_runs(dir.path(), &["--runs", "1", "--warmup", "0", "--repeats", "1"]);
    let (manifest, mut batch) = read(&dir.path().join("f32/run-0000"));
    let decode = batch.steps.iter().find(|step| step.phase == Some(Phase::Decode)).expect("a decode step").clone();
    batch.steps = (0..20)
        .map(|n: u64| {
            with(decode.clone(), |r| {
                r.step = n;
                r.host_start = decode.host_start.plus_ns(n / 2 * 10_000_000);
                r.host_dur_ns = 10_000_000;
                r.tokens = Some(1);
            })
        })
        .collect();
    let run = dir.path().join("threads");
    write(&manifest, &batch, &run);
    let rate = &sql_of_the_docs(&python, &run)["Tokens a second while a phase runs"][0];
    assert_near("tokens a second", &rate["tokens_per_s"], 200.0);
    assert_near("steps at once", &rate["steps_at_once"], 2.0);
}

/// The results of every query of `docs/sql.md` for a run, by heading.
fn sql_of_the_docs(python: &Path, runs: &Path) -> Value {
    let limits = ReadLimits::default();
    let mut script = tempfile::NamedTempFile::new().unwrap();
    let views = script_of(Engine::DuckDb, &Sources::open([runs], &limits).unwrap(), &limits);
    script.write_all(views.as_bytes()).unwrap();
    let output = Command::new(python)
        .args(["tests/python/run_sql.py", "docs/sql.md"])
        .arg(script.path())
        .current_dir(workspace())
        .output()
        .expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The examples of docs/analysis.md, executed in the directory that they assume, cover measured requests and leave
/// warm-up out.
#[test]
fn examples_of_the_page() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    make_runs(dir.path(), &["--runs", "1", "--warmup", "2", "--repeats", "3"]);
    std::fs::create_dir(dir.path().join("runs")).unwrap();
    let first = dir.path().join("runs/first");
    std::fs::rename(dir.path().join("f32/run-0000"), &first).unwrap();
    let (_, batch) = read(&first);
    let measured = batch.steps.iter().filter(|step| step.request.is_none_or(|request| request > 2));
    let steps: BTreeMap<u64, &StepRecord> = measured.map(|step| (step.step, step)).collect();

    let page = std::fs::read_to_string(workspace().join("docs/analysis.md")).unwrap();
    let answers: Vec<Value> = page
        .split("```python\n")
        .skip(1)
        .map(|block| {
            let (code, _) = block.split_once("\n```").expect("an end");
            // The last expression is the result that a reader would see.
            let program = format!(
                "import ast, json\ntree = ast.parse({code:?})\nlast = ast.Expression(tree.body.pop().value)\n\
                 exec(compile(tree, 'page', 'exec'))\nvalue = eval(compile(last, 'page', 'eval'))\n\
                 print(json.dumps(value.fetchall() if hasattr(value, 'fetchall') else value.rows()))"
            );
            let output = Command::new(&python).args(["-c", &program]).current_dir(dir.path()).output().expect("runs");
            assert!(output.status.success(), "{code}: {}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice(&output.stdout).expect("JSON")
        })
        .collect();
    let [operators, decode] = answers.as_slice() else { panic!("two examples: {answers:?}") };
    let rows = operators.as_array().expect("rows");
    assert_eq!(rows.len(), 10);
    for row in rows {
        let inside = |span: &&SpanRecord| span.step.is_some_and(|step| steps.contains_key(&step));
        let calls = batch.spans.iter().filter(inside).filter(|span| row[0] == *span.path.rollup).count();
        assert_eq!(row[1], calls, "{row}");
    }
    let of_decode = steps.values().filter(|step| step.phase == Some(Phase::Decode));
    assert_near("decode", &decode[0][0], median(of_decode.map(|step| step.host_dur_ns as f64 / 1e6).collect()));
}
