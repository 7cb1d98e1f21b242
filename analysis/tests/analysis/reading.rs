//! A run is read as it was written.

use crate::common::scenario::{Scenario, make};
use crate::common::tables::{Strings, record_batch, write_compressed, write_file};
use crate::common::{manifest, span, write_run};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use candlescope_figures::Analysis;
use candlescope_figures::TreeRow;
use candlescope_reader::Run;
use candlescope_schema::{Batch, PathInfo, RecordKind};
use parquet::basic::Compression;
use std::sync::Arc;
use tempfile::tempdir;

fn read(run: &Run) -> Batch {
    candlescope_testkit::records::join(run.batches())
}

#[test]
fn every_record_comes_back() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario::on_gpu());
    // Many small segments: order and counts must not depend on how the run was divided.
    write_run(dir.path(), &batch, &manifest, 777);
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.manifest(), Some(&manifest));
    assert!(run.findings().is_empty(), "{:?}", run.findings());
    let back = read(&run);
    assert_eq!(back.spans.len(), batch.spans.len());
    for (a, b) in back.spans.iter().zip(&batch.spans) {
        // Interned numbers are the reader's own; everything that is written must be equal.
        assert_eq!((&a.path.path, &a.path.rollup, &a.path.name), (&b.path.path, &b.path.rollup, &b.path.name));
        assert_eq!(a.thread.name, b.thread.name);
        let mut a = a.clone();
        a.path = b.path.clone();
        a.thread = b.thread.clone();
        assert_eq!(&a, b);
    }
    for (a, b) in back.steps.iter().zip(&batch.steps) {
        let mut a = a.clone();
        assert_eq!(a.path.path, b.path.path);
        a.path = b.path.clone();
        a.thread = b.thread.clone();
        assert_eq!(&a, b);
    }
    assert_eq!(back.requests, batch.requests);
    assert_eq!(back.samples, batch.samples);
    for (a, b) in back.kernels.iter().zip(&batch.kernels) {
        let mut a = a.clone();
        assert_eq!(a.path.as_ref().map(|p| &p.path), b.path.as_ref().map(|p| &p.path));
        a.path = b.path.clone();
        assert_eq!(&a, b);
    }
    assert!(!batch.kernels.is_empty() && back.kernels.len() == batch.kernels.len());
    for kind in RecordKind::ALL {
        assert_eq!(run.rows(kind), batch.count(kind));
    }
}

#[test]
fn equal_paths_are_one_allocation() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario::default());
    write_run(dir.path(), &batch, &manifest, 500);
    let back = read(&Run::open(dir.path()).unwrap());
    let first = &back.spans[1].path;
    let same = back.spans.iter().filter(|s| s.path.path == first.path).count();
    let shared = back.spans.iter().filter(|s| Arc::ptr_eq(&s.path, first)).count();
    assert!(same > 1 && same == shared);
}

#[test]
fn plain_strings_and_other_integer_widths_are_read() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario { requests: 2, ..Scenario::default() });
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    let before = Analysis::of(&Run::open(dir.path()).unwrap());
    let n = batch.spans.len();
    let plain = record_batch(&batch, RecordKind::Span, 0..n, &manifest.run_id, Strings::Plain);
    // Extra columns are no reason to refuse the file.
    let extra: ArrayRef = Arc::new(StringArray::from(vec!["note"; n]));
    let columns = plain.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
    let all = columns
        .iter()
        .cloned()
        .zip(plain.columns().iter().cloned())
        .chain([("annotation".to_string(), extra)])
        .map(|(name, array)| (name, array, true));
    write_file(&dir.path().join("spans/part-00000.parquet"), &RecordBatch::try_from_iter_with_nullable(all).unwrap());
    let after = Analysis::of(&Run::open(dir.path()).unwrap());
    assert_eq!(after.intervals, before.intervals);
    assert_eq!(after.verdict, before.verdict);
}

#[test]
fn segments_that_another_tool_rewrote_are_read() {
    // Snappy is the default of most Parquet writers, among them pandas, DuckDB and Spark.
    for compression in [Compression::SNAPPY, Compression::UNCOMPRESSED] {
        let dir = tempdir().unwrap();
        let (batch, manifest) = make(&Scenario { requests: 2, ..Scenario::default() });
        write_run(dir.path(), &batch, &manifest, 1_000_000);
        let before = Analysis::of(&Run::open(dir.path()).unwrap());
        let all = 0..batch.spans.len();
        let rows = record_batch(&batch, RecordKind::Span, all, &manifest.run_id, Strings::Dictionary);
        write_compressed(&dir.path().join("spans/part-00000.parquet"), &rows, compression);
        let after = Analysis::of(&Run::open(dir.path()).unwrap());
        assert_eq!((after.intervals, after.verdict), (before.intervals, before.verdict), "{compression}");
    }
}

#[test]
fn nullable_columns_may_be_absent() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario { requests: 1, warmup: 0, ..Scenario::default() });
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    let full = record_batch(&batch, RecordKind::Span, 0..batch.spans.len(), &manifest.run_id, Strings::Dictionary);
    let kept = ["gpu_start_ns", "gpu_dur_ns", "gpu_source", "dtype", "shape", "flops", "bytes"];
    let fields: Vec<_> = full.schema().fields().iter().map(|f| f.name().clone()).collect();
    let indices: Vec<usize> = (0..fields.len()).filter(|&i| !kept.contains(&fields[i].as_str())).collect();
    write_file(&dir.path().join("spans/part-00000.parquet"), &full.project(&indices).unwrap());
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    assert!(analysis.verdict.ok, "{:?}", analysis.verdict);
    assert!(analysis.operators.iter().all(|o| o.work.flops.is_none() && o.gflops.is_none()), "missing stays missing");
}

#[test]
fn the_figures_do_not_depend_on_the_segments() {
    let (batch, manifest) = make(&Scenario::default());
    let analyse = |rows: usize| {
        let dir = tempdir().unwrap();
        write_run(dir.path(), &batch, &manifest, rows);
        Analysis::of(&Run::open(dir.path()).unwrap())
    };
    let (one, many) = (analyse(1_000_000), analyse(333));
    assert_eq!(one.intervals, many.intervals);
    assert_eq!(one.latency, many.latency);
    assert_eq!(one.tree, many.tree);
}

#[test]
fn plain_spans_without_helpers_give_a_summary_by_steps() {
    // candle's own spans, no phases, no requests: bert or llama without the helpers.
    let mut batch = Batch::default();
    for i in 0..12u64 {
        batch.spans.push(span(2 * i, None, "model", i as i64 * 1_000_000, 900_000 + i * 1000));
        batch.spans.push(span(2 * i + 1, Some(2 * i), "model/encoder", i as i64 * 1_000_000 + 10, 800_000));
        let mut step = crate::common::step(i, "model", i as i64 * 1_000_000, 900_000 + i * 1000);
        step.intervals = 2;
        batch.steps.push(step);
    }
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 1000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    assert!(analysis.verdict.ok);
    let row = &analysis.phases.rows[0];
    assert_eq!((row.name.as_str(), row.is_phase, row.steps, row.intervals), ("model", false, 12, 24));
    let duration = row.duration.as_ref().unwrap();
    assert_eq!((duration.n, duration.median), (12, 905_500.0));
    assert!((row.share - 1.0).abs() < 1e-12);
    let text = candlescope_report::terminal::summary(&analysis, &Default::default());
    assert!(text.contains("model") && text.contains("encoder"), "{text}");
    assert!(candlescope_report::html::page(&analysis).contains("Step model"));
}

#[test]
fn every_phase_is_known_in_every_report() {
    use candlescope_report::{html, json, markdown, terminal};
    use candlescope_schema::Phase;
    let mut batch = Batch::default();
    for (i, &phase) in (0..).zip(Phase::ALL) {
        let mut span = span(i, None, phase.as_str(), i as i64 * 1_000_000, 900_000);
        let mut step = crate::common::step(i, phase.as_str(), i as i64 * 1_000_000, 900_000);
        (span.phase, step.phase, step.intervals) = (Some(phase), Some(phase), 1);
        batch.spans.push(span);
        batch.steps.push(step);
    }
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 1000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    let page = html::page(&analysis);
    let texts = [
        terminal::summary(&analysis, &Default::default()),
        markdown::report(&analysis),
        json::metrics(&analysis).to_string(),
    ];
    for phase in Phase::ALL {
        let row = analysis.phases.rows.iter().find(|row| row.name == phase.as_str()).expect("a row");
        assert!(row.is_phase && row.steps == 1, "{phase}");
        assert!(texts.iter().all(|text| text.contains(phase.as_str())), "{phase}");
        assert!(page.contains(&format!("k-{phase}")), "{phase} has a colour of its own");
    }
}

#[test]
fn modules_that_no_span_holds_are_summed_up_by_their_names() {
    use candlescope_report::{html, json, markdown, terminal};
    let mut batch = Batch::default();
    batch.spans.push(span(0, None, "decode", 0, 100));
    for (seq, module) in (1..).zip(["model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj", "lm_head"]) {
        let mut one = span(seq, Some(0), &format!("decode/linear[{seq}]"), seq as i64, 20);
        let mut path =
            PathInfo::new(one.path.id, one.path.path.clone(), "linear", "candle_transformers::models::qwen2");
        path.module = Some(module.into());
        path.rollup = PathInfo::rollup_of(&path.path, Some(module));
        one.path = path.into();
        one.flops = Some(1_000);
        batch.spans.push(one);
    }
    let mut step = crate::common::step(0, "decode", 0, 100);
    step.intervals = 4;
    batch.steps.push(step);
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 1000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    let row = |row: &TreeRow| (row.depth, row.label.clone(), row.calls, row.total_ns, row.self_ns, row.work.flops);
    let rows: Vec<_> = analysis.tree.rows.iter().map(row).collect();
    let expected = [
        (0, "decode".to_string(), Some(1), 100, 40, Some(3_000)),
        (1, "model.layers.*.mlp".to_string(), None, 40, 0, Some(2_000)),
        (2, "down_proj".to_string(), Some(1), 20, 20, Some(1_000)),
        (2, "up_proj".to_string(), Some(1), 20, 20, Some(1_000)),
        (1, "lm_head".to_string(), Some(1), 20, 20, Some(1_000)),
    ];
    assert_eq!(rows, expected);
    let paths: Vec<&str> = analysis.operators.iter().map(|operator| operator.path.as_str()).collect();
    assert!(paths.len() == 4 && !paths.contains(&"decode/model.layers.*.mlp"), "a group is no operator: {paths:?}");
    assert!(html::page(&analysis).contains("model.layers.*.mlp"));
    assert!(markdown::report(&analysis).contains("`model.layers.*.mlp` | – |"));
    assert!(terminal::summary(&analysis, &Default::default()).contains("model.layers.*.mlp"));
    let shown = &json::metrics(&analysis)["tree"]["rows"][1];
    assert!(shown["group"] == true && shown["path"] == "decode/model.layers.*.mlp" && shown["calls"].is_null());
}

#[test]
fn steps_that_are_modules_are_kinds_and_a_tree_by_their_names() {
    let mut batch = Batch::default();
    let modules =
        ["model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj", "model.layers.1.mlp.down_proj", "lm_head"];
    // Two passes.
    for (number, module) in (0..).zip(modules.iter().chain(&modules)) {
        let at = number as i64 * 100;
        let mut path = PathInfo::new(number as u32, "linear", "linear", "candle_transformers::models::with_tracing");
        path.module = Some((*module).into());
        path.rollup = PathInfo::rollup_of(&path.path, Some(module));
        let path = std::sync::Arc::new(path);
        let (mut one, mut step) = (span(number, None, "linear", at, 20), crate::common::step(number, "linear", at, 20));
        (one.path, one.step) = (path.clone(), Some(number));
        (step.path, step.seq, step.intervals) = (path, number, 1);
        batch.spans.push(one);
        batch.steps.push(step);
    }
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 1000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    let kinds: Vec<_> = analysis.phases.rows.iter().map(|row| (row.name.as_str(), row.steps)).collect();
    let expected = [("model.layers.*.mlp.up_proj", 4), ("lm_head", 2), ("model.layers.*.mlp.down_proj", 2)];
    assert_eq!(kinds, expected);
    let rows: Vec<_> =
        analysis.tree.rows.iter().map(|row| (row.depth, row.label.as_str(), row.calls, row.total_ns)).collect();
    let expected = [
        (0, "model.layers.*.mlp", None, 120),
        (1, "up_proj", Some(4), 80),
        (1, "down_proj", Some(2), 40),
        (0, "lm_head", Some(2), 40),
    ];
    assert_eq!(rows, expected);
    let told = analysis.verdict.findings.iter().find(|finding| finding.code.as_str() == "phases_unmarked").unwrap();
    assert_eq!((told.figure("steps"), told.figure("passes")), (Some(8.0), Some(2.0)));
    assert!(told.message().contains("Its head ran 2 times"), "{}", told.message());
}
