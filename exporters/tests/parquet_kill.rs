//! `kill -9` in the middle of a run: finished segments are complete, and only open ones are lost.
#![cfg(unix)]
#![allow(missing_docs, reason = "tests")]

use candlescope_core::run::{IN_PROGRESS_SUFFIX, RunManifest};
use candlescope_core::{Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::Decoder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "CANDLESCOPE_TEST_KILL_RUN";

/// The child: writes for ever and prints what it considers durable.
fn write_for_ever(run: &Path) {
    let config = ParquetConfig::new(run).rotate_rows(50_000).row_group_rows(10_000);
    let mut exporter = ParquetExporter::new(config);
    exporter.start(&RunManifest { run_id: "kill".into(), ..RunManifest::default() }).expect("start");
    let (ledger, mut source) = (Ledger::new(), Decoder::new(3));
    loop {
        let batch = source.decode();
        ledger.received(&batch);
        exporter.export(&batch, &ledger).expect("export");
        let report = ledger.report("parquet");
        println!("durable {} {}", report.exported["spans"], report.exported["steps"]);
    }
}

/// Rows of all finished segments of a table, each opened, and every page of it read.
fn rows(run: &Path, kind: RecordKind) -> u64 {
    let mut rows = 0;
    for entry in fs::read_dir(run.join(kind.table())).expect("table") {
        let path = entry.expect("entry").path();
        if path.to_string_lossy().ends_with(IN_PROGRESS_SUFFIX) {
            continue;
        }
        let reader =
            SerializedFileReader::new(File::open(&path).expect("open")).expect("a finished segment is readable");
        let metadata = reader.metadata();
        for group in 0..metadata.num_row_groups() {
            let columns = reader.get_row_group(group).expect("a row group");
            for column in 0..columns.num_columns() {
                let pages = columns.get_column_page_reader(column).expect("a column");
                pages.for_each(|page| drop(page.expect("a whole page")));
            }
        }
        let counted = metadata.file_metadata().num_rows() as u64;
        rows += counted;
    }
    rows
}

/// How often a recording program is killed; `CANDLESCOPE_KILLS=100` for more.
fn kills() -> u64 {
    std::env::var("CANDLESCOPE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(6)
}

#[test]
fn kill_loses_at_most_the_open_segments() {
    if let Some(run) = std::env::var_os(CHILD) {
        write_for_ever(Path::new(&run));
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut durable, mut on_disk_all, mut before_any) = (0, 0, 0);
    // Random moments in a run's first segments, including its start; the same in every run of the test.
    let mut random = StdRng::seed_from_u64(1);
    for round in 0..kills() {
        let run = dir.path().join(format!("run-{round}"));
        let after = Duration::from_micros(random.random_range(0..800_000));
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "kill_loses_at_most_the_open_segments", "--nocapture"])
            .env(CHILD, &run)
            .stdout(Stdio::piped())
            .spawn()
            .expect("child");
        let stdout = child.stdout.take().expect("stdout");
        // Everything that the child printed before it died counts, including what was still in the pipe.
        let told = std::thread::spawn(move || {
            let mut last = [0; 2];
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut words = line.split_whitespace();
                if words.next() == Some("durable")
                    && let (Some(spans), Some(steps)) = (words.next(), words.next())
                    && let (Ok(spans), Ok(steps)) = (spans.parse(), steps.parse())
                {
                    last = [spans, steps];
                }
            }
            last
        });
        std::thread::sleep(after);
        child.kill().expect("SIGKILL");
        child.wait().expect("dead child");
        let [spans, steps] = told.join().expect("ends");
        if !run.join("run.json").exists() {
            // Killed before the run had begun: there is nothing to read, and nothing was reported as durable.
            assert_eq!((spans, steps), (0, 0));
            before_any += 1;
            continue;
        }
        let of = |kind: RecordKind| if run.join(kind.table()).is_dir() { rows(&run, kind) } else { 0 };
        let (on_disk, steps_on_disk) = (of(RecordKind::Span), of(RecordKind::Step));
        assert!(on_disk >= spans, "round {round}: {on_disk} spans on disk, {spans} had been reported as exported");
        assert!(on_disk - spans <= 60_000, "no more than one segment can have been finished unreported");
        assert!(steps_on_disk >= steps, "round {round}");
        let manifest: RunManifest =
            serde_json::from_slice(&fs::read(run.join("run.json")).expect("run.json")).expect("a whole manifest");
        assert!(!manifest.complete, "nobody closed the run");
        durable += spans;
        on_disk_all += on_disk;
        fs::remove_dir_all(&run).expect("removed");
    }
    eprintln!(
        "{} kills: {on_disk_all} spans readable, {durable} of them had been told to be durable; {before_any} before the run \
         had begun",
        kills()
    );
    assert!(kills() < 5 || durable > 0, "no child got as far as a finished segment");
}
