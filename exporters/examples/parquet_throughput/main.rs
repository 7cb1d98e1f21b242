//! Speed and size of the Parquet exporter on realistic records, compared with arrow's own writer on the same records.
//!
//! `cargo run -p candlescope-exporters --example parquet_throughput -- [MILLIONS] [ROUNDS]`
//!
//! One thread passes prepared batches of one decode step each to a writer; making the records is not timed. CPU time is
//! that thread's own, which other work on the machine disturbs less than wall time. The two writers take turns. Memory
//! is the growth of the process while one of them writes. Figures: `docs/measurements/pipeline.md`.
#![allow(missing_docs, reason = "a benchmark")]

mod with_arrow;

use candlescope_core::run::{RunManifest, SCHEMA_VERSION};
use candlescope_core::{Batch, Exporter, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_testkit::Decoder;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use with_arrow::WithArrow;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Batches made at a time, so that preparing does not fill the memory.
const PREPARED: usize = 50;

/// Name, whether intervals are annotated, whether they have device time.
const RECORDS: [(&str, bool, bool); 3] =
    [("plain candle spans", false, false), ("wrapped model", true, false), ("wrapped model, GPU", true, true)];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [_, writer, records, intervals] = arguments.as_slice() {
        return child(writer, records.parse()?, intervals.parse()?);
    }
    let millions: f64 = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(2.0);
    let rounds: u32 = arguments.get(1).and_then(|a| a.parse().ok()).unwrap_or(1);
    let intervals = ((millions * 1e6) as usize).to_string();
    for (records, (name, ..)) in RECORDS.iter().enumerate() {
        for _ in 0..rounds {
            for writer in ["exporter", "arrow"] {
                // Each in a process of its own, because one could reuse memory that the other has freed.
                let child = Command::new(std::env::current_exe()?)
                    .args(["child", writer, &records.to_string(), &intervals])
                    .output()?;
                println!("{name:19} {writer:9} {}", String::from_utf8(child.stdout)?.trim());
            }
        }
    }
    Ok(())
}

fn child(writer: &str, records: usize, intervals: usize) -> Result<()> {
    let mut source = Decoder::new(7);
    (_, source.annotated, source.gpu) = RECORDS[records];
    let figures = if writer == "arrow" { with_arrow(source, intervals)? } else { own(source, intervals)? };
    println!("{figures}");
    Ok(())
}

/// Cost of writing, per interval.
struct Figures {
    /// Nanoseconds.
    cpu: f64,
    millions_a_second: f64,
    bytes: f64,
    /// Growth of memory in total, MiB.
    memory: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpu, millions_a_second, bytes, memory } = self;
        write!(f, "{cpu:>4.0} ns CPU  {millions_a_second:>5.2} M/s  {bytes:>5.2} bytes  {memory:>4.0} MiB")
    }
}

/// Our exporter: all tables, segments and syncs.
fn own(source: Decoder, intervals: usize) -> Result<Figures> {
    let dir = tempfile::tempdir()?;
    let run = dir.path().join("run");
    let ledger = Ledger::new();
    let mut exporter = ParquetExporter::new(ParquetConfig::new(&run));
    let manifest = RunManifest {
        schema_version: SCHEMA_VERSION,
        run_id: "2025-10-09T08-53-20-bench".into(),
        host: "bench".into(),
        ..RunManifest::default()
    };
    exporter.start(&manifest)?;
    let mut timed = Timed::new();
    timed.all(source, intervals, |batch| {
        ledger.received(batch);
        Ok(exporter.export(batch, &ledger)?)
    })?;
    timed.run(|| Ok(exporter.close(&ledger)?))?;
    exporter.finish(&RunManifest { complete: true, ..manifest })?;
    assert_eq!(ledger.pending(RecordKind::Span), 0, "every record is accounted for");
    let bytes = std::fs::read_dir(run.join("spans"))?.map(|entry| Ok(entry?.metadata()?.len())).sum::<Result<u64>>()?;
    Ok(timed.figures(bytes))
}

fn with_arrow(source: Decoder, intervals: usize) -> Result<Figures> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("spans.parquet");
    let mut writer = WithArrow::create(&file)?;
    let mut timed = Timed::new();
    timed.all(source, intervals, |batch| writer.take(&batch.spans))?;
    timed.run(|| writer.close())?;
    check(&file, timed.intervals)?;
    Ok(timed.figures(std::fs::metadata(&file)?.len()))
}

/// Checks that arrow's writer wrote as many rows as it should.
fn check(file: &Path, intervals: usize) -> Result<()> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let rows = SerializedFileReader::new(std::fs::File::open(file)?)?.metadata().file_metadata().num_rows();
    assert_eq!(rows, intervals as i64);
    Ok(())
}

struct Timed {
    wall: Duration,
    cpu_ns: u64,
    intervals: usize,
    memory_before: f64,
}

impl Timed {
    fn new() -> Self {
        Self { wall: Duration::ZERO, cpu_ns: 0, intervals: 0, memory_before: memory("VmRSS:") }
    }

    fn run(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let (started, cpu_started) = (Instant::now(), thread_cpu_ns());
        work()?;
        self.wall += started.elapsed();
        self.cpu_ns += thread_cpu_ns() - cpu_started;
        Ok(())
    }

    fn all(&mut self, mut source: Decoder, n: usize, mut take: impl FnMut(&Batch) -> Result<()>) -> Result<()> {
        while self.intervals < n {
            let batches: Vec<Batch> = (0..PREPARED).map(|_| source.decode()).collect();
            self.run(|| batches.iter().try_for_each(&mut take))?;
            self.intervals += batches.iter().map(|b| b.spans.len()).sum::<usize>();
        }
        Ok(())
    }

    fn figures(&self, bytes: u64) -> Figures {
        let intervals = self.intervals as f64;
        Figures {
            cpu: self.cpu_ns as f64 / intervals,
            millions_a_second: intervals / self.wall.as_secs_f64() / 1e6,
            bytes: bytes as f64 / intervals,
            memory: memory("VmHWM:") - self.memory_before,
        }
    }
}

/// A line of this process's status, in MiB; zero if it is not known.
fn memory(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find_map(|l| l.strip_prefix(line)?.split_whitespace().next()?.parse::<f64>().ok());
    found.unwrap_or(0.0) / 1024.0
}

/// CPU time of this thread so far; zero if it is not known.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}
