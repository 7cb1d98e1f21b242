//! Makes a folder of real runs of the embedded model, each with a session, a subscriber and a directory of its own, in
//! one process.
//!
//! `many_runs DIR [--runs N] [--dtype f32,f16,bf16] [--warmup N] [--repeats N]` writes DIR/DTYPE/run-NNNN. Element
//! type, batch, prompt and answer differ from run to run: every combination occurs equally often and in random order,
//! so that other work on the machine affects all equally.
use anyhow::{Context, Result, bail};
use candle_core::DType;
use candlescope_models::{Engine, GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing_subscriber::prelude::*;

const USAGE: &str =
    "usage: many_runs DIR [--runs N] [--dtype f32,f16,bf16] [--warmup N] [--repeats N] [--engine candle]";

/// Most prompt tokens of all sequences together: longer prefills would take most of the time.
const MOST_PROMPT_TOKENS: usize = 256;

/// What differs between runs.
#[derive(Debug, Clone, Copy)]
struct Case {
    dtype: DType,
    batch: usize,
    prompt_tokens: usize,
    new_tokens: usize,
}

#[derive(Debug)]
struct Options {
    dir: PathBuf,
    runs: usize,
    dtypes: Vec<DType>,
    warmup: usize,
    repeats: usize,
    engine: Engine,
}

fn main() -> Result<()> {
    let options = options(std::env::args().skip(1))?;
    let cases = cases(&options.dtypes);
    let started = Instant::now();
    let mut intervals = 0;
    for (number, case) in shuffled(&cases, options.runs).into_iter().enumerate() {
        let dir = options.dir.join(case.dtype.as_str()).join(format!("run-{number:04}"));
        intervals += one(&dir, case, &options).with_context(|| format!("run {number}, {case:?}"))?;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{} runs, {intervals} intervals in {}: {seconds:.1} s", options.runs, options.dir.display());
    Ok(())
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let dir = args.next().filter(|arg| !arg.starts_with('-')).context(USAGE)?.into();
    let mut options =
        Options { dir, runs: 1000, dtypes: vec![DType::F32], warmup: 1, repeats: 1, engine: Engine::Instrumented };
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} needs a value; {USAGE}"))?;
        let number = || value.parse::<usize>().with_context(|| format!("{name} {value}: not a number; {USAGE}"));
        match (name.as_str(), value.as_str()) {
            ("--runs", _) => options.runs = number()?,
            ("--warmup", _) => options.warmup = number()?,
            ("--repeats", _) => options.repeats = number()?,
            ("--engine", "candle") => options.engine = Engine::Candle,
            ("--dtype", list) => options.dtypes = list.split(',').map(dtype).collect::<Result<_>>()?,
            _ => bail!("{name} {value} is not known; {USAGE}"),
        }
    }
    Ok(options)
}

fn dtype(name: &str) -> Result<DType> {
    match name {
        "f32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        _ => bail!("--dtype {name} is not known; {USAGE}"),
    }
}

fn cases(dtypes: &[DType]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in dtypes {
        for batch in [1, 2, 4, 8] {
            for prompt_tokens in [16, 64, 256] {
                for new_tokens in [12, 4] {
                    if batch * prompt_tokens <= MOST_PROMPT_TOKENS {
                        cases.push(Case { dtype, batch, prompt_tokens, new_tokens });
                    }
                }
            }
        }
    }
    cases
}

/// `n` cases: the first is the simplest, with one sequence and enough tokens for a trend, for the sake of single runs;
/// then all of them in random order, again and again. The order is always the same.
fn shuffled(cases: &[Case], n: usize) -> Vec<Case> {
    let mut random = StdRng::seed_from_u64(42);
    let mut order = Vec::new();
    while order.len() < n {
        let mut round = cases.to_vec();
        round[usize::from(order.is_empty())..].shuffle(&mut random);
        order.extend(round);
    }
    order.truncate(n);
    order
}

/// Makes one run and returns how many intervals it has.
fn one(dir: &Path, case: Case, options: &Options) -> Result<u64> {
    let run_id = dir.file_name().context("a directory with a name")?.to_string_lossy();
    let how = GenerateOptions { max_new_tokens: case.new_tokens, ignore_eos: true, ..GenerateOptions::default() };
    let load = LoadOptions { dtype: Some(case.dtype), engine: options.engine, ..LoadOptions::default() };
    // The same names as the options of `candlescope profile`.
    let (layer, scope) = candlescope::builder()
        .parquet(dir)
        .run_id(&run_id)
        .session(|s| {
            s.environment("candle", candlescope_core::run::CANDLE_VERSION)
                .option("model", "embedded")
                .option("dtype", case.dtype.as_str())
                .option("batch", case.batch)
                .option("max-new-tokens", case.new_tokens)
                .option("warmup", options.warmup)
                .option("repeats", options.repeats)
        })
        .layer()?;
    let subscriber = tracing_subscriber::registry().with(layer);
    // The model loads inside, because spans belong to the subscriber they are made under.
    tracing::subscriber::with_default(subscriber, || -> Result<()> {
        let mut loaded = LoadedModel::load(&ModelSource::Embedded, &load)?;
        if let Some(handle) = scope.handle() {
            for (key, value) in loaded.info.to_map() {
                handle.set_model(&key, value);
            }
        }
        let prompts = vec![loaded.random_prompt(case.prompt_tokens, how.seed)?; case.batch];
        for _ in 0..options.warmup + options.repeats {
            generate(&mut loaded, &prompts, &how, &mut |_| {})?;
        }
        Ok(())
    })?;
    let manifest = scope.finish().context("a session")?;
    anyhow::ensure!(manifest.verdict.ok, "{:?}", manifest.verdict.findings);
    Ok(manifest.counts["spans"])
}
