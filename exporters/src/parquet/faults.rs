//! A disk that fails at the n-th operation, for every n: once, or permanently from there on. Tests only.

use super::file_system::{Files, SegmentFile};
use super::{ParquetConfig, ParquetExporter};
use candlescope_core::run::RunManifest;
use candlescope_core::{Exporter, Ledger, RecordKind, Session};
use candlescope_testkit::Decoder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::{self, File};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Counts operations, and fails as configured.
#[derive(Debug, Clone)]
struct FaultyStore {
    asked: Arc<AtomicUsize>,
    /// The first operation that fails, and whether all later ones fail too.
    at: usize,
    lasting: bool,
}

impl FaultyStore {
    fn new(at: usize, lasting: bool) -> Self {
        Self { asked: Arc::default(), at, lasting }
    }

    fn ask(&self) -> io::Result<()> {
        let n = self.asked.fetch_add(1, SeqCst);
        match n == self.at || (self.lasting && n > self.at) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

impl Files for FaultyStore {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        self.ask()?;
        Ok(Box::new(FaultyFile { file: File::create(path)?, disk: self.clone() }))
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.ask()?;
        fs::create_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask()?;
        fs::rename(from, to)
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.ask()
    }
}

struct FaultyFile {
    file: File,
    disk: FaultyStore,
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A part of the data is written, as on a disk that fills up.
        self.disk.ask().inspect_err(|_| _ = self.file.write(&bytes[..bytes.len() / 2]))?;
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SegmentFile for FaultyFile {
    fn sync(&self) -> io::Result<()> {
        self.disk.ask()
    }
}

/// The outcome of a run on such a disk.
struct Outcome {
    errors: Vec<String>,
    started: bool,
    finished: bool,
    ledger: Ledger,
}

/// Writes a whole run of four segments, even if the disk fails: errors are collected, and nothing panics.
fn write_run(run: &Path, disk: &FaultyStore) -> Outcome {
    let config = ParquetConfig::new(run).row_group_rows(500).rotate_rows(1_200);
    let mut exporter = ParquetExporter::with_files(config, Arc::new(disk.clone()));
    let (ledger, mut source) = (Ledger::new(), Decoder::new(9));
    let manifest = RunManifest { run_id: "faults".into(), ..RunManifest::default() };
    let mut errors = Vec::new();
    let mut note = |outcome: Result<(), candlescope_core::ExportError>| {
        let ok = outcome.is_ok();
        errors.extend(outcome.err().map(|e| e.to_string()));
        ok
    };
    let started = note(exporter.start(&manifest));
    let mut finished = false;
    if started {
        for n in 0..7 {
            let batch = source.decode();
            ledger.received(&batch);
            note(exporter.export(&batch, &ledger));
            if n == 3 {
                note(exporter.update(&manifest));
                note(exporter.flush(&ledger));
            }
            note(exporter.tick(&ledger));
        }
        note(exporter.close(&ledger));
        finished = note(exporter.finish(&RunManifest { complete: true, ..manifest.clone() }));
    }
    Outcome { errors, started, finished, ledger }
}

/// Rows of a table in all its files, each read to its end. There may be only finished segments.
fn rows(run: &Path, kind: RecordKind) -> u64 {
    let mut rows = 0;
    for entry in fs::read_dir(run.join(kind.table())).expect("the table's folder") {
        let path = entry.expect("entry").path();
        assert!(path.to_string_lossy().ends_with(".parquet"), "{} is left behind", path.display());
        let reader = SerializedFileReader::new(File::open(&path).expect("opens")).expect("readable");
        rows += reader.get_row_iter(None).expect("rows").fold(0, |n, row| row.map(|_| n + 1).expect("a row"));
    }
    rows
}

#[track_caller]
fn check(run: &Path, outcome: &Outcome, what: &str) {
    let Outcome { errors, started, finished, ledger } = outcome;
    assert!(errors.iter().all(|e| e.contains("os error 5") && e.contains(run.to_str().expect("text"))), "{errors:?}");
    if !started {
        let left = run.ancestors().take_while(|dir| !dir.ends_with("top")).filter(|dir| dir.exists()).count();
        assert_eq!(left, 0, "{what}: a start that failed leaves nothing: {errors:?}");
        return;
    }
    let report = ledger.report("parquet");
    assert!(report.conserved(), "{what}: {report:?}");
    let mut dropped = 0;
    for kind in RecordKind::ALL {
        assert_eq!(ledger.pending(kind), 0, "{what}: every record is exported or dropped");
        let exported = report.exported[kind.table()];
        assert_eq!(rows(run, kind), exported, "{what}: {} says what is there", kind.table());
        dropped += report.dropped_total(kind);
    }
    assert!(dropped == 0 || errors.iter().any(|e| e.contains(" dropped, ")), "{what}: {dropped}, {errors:?}");
    let files: Vec<_> = fs::read_dir(run).expect("the run").map(|e| e.expect("entry").file_name()).collect();
    assert!(!files.iter().any(|name| name == "run.json.tmp"), "{what}: {files:?}");
    let manifest = fs::read(run.join("run.json")).expect("a manifest");
    let manifest: RunManifest = serde_json::from_slice(&manifest).expect("a whole one");
    assert!(manifest.run_id == "faults" && (manifest.complete || !finished), "{what}: {errors:?}");
}

#[test]
fn whatever_fails_what_is_there_can_be_read_and_what_is_not_is_counted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let all = FaultyStore::new(usize::MAX, false);
    let run = dir.path().join("whole/top/a/run");
    fs::create_dir_all(dir.path().join("whole/top")).expect("made");
    let whole = write_run(&run, &all);
    check(&run, &whole, "nothing fails");
    assert!(whole.errors.is_empty() && whole.finished, "{:?}", whole.errors);
    let asked = all.asked.load(SeqCst);
    assert!(asked > 100, "{asked}");
    let mut refused = 0;
    // For permanent failures every fourth operation is tested, or all with `CANDLESCOPE_FAULTS=all`.
    let stride = if std::env::var_os("CANDLESCOPE_FAULTS").is_some() { 1 } else { 4 };
    let cases = (0..asked).map(|n| (false, n)).chain((0..asked).step_by(stride).map(|n| (true, n)));
    for (lasting, n) in cases {
        let what = format!("number {n} of {asked} fails{}", if lasting { ", and all after it" } else { "" });
        let top = dir.path().join(format!("{lasting}-{n}/top"));
        fs::create_dir_all(&top).expect("made");
        let run = top.join("a/run");
        let disk = FaultyStore::new(n, lasting);
        let outcome = catch_unwind(AssertUnwindSafe(|| write_run(&run, &disk))).unwrap_or_else(|_| panic!("{what}"));
        assert!(!outcome.errors.is_empty() || !lasting, "{what}: somebody hears of it");
        check(&run, &outcome, &what);
        refused += usize::from(!outcome.started);
        fs::remove_dir_all(top).expect("removed");
    }
    assert!(refused > 5, "{refused} starts failed");
}

#[test]
fn a_session_goes_on_and_says_what_its_disk_did() {
    let dir = tempfile::tempdir().expect("temporary directory");
    // From the first manifest on, so that all starts succeed.
    for n in (16..60).step_by(5) {
        for lasting in [false, true] {
            let run = dir.path().join(format!("{lasting}-{n}"));
            let told = Arc::new(Mutex::new(Vec::new()));
            let kept = told.clone();
            let disk = FaultyStore::new(n, lasting);
            let exporter = ParquetExporter::with_files(ParquetConfig::new(&run), Arc::new(disk.clone()));
            let builder = Session::builder().exporter(exporter);
            let builder = builder.on_problem(move |problem| kept.lock().expect("whole").push(problem.to_string()));
            let started = builder.start();
            let Ok((layer, session)) = started else { panic!("{n}: {:?}", started.err()) };
            use tracing_subscriber::layer::SubscriberExt;
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                for _ in 0..50 {
                    tracing::trace_span!("step").in_scope(|| tracing::trace_span!("inner").in_scope(|| ()));
                }
                let _ = session.handle().flush(std::time::Duration::from_secs(10));
                tracing::trace_span!("last").in_scope(|| ());
            });
            let manifest = session.finish();
            let report = &manifest.exporters[0];
            assert!(report.conserved(), "{report:?}");
            let on_disk = fs::read(run.join("run.json")).expect("a manifest");
            let on_disk: RunManifest = serde_json::from_slice(&on_disk).expect("a whole one");
            let told = told.lock().expect("whole").clone();
            let failed = disk.asked.load(SeqCst) > n;
            assert_eq!(failed && lasting, failed && lasting && !told.is_empty(), "{n}: {told:?}");
            for kind in RecordKind::ALL {
                assert_eq!(rows(&run, kind), report.exported[kind.table()], "{n}: {}", kind.table());
                // Losses are in the run itself, or in reported errors if the run could not be written.
                let missing = report.dropped_total(kind) > 0;
                let says = on_disk.exporters.first().is_some_and(|e| e.dropped_total(kind) > 0);
                assert!(!missing || says || told.iter().any(|t| t.contains(&run.display().to_string())), "{n}");
                assert!(!missing || !manifest.verdict.ok);
            }
        }
    }
}
