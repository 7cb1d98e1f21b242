//! `candlescope tune threads`.

use crate::bench::ModelArgs;
use crate::bench::operations::{cancel_on_interrupt, last_repetition, warn_of_debug_build};
use crate::output::{note, say};
use crate::this_program::this_program;
use crate::threads::physical_cores;
use anyhow::{Context, Result, bail};
use candlescope_core::files::write_whole;
use candlescope_lab::method::Mode;
use candlescope_lab::study::{Study, told_once};
use candlescope_lab::suites::parse_range;
use candlescope_lab::tune::{ThreadsTuned, thread_counts};
use clap::Args;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope tune threads --model MODEL.gguf
      every count on few processors, powers of two on many, six rounds in turns
  candlescope tune threads --model MODEL.gguf --counts 1,4,8 --output-tokens 128
      chosen counts, longer answers";

/// The result, in the folder of the studies.
const RESULT: &str = "threads.json";

#[derive(Debug, Args)]
pub(crate) struct ThreadsArgs {
    #[command(flatten)]
    subject: ModelArgs,
    /// Counts to try: a list such as 1,2,4 or a range such as 1-8*2 [default: by the processors that may be used]
    #[arg(long, value_name = "LIST")]
    counts: Option<String>,
    /// Rounds; in each every count is measured once, in a process of its own, in random order; from 6 on medians have a
    /// 95 % interval [default: 6, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    /// Requests of a count in each round [default: 5, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,
    /// Tokens of the prompt, seeded random ones [default: 32, with --quick 16]
    #[arg(long, value_name = "N")]
    prompt_tokens: Option<usize>,
    /// Tokens of the output [default: 64, with --quick 16]
    #[arg(long, value_name = "N")]
    output_tokens: Option<usize>,
    /// Seed of random weights, of prompts, and of the order of counts
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Directory for the studies and threads.json; must be empty or absent [default: results/tune-threads-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Few short requests: a look, no measurement to rely on
    #[arg(long)]
    quick: bool,
    /// Print threads.json on standard output instead of text
    #[arg(long)]
    json: bool,
    /// No lines about what is measured next
    #[arg(long)]
    no_progress: bool,
}

pub(super) fn run(args: &ThreadsArgs) -> Result<u8> {
    args.subject.check()?;
    if args.subject.device != "cpu" {
        bail!("threads compute on a CPU, and --device is {}; leave it out", args.subject.device);
    }
    if let Some(threads) = args.subject.threads {
        bail!("`tune threads` tries several counts: give --counts {threads},… in place of --threads {threads}");
    }
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let counts = match &args.counts {
        Some(list) => parse_range(list)?,
        None => thread_counts(physical_cores(), available),
    };
    if let Some(most) = counts.iter().find(|count| **count > available) {
        note(&format!("warning: {most} threads share the {available} processors that may be used"));
    }
    let out = crate::out_dir::chosen(args.out.as_deref(), "tune-threads", false)?;
    crate::out_dir::must_be_empty(&out, "")?;
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make the directory {}", out.display()))?;
    warn_of_debug_build();
    let cancel = cancel_on_interrupt(last_repetition);
    let planned = args.rounds.unwrap_or(if args.quick { 2 } else { 6 });
    let mut order = StdRng::seed_from_u64(args.seed);
    let (mut rounds, mut warnings) = (Vec::new(), Vec::new());
    'all: for n in 0..planned {
        let mut turn = counts.clone();
        turn.shuffle(&mut order);
        let mut round = BTreeMap::new();
        for threads in turn {
            if cancel.is_cancelled() {
                break 'all;
            }
            if !args.no_progress && !args.json {
                note(&format!("round {} of {planned}: {threads} threads", n + 1));
            }
            let dir = out.join(format!("round-{}-threads-{threads}", n + 1));
            match measure(args, threads, &dir, &mut warnings)? {
                Some(ns) => _ = round.insert(threads, ns),
                // The interrupt went to it as well.
                None if cancel.is_cancelled() => break 'all,
                None => bail!("{threads} threads gave no figure; {} has what was measured", dir.display()),
            }
        }
        rounds.push(round);
    }
    let tokens = args.output_tokens.unwrap_or(if args.quick { 16 } else { 64 });
    let Some(tuned) = ThreadsTuned::of(&rounds, tokens) else {
        bail!("interrupted before a round was whole; {} keeps what was measured", out.display())
    };
    tell(args, &out, &tuned, &warnings)?;
    Ok(if cancel.is_cancelled() { 130 } else { 0 })
}

/// The median request with this many threads, in nanoseconds: `bench latency` in a process of its own.
fn measure(args: &ThreadsArgs, threads: usize, dir: &Path, warnings: &mut Vec<String>) -> Result<Option<f64>> {
    let program = this_program()?;
    let mut command = Command::new(program);
    command.args(["bench", "latency", "--processes", "1", "--profiled", "0", "--json", "--no-progress"]);
    let subject = &args.subject;
    command.args(["--model", &subject.model, "--engine", &subject.engine, "--threads", &threads.to_string()]);
    command.args(subject.dtype.as_ref().map(|dtype| format!("--dtype={dtype}")));
    command.args(subject.dequantize.then_some("--dequantize"));
    command.args(subject.kv_cache_dtype.as_ref().map(|dtype| format!("--kv-cache-dtype={dtype}")));
    command.args(["--seed", &args.seed.to_string()]).arg("--out").arg(dir);
    command.args(["--runs", &args.runs.unwrap_or(if args.quick { 2 } else { 5 }).to_string()]);
    command.args(args.quick.then_some("--quick"));
    command.args(args.prompt_tokens.map(|n| format!("--prompt-tokens={n}")));
    command.args(args.output_tokens.map(|n| format!("--output-tokens={n}")));
    let ran = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let ran = ran.context("cannot start a process that measures")?;
    if !ran.status.success() {
        if ran.status.code() == Some(130) {
            return Ok(None);
        }
        let said = String::from_utf8_lossy(&ran.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        bail!("measuring {threads} threads failed: {}", last.trim_start_matches("error: "));
    }
    let study = Study::open(dir)?;
    let records = study.records()?;
    warnings.extend(records.disturbances.iter().cloned());
    let counts = |sample: &&candlescope_lab::method::Sample| sample.mode == Mode::Plain && sample.verdict.counts();
    let times = records.samples.iter().filter(counts).map(|sample| sample.measurement.host_ns as f64).collect();
    Ok(candlescope_figures::stats::Distribution::of(times).map(|all| all.median))
}

fn tell(args: &ThreadsArgs, out: &Path, tuned: &ThreadsTuned, warnings: &[String]) -> Result<()> {
    let path = out.join(RESULT);
    let mut object = serde_json::to_value(tuned)?;
    object["schema"] = json!(1);
    object["model"] = json!(args.subject.model);
    object["disturbances"] = json!(warnings);
    write_whole(&path, |file| file.write_all(format!("{object:#}\n").as_bytes()))
        .with_context(|| format!("cannot write {}: free some space", path.display()))?;
    if args.json {
        return say(&object.to_string());
    }
    // The number of the start says nothing here: each measurement has one.
    let once = told_once(warnings);
    if let Some(sentence) = once.first().map(|told| told.split_once(": ").map_or(told.as_str(), |(_, words)| words)) {
        let n = warnings.len();
        note(&format!("warning: before {n} of the measurements others were at work, for example: {sentence}"));
    }
    tuned.lines().iter().try_for_each(|line| say(line))?;
    let use_it = if tuned.undecided.is_empty() { "Use it" } else { "Until more rounds decide" };
    say(&format!(
        "{use_it}: --threads {best}, or RAYON_NUM_THREADS={best} for a program of your own.",
        best = tuned.best
    ))?;
    say(&format!("Studies: {}   Result: {}", out.display(), path.display()))
}
