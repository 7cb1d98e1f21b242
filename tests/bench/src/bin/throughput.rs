//! How many intervals per second the background threads can process on one core.
//!
//! Measured in two ways. *CPU time*: intervals divided by the CPU time of the background threads, at a rate they keep
//! up with; other work on the machine hardly matters. *One core*: all background threads on one CPU and the application
//! on another, at rising rates, each for some seconds; the result is the highest rate at which nothing is lost. Both
//! are measured with an exporter that discards everything, which leaves drain and resolve, and with the Parquet
//! exporter, including files and syncs.

use anyhow::{Context, Result};
use candlescope_bench::account::{check_conserved, lost};
use candlescope_bench::cases::NullExporter;
use candlescope_bench::pace::Application;
use candlescope_bench::stats::Spread;
use candlescope_bench::{machine, output, process};
use candlescope_core::run::RunManifest;
use candlescope_core::{CandlescopeLayer, Session, SessionBuilder};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use clap::Parser;
use serde_json::{Value, json};
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Measures the pipeline's throughput on one core.
#[derive(Parser)]
struct Options {
    /// Seconds of each run.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Repetitions of the runs by CPU time.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Rate of the runs by CPU time, intervals a second.
    #[arg(long, default_value_t = 500_000.0)]
    rate: f64,
    /// Highest rate tried on one core, intervals a second.
    #[arg(long, default_value_t = 4_000_000.0)]
    highest: f64,
    /// Do not write a file.
    #[arg(long)]
    dry: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Destination {
    Null,
    Parquet,
}

impl Destination {
    const ALL: [Destination; 2] = [Destination::Null, Destination::Parquet];

    fn word(self) -> &'static str {
        match self {
            Destination::Null => "null",
            Destination::Parquet => "parquet",
        }
    }
}

/// One run at one rate.
struct Run {
    destination: Destination,
    annotated: bool,
    rate: f64,
    seconds: f64,
    /// CPUs of the background threads and of the application.
    cpus: Option<(usize, usize)>,
}

struct Outcome {
    reached: f64,
    lost: u64,
    /// CPU time of the background threads for each exported interval, nanoseconds.
    cpu_ns: f64,
    bytes_each: Option<f64>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut by_cpu_time = serde_json::Map::new();
    for destination in Destination::ALL {
        for annotated in [false, true] {
            let mut each = Vec::new();
            let mut bytes = None;
            for _ in 0..options.rounds {
                let (rate, seconds) = (options.rate, options.seconds);
                let outcome = run(&Run { destination, annotated, rate, seconds, cpus: None })?;
                each.push(outcome.cpu_ns);
                bytes = outcome.bytes_each;
            }
            let spread = Spread::of(&each).context("no rounds")?;
            let tail = |p: Option<f64>| p.map_or("–".to_string(), |ns| format!("{ns:.0}"));
            let name = format!("{}{}", destination.word(), if annotated { "_annotated" } else { "" });
            println!(
                "CPU time, {name:20} {:6.0} ns an interval, {:5.2} million a second, p10 {} p90 {} ns",
                spread.p50,
                1e3 / spread.p50,
                tail(spread.p10),
                tail(spread.p90)
            );
            by_cpu_time
                .insert(name, json!({"ns": spread, "per_cpu_second": 1e9 / spread.p50, "span_bytes_each": bytes}));
        }
    }
    let one_core = one_core(&options)?;
    let report = json!({
        "by_cpu_time": by_cpu_time,
        "one_core": one_core,
        "rate": options.rate,
        "seconds": options.seconds,
        "machine": machine::describe(),
        "versions": machine::versions(),
    });
    if !options.dry {
        println!("{}", output::write("throughput", &report)?.display());
    }
    Ok(())
}

/// Rising rates with the background threads on one CPU, until something is lost twice.
fn one_core(options: &Options) -> Result<Value> {
    let cpus = process::cpus()?;
    let [background, application, ..] = cpus[..] else {
        return Ok(json!({"skipped": "needs two CPUs"}));
    };
    let mut report = serde_json::Map::new();
    for destination in Destination::ALL {
        let mut best = 0.0;
        let mut runs = Vec::new();
        let mut rate = 500_000.0;
        let mut failures = 0;
        while rate <= options.highest && failures < 2 {
            let cpus = Some((background, application));
            let outcome = run(&Run { destination, annotated: false, rate, seconds: options.seconds, cpus })?;
            println!(
                "one core, {:8} {:5.2} of {:.2} million a second, lost {}",
                destination.word(),
                outcome.reached / 1e6,
                rate / 1e6,
                outcome.lost
            );
            runs.push(
                json!({"asked": rate, "reached": outcome.reached, "lost": outcome.lost, "cpu_ns": outcome.cpu_ns}),
            );
            if outcome.lost == 0 {
                best = outcome.reached;
                failures = 0;
                rate += 250_000.0;
            } else {
                failures += 1;
            }
        }
        report.insert(destination.word().into(), json!({"without_loss_per_second": best, "runs": runs}));
    }
    Ok(report.into())
}

fn run(run: &Run) -> Result<Outcome> {
    let dir = output::scratch()?;
    let path = dir.path().join("run");
    // Large enough for what queues up during a segment's sync: throughput is measured, not the size of buffers.
    let mut builder = Session::builder().ring_capacity(1 << 18).queue_records(2_000_000);
    builder = match run.destination {
        Destination::Null => builder.exporter(NullExporter),
        Destination::Parquet => builder.exporter(ParquetExporter::new(ParquetConfig::new(&path))),
    };
    let (layer, session) = start_on(builder, run.cpus.map(|c| c.0))?;
    let subscriber = tracing_subscriber::registry().with(layer);
    let work = || -> Result<_> {
        if let Some((_, cpu)) = run.cpus {
            process::pin_to(cpu)?;
        }
        Ok(tracing::subscriber::with_default(subscriber, || {
            Application::new(run.annotated).run(run.rate, Duration::from_secs_f64(run.seconds), || ())
        }))
    };
    let paced =
        std::thread::scope(|s| s.spawn(work).join()).map_err(|_| anyhow::anyhow!("the application panicked"))??;
    let manifest = session.finish();
    check_conserved(&manifest, paced.intervals)?;
    let bytes = match run.destination {
        Destination::Null => None,
        Destination::Parquet => Some(process::disk_use(&path.join("spans"))?),
    };
    Ok(outcome(&manifest, paced.rate(), bytes))
}

fn outcome(manifest: &RunManifest, reached: f64, bytes: Option<u64>) -> Outcome {
    let exported = manifest.exporters.first().map_or(0, |e| e.exported["spans"]) as f64;
    Outcome {
        reached,
        lost: lost(manifest),
        cpu_ns: manifest.overhead.background_cpu_ns.map_or(f64::NAN, |ns| ns as f64 / exported),
        bytes_each: bytes.map(|b| b as f64 / exported),
    }
}

/// Starts a session whose threads stay on `cpu`: threads inherit the affinity of the one that starts them.
fn start_on(builder: SessionBuilder, cpu: Option<usize>) -> Result<(CandlescopeLayer, Session)> {
    let start = move || -> Result<_> {
        if let Some(cpu) = cpu {
            process::pin_to(cpu)?;
        }
        Ok(builder.start()?)
    };
    std::thread::spawn(start).join().map_err(|_| anyhow::anyhow!("the session's start panicked"))?
}
