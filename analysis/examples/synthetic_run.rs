//! Writes a synthetic run and its report, to look at reports without a model: `cargo run -p candlescope-analysis
//! --example synthetic_run -- DIRECTORY [LAYERS [REQUESTS [OUTPUT_TOKENS]]]`.

#[path = "../tests/common/mod.rs"]
mod common;

use candlescope_report::{ReportOptions, write_report};
use common::scenario::{Scenario, make};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("name a directory for the run")?;
    let mut number = |default: u64| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let scenario = Scenario {
        layers: number(30) as usize,
        requests: number(8),
        output: number(128) as u32,
        ..if std::env::var_os("GPU").is_some() { Scenario::on_gpu() } else { Scenario::default() }
    };
    let (batch, manifest) = make(&scenario);
    common::write_run(std::path::Path::new(&dir), &batch, &manifest, 100_000);
    let started = std::time::Instant::now();
    let report = write_report(&dir, &ReportOptions::default())?;
    print!("{}", report.summary);
    println!("\n{} intervals in {:.2?}", batch.spans.len(), started.elapsed());
    Ok(())
}
