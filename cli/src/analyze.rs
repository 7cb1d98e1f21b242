//! `candlescope analyze`.

use crate::limits::limits;
use crate::output::say;
use anyhow::Result;
use candlescope_analysis::Run;
use candlescope_analysis::passes::account::{AccountOptions, account};
use candlescope_analysis::render::account::text;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// Directories of runs with recorded kernels
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Rows of each table; 0 shows all
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Gaps on a device below this many microseconds are launch overhead
    #[arg(long, allow_negative_numbers = true, value_parser = micros, value_name = "US", default_value = "1.5")]
    launch_overhead: f64,
    /// Let steps of the warm-up count
    #[arg(long)]
    with_warmup: bool,
    /// Raise or lower a limit on what is read, for example account-kernels=50000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    limits: Vec<String>,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    json: bool,
}

fn micros(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(micros) if (0.0..=1e9).contains(&micros) => Ok(micros),
        _ => Err("wants microseconds, 0 or more, such as 1.5".to_string()),
    }
}

pub(crate) fn run(args: &AnalyzeArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    let overhead_ns = (args.launch_overhead * 1e3).round() as u64;
    let options = AccountOptions::default().overhead_ns(overhead_ns).warmup(args.with_warmup);
    let mut runs = Vec::new();
    for (at, dir) in args.runs.iter().enumerate() {
        let run = Run::open_within(dir, limits.clone())?;
        let (account, seen) = account(&run, &options)?;
        if args.json {
            let mut object = serde_json::to_value(account.top(args.top))?;
            object["notes"] = json!(seen);
            runs.push(object);
        } else {
            let apart = if at > 0 { "\n" } else { "" };
            say(&format!("{apart}{}", text(&account, args.top, &seen).trim_end()))?;
        }
    }
    if args.json { say(&json!({ "schema": 1, "runs": runs }).to_string()) } else { Ok(()) }
}
