//! Writes a made-up run, for looking at reports: `cargo run -p candlescope-analysis --example synthetic_run -- DIRECTORY`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::scenario::{Scenario, make};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next() else {
        eprintln!("usage: synthetic_run DIRECTORY [LAYERS [REQUESTS [OUTPUT_TOKENS]]]");
        std::process::exit(2);
    };
    let mut number = |default: u64| arguments.next().and_then(|a| a.parse().ok()).unwrap_or(default);
    let scenario = Scenario {
        layers: number(30) as usize,
        requests: number(8),
        output: number(128) as u32,
        gpu: std::env::var_os("GPU").is_some(),
        ..Scenario::default()
    };
    let (batch, manifest) = make(&scenario);
    common::write_run(std::path::Path::new(&dir), &batch, &manifest, 100_000);
    println!("{dir}: {} intervals", batch.spans.len());
}
