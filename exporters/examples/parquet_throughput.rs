//! Speed and size of the Parquet exporter on records of a realistic shape.
//!
//! `cargo run -p candlescope-exporters --example parquet_throughput [MILLIONS] [RUN]`
//!
//! One thread takes prepared batches of one decode step each through the exporter, segments, syncs and all; making the
//! records is not timed. Figures and the hardware they were taken on stand in `docs/measurements/`.
#![allow(missing_docs, reason = "a benchmark")]

#[path = "../tests/common/synthetic.rs"]
mod synthetic;

use candlescope_core::run::{RunManifest, SCHEMA_VERSION};
use candlescope_core::{Batch, Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use std::path::{Path, PathBuf};
use std::time::Instant;
use synthetic::Synthetic;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let millions: f64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(2.0);
    let base = arguments.next().map(PathBuf::from);
    for (name, annotated, gpu) in
        [("plain candle spans", false, false), ("wrapped model", true, false), ("wrapped model, GPU", true, true)]
    {
        let dir = tempfile::tempdir()?;
        let run = base
            .clone()
            .map_or_else(|| dir.path().to_path_buf(), |b| b.join(name.replace([' ', ','], "-")))
            .join("run");
        one(name, annotated, gpu, (millions * 1e6) as usize, &run)?;
    }
    Ok(())
}

fn one(name: &str, annotated: bool, gpu: bool, intervals: usize, run: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut source = Synthetic::new(7);
    (source.annotated, source.gpu) = (annotated, gpu);
    let ledger = Ledger::new();
    let mut exporter = ParquetExporter::create(ParquetConfig::new(run));
    let manifest = RunManifest {
        schema_version: SCHEMA_VERSION,
        run_id: "2025-10-09T08-53-20-bench".into(),
        host: "bench".into(),
        ..RunManifest::default()
    };
    exporter.start(&manifest)?;
    let (mut done, mut busy) = (0usize, std::time::Duration::ZERO);
    while done < intervals {
        // A second's worth at a time, so that preparing does not fill the memory.
        let batches: Vec<Batch> = (0..200).map(|_| source.decode()).collect();
        let started = Instant::now();
        for batch in &batches {
            ledger.received(batch);
            exporter.export(batch, &ledger)?;
        }
        busy += started.elapsed();
        done += batches.iter().map(|b| b.spans.len()).sum::<usize>();
    }
    let started = Instant::now();
    exporter.close(&ledger)?;
    busy += started.elapsed();
    exporter.finish(&RunManifest { complete: true, ..manifest })?;
    assert_eq!(ledger.pending(RecordKind::Span), 0, "every record is accounted for");
    let bytes = |table: &str| -> std::io::Result<u64> {
        std::fs::read_dir(run.join(table))?.map(|entry| Ok(entry?.metadata()?.len())).sum()
    };
    let spans = bytes("spans")?;
    println!(
        "{name:20} {done:>9} intervals  {:>6.2} M/s  {:>5.0} ns each  {:>6.2} bytes each (spans), {:.2} all tables",
        done as f64 / busy.as_secs_f64() / 1e6,
        busy.as_nanos() as f64 / done as f64,
        spans as f64 / done as f64,
        (spans + bytes("steps")?) as f64 / done as f64,
    );
    Ok(())
}
