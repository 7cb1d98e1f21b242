//! Writes a synthetic run of any size with the project's own exporter, as many kernels as intervals, to measure how an
//! analysis grows: `cargo run -p candlescope-exporters --example scale_run -- DIRECTORY [MILLIONS]`.
//!
//! The memory that it takes does not grow. Figures: `docs/measurements/analysis.md`.

use candlescope_core::{Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::{records, scale};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("name a directory for the run")?;
    let millions: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let started = Instant::now();
    let ledger = Ledger::new();
    let mut exporter = ParquetExporter::new(ParquetConfig::new(&dir));
    let begun = records::manifest(&candlescope_core::Batch::default());
    exporter.start(&candlescope_core::run::RunManifest { run_id: "scale".into(), ..begun })?;
    let mut failed = None;
    let manifest = scale::steps((millions * 1e6) as u64, |batch| {
        ledger.received(batch);
        failed = failed.take().or(exporter.export(batch, &ledger).err());
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    exporter.close(&ledger)?;
    exporter.finish(&manifest)?;
    let pending: u64 = RecordKind::ALL.iter().map(|&kind| ledger.pending(kind)).sum();
    assert_eq!(pending, 0, "every record is accounted for");
    println!("{:?} in {:.1?}", manifest.counts, started.elapsed());
    Ok(())
}
