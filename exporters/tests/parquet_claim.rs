//! Ownership of a run's directory: sessions that start on the same one, and starts that fail half-way.
#![allow(missing_docs, reason = "tests")]

use candlescope_core::run::RunManifest;
use candlescope_core::*;
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_exporters::perfetto::PerfettoExporter;
use std::fs;
use std::path::Path;
use std::sync::Barrier;

fn exporter(run: &Path) -> ParquetExporter {
    ParquetExporter::new(ParquetConfig::new(run))
}

/// An exporter that fails at its start.
struct Refuses;

impl Exporter for Refuses {
    fn name(&self) -> &'static str {
        "refuses"
    }

    fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        Err(ExportError::fatal("the port is in use"))
    }

    fn export(&mut self, _: &Batch, _: &Ledger) -> Result<(), ExportError> {
        Ok(())
    }
}

#[test]
fn of_many_that_start_at_once_one_gets_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..200 {
        let run = dir.path().join(format!("{round}/deep/run"));
        let line = Barrier::new(4);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let start = || {
                let mut exporter = exporter(&run);
                line.wait();
                exporter.start(&RunManifest::default()).map_err(|e| e.to_string())
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count(), 1, "round {round}: {outcomes:?}");
        for message in outcomes.into_iter().filter_map(Result::err) {
            assert!(message.contains("deep/run"), "{message}");
            assert!(message.contains("name a directory") || message.contains("a directory of its own"), "{message}");
        }
        assert!(run.join("run.json").is_file() && run.join("spans").is_dir() && run.join("kernels").is_dir());
    }
}

#[test]
fn those_that_give_it_back_take_nothing_from_the_one_that_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut kept = 0;
    for round in 0..200 {
        let run = dir.path().join(format!("{round}/deep/run"));
        let line = Barrier::new(4);
        let keeper = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut exporter = exporter(&run);
                    line.wait();
                    if exporter.start(&RunManifest::default()).is_ok() {
                        exporter.abandon();
                    }
                });
            }
            line.wait();
            exporter(&run).start(&RunManifest { run_id: "kept".into(), ..RunManifest::default() }).is_ok()
        });
        kept += usize::from(keeper);
        // The directory itself may stay, empty, if the session that made it found another one in it.
        assert_eq!(fs::read_dir(&run).is_ok_and(|entries| entries.count() > 0), keeper, "round {round}");
        if keeper {
            let manifest = fs::read_to_string(run.join("run.json")).unwrap();
            assert!(manifest.contains("\"kept\""), "{manifest}");
            assert_eq!(
                RecordKind::ALL.iter().filter(|kind| run.join(kind.table()).is_dir()).count(),
                RecordKind::ALL.len()
            );
        }
    }
    assert!(kept > 0, "the race was never won");
}

#[test]
fn two_sessions_of_one_program_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let (_layer, first) = Session::builder().exporter(exporter(&run)).start().unwrap();
    let error = Session::builder().exporter(exporter(&run)).start().unwrap_err().to_string();
    assert!(error.contains("run already holds files") && error.contains("name a directory"), "{error}");
    assert!(first.finish().complete);
    let manifest = fs::read_to_string(run.join("run.json")).unwrap();
    assert!(manifest.contains("\"complete\": true"), "{manifest}");
}

#[test]
fn a_start_that_fails_half_way_takes_back_what_it_made_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (run, timeline, old) =
        (dir.path().join("a/run"), dir.path().join("new.pftrace"), dir.path().join("old.pftrace"));
    fs::write(&old, "").unwrap();
    let half_way = || {
        Session::builder()
            .exporter(exporter(&run))
            .exporter(PerfettoExporter::new(&timeline))
            .exporter(PerfettoExporter::new(&old))
            .exporter(Refuses)
            .start()
            .unwrap_err()
            .to_string()
    };
    for _ in 0..2 {
        assert!(half_way().contains("the port is in use"));
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["old.pftrace"], "the directory above the run was made too");
    }
    // A directory that existed stays, and so do other files beside the run.
    fs::create_dir_all(&run).unwrap();
    half_way();
    assert_eq!(fs::read_dir(&run).unwrap().count(), 0);
    let (_layer, session) = Session::builder().exporter(exporter(&run)).start().unwrap();
    assert!(session.finish().complete);
}

#[test]
fn settings_that_cannot_be_used_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = ParquetConfig::new(dir.path().join("a/run")).compression_level(99);
    ParquetExporter::new(config).start(&RunManifest::default()).unwrap_err();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
