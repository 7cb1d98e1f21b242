//! Writes a synthetic run of any size with the project's own exporter, as many kernels as intervals, to measure how an
//! analysis grows: `cargo run -p candlescope-exporters --example scale_run --
//! DIRECTORY [MILLIONS [RUN_ID HOST MODEL DAYS_LATER]]`.
//!
//! The memory that it takes does not grow. Figures: `docs/measurements/analysis.md`.

use candlescope_core::run::RunManifest;
use candlescope_core::{Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::{records, scale};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("name a directory for the run")?;
    let millions: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let run_id = arguments.next().unwrap_or_else(|| "scale".to_string());
    let host = arguments.next();
    let model = arguments.next();
    let later = arguments.next().map_or(Ok(0), |days| days.parse::<i64>())? * 86_400_000_000_000;
    let started = Instant::now();
    let ledger = Ledger::new();
    let mut exporter = ParquetExporter::new(ParquetConfig::new(&dir));
    let begun = records::manifest(&candlescope_core::Batch::default());
    let described = |mut manifest: RunManifest| {
        manifest.run_id.clone_from(&run_id);
        host.iter().for_each(|host| manifest.host.clone_from(host));
        model.iter().for_each(|model| drop(manifest.model.insert("name".into(), model.as_str().into())));
        manifest.started_ns += later;
        manifest.ended_ns = manifest.ended_ns.map(|ended| ended + later);
        manifest
    };
    exporter.start(&described(begun))?;
    let mut failed = None;
    let manifest = scale::steps((millions * 1e6) as u64, |batch| {
        ledger.received(batch);
        let failure = match later {
            0 => exporter.export(batch, &ledger).err(),
            _ => {
                let mut moved = batch.clone();
                moved.move_by(later);
                exporter.export(&moved, &ledger).err()
            }
        };
        failed = failed.take().or(failure);
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    exporter.close(&ledger)?;
    exporter.finish(&described(manifest.clone()))?;
    let pending: u64 = RecordKind::ALL.iter().map(|&kind| ledger.pending(kind)).sum();
    assert_eq!(pending, 0, "every record is accounted for");
    println!("{:?} in {:.1?}", manifest.counts, started.elapsed());
    Ok(())
}
