//! Runs on a full disk. Tests only.

use super::file_system::{Files, SegmentFile};
use super::{ParquetConfig, ParquetExporter};
use candlescope_core::run::RunManifest;
use candlescope_core::{Exporter, Ledger, RecordKind};
use candlescope_testkit::Decoder;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A disk with a limited number of bytes left.
#[derive(Debug, Clone)]
struct Quota(Arc<AtomicI64>);

impl Files for Quota {
    fn create(&self, path: &Path) -> io::Result<Box<dyn SegmentFile>> {
        Ok(Box::new(Limited { file: File::create(path)?, left: self.0.clone() }))
    }
}

struct Limited {
    file: File,
    left: Arc<AtomicI64>,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left.fetch_sub(bytes.len() as i64, Ordering::Relaxed) < bytes.len() as i64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SegmentFile for Limited {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn names(run: &Path, table: &str) -> Vec<String> {
    let entries = std::fs::read_dir(run.join(table)).expect("table");
    let mut names: Vec<_> = entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_costs_the_open_segments_and_is_counted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = dir.path().join("run");
    let config = ParquetConfig::new(&run).row_group_rows(1000).rotate_rows(3900);
    let left = Quota(Arc::new(AtomicI64::new(i64::MAX)));
    let mut exporter = ParquetExporter::with_files(config, Arc::new(left.clone()));
    let (ledger, mut source) = (Ledger::new(), Decoder::new(9));
    exporter.start(&RunManifest::default()).expect("start");
    let mut write = |exporter: &mut ParquetExporter, steps: usize| {
        let mut errors = Vec::new();
        for _ in 0..steps {
            let batch = source.decode();
            ledger.received(&batch);
            errors.extend(exporter.export(&batch, &ledger).err());
        }
        errors
    };
    assert!(write(&mut exporter, 10).is_empty(), "one segment finished");
    let kept = ledger.report("parquet").exported["spans"];
    assert_eq!(kept, 3950);

    left.0.store(3000, Ordering::Relaxed);
    let errors = write(&mut exporter, 15);
    let message = errors.first().expect("an error").to_string();
    assert!(message.contains("spans/part-00001.parquet") && message.contains("free some space"), "{message}");
    assert!(errors.iter().all(|e| !e.is_fatal()), "the next segment may work again");
    let report = ledger.report("parquet");
    assert_eq!(report.exported["spans"], kept, "finished segments stay");
    assert!(report.dropped["spans"]["io"] >= 1000);
    assert!(names(&run, "spans").contains(&"part-00000.parquet".to_string()));

    // Somebody freed space.
    left.0.store(i64::MAX, Ordering::Relaxed);
    assert!(write(&mut exporter, 10).is_empty());
    exporter.close(&ledger).expect("close");
    let report = ledger.report("parquet");
    assert!(report.conserved(), "{report:?}");
    assert!(report.exported["spans"] > kept);
    assert_eq!(ledger.pending(RecordKind::Span), 0);
    assert!(names(&run, "spans").iter().all(|n| n.ends_with(".parquet")), "{:?}", names(&run, "spans"));
}

#[test]
fn a_disk_that_stays_full_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = dir.path().join("run");
    let left = Quota(Arc::new(AtomicI64::new(i64::MAX)));
    let mut exporter = ParquetExporter::with_files(ParquetConfig::new(&run), Arc::new(left.clone()));
    let (ledger, mut source) = (Ledger::new(), Decoder::new(9));
    exporter.start(&RunManifest::default()).expect("start");
    left.0.store(10, Ordering::Relaxed);
    let batch = source.decode();
    ledger.received(&batch);
    exporter.export(&batch, &ledger).expect("nothing is written yet");
    let message = exporter.close(&ledger).expect_err("full").to_string();
    assert!(message.contains("dropped, finished segments are kept"), "{message}");
    let report = ledger.report("parquet");
    assert_eq!(report.dropped["spans"]["io"], batch.spans.len() as u64);
    assert_eq!(report.dropped["steps"]["io"], 1);
    assert!(report.conserved());
    assert!(names(&run, "spans").is_empty());
}
