//! What sampling of call stacks costs a real model's decoding: CPU time and time a token.
//!
//! One process loads SmolLM2-135M and generates the same text again and again, in rounds of three: with the sampler polled as
//! the SDK polls it, and twice without, in an order that changes. The second without, which should not differ from the first,
//! shows what the machine can resolve. Before each generation that counts there is one that does not, in which the sampler
//! attaches itself to the threads and reads the program's tables.
//!
//! CPU time is the whole process's, so that the sampler's own threads are in it. What others do on the machine lengthens some
//! tokens by much and never shortens one, while sampling interrupts every token alike: the quartile of a generation's token
//! times (`token_p25`) shows its cost where means and medians drown.

use anyhow::{Context, Result, bail, ensure};
use candlescope_bench::model::{PROMPT, find_model, most_likely};
use candlescope_bench::process::Disturbance;
use candlescope_bench::stats::{Ratio, median, quantile, ratio_of_quantiles};
use candlescope_bench::{machine, output};
use candlescope_collectors::stacks::{SourceChoice, StackOptions, StackSampler};
use candlescope_core::stacks::{StackSink, StackSource};
use candlescope_models::{LoadOptions, LoadedModel, ModelSource};
use clap::{Parser, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A round counts as disturbed from this share of CPU time taken by others on.
const DISTURBED: f64 = 0.03;

/// Measures what sampling of call stacks costs a model's decoding.
#[derive(Parser)]
struct Options {
    /// Rounds that count.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// Tokens of a generation.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// What takes the samples.
    #[arg(long, value_enum, default_value_t = Source::Signals)]
    source: Source,
    /// Samples per second of a thread's CPU time.
    #[arg(long, default_value_t = 499)]
    hz: u32,
    /// Milliseconds between two polls, in place of what the sampler asks for.
    #[arg(long)]
    poll_ms: Option<u64>,
    /// No switches and page faults.
    #[arg(long)]
    no_off_cpu: bool,
    /// Generations before the one that counts.
    #[arg(long, default_value_t = 1)]
    warm: usize,
    /// Weights as f32 instead of the file's own blocks.
    #[arg(long)]
    dequantize: bool,
    /// A GGUF; otherwise CANDLESCOPE_SMOLLM2, or SmolLM2 in `.models/`, where tests/fetch-smollm2.sh puts it.
    #[arg(long, env = "CANDLESCOPE_SMOLLM2")]
    model: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Source {
    Signals,
    Perf,
}

/// Time of a generation, nanoseconds a token.
#[derive(Clone, Copy, serde::Serialize)]
struct Cost {
    cpu_ns: f64,
    ns: f64,
    /// CPU time of the threads whose name begins with `cs-`.
    sampler_ns: f64,
    /// The quartile of its tokens' times, nanoseconds.
    token_p25_ns: f64,
}

/// One of a generation's figures.
type Figure = fn(&Cost) -> f64;

/// A sampler and the thread that polls it.
struct Sampling {
    stop: Sender<()>,
    thread: JoinHandle<Result<usize>>,
}

impl Sampling {
    fn start(options: StackOptions, every: Option<Duration>) -> Result<Self> {
        let (stop, stopped) = channel();
        let (started, start) = channel();
        let poll = move || poll(StackSampler::new(options), &started, &stopped, every);
        let thread = std::thread::Builder::new().name("cs-stacks".into()).spawn(poll)?;
        start.recv()?;
        Ok(Self { stop, thread })
    }

    /// Ends it; how many samples there were.
    fn stop(self) -> Result<usize> {
        self.stop.send(()).context("the sampler has ended")?;
        match self.thread.join() {
            Ok(samples) => samples,
            Err(_) => bail!("the sampler panicked"),
        }
    }
}

fn poll(
    mut sampler: StackSampler,
    started: &Sender<()>,
    stopped: &Receiver<()>,
    every: Option<Duration>,
) -> Result<usize> {
    sampler.start()?;
    started.send(())?;
    let (mut sink, mut samples) = (StackSink::default(), 0);
    while stopped.recv_timeout(every.unwrap_or_else(|| sampler.pause())).is_err() {
        sampler.poll(&mut sink)?;
        samples += std::mem::take(&mut sink).samples.len();
    }
    sampler.stop(&mut sink);
    Ok(samples + sink.samples.len())
}

fn main() -> Result<()> {
    let options = Options::parse();
    let path = find_model(options.model.as_deref())?;
    let load = LoadOptions { dequantize: options.dequantize, ..LoadOptions::default() };
    let mut model = LoadedModel::load(&ModelSource::Gguf(path), &load)?;
    let prompt = model.encode_prompt(PROMPT)?;
    let load_before = machine::load();

    let mut rounds: Vec<[Cost; 3]> = Vec::new();
    let (mut samples, mut disturbed) = (0, 0);
    while rounds.len() < options.rounds {
        ensure!(
            disturbed <= 2 * options.rounds,
            "the machine is too busy: {disturbed} rounds of {} were disturbed",
            rounds.len()
        );
        let watch = Disturbance::watch(&[])?;
        let mut round = [None; 3];
        for turn in 0..3 {
            let who = (turn + rounds.len() + disturbed) % 3;
            let sampling = match who {
                0 => Some(Sampling::start(sampler_options(&options), options.poll_ms.map(Duration::from_millis))?),
                _ => None,
            };
            for _ in 0..options.warm {
                generate(&mut model, &prompt, options.tokens)?;
            }
            round[who] = Some(generate(&mut model, &prompt, options.tokens)?);
            if let Some(sampling) = sampling {
                samples += sampling.stop()?;
            }
        }
        let round = round.map(|cost| cost.expect("each had its turn"));
        if watch.share()? > DISTURBED {
            disturbed += 1;
            continue;
        }
        rounds.push(round);
    }

    let ratio = |who: usize, of: Figure| -> Ratio {
        let pairs: Vec<(f64, f64)> = rounds.iter().map(|round| (of(&round[who]), of(&round[2]))).collect();
        ratio_of_quantiles(&pairs, 0.5)
    };
    let (cpu, time): (Figure, Figure) = (|cost| cost.cpu_ns, |cost| cost.ns);
    let figures = [
        ("cpu", ratio(0, cpu)),
        ("cpu_control", ratio(1, cpu)),
        ("time", ratio(0, time)),
        ("time_control", ratio(1, time)),
        ("token_p25", ratio(0, |cost| cost.token_p25_ns)),
        ("p25_control", ratio(1, |cost| cost.token_p25_ns)),
    ];
    let of_all = |of: Figure| median(&rounds.iter().map(|round| of(&round[2])).collect::<Vec<_>>()) / 1e6;
    let (cpu_ms, ms) = (of_all(cpu), of_all(time));
    println!(
        "{} rounds of {} tokens, {disturbed} more left out as disturbed, {samples} samples",
        rounds.len(),
        options.tokens
    );
    let own: Vec<f64> = rounds.iter().map(|round| round[0].sampler_ns / round[0].cpu_ns * 100.0).collect();
    println!("the sampler's own threads: {:.2} % of the CPU time", median(&own));
    println!("without: {ms:.2} ms a token, {cpu_ms:.2} ms of CPU time");
    for (name, ratio) in &figures {
        println!("{name:13} {}", ratio.percent());
    }
    let file = output::write(
        "stacks_cost",
        &json!({
            "tokens": options.tokens, "hz": options.hz, "dequantized": options.dequantize, "samples": samples,
            "disturbed_rounds_left_out": disturbed, "ms_a_token": ms, "cpu_ms_a_token": cpu_ms,
            "ratios": figures.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "rounds": rounds, "load_before": load_before, "machine": machine::describe(), "versions": machine::versions(),
        }),
    )?;
    println!("{}", file.display());
    Ok(())
}

fn sampler_options(options: &Options) -> StackOptions {
    let source = match options.source {
        Source::Signals => SourceChoice::Signals,
        Source::Perf => SourceChoice::Perf,
    };
    StackOptions::default().hz(options.hz).source(source).off_cpu(!options.no_off_cpu)
}

/// Greedy decoding; what a token after the first takes.
fn generate(loaded: &mut LoadedModel, prompt: &[u32], tokens: usize) -> Result<Cost> {
    let mut last = most_likely(loaded, prompt, 0)?;
    let (sampler, cpu, start) = (sampler_ns(), process_cpu_ns(), Instant::now());
    let mut times = Vec::with_capacity(tokens);
    for position in prompt.len()..prompt.len() + tokens {
        let before = Instant::now();
        last = most_likely(loaded, &[last], position)?;
        times.push(before.elapsed().as_nanos() as f64);
    }
    let each = tokens as f64;
    Ok(Cost {
        cpu_ns: (process_cpu_ns() - cpu) / each,
        sampler_ns: (sampler_ns() - sampler) / each,
        ns: start.elapsed().as_nanos() as f64 / each,
        token_p25_ns: quantile(&times, 0.25),
    })
}

/// CPU time of the process, all threads.
fn process_cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// CPU time of the sampler's threads.
fn sampler_ns() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let read = |path: &Path, file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
    let ours = tasks.map(|task| task.path()).filter(|path| read(path, "comm").starts_with("cs-"));
    ours.filter_map(|path| read(&path, "schedstat").split(' ').next()?.parse::<f64>().ok()).sum()
}
