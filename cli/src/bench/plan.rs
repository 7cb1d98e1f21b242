//! What is to be measured, from the arguments.

use super::bench_args::{LatencyArgs, SeqlenArgs, SuiteArgs, ThroughputArgs};
use super::common_args::CommonArgs;
use crate::options::MAX_BATCH;
use crate::output::note;
use anyhow::{Result, bail};
use candlescope_lab::method::Method;
use candlescope_lab::study::Manifest;
use candlescope_lab::suites::{ContinuousOptions, LmOptions, SuiteName, parse_range};
use std::time::Duration;

/// Requests of a repetition for each that is under way at once, where they join and leave between steps.
const REQUESTS_EACH: usize = 4;

pub(super) fn latency(args: &LatencyArgs) -> Result<Manifest> {
    let mut options = common(&args.common, &[SuiteName::Latency])?;
    let tokens = |name: &str, given: Option<usize>, default| at_least_one(name, given.unwrap_or(default));
    options.latency.prompt = tokens("--prompt-tokens", args.prompt_tokens, options.latency.prompt)?;
    options.latency.output = tokens("--output-tokens", args.output_tokens, options.latency.output)?;
    options.prompt_file = args.prompt_file.as_deref().map(std::path::absolute).transpose()?;
    manifest("latency", options, &args.common)
}

pub(super) fn throughput(args: &ThroughputArgs) -> Result<Manifest> {
    let mut options = common(&args.common, &[SuiteName::Throughput])?;
    let tokens = |name: &str, given: Option<usize>, default| at_least_one(name, given.unwrap_or(default));
    options.throughput.prompt = tokens("--prompt-tokens", args.prompt_tokens, options.throughput.prompt)?;
    options.throughput.output = tokens("--output-tokens", args.output_tokens, options.throughput.output)?;
    batches(&mut options, args.batches.as_deref())?;
    if args.continuous {
        let (prompt, shared_tokens) = (options.throughput.prompt, args.shared_tokens);
        if shared_tokens > prompt {
            bail!(
                "--shared-tokens is {shared_tokens}, and a prompt has {prompt}: share fewer, or raise --prompt-tokens"
            );
        }
        options.continuous = Some(ContinuousOptions {
            requests_each: REQUESTS_EACH,
            prompt_piece: at_least_one("--prompt-piece", args.prompt_piece)?,
            prefix_reuse: args.prefix_reuse,
            shared_tokens,
            cuda_graph: args.cuda_graph,
        });
        if args.cuda_graph && !options.device.starts_with("cuda") {
            note(&format!(
                "steps run call by call, not as CUDA graphs: {} is no CUDA device (--device)",
                options.device
            ));
        }
    }
    manifest("throughput", options, &args.common)
}

pub(super) fn seqlen(args: &SeqlenArgs) -> Result<Manifest> {
    let mut options = common(&args.common, &[SuiteName::Seqlen])?;
    lengths(&mut options, args.prompts.as_deref(), args.outputs.as_deref())?;
    manifest("seqlen", options, &args.common)
}

pub(super) fn suite(args: &SuiteArgs) -> Result<Manifest> {
    let mut options = common(&args.common, &SuiteName::ALL)?;
    batches(&mut options, args.batches.as_deref())?;
    lengths(&mut options, args.prompts.as_deref(), args.outputs.as_deref())?;
    manifest("suite", options, &args.common)
}

fn batches(options: &mut LmOptions, list: Option<&str>) -> Result<()> {
    if let Some(list) = list {
        options.batches = parse_range(list)?;
    }
    match options.batches.iter().find(|batch| **batch > MAX_BATCH) {
        Some(batch) => bail!("--batches has {batch}; at most {MAX_BATCH} sequences can be asked for"),
        None => Ok(()),
    }
}

fn lengths(options: &mut LmOptions, prompts: Option<&str>, outputs: Option<&str>) -> Result<()> {
    if let Some(list) = prompts {
        options.seqlen.prompts = parse_range(list)?;
    }
    if let Some(list) = outputs {
        options.seqlen.outputs = parse_range(list)?;
    }
    Ok(())
}

fn at_least_one(name: &str, value: usize) -> Result<usize> {
    if value == 0 {
        bail!("{name} is 0; it must be at least 1");
    }
    Ok(value)
}

fn common(args: &CommonArgs, suites: &[SuiteName]) -> Result<LmOptions> {
    let mut options = if args.quick { LmOptions::quick() } else { LmOptions::default() };
    args.subject.check()?;
    args.subject.tell(&mut options)?;
    options.seed = args.seed;
    options.suites = suites.to_vec();
    options.memory_limit = args.memory_limit.map(|mib| mib.saturating_mul(1 << 20));
    Ok(options)
}

fn manifest(name: &str, options: LmOptions, args: &CommonArgs) -> Result<Manifest> {
    let method = method(args)?;
    let mut manifest = Manifest::new(format!("{name} of {}", args.subject.model), options.case_ids(), &method);
    if let serde_json::Value::Object(map) = serde_json::to_value(&options)? {
        manifest.options = map;
    }
    args.subject.settle_threads(&mut manifest)?;
    args.tell_price(&mut manifest)?;
    Ok(manifest)
}

pub(super) fn method(args: &CommonArgs) -> Result<Method> {
    let (runs, seconds, processes, profiled) = if args.quick { (Some(3), 3.0, 1, 1) } else { (None, 60.0, 6, 3) };
    let runs = args.runs.or(if args.time_limit.is_some() { None } else { runs });
    let seconds = args.time_limit.unwrap_or(seconds);
    let processes = args.processes.unwrap_or(processes);
    if runs == Some(0) {
        bail!("--runs is 0; it must be at least 1");
    }
    if !(seconds > 0.0 && seconds <= 1e6) {
        bail!("--time-limit is {seconds}; it is a number of seconds above 0 and up to 1000000");
    }
    if !(1..=1_000).contains(&processes) {
        bail!("--processes is {processes}; it must be from 1 to 1000");
    }
    let base = if args.quick { Method::quick() } else { Method::default() };
    Ok(base
        .runs(runs)
        .time_limit(Duration::from_secs_f64(seconds))
        // More starts than requests would start processes that measure nothing.
        .processes(runs.map_or(processes, |runs| runs.min(processes)))
        .profiled_runs(args.profiled.unwrap_or(profiled))
        .seed(args.seed))
}
