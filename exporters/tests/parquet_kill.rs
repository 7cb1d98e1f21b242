//! `kill -9` in the middle of a run: finished segments are whole, at most the open ones are gone.
#![cfg(unix)]
#![allow(missing_docs, reason = "tests")]

#[path = "common/synthetic.rs"]
mod synthetic;

use candlescope_core::run::{IN_PROGRESS_SUFFIX, RunManifest};
use candlescope_core::{Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use synthetic::Synthetic;

const CHILD: &str = "CANDLESCOPE_TEST_KILL_RUN";

/// The child: writes for ever and says on stdout what it considers durable.
fn write_for_ever(run: &Path) {
    let mut config = ParquetConfig::new(run);
    config.rotate_rows = 50_000;
    config.row_group_rows = 10_000;
    let mut exporter = ParquetExporter::create(config);
    exporter.start(&RunManifest { run_id: "kill".into(), ..RunManifest::default() }).expect("start");
    let (ledger, mut source) = (Ledger::new(), Synthetic::new(3));
    loop {
        let batch = source.decode();
        ledger.received(&batch);
        exporter.export(&batch, &ledger).expect("export");
        let report = ledger.report("parquet");
        println!("durable {} {}", report.exported["spans"], report.exported["steps"]);
    }
}

/// Rows of all finished segments of a table, each opened and read to its end.
fn rows(run: &Path, kind: RecordKind) -> u64 {
    let mut rows = 0;
    for entry in fs::read_dir(run.join(kind.table())).expect("table") {
        let path = entry.expect("entry").path();
        if path.to_string_lossy().ends_with(IN_PROGRESS_SUFFIX) {
            continue;
        }
        let reader =
            SerializedFileReader::new(File::open(&path).expect("open")).expect("a finished segment is readable");
        let counted = reader.get_row_iter(None).expect("rows").fold(0, |n, row| row.map(|_| n + 1).expect("row"));
        assert_eq!(counted, reader.metadata().file_metadata().num_rows() as u64);
        rows += counted;
    }
    rows
}

#[test]
fn kill_loses_at_most_the_open_segments() {
    if let Some(run) = std::env::var_os(CHILD) {
        write_for_ever(Path::new(&run));
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = dir.path().join("run");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "kill_loses_at_most_the_open_segments", "--nocapture"])
        .env(CHILD, &run)
        .stdout(Stdio::piped())
        .spawn()
        .expect("child");
    let (mut spans, mut steps, mut killed) = (0, 0, false);
    let lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    for line in lines.map_while(Result::ok) {
        let mut words = line.split_whitespace();
        if words.next() == Some("durable") {
            // Everything the child managed to say before it died counts, also what was in the pipe.
            let mut number = || words.next().and_then(|w| w.parse::<u64>().ok());
            if let (Some(a), Some(b)) = (number(), number()) {
                (spans, steps) = (a, b);
            }
            if spans >= 150_000 && !killed {
                child.kill().expect("SIGKILL");
                killed = true;
            }
        }
    }
    child.wait().expect("dead child");
    assert!(killed && spans >= 150_000, "the child ended by itself after {spans} spans");

    let (on_disk, steps_on_disk) = (rows(&run, RecordKind::Span), rows(&run, RecordKind::Step));
    assert!(on_disk >= spans, "{on_disk} spans on disk, {spans} had been reported as exported");
    assert!(on_disk - spans <= 60_000, "no more than one segment can have been finished unreported");
    assert!(steps_on_disk >= steps);
    let manifest: RunManifest =
        serde_json::from_slice(&fs::read(run.join("run.json")).expect("run.json")).expect("a whole manifest");
    assert!(!manifest.complete, "nobody closed the run");
}
