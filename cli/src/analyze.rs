//! `candlescope analyze`.

use crate::full::{AnalyzeChoices, FullArgs};
use crate::json_arg::JsonArg;
use crate::kept_between_runs;
use crate::kept_between_runs::ledger_path;
use crate::limits::limits;
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_core::files::read_limited;
use candlescope_document::text::sentence;
use candlescope_figures::account::AccountOptions;
use candlescope_findings::{AnalyzeOptions, Analyzed, analyze};
use candlescope_predict::simulation::{Change, SimulationOptions, WhatIf, parse_changes};
use candlescope_reader::Run;
use candlescope_report::{account, advice, sensitivity, verdict_line, what_if as what_if_text};
use candlescope_work::devices::peaks_device;
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The largest peaks file that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;
/// Findings, and rows of each table, if nothing is said.
const TOP: usize = 10;
/// Gaps on a device below this many microseconds are launch overhead, if nothing is said.
const LAUNCH_OVERHEAD: f64 = 1.5;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope analyze runs/gpu
      what to change, and where the device's time went
  candlescope analyze runs/gpu --what-if graph --what-if 'kernel=gemv.*×0.5+host×0.8'
      two scenarios: a decode step as a CUDA graph; faster kernels together with a faster host
  candlescope analyze runs/cpu --what-if 'path=mlp×0.5'
      on a CPU: a path that takes half its time
  candlescope analyze --full MODEL.gguf --duration 300 --out full
      all of it: prediction, five minutes of generation, measured against predicted, findings, in one report";

#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// Directories of runs; the account of a device's time needs recorded kernels
    #[arg(value_name = "RUN", required_unless_present = "full")]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    full: FullArgs,
    /// Findings, and rows of each table; 0 shows all [default: 10]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    top: Option<usize>,
    /// Gaps on a device below this many microseconds are launch overhead [default: 1.5]
    #[arg(long, allow_negative_numbers = true, value_parser = micros, value_name = "US")]
    launch_overhead: Option<f64>,
    /// Let steps of the warm-up count
    #[arg(long)]
    with_warmup: bool,
    /// Take each thread of the run that runs marked phases for a rank: a program with a thread a device
    #[arg(long, conflicts_with_all = ["full", "top", "launch_overhead", "with_warmup", "what_if", "unobserved", "peaks"])]
    by_thread: bool,
    /// Simulate a typical step with changes: graph, eager, kernel=REGEX×f, path=PATH×f, fuse=PATH, bits=16|8|4, host×f,
    /// clock=f, batch=n; joined by + to have several at once. Each --what-if is a scenario of its own
    #[arg(long = "what-if", value_name = "CHANGES", value_parser = changes)]
    what_if: Vec<Changes>,
    /// Show a typical step as it runs unobserved, without what recording cost; --what-if does, too
    #[arg(long)]
    unobserved: bool,
    /// Peaks of the run's device, as `bench peaks` wrote them [default: those that the run names, or those that are kept
    /// of its device]
    #[arg(long, value_name = "FILE")]
    peaks: Option<PathBuf>,
    /// Raise or lower a limit on what is read, for example account-kernels=50000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    limits: Vec<String>,
    #[command(flatten)]
    json: JsonArg,
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

/// Most changes of one scenario, and most scenarios: each is applied to each kernel of a step.
const MOST_CHANGES: usize = 64;

fn changes(text: &str) -> Result<Changes, String> {
    let changes = parse_changes(text).map_err(|error| error.to_string())?;
    if changes.len() > MOST_CHANGES {
        return Err(format!("a scenario of {} changes is more than the limit of {MOST_CHANGES}", changes.len()));
    }
    Ok(Changes(changes))
}

pub(crate) fn run(args: &AnalyzeArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    let top = args.top.unwrap_or(TOP);
    let overhead_ns = (args.launch_overhead.unwrap_or(LAUNCH_OVERHEAD) * 1e3).round() as u64;
    let account = AccountOptions::default().overhead_ns(overhead_ns).warmup(args.with_warmup);
    let options = AnalyzeOptions::default().account(account).simulation(simulation_options(args)?);
    let options = options.ledger(ledger_path());
    if let Some(model) = &args.full.full {
        let shown = AnalyzeChoices {
            options: &options,
            peaks: args.peaks.as_deref(),
            top,
            limits: &args.limits,
            json: args.json,
        };
        return crate::full::run(&args.full, model, &shown);
    }
    if let Some(option) = args.full.given() {
        bail!("{option} is about a run that is still to be made: give --full MODEL in place of runs, or leave it out");
    }
    if args.by_thread && args.runs.len() != 1 {
        bail!("--by-thread is about one run: its threads are ranks");
    }
    if let [folder] = &args.runs[..]
        && let Some(ranks) = crate::ranks::ranks_in(folder, &limits, args.by_thread)?
    {
        let of_a_run = [
            ("--what-if", !args.what_if.is_empty()),
            ("--unobserved", args.unobserved),
            ("--peaks", args.peaks.is_some()),
            ("--top", args.top.is_some()),
            ("--launch-overhead", args.launch_overhead.is_some()),
            ("--with-warmup", args.with_warmup),
        ];
        crate::ranks::takes_none(&ranks, folder, &of_a_run)?;
        return crate::ranks::analyzed(&ranks, args.json);
    }
    if args.json.is_document() {
        bail!(
            "--json=document is of --full, and of a folder of ranks: `candlescope report RUN --json=document` has the findings of \
             a run"
        );
    }
    let peaks = args.peaks.as_deref().map(peaks_file).transpose()?;
    let simulates = args.unobserved || !args.what_if.is_empty();
    if args.what_if.len() > MOST_CHANGES {
        bail!("{} scenarios of --what-if are more than the limit of {MOST_CHANGES}", args.what_if.len());
    }
    let scenarios: Vec<Vec<Change>> = args.what_if.iter().map(|changes| changes.0.clone()).collect();
    let (mut runs, mut findings, mut abstained) = (Vec::new(), Vec::new(), Vec::new());
    for (at, dir) in args.runs.iter().enumerate() {
        let mut run = Run::open_within(dir, limits.clone())?;
        match &peaks {
            Some(peaks) => kept_between_runs::put(&mut run, peaks.clone())?,
            None => kept_between_runs::add_kept(&mut run),
        }
        let analyzed = analyze(&run, &options);
        let what_if = simulates.then(|| WhatIf::of(analyzed.simulation.as_ref(), &scenarios));
        if args.json.is_json() {
            let (mut object, found, missing) = object(analyzed, top)?;
            if let Some(what_if) = &what_if {
                object["what_if"] = serde_json::to_value(what_if)?;
            }
            runs.push(object);
            findings.extend(found);
            abstained.extend(missing);
        } else {
            if analyzed.account.is_err() {
                // The account has them, where there is one.
                warn(&analyzed.seen);
            }
            let apart = if at > 0 { "\n" } else { "" };
            say(&format!("{apart}{}", text(analyzed, what_if.as_ref(), top).trim_end()))?;
        }
    }
    if !args.json.is_json() {
        return Ok(());
    }
    say(&json!({ "schema": 1, "findings": findings, "abstained": abstained, "runs": runs }).to_string())
}

/// Whether the run can be trusted, what was asked for, then the findings, then the account of the devices, or why there
/// is none.
fn text(analyzed: Analyzed, what_if: Option<&WhatIf>, top: usize) -> String {
    let Analyzed { analysis, account, seen, .. } = analyzed;
    let trust = sentence(&verdict_line(&analysis));
    let asked = what_if.map(|what_if| format!("{}\n\n", what_if_text::text(what_if).trim_end())).unwrap_or_default();
    let findings = analysis.diagnosis.map(|diagnosis| advice::text(&diagnosis.top(top))).unwrap_or_default();
    let account = match account {
        Ok(account) => format!("\n{}", account::text(&account, top, &seen)),
        // Of a processor's own time there is no such account.
        Err(_) if analysis.manifest.gpu.is_none() => String::new(),
        Err(missing) => format!("\nNo account of a device's time: {missing}"),
    };
    let tried = sensitivity::text(&analysis.sensitivity);
    let apart = if tried.is_empty() { "" } else { "\n" };
    format!("{trust}\n\n{asked}{findings}{apart}{tried}{account}")
}

/// A run's account with what belongs to all of its findings, the findings, and what could not be judged.
fn object(analyzed: Analyzed, top: usize) -> Result<(Value, Vec<Value>, Vec<Value>)> {
    let Analyzed { analysis, account, seen, .. } = analyzed;
    let mut object = match account {
        Ok(account) => serde_json::to_value(account.top(top))?,
        Err(missing) => json!({
            "run": analysis.manifest.run_id, "dir": analysis.dir, "devices": [], "account_missing": missing.to_string(),
        }),
    };
    object["trust"] = json!({
        "ok": analysis.verdict.ok,
        "disturbed": analysis.disturbance().is_some(),
        "text": verdict_line(&analysis),
    });
    object["notes"] = json!(seen);
    object["sensitivity"] = sensitivity::json(&analysis.sensitivity);
    object["host"] = candlescope_report::json::host(analysis.host.as_ref(), top);
    let mut told = analysis.diagnosis.map_or_else(|| json!({}), |diagnosis| advice::json(&diagnosis.top(top)));
    let mut lists = ["findings", "abstained"].map(|key| match told[key].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    });
    for one in lists.iter_mut().flatten() {
        one["run"] = json!(analysis.manifest.run_id);
    }
    for key in ["steps", "negligible", "together", "roadmaps"] {
        object[key] = told[key].take();
    }
    let [findings, abstained] = lists;
    Ok((object, findings, abstained))
}

fn simulation_options(args: &AnalyzeArgs) -> Result<SimulationOptions> {
    let options = SimulationOptions::default().warmup(args.with_warmup);
    let Some(path) = &args.peaks else { return Ok(options) };
    let text = read(path)?;
    options.peaks_file(&text).with_context(|| format!("in `{}`", path.display()))
}

/// The peaks of a file, in the form in which a run names them.
fn peaks_file(path: &Path) -> Result<Value> {
    let text = read(path)?;
    let named = || format!("in `{}`", path.display());
    let mut peaks = peaks_device(&text, None).with_context(named)?.peaks();
    let whole: Value = serde_json::from_str(&text).with_context(named)?;
    let disturbed = whole["disturbed"].as_array().is_some_and(|seen| !seen.is_empty());
    peaks.iter_mut().for_each(|peak| peak.disturbed |= disturbed);
    Ok(json!(peaks))
}

fn read(path: &Path) -> Result<String> {
    let bytes = read_limited(path, MOST_BYTES).with_context(|| format!("cannot read `{}`", path.display()))?;
    String::from_utf8(bytes).with_context(|| format!("`{}` is not text", path.display()))
}
