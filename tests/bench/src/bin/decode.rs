//! How much slower a real model decodes with everything recorded.
//!
//! Three processes load SmolLM2-135M: one records every interval to Parquet, two have no subscriber at all (a span that
//! was made without one stays disabled, so this cannot change within a process). They generate the same text in turns,
//! in an order that changes with the round. The figure is the ratio of median decode times of the first and the second
//! with a bootstrap interval over rounds; the third, which should not differ from the second, shows what the machine
//! can resolve. Disturbances only ever slow a generation down, so the first quartiles, given beside the medians, have a
//! narrower interval.
//!
//! A round during which other processes took more than a twentieth of the machine's CPU time is counted and repeated:
//! their effect on a single generation is larger than what is measured.

use anyhow::{Context, Result, bail, ensure};
use candlescope_bench::account::check_conserved;
use candlescope_bench::model::{PROMPT, find_model, most_likely};
use candlescope_bench::process::Disturbance;
use candlescope_bench::stats::{Ratio, Spread, ratio_of_quantiles};
use candlescope_bench::{alloc, machine, output};
use candlescope_core::Session;
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_models::{Engine, GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use tracing_subscriber::prelude::*;

#[global_allocator]
static GLOBAL: alloc::Counting = alloc::Counting;

/// Measures decode with everything recorded against no subscriber.
#[derive(Parser)]
struct Options {
    /// Rounds; each is a pair and a control.
    #[arg(long, default_value_t = 60)]
    pairs: usize,
    /// Tokens of a generation.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// The model.
    #[arg(long, value_enum, default_value_t = Implementation::Candle)]
    implementation: Implementation,
    /// A GGUF; otherwise CANDLESCOPE_SMOLLM2, or SmolLM2 in `.models/`, where tests/fetch-smollm2.sh puts it.
    #[arg(long, env = "CANDLESCOPE_SMOLLM2")]
    model: Option<PathBuf>,
    /// Do not write a file.
    #[arg(long)]
    dry: bool,
    /// The role of a child process.
    #[arg(long, hide = true)]
    child: Option<Role>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Implementation {
    /// candle-transformers' quantized_llama, unmodified, with nothing added but the layer.
    Candle,
    /// candlescope-models' layers with FLOPs, bytes, shapes and phases.
    Instrumented,
}

impl Implementation {
    fn word(self) -> &'static str {
        match self {
            Implementation::Candle => "candle",
            Implementation::Instrumented => "instrumented",
        }
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Role {
    Recorded,
    Plain,
}

/// Rounds that are not counted, because caches and clocks are cold.
const WARM_UP: usize = 2;
/// A round counts as disturbed from this share of CPU time taken by others on.
const DISTURBED: f64 = 0.05;
/// Most tries for each round.
const MOST_TRIES: usize = 4;

/// The parent's results: the recorded, the plain and the control generation of each round.
#[derive(Default)]
struct Taken {
    rounds: Vec<[Generation; 3]>,
    disturbed: Vec<[Generation; 3]>,
    generations: usize,
}

/// One generation as a child reports it.
#[derive(Serialize, Deserialize)]
struct Generation {
    prefill_ns: f64,
    decode_ns: f64,
    tokens: Vec<u32>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let model = find_model(options.model.as_deref())?;
    match options.child {
        Some(role) => child(role, &options, &model),
        None => parent(&options, &model),
    }
}

fn child(role: Role, options: &Options, model: &Path) -> Result<()> {
    let dir = output::scratch()?;
    let mut session = None;
    if role == Role::Recorded {
        let exporter = ParquetExporter::new(ParquetConfig::new(dir.path().join("run")));
        let (layer, started) = Session::builder().exporter(exporter).start()?;
        tracing_subscriber::registry().with(layer).try_init()?;
        session = Some(started);
    }
    let engine = match options.implementation {
        Implementation::Candle => Engine::Candle,
        Implementation::Instrumented => Engine::Instrumented,
    };
    let mut loaded =
        LoadedModel::load(&ModelSource::Gguf(model.to_path_buf()), &LoadOptions { engine, ..LoadOptions::default() })?;
    let prompt = loaded.encode_prompt(PROMPT)?;
    // The parent requests each generation with a line, and closes the pipe at the end.
    for line in std::io::stdin().lock().lines() {
        let tokens: usize = line?.parse()?;
        let generation = match options.implementation {
            Implementation::Candle => bare_loop(&mut loaded, &prompt, tokens)?,
            Implementation::Instrumented => marked_loop(&mut loaded, &prompt, tokens)?,
        };
        println!("{}", serde_json::to_string(&generation)?);
    }
    if let Some(session) = session {
        let manifest = session.finish();
        check_conserved(&manifest, manifest.loss.emitted)?;
        let exported = manifest.exporters.first().map_or(0, |e| e.exported["spans"]);
        println!(
            "{}",
            json!({"loss": manifest.loss, "exported": exported, "overhead": manifest.overhead, "steps": manifest.counts["steps"]})
        );
    }
    Ok(())
}

/// Greedy decoding without any code of ours.
fn bare_loop(loaded: &mut LoadedModel, prompt: &[u32], tokens: usize) -> Result<Generation> {
    let start = Instant::now();
    let mut out = vec![most_likely(loaded, prompt, 0)?];
    let first = Instant::now();
    while out.len() < tokens {
        let next = most_likely(loaded, &out[out.len() - 1..], prompt.len() + out.len() - 1)?;
        out.push(next);
    }
    let decode_ns = first.elapsed().as_nanos() as f64;
    Ok(Generation { prefill_ns: (first - start).as_nanos() as f64, decode_ns, tokens: out })
}

/// candlescope's own loop, which marks requests, phases and samples.
fn marked_loop(loaded: &mut LoadedModel, prompt: &[u32], tokens: usize) -> Result<Generation> {
    let options = GenerateOptions { max_new_tokens: tokens, ignore_eos: true, ..GenerateOptions::default() };
    let output = generate(loaded, &[prompt.to_vec()], &options, &mut |_| {})?;
    Ok(Generation {
        prefill_ns: output.ttft().context("no token came")?.as_nanos() as f64,
        decode_ns: output.itl().iter().map(|d| d.as_nanos() as f64).sum(),
        tokens: output.sequences.into_iter().next().map(|s| s.tokens).unwrap_or_default(),
    })
}

/// A child and its pipes.
struct Worker {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(role: &str, options: &Options, model: &Path) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--child", role, "--implementation", options.implementation.word(), "--model"])
            .arg(model)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("the child has no output")?);
        Ok(Self { process, input, output })
    }

    fn generate(&mut self, tokens: usize) -> Result<Generation> {
        let input = self.input.as_mut().context("the child has ended")?;
        writeln!(input, "{tokens}")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a child ended early: {}", self.process.wait()?);
        }
        Ok(line)
    }

    /// Ends the child and returns its last line of output, if there is one.
    fn end(mut self) -> Result<Option<Value>> {
        self.input = None;
        let last = self.line().ok();
        let status = self.process.wait()?;
        ensure!(status.success(), "a child failed: {status}");
        Ok(last.map(|l| serde_json::from_str(&l)).transpose()?)
    }
}

fn parent(options: &Options, model: &Path) -> Result<()> {
    let load_before = machine::load();
    let mut workers = ["recorded", "plain", "plain"]
        .into_iter()
        .map(|role| Worker::start(role, options, model))
        .collect::<Result<Vec<_>>>()?;
    let ours: Vec<u32> = workers.iter().map(|w| w.process.id()).collect();
    let mut taken = Taken::default();
    while taken.rounds.len() < options.pairs && taken.generations < WARM_UP + options.pairs * MOST_TRIES {
        let watch = Disturbance::watch(&ours)?;
        let round = round(&mut workers, taken.generations, options.tokens)?;
        let disturbed = watch.share()? > DISTURBED;
        taken.generations += 1;
        if taken.generations > WARM_UP {
            let rounds = if disturbed { &mut taken.disturbed } else { &mut taken.rounds };
            rounds.push(round);
        }
    }
    if taken.rounds.len() < options.pairs {
        eprintln!(
            "the machine was never quiet for long: {} of {} rounds are used as they are",
            taken.disturbed.len(),
            taken.generations
        );
        taken.rounds.append(&mut taken.disturbed);
    }
    let mut last_words = workers.into_iter().map(Worker::end).collect::<Result<Vec<_>>>()?;
    let account = last_words.swap_remove(0).context("the recording child did not report")?;
    let report = report(options, &taken, &account, load_before)?;
    if !options.dry {
        let name = match options.implementation {
            Implementation::Candle => "decode",
            Implementation::Instrumented => "decode_instrumented",
        };
        println!("{}", output::write(name, &report)?.display());
    }
    Ok(())
}

/// One generation of each worker, in an order that depends on the round's number: every order of the three occurs.
fn round(workers: &mut [Worker], number: usize, tokens: usize) -> Result<[Generation; 3]> {
    let mut three: [Option<Generation>; 3] = [None, None, None];
    for turn in 0..3 {
        let forwards = [0, 1, 2].map(|n| (n + number) % 3);
        let who = if (number / 3).is_multiple_of(2) { forwards[turn] } else { forwards[2 - turn] };
        three[who] = Some(workers[who].generate(tokens)?);
    }
    let [Some(recorded), Some(plain), Some(control)] = three else { bail!("a turn was missed") };
    ensure!(recorded.tokens == plain.tokens && plain.tokens == control.tokens, "recording changed the text");
    Ok([recorded, plain, control])
}

fn report(options: &Options, taken: &Taken, account: &Value, load_before: f64) -> Result<Value> {
    let rounds = &taken.rounds;
    let column = |who: usize, f: fn(&Generation) -> f64| rounds.iter().map(|r| f(&r[who])).collect::<Vec<_>>();
    let compare = |a: usize, b: usize, f: fn(&Generation) -> f64, q: f64| -> Ratio {
        ratio_of_quantiles(&column(a, f).into_iter().zip(column(b, f)).collect::<Vec<_>>(), q)
    };
    let steps = (options.tokens - 1).max(1) as f64;
    let ms_a_token = |who: usize| -> Result<Value> {
        let each: Vec<f64> = column(who, |g| g.decode_ns).iter().map(|ns| ns / steps / 1e6).collect();
        Ok(json!(Spread::of(&each).context("no rounds")?))
    };
    let decode_of = |g: &Generation| g.decode_ns;
    let (decode, control) = (compare(0, 1, decode_of, 0.5), compare(2, 1, decode_of, 0.5));
    let (decode_p25, control_p25) = (compare(0, 1, decode_of, 0.25), compare(2, 1, decode_of, 0.25));
    let prefill = compare(0, 1, |g| g.prefill_ns, 0.5);
    let percent = Ratio::percent;
    println!(
        "{}: {} rounds of {} tokens, {} more left out as disturbed",
        options.implementation.word(),
        rounds.len(),
        options.tokens,
        taken.disturbed.len()
    );
    println!("medians, recorded against no subscriber:   {}", percent(&decode));
    println!("medians, control (both without):           {}", percent(&control));
    println!("quartiles, recorded against no subscriber: {}", percent(&decode_p25));
    println!("quartiles, control:                        {}", percent(&control_p25));
    println!("prefill, medians, recorded:                {}", percent(&prefill));
    let exported = account["exported"].as_f64().unwrap_or(f64::NAN);
    let intervals_a_token = exported / (taken.generations * options.tokens) as f64;
    println!("intervals a token: {intervals_a_token:.0}; account: {account}");
    ensure!(account["loss"]["ring_full"] == 0, "intervals were lost: {account}");
    Ok(json!({
        "implementation": options.implementation.word(),
        "tokens": options.tokens,
        "rounds": rounds.len(),
        "disturbed_rounds_left_out": taken.disturbed.len(),
        "decode": decode,
        "control": control,
        "decode_first_quartile": decode_p25,
        "control_first_quartile": control_p25,
        "prefill": prefill,
        "recorded_ms_a_token": ms_a_token(0)?,
        "plain_ms_a_token": ms_a_token(1)?,
        "control_ms_a_token": ms_a_token(2)?,
        "intervals_a_token": intervals_a_token,
        "decode_ns_of_rounds": (0..3).map(|who| column(who, decode_of)).collect::<Vec<_>>(),
        "account": account,
        "load_before": load_before,
        "machine": machine::describe(),
        "versions": machine::versions(),
    }))
}
