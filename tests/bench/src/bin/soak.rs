//! A long run at a steady rate to Parquet, with rotation and a disk budget: resident memory must stay flat after the
//! warm-up, the folder must stay within its budget, and every interval must be accounted for.

use anyhow::{Context, Result, bail, ensure};
use candlescope_bench::account::{check_conserved, lost};
use candlescope_bench::pace::{Application, Paced};
use candlescope_bench::{alloc, machine, output, process, stats};
use candlescope_core::Session;
use candlescope_core::run::RunManifest;
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use clap::Parser;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

#[global_allocator]
static GLOBAL: alloc::Counting = alloc::Counting;

/// Runs for a long time and watches memory, disk and accounts.
#[derive(Parser)]
struct Options {
    /// Length of the run.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Part of it that does not count for memory; a tenth of the run, but at least 8 seconds, if not given.
    #[arg(long)]
    warm_up: Option<u64>,
    /// Intervals a second.
    #[arg(long, default_value_t = 100_000.0)]
    rate: f64,
    /// Seconds after which segments are finished.
    #[arg(long, default_value_t = 5)]
    rotate: u64,
    /// Disk budget in mebibytes.
    #[arg(long, default_value_t = 32)]
    budget: u64,
    /// Growth of resident memory allowed from the first to the last quarter after the warm-up, in mebibytes.
    #[arg(long, default_value_t = 4.0)]
    growth: f64,
    /// Where the run is written; a folder that is removed afterwards if not given.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Name of the result's file.
    #[arg(long, default_value = "soak")]
    result: String,
}

/// The state at one second.
#[derive(Clone, Copy)]
struct Look {
    second: f64,
    resident: f64,
    anonymous: f64,
    disk: f64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let warm_up = options.warm_up.unwrap_or_else(|| (options.seconds / 10).max(8)) as f64;
    ensure!(warm_up + 8.0 <= options.seconds as f64, "--seconds must leave 8 seconds after the warm-up of {warm_up}");
    let dir = output::scratch()?;
    let path = options.out.clone().unwrap_or_else(|| dir.path().join("run"));
    let config = ParquetConfig::new(&path)
        .rotate_interval(Duration::from_secs(options.rotate))
        .disk_budget(options.budget << 20);
    let (layer, session) = Session::builder().exporter(ParquetExporter::new(config)).start()?;
    tracing_subscriber::registry().with(layer).try_init()?;
    let (paced, looks) = watched_run(&options, &path)?;
    let manifest = session.finish();
    let report = report(&options, warm_up, &paced, &looks, &manifest);
    let file = output::write(&options.result, &report)?;
    print_summary(&report, &manifest);
    println!("{}", file.display());
    check_conserved(&manifest, paced.intervals)?;
    check(&options, &report, paced)
}

/// Runs the application on one thread and watches it on this one.
fn watched_run(options: &Options, path: &Path) -> Result<(Paced, Vec<Look>)> {
    let (rate, duration) = (options.rate, Duration::from_secs(options.seconds));
    let application = std::thread::Builder::new()
        .name("application".into())
        .spawn(move || Application::new(false).run(rate, duration, || ()))?;
    let start = Instant::now();
    let mut looks = Vec::with_capacity(options.seconds as usize + 2);
    while !application.is_finished() {
        std::thread::sleep(Duration::from_secs(1));
        let (resident, anonymous) = process::resident()?;
        let disk = process::disk_use(path)? as f64;
        let second = start.elapsed().as_secs_f64();
        looks.push(Look { second, resident: resident as f64, anonymous: anonymous as f64, disk });
        if looks.len() % 30 == 0 {
            eprintln!("{second:6.0} s  {:6.1} MiB resident, {:6.1} MiB on disk", mib(resident as f64), mib(disk));
        }
    }
    match application.join() {
        Ok(paced) => Ok((paced, looks)),
        Err(_) => bail!("the application panicked"),
    }
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn report(options: &Options, warm_up: f64, paced: &Paced, looks: &[Look], manifest: &RunManifest) -> Value {
    let counted: Vec<_> = looks.iter().filter(|l| l.second >= warm_up).copied().collect();
    let quarter = counted.len() / 4;
    let median_of = |looks: &[Look]| stats::median(&looks.iter().map(|l| mib(l.resident)).collect::<Vec<_>>());
    let first = median_of(&counted[..quarter]);
    let last = median_of(&counted[counted.len() - quarter..]);
    let slope = stats::slope(&counted.iter().map(|l| (l.second / 3600.0, mib(l.resident))).collect::<Vec<_>>());
    let peak = |f: fn(&Look) -> f64| looks.iter().map(f).fold(0.0, f64::max);
    json!({
        "seconds": options.seconds,
        "warm_up_seconds": warm_up,
        "asked_per_second": options.rate,
        "reached_per_second": paced.rate(),
        "intervals": paced.intervals,
        "resident_mib": {
            "first_quarter_median": first,
            "last_quarter_median": last,
            "growth": last - first,
            "growth_allowed": options.growth,
            "slope_per_hour": slope,
            "peak": mib(peak(|l| l.resident)),
            "anonymous_at_end": looks.last().map(|l| mib(l.anonymous)),
        },
        "disk_mib": {"budget": options.budget, "peak": mib(peak(|l| l.disk))},
        "lost": lost(manifest),
        "loss": manifest.loss,
        "exporters": manifest.exporters,
        "background_cpu_ratio": manifest.overhead.background_cpu_ns.map(|ns| ns as f64 / paced.elapsed.as_nanos() as f64),
        "samples": looks.iter().map(|l| json!([l.second, mib(l.resident), mib(l.disk)])).collect::<Vec<_>>(),
        "machine": machine::describe(),
        "versions": machine::versions(),
    })
}

fn print_summary(report: &Value, manifest: &RunManifest) {
    let memory = &report["resident_mib"];
    println!(
        "{} intervals in {} s ({:.0} a second)\nresident: {:.1} MiB at first, {:.1} MiB at last, {:+.2} MiB an hour by the fitted line, peak {:.1} MiB",
        report["intervals"],
        report["seconds"],
        report["reached_per_second"].as_f64().unwrap_or(f64::NAN),
        memory["first_quarter_median"].as_f64().unwrap_or(f64::NAN),
        memory["last_quarter_median"].as_f64().unwrap_or(f64::NAN),
        memory["slope_per_hour"].as_f64().unwrap_or(f64::NAN),
        memory["peak"].as_f64().unwrap_or(f64::NAN),
    );
    println!(
        "disk: peak {:.1} of {} MiB\nlost before the exporter: {:?}",
        report["disk_mib"]["peak"].as_f64().unwrap_or(f64::NAN),
        report["disk_mib"]["budget"],
        manifest.loss,
    );
    for exporter in &manifest.exporters {
        println!("{}: exported {:?}, dropped {:?}", exporter.name, exporter.exported, exporter.dropped);
    }
}

fn check(options: &Options, report: &Value, paced: Paced) -> Result<()> {
    let number = |value: &Value| value.as_f64().context("a number is missing in the report");
    let growth = number(&report["resident_mib"]["growth"])?;
    ensure!(growth <= options.growth, "resident memory grew by {growth:.1} MiB, more than {} MiB", options.growth);
    let reached = paced.rate() / options.rate;
    ensure!(reached > 0.95, "the application reached {:.0} % of the rate: the machine is too busy", reached * 100.0);
    // The open segments come on top of the budget, which counts finished ones.
    let (disk, budget) = (number(&report["disk_mib"]["peak"])?, options.budget as f64);
    ensure!(disk <= budget * 1.5 + 1.0, "the run took {disk:.1} MiB of disk with a budget of {budget} MiB");
    println!("passed: memory flat, disk within its budget, every interval accounted for");
    Ok(())
}
