//! `candlescope analyze`.

use crate::limits::limits;
use crate::output::say;
use anyhow::Result;
use candlescope_analysis::passes::account::AccountOptions;
use candlescope_analysis::render::{account, advice};
use candlescope_analysis::{AnalyzeOptions, Analyzed, Run, analyze};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// Directories of runs; the account of a device's time needs recorded kernels
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Findings, and rows of each table; 0 shows all
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
    let account = AccountOptions::default().overhead_ns(overhead_ns).warmup(args.with_warmup);
    let options = AnalyzeOptions::default().account(account);
    let (mut runs, mut findings, mut abstained) = (Vec::new(), Vec::new(), Vec::new());
    for (at, dir) in args.runs.iter().enumerate() {
        let run = Run::open_within(dir, limits.clone())?;
        let analyzed = analyze(&run, &options);
        if args.json {
            let (object, found, missing) = object(analyzed, args.top)?;
            runs.push(object);
            findings.extend(found);
            abstained.extend(missing);
        } else {
            let apart = if at > 0 { "\n" } else { "" };
            say(&format!("{apart}{}", text(analyzed, args.top).trim_end()))?;
        }
    }
    if !args.json {
        return Ok(());
    }
    say(&json!({ "schema": 1, "findings": findings, "abstained": abstained, "runs": runs }).to_string())
}

/// Findings first, then the account of the devices, or why there is none.
fn text(analyzed: Analyzed, top: usize) -> String {
    let Analyzed { analysis, account, seen } = analyzed;
    let findings = analysis.diagnosis.map(|diagnosis| advice::text(&diagnosis.top(top))).unwrap_or_default();
    match account {
        Ok(account) => format!("{findings}\n{}", account::text(&account, top, &seen)),
        Err(missing) => format!("{findings}\nNo account of a device's time: {missing}"),
    }
}

/// A run's account with what belongs to all of its findings, the findings, and what could not be judged.
fn object(analyzed: Analyzed, top: usize) -> Result<(Value, Vec<Value>, Vec<Value>)> {
    let Analyzed { analysis, account, seen } = analyzed;
    let mut object = match account {
        Ok(account) => serde_json::to_value(account.top(top))?,
        Err(missing) => json!({
            "run": analysis.manifest.run_id, "dir": analysis.dir, "devices": [], "account_missing": missing.to_string(),
        }),
    };
    object["notes"] = json!(seen);
    let mut told = analysis.diagnosis.map_or_else(|| json!({}), |diagnosis| advice::json(&diagnosis.top(top)));
    let mut lists = ["findings", "abstained"].map(|key| match told[key].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    });
    for one in lists.iter_mut().flatten() {
        one["run"] = json!(analysis.manifest.run_id);
    }
    for key in ["steps", "negligible", "together"] {
        object[key] = told[key].take();
    }
    let [findings, abstained] = lists;
    Ok((object, findings, abstained))
}
