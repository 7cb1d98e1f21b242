//! `candlescope analyze`.

use crate::limits::limits;
use crate::output::say;
use anyhow::{Context, Result};
use candlescope_analysis::Run;
use candlescope_analysis::passes::account::{AccountError, AccountOptions, account};
use candlescope_analysis::render::{account::text, what_if as what_if_text};
use candlescope_analysis::simulation::{Change, ChangeError, SimulationOptions, parse_changes, what_if};
use candlescope_core::files::read_limited;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The largest peaks file that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope analyze runs/gpu
      where the device's time went
  candlescope analyze runs/gpu --what-if graph --what-if 'kernel=gemv.*×0.5+host×0.8'
      two scenarios: a decode step as a CUDA graph; faster kernels together with a faster host
  candlescope analyze runs/cpu --what-if 'path=mlp×0.5'
      on a CPU: a path that takes half its time";

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
    /// Simulate a typical step with changes: graph, kernel=REGEX×f, path=PATH×f, fuse=PATH, bits=8|4, host×f, clock=f,
    /// batch=n; joined by + to have several at once. Each --what-if is a scenario of its own
    #[arg(long = "what-if", value_name = "CHANGES", value_parser = changes)]
    what_if: Vec<Changes>,
    /// Show a typical step as it runs unobserved, without what recording cost; --what-if does, too
    #[arg(long)]
    unobserved: bool,
    /// Peaks of the run's device for --what-if, as `bench peaks` wrote them, instead of those that the run names
    #[arg(long, value_name = "FILE")]
    peaks: Option<PathBuf>,
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

/// The changes of one scenario.
#[derive(Debug, Clone)]
struct Changes(Vec<Change>);

fn changes(text: &str) -> Result<Changes, ChangeError> {
    parse_changes(text).map(Changes)
}

pub(crate) fn run(args: &AnalyzeArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    let overhead_ns = (args.launch_overhead * 1e3).round() as u64;
    let options = AccountOptions::default().overhead_ns(overhead_ns).warmup(args.with_warmup);
    let simulated = (args.unobserved || !args.what_if.is_empty()).then(|| simulation_options(args)).transpose()?;
    let mut runs = Vec::new();
    for (at, dir) in args.runs.iter().enumerate() {
        let run = Run::open_within(dir, limits.clone())?;
        let apart = if at > 0 { "\n" } else { "" };
        let account = match account(&run, &options) {
            // Steps can be simulated without kernels, on a CPU, or it is said why they cannot.
            Err(AccountError::NoKernels(_)) if simulated.is_some() => None,
            account => Some(account?),
        };
        let what_if = simulated.as_ref().map(|options| {
            let scenarios: Vec<Vec<Change>> = args.what_if.iter().map(|changes| changes.0.clone()).collect();
            what_if(&run, options, &scenarios)
        });
        if args.json {
            let mut object = match account {
                Some((account, seen)) => {
                    let mut object = serde_json::to_value(account.top(args.top))?;
                    object["notes"] = json!(seen);
                    object
                }
                None => nameless(&run),
            };
            if let Some((what_if, _)) = &what_if {
                object["what_if"] = serde_json::to_value(what_if)?;
            }
            runs.push(object);
            continue;
        }
        if let Some((account, seen)) = &account {
            say(&format!("{apart}{}", text(account, args.top, seen).trim_end()))?;
        }
        if let Some((what_if, _)) = &what_if {
            let apart = if account.is_some() { "\n" } else { apart };
            say(&format!("{apart}{}", what_if_text::text(what_if).trim_end()))?;
        }
    }
    if args.json { say(&json!({ "schema": 1, "runs": runs }).to_string()) } else { Ok(()) }
}

/// A run without an account: only what names it.
fn nameless(run: &Run) -> Value {
    let id = run.manifest().map(|manifest| manifest.run_id.clone()).unwrap_or_default();
    json!({ "run": id, "dir": run.dir(), "devices": [], "notes": run.findings() })
}

fn simulation_options(args: &AnalyzeArgs) -> Result<SimulationOptions> {
    let options = SimulationOptions::default().warmup(args.with_warmup);
    let Some(path) = &args.peaks else { return Ok(options) };
    let text = read(path)?;
    options.peaks_file(&text).with_context(|| format!("in `{}`", path.display()))
}

fn read(path: &Path) -> Result<String> {
    let bytes = read_limited(path, MOST_BYTES).with_context(|| format!("cannot read `{}`", path.display()))?;
    String::from_utf8(bytes).with_context(|| format!("`{}` is not text", path.display()))
}
