//! Runs kept from every schema version: each release of the reader opens all of them.

use candlescope_reader::Run;
use candlescope_report::{ReportOptions, write_report};
use candlescope_schema::RecordKind;
use candlescope_schema::run::SCHEMA_VERSION;
use std::path::Path;
use tempfile::tempdir;

#[test]
fn every_schema_version_has_a_capture_that_opens() {
    for version in 1..=SCHEMA_VERSION {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schema-v{version}"));
        let run = Run::open(&dir).unwrap_or_else(|error| panic!("{error}"));
        assert!(run.findings().is_empty(), "{:?}", run.findings());
        let manifest = run.manifest().unwrap();
        assert_eq!(manifest.schema_version, version);
        let mut batches = run.batches();
        while batches.next().is_some() {}
        // A table that was added later without changing the others is missing in older runs, which is not a loss.
        for kind in [RecordKind::Span, RecordKind::Step, RecordKind::Request, RecordKind::Sample] {
            assert!(run.rows(kind) > 0, "table {} of {}", kind.table(), dir.display());
        }
        for kind in RecordKind::ALL {
            assert_eq!(batches.records(kind), run.rows(kind), "every row of table {}", kind.table());
            let counted = manifest.counts.get(kind.table()).copied();
            assert_eq!(counted.unwrap_or(0), run.rows(kind), "{}", kind.table());
        }
        let out = tempdir().unwrap();
        let options = ReportOptions { out: Some(out.path().into()), ..ReportOptions::default() };
        let report = write_report(&dir, &options).unwrap();
        assert!(report.verdict.ok, "{:?}", report.verdict);
        assert!(report.metrics["figures"]["ttft"]["median"].as_f64().unwrap() > 0.0);
    }
}
