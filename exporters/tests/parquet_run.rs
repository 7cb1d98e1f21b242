//! A run on disk, read back with the Arrow reader and compared with the records.
#![allow(missing_docs, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{RecordBatch, StringArray};
use candlescope_core::run::{RunManifest, columns};
use candlescope_core::*;
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter, arrow_schema};
use candlescope_testkit::Decoder;
use candlescope_testkit::records::join;
use candlescope_testkit::tools::{PYTHON, SmallDisk, require};
use candlescope_testkit::with;
use candlescope_testkit::{ROOT, text};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

fn manifest() -> RunManifest {
    RunManifest { run_id: "run-1".into(), host: "box".into(), rank: 3, schema_version: 1, ..RunManifest::default() }
}

fn segments(run: &Path, kind: RecordKind) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(run.join(kind.table())).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files
}

fn read(run: &Path, kind: RecordKind) -> Vec<RecordBatch> {
    segments(run, kind)
        .into_iter()
        .flat_map(|path| {
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
            let schema = reader.schema().clone();
            assert_eq!(schema.fields(), arrow_schema(kind).fields(), "columns of {}", kind.table());
            reader.build().unwrap().map(|b| b.unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

fn texts(batches: &[RecordBatch], column: &str) -> Vec<Option<String>> {
    let mut out = Vec::new();
    for batch in batches {
        let array = batch.column_by_name(column).unwrap().as_dictionary::<Int32Type>();
        let values: &StringArray = array.values().as_string();
        out.extend(array.keys().iter().map(|k| k.map(|k| values.value(k as usize).to_string())));
    }
    out
}

fn ints(batches: &[RecordBatch], column: &str) -> Vec<Option<i64>> {
    let of = |b: &RecordBatch| {
        let array = b.column_by_name(column).unwrap().clone();
        match array.as_primitive_opt::<Int64Type>() {
            Some(longs) => longs.iter().collect::<Vec<_>>(),
            None => array.as_primitive::<Int32Type>().iter().map(|v| v.map(i64::from)).collect(),
        }
    };
    batches.iter().flat_map(of).collect()
}

fn run_of(batch: &Batch, change: impl FnOnce(ParquetConfig) -> ParquetConfig) -> (tempfile::TempDir, PathBuf, Ledger) {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("a/run");
    let mut exporter = ParquetExporter::new(change(ParquetConfig::new(&run)));
    let ledger = Ledger::new();
    exporter.start(&manifest()).unwrap();
    ledger.received(batch);
    exporter.export(batch, &ledger).unwrap();
    exporter.close(&ledger).unwrap();
    exporter.finish(&RunManifest { complete: true, ..manifest() }).unwrap();
    (dir, run, ledger)
}

/// Every optional value is sometimes present and sometimes absent, over several row groups.
fn varied() -> Batch {
    let mut source = Decoder::new(1);
    (source.annotated, source.gpu) = (true, true);
    let mut batch = join([source.step("prefill"), source.decode(), source.step("warm-up"), source.decode()]);
    for (i, span) in batch.spans.iter_mut().enumerate() {
        if i % 3 == 0 {
            (span.gpu, span.step, span.dtype) = (None, None, None);
        }
        if i % 5 == 0 {
            (span.tokens, span.context_len, span.batch, span.phase) = (Some(i as u32), Some(7), Some(2), None);
            (span.flops_executed, span.io_bytes) = (Some(i as u64 + 1), Some(i as u64 + 2));
        }
        if i % 7 == 0 {
            // Numbers and ids at the upper end of their range.
            (span.span_id, span.trace_id) = (SpanId(u64::MAX - i as u64), TraceId(u128::MAX - i as u128));
            (span.flops, span.shape) = (Some(u64::MAX), Some(Shape::new(&[i, 2])));
        }
    }
    batch.steps[1].request = None;
    batch.steps[2].energy_mj = Some(12.5);
    (batch.steps[2].flops_executed, batch.steps[2].io_bytes) = (None, None);
    let step = &mut batch.steps[3];
    (step.new_tokens, step.sequences, step.context_sum) = (Some(3), Some(2), Some(1 << 40));
    (step.flops_executed, step.io_bytes) = (Some(9), Some(u64::MAX));
    batch.samples = source.samples();
    batch.requests = vec![source.request(1, HostNs(5)), with(source.request(2, HostNs(6)), |r| r.ttft_ns = None)];
    batch
}

#[test]
fn every_value_comes_back() {
    let batch = varied();
    let (_dir, run, ledger) = run_of(&batch, |c| c.row_group_rows(500));
    let spans = read(&run, RecordKind::Span);
    let n = batch.spans.len();
    let signed = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    let want = |f: &dyn Fn(&SpanRecord) -> Option<i64>| batch.spans.iter().map(f).collect::<Vec<_>>();
    assert_eq!(ints(&spans, "seq"), want(&|s| Some(s.seq as i64)));
    assert_eq!(ints(&spans, "parent_seq"), want(&|s| s.parent_seq.map(signed)));
    assert_eq!(ints(&spans, "span_id"), want(&|s| Some(s.span_id.0 as i64)));
    assert_eq!(ints(&spans, "step"), want(&|s| s.step.map(signed)));
    assert_eq!(ints(&spans, "depth"), want(&|s| Some(i64::from(s.depth))));
    assert_eq!(ints(&spans, "rank"), vec![Some(3); n]);
    assert_eq!(ints(&spans, "host_start_ns"), want(&|s| Some(s.host_start.0)));
    assert_eq!(ints(&spans, "host_dur_ns"), want(&|s| Some(signed(s.host_dur_ns))));
    assert_eq!(ints(&spans, "gpu_start_ns"), want(&|s| s.gpu.map(|g| g.start.0)));
    assert_eq!(ints(&spans, "gpu_dur_ns"), want(&|s| s.gpu.map(|g| signed(g.dur_ns))));
    assert_eq!(ints(&spans, "flops"), want(&|s| s.flops.map(signed)));
    assert_eq!(ints(&spans, "bytes"), want(&|s| s.bytes.map(signed)));
    assert_eq!(ints(&spans, "flops_executed"), want(&|s| s.flops_executed.map(signed)));
    assert_eq!(ints(&spans, "io_bytes"), want(&|s| s.io_bytes.map(signed)));
    assert_eq!(ints(&spans, "tokens"), want(&|s| s.tokens.map(i64::from)));
    assert_eq!(ints(&spans, "context_len"), want(&|s| s.context_len.map(i64::from)));
    assert_eq!(ints(&spans, "batch"), want(&|s| s.batch.map(i64::from)));
    let want = |f: &dyn Fn(&SpanRecord) -> Option<String>| batch.spans.iter().map(f).collect::<Vec<_>>();
    assert_eq!(texts(&spans, "run_id"), vec![Some("run-1".to_string()); n]);
    assert_eq!(texts(&spans, "host"), vec![Some("box".to_string()); n]);
    assert_eq!(texts(&spans, "trace_id"), want(&|s| Some(s.trace_id.to_string())));
    assert_eq!(texts(&spans, "phase"), want(&|s| s.phase.map(|p| p.to_string())));
    assert_eq!(texts(&spans, "path"), want(&|s| Some(s.path.path.clone())));
    assert_eq!(texts(&spans, "name"), want(&|s| Some(s.path.name.to_string())));
    assert_eq!(texts(&spans, "target"), want(&|s| Some(s.path.target.to_string())));
    assert_eq!(texts(&spans, "thread"), want(&|s| Some(s.thread.name.to_string())));
    assert_eq!(texts(&spans, "gpu_source"), want(&|s| s.gpu.map(|g| g.source.to_string())));
    assert_eq!(texts(&spans, "dtype"), want(&|s| s.dtype.map(|d| d.to_string())));
    assert_eq!(texts(&spans, "shape"), want(&|s| s.shape.map(|s| s.to_string())));
    for kind in RecordKind::ALL {
        assert_eq!(ledger.pending(kind), 0);
        let rows: usize = read(&run, kind).iter().map(|b| b.num_rows()).sum();
        assert_eq!(rows as u64, batch.count(kind), "rows of {}", kind.table());
        assert_eq!(ledger.report("parquet").exported[kind.table()], batch.count(kind));
    }
}

#[test]
fn the_small_tables_come_back() {
    let batch = varied();
    let (_dir, run, _ledger) = run_of(&batch, |c| c);
    let steps = read(&run, RecordKind::Step);
    assert_eq!(ints(&steps, "request"), [Some(1), None, Some(1), Some(1)]);
    assert_eq!(ints(&steps, "intervals"), batch.steps.iter().map(|s| Some(s.intervals as i64)).collect::<Vec<_>>());
    assert_eq!(ints(&steps, "new_tokens"), [None, None, None, Some(3)]);
    assert_eq!(ints(&steps, "sequences"), [None, None, None, Some(2)]);
    assert_eq!(ints(&steps, "context_sum"), [None, None, None, Some(1 << 40)]);
    assert_eq!(ints(&steps, "flops_executed")[2..], [None, Some(9)]);
    assert_eq!(ints(&steps, "io_bytes")[2..], [None, Some(i64::MAX)]);
    assert_eq!(
        texts(&steps, "phase"),
        [Some("prefill"), Some("decode"), None, Some("decode")].map(|p| p.map(String::from))
    );
    assert_eq!(texts(&steps, "path")[2].as_deref(), Some("warm-up"));
    let energy: Vec<_> = steps[0].column_by_name("energy_mj").unwrap().as_primitive::<Float64Type>().iter().collect();
    assert_eq!(energy, [None, None, Some(12.5), None]);
    let requests = read(&run, RecordKind::Request);
    assert_eq!(ints(&requests, "ttft_ns"), [Some(12_000_000), None]);
    assert_eq!(texts(&requests, "model"), vec![Some("smollm2-135m".to_string()); 2]);
    let samples = read(&run, RecordKind::Sample);
    let value: Vec<_> = samples[0].column_by_name("value").unwrap().as_primitive::<Float64Type>().iter().collect();
    assert_eq!(value, batch.samples.iter().map(|s| Some(s.value)).collect::<Vec<_>>());
    assert_eq!(texts(&samples, "metric")[1].as_deref(), Some("process_cpu_ratio"));
    assert_eq!(texts(&samples, "unit")[0].as_deref(), Some("bytes"));
}

#[test]
fn columns_too_varied_for_a_dictionary_come_back() {
    let mut source = Decoder::new(2);
    source.annotated = true;
    let mut batch = join((0..60).map(|_| source.decode()));
    for (i, span) in batch.spans.iter_mut().enumerate() {
        span.flops = (i % 4 != 0).then_some(i as u64 * 1_000_003);
    }
    let (_dir, run, _ledger) = run_of(&batch, |c| c);
    let want: Vec<_> = batch.spans.iter().map(|s| s.flops.map(|f| f as i64)).collect();
    assert_eq!(ints(&read(&run, RecordKind::Span), "flops"), want);
}

/// The chunks written by our code have statistics that engines trust without checking the data.
#[test]
fn statistics_are_exact() {
    let batch = varied();
    let (_dir, run, _ledger) = run_of(&batch, |c| c);
    let file = File::open(&segments(&run, RecordKind::Span)[0]).unwrap();
    let metadata = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().metadata().clone();
    let chunk = |name: &str| {
        let at = columns(RecordKind::Span).iter().position(|c| c.name == name).unwrap();
        metadata.row_group(0).column(at).statistics().cloned().unwrap()
    };
    let phase = chunk("phase");
    assert_eq!((phase.min_bytes_opt(), phase.max_bytes_opt()), (Some(&b"decode"[..]), Some(&b"sample"[..])));
    assert_eq!(phase.null_count_opt(), Some(batch.spans.iter().filter(|s| s.phase.is_none()).count() as u64));
    let depth = chunk("depth");
    assert_eq!(depth.max_bytes_opt(), Some(&3i32.to_le_bytes()[..]));
    assert_eq!(chunk("run_id").min_bytes_opt(), Some(&b"run-1"[..]));
}

#[test]
fn an_empty_run_has_its_tables() {
    let (_dir, run, _ledger) = run_of(&Batch::default(), |c| c);
    for kind in RecordKind::ALL {
        // Those of stacks and experiments have a file where there were any.
        let without = matches!(kind, RecordKind::Stack | RecordKind::StackSample | RecordKind::Perturbation);
        let files = usize::from(!without);
        assert_eq!(segments(&run, kind).len(), files, "{}", kind.table());
        assert!(files == 0 || read(&run, kind).is_empty());
    }
    let manifest: RunManifest = serde_json::from_slice(&fs::read(run.join("run.json")).unwrap()).unwrap();
    assert!(manifest.complete);
}

#[test]
fn all_tables_rotate_together() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let mut exporter = ParquetExporter::new(ParquetConfig::new(&run).rotate_rows(1000));
    let (ledger, mut source) = (Ledger::new(), Decoder::new(5));
    exporter.start(&manifest()).unwrap();
    for _ in 0..10 {
        let batch = source.decode();
        ledger.received(&batch);
        exporter.export(&batch, &ledger).unwrap();
    }
    // 395 intervals a step: three steps a segment, and the tenth step is still open.
    let finished = |kind| segments(&run, kind).iter().filter(|p| p.extension().unwrap() == "parquet").count();
    assert_eq!((finished(RecordKind::Span), finished(RecordKind::Step)), (3, 3));
    assert_eq!(ledger.report("parquet").exported["spans"], 9 * 395);
    assert!(run.join("spans/part-00003.parquet.inprogress").exists());
    exporter.flush(&ledger).unwrap();
    exporter.flush(&ledger).unwrap();
    assert_eq!((finished(RecordKind::Span), ledger.pending(RecordKind::Step)), (4, 0));
    assert!(!run.join("spans/part-00003.parquet.inprogress").exists());
}

#[test]
fn rows_after_a_burst_are_collected_as_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let mut exporter = ParquetExporter::new(ParquetConfig::new(&run).max_buffer_bytes(400_000));
    let (ledger, mut source) = (Ledger::new(), Decoder::new(5));
    exporter.start(&manifest()).unwrap();
    let burst = join((0..50).map(|_| source.decode()));
    for batch in std::iter::once(burst).chain((0..5).map(|_| source.decode())) {
        ledger.received(&batch);
        exporter.export(&batch, &ledger).unwrap();
    }
    exporter.close(&ledger).unwrap();
    let groups: Vec<i64> = segments(&run, RecordKind::Span)
        .into_iter()
        .flat_map(|path| {
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
            reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(groups, [50 * 395, 5 * 395], "the burst is written early, what follows is not");
}

#[test]
fn segments_rotate_by_age() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let config = ParquetConfig::new(&run).rotate_interval(std::time::Duration::from_millis(20));
    let mut exporter = ParquetExporter::new(config);
    let (ledger, mut source) = (Ledger::new(), Decoder::new(5));
    exporter.start(&manifest()).unwrap();
    exporter.tick(&ledger).unwrap();
    let batch = source.decode();
    ledger.received(&batch);
    exporter.export(&batch, &ledger).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    exporter.tick(&ledger).unwrap();
    assert_eq!(ledger.pending(RecordKind::Span), 0);
    assert!(run.join("spans/part-00000.parquet").exists());
}

#[test]
fn a_disk_budget_drops_the_oldest_intervals_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let mut exporter = ParquetExporter::new(ParquetConfig::new(&run).rotate_rows(20_000).disk_budget(400_000));
    let (ledger, mut source) = (Ledger::new(), Decoder::new(6));
    exporter.start(&manifest()).unwrap();
    for _ in 0..400 {
        let batch = source.decode();
        ledger.received(&batch);
        exporter.export(&batch, &ledger).unwrap();
    }
    exporter.close(&ledger).unwrap();
    let report = ledger.report("parquet");
    assert!(report.conserved(), "{report:?}");
    assert!(report.dropped["spans"]["disk_budget"] > 0);
    assert_eq!(report.exported["steps"], 400, "intervals go before steps");
    let spans = read(&run, RecordKind::Span);
    let seqs = ints(&spans, "seq");
    assert_eq!(seqs.len() as u64, report.exported["spans"]);
    assert_eq!(seqs.last().unwrap().unwrap() as u64, source.seq, "the newest are kept");
    let bytes: u64 =
        RecordKind::ALL.into_iter().flat_map(|kind| segments(&run, kind)).map(|p| p.metadata().unwrap().len()).sum();
    assert!(bytes <= 400_000 + 10_000, "{bytes} bytes on disk");
}

#[test]
fn unusable_directories_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let start = |path: &Path| ParquetExporter::new(ParquetConfig::new(path)).start(&manifest()).unwrap_err();

    let used = dir.path().join("used");
    fs::create_dir(&used).unwrap();
    fs::write(used.join("notes.txt"), "mine").unwrap();
    let error = start(&used);
    assert!(error.is_fatal());
    assert!(error.to_string().contains("used already holds files (first: notes.txt)"), "{error}");
    assert!(!used.join("run.json").exists());

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(start(&file).to_string().contains("file is a file"), "{}", start(&file));
    let below = start(&file.join("run")).to_string();
    assert!(below.contains("file/run") && below.contains("choose another directory"), "{below}");

    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    ParquetExporter::new(ParquetConfig::new(&empty)).start(&manifest()).unwrap();
}

#[test]
fn a_bad_compression_level_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = ParquetConfig::new(dir.path().join("run")).compression_level(99);
    let error = ParquetExporter::new(config).start(&manifest()).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("compression_level is 99"), "{error}");
}

/// A real file system of one megabyte, if the test may mount one.
#[test]
#[cfg(target_os = "linux")]
fn a_real_full_disk_is_survived() {
    let Some(dir) = SmallDisk::mount("1m") else { return };
    let run = dir.path().join("run");
    let config = ParquetConfig::new(&run).row_group_rows(20_000).rotate_rows(40_000);
    let mut exporter = ParquetExporter::new(config);
    let (ledger, mut source, mut errors) = (Ledger::new(), Decoder::new(8), Vec::new());
    exporter.start(&manifest()).unwrap();
    for _ in 0..800 {
        let batch = source.decode();
        ledger.received(&batch);
        errors.extend(exporter.export(&batch, &ledger).err());
    }
    errors.extend(exporter.close(&ledger).err());
    let finished = exporter.finish(&RunManifest { complete: true, ..manifest() });
    let report = ledger.report("parquet");
    let on_disk = ints(&read(&run, RecordKind::Span), "seq").len() as u64;
    let filler = fs::write(dir.path().join("filler"), vec![0; 1 << 20]);
    let refused = ParquetExporter::new(ParquetConfig::new(dir.path().join("third"))).start(&manifest());

    let message = errors.first().unwrap().to_string();
    assert!(message.contains("No space left on device") && message.contains("free some space"), "{message}");
    assert!(report.conserved() && report.dropped["spans"]["io"] > 0, "{report:?}");
    assert!(report.exported["spans"] > 0);
    assert_eq!(on_disk, report.exported["spans"]);
    finished.unwrap();
    assert!(filler.is_err());
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("third") && message.contains("No space left on device"), "{message}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_directory_that_cannot_be_made_is_named() {
    let error = ParquetExporter::new(ParquetConfig::new("/proc/candlescope/run")).start(&manifest()).unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("/proc/candlescope/run"), "{error}");
}

/// DuckDB and Polars read the run, if the Python packages are available, and the check detects errors.
#[test]
fn duckdb_and_polars_agree_with_the_manifest() {
    let Some(python) = require(&PYTHON) else { return };
    let check = |run: &Path| {
        let script = Path::new(ROOT).join("tests/python/check_run.py");
        let output = std::process::Command::new(&python).arg(script).arg(run).output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let config = ParquetConfig::new(&run).rotate_rows(3000).row_group_rows(1000);
    let mut exporter = ParquetExporter::new(config);
    let (ledger, mut source) = (Ledger::new(), Decoder::new(11));
    (source.annotated, source.gpu) = (true, true);
    exporter.start(&manifest()).unwrap();
    let started = HostNs(source.now);
    for step in 0..20 {
        let mut batch = source.step(if step == 0 { "prefill" } else { "decode" });
        batch.samples = source.samples();
        if step == 19 {
            batch.requests = vec![source.request(1, started)];
        }
        ledger.received(&batch);
        exporter.export(&batch, &ledger).unwrap();
    }
    exporter.close(&ledger).unwrap();
    let report = ledger.report("parquet");
    let counts = report.received.clone();
    exporter.finish(&RunManifest { complete: true, counts, exporters: vec![report], ..manifest() }).unwrap();
    let (ok, problems) = check(&run);
    assert!(ok, "{problems}");

    fs::remove_file(run.join("spans/part-00001.parquet")).unwrap();
    let (ok, problems) = check(&run);
    assert!(!ok && problems.contains("rows on disk, run.json says"), "{problems}");
}

/// A program may begin after midnight whose options were set before.
#[test]
fn a_run_lies_in_the_folder_of_the_day_on_which_it_began() {
    let root = tempfile::tempdir().unwrap();
    let mut exporter = ParquetExporter::new(ParquetConfig::by_day_and_machine(root.path(), "run-1"));
    let started_ns = 1_764_201_600_000_000_000 - 1;
    exporter.start(&RunManifest { started_ns, host: "gpu-07".into(), ..manifest() }).unwrap();
    let dir = root.path().join("date=2025-11-26/machine=gpu-07/run-1");
    assert!(dir.join("run.json").is_file() && exporter.run_dir() == dir, "{}", exporter.run_dir().display());
}
