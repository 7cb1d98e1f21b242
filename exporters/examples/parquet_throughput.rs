//! Speed and size of the Parquet exporter on records of a realistic shape.
//!
//! `cargo run -p candlescope-exporters --example parquet_throughput [MILLIONS] [DIRECTORY]`
//!
//! One thread takes prepared batches of one decode step each through the exporter, segments, syncs and all; making the
//! records is not timed. CPU time is that thread's own, which other work on the machine disturbs less than wall time.
//!
//! Measured on 2 vCPUs of an AMD EPYC (virtual machine, other builds running), dev profile, 4 million intervals, ranges of four
//! runs:
//!
//! | records | CPU an interval | wall | bytes an interval |
//! |---|---|---|---|
//! | plain candle spans | 91–105 ns | 9.2–10.9 M/s | 5.3 |
//! | wrapped model: FLOPs, bytes, dtype, shape | 96–130 ns | 7.2–10.0 M/s | 5.4 |
//! | the same with device time | 119–150 ns | 5.1–7.9 M/s | 10.6 |
#![allow(missing_docs, reason = "a benchmark")]

use candlescope_core::run::{RunManifest, SCHEMA_VERSION};
use candlescope_core::{Batch, Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::Decoder;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    let mut source = Decoder::new(7);
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
    let (mut done, mut busy, mut cpu) = (0usize, std::time::Duration::ZERO, 0);
    while done < intervals {
        // A second's worth at a time, so that preparing does not fill the memory.
        let batches: Vec<Batch> = (0..200).map(|_| source.decode()).collect();
        let (started, cpu_started) = (Instant::now(), thread_cpu_ns());
        for batch in &batches {
            ledger.received(batch);
            exporter.export(batch, &ledger)?;
        }
        busy += started.elapsed();
        cpu += thread_cpu_ns() - cpu_started;
        done += batches.iter().map(|b| b.spans.len()).sum::<usize>();
    }
    let (started, cpu_started) = (Instant::now(), thread_cpu_ns());
    exporter.close(&ledger)?;
    busy += started.elapsed();
    cpu += thread_cpu_ns() - cpu_started;
    exporter.finish(&RunManifest { complete: true, ..manifest })?;
    assert_eq!(ledger.pending(RecordKind::Span), 0, "every record is accounted for");
    let bytes = |table: &str| -> std::io::Result<u64> {
        std::fs::read_dir(run.join(table))?.map(|entry| Ok(entry?.metadata()?.len())).sum()
    };
    let spans = bytes("spans")?;
    println!(
        "{name:19} {done:>9} intervals  {:>5.2} M/s wall  {:>4.0} ns CPU each  {:>5.2} bytes each in spans, {:.2} with steps",
        done as f64 / busy.as_secs_f64() / 1e6,
        cpu as f64 / done as f64,
        spans as f64 / done as f64,
        (spans + bytes("steps")?) as f64 / done as f64,
    );
    Ok(())
}

/// CPU time of this thread so far; zero where the system does not tell.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
