//! What observing a model on a GPU costs: decode and prefill of candle's own `llama`, unmodified, in every mode
//! compared with no subscriber.
//!
//! All modes without CUPTI live in one process and share the weights: each has a session and a model of its own, whose
//! spans were made under that session (a span made while nobody listens stays disabled), and they take turns token by
//! token in random order. So neighbours differ in the mode only. CUPTI slows a whole process down, so its modes run in
//! processes of their own, beside a plain process, whose difference from the plain mode in here shows how much
//! processes differ.
//!
//! Every generation ends a step by fetching the token, as a program does.

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use candlescope_bench::stats::{Spread, median, ratio_of_quantiles};
use candlescope_bench::{machine, output};
use candlescope_collectors::cuda::{CudaClock, CudaClockOptions};
use candlescope_collectors::cupti::{Cupti, CuptiOptions};
use candlescope_collectors::nvml::NvmlCollector;
use candlescope_core::{GpuTier, GpuTiming, Schedule, Session, SessionBuilder, llm};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_models::CausalLm;
use candlescope_models::ModelConfig;
use candlescope_models::candle_models::CandleLlama;
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::weights::{WeightError, WeightSource};
use clap::Parser;
use rand::seq::SliceRandom;
use rand::{SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tracing::Dispatch;
use tracing_subscriber::prelude::*;

/// Measures what each way of observing a model on a GPU costs.
#[derive(Parser)]
struct Options {
    /// A named architecture with random weights.
    #[arg(long, default_value = "smollm2-135m")]
    model: String,
    /// CUDA device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Rounds that count. Many short ones are better than few long ones: a disturbance then affects all modes.
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// Tokens a generation decodes.
    #[arg(long, default_value_t = 24)]
    tokens: usize,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 16)]
    prompt_tokens: usize,
    /// Modes besides `plain`, which is always included.
    #[arg(long, value_delimiter = ',', default_value = "plain-again,off,host,nvtx,steps,blocks,adaptive,all")]
    modes: Vec<Mode>,
    /// Modes in processes of their own.
    #[arg(long, value_delimiter = ',')]
    apart: Vec<Mode>,
    /// Name of the file of results.
    #[arg(long, default_value = "gpu_overhead")]
    name: String,
    /// Instead, run for this many seconds with everything on, and watch memory of host and device.
    #[arg(long)]
    soak: Option<u64>,
    /// With `--soak`: no windows of kernels.
    #[arg(long)]
    no_kernels: bool,
    #[arg(long, hide = true)]
    child: Option<Mode>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Mode {
    Plain,
    /// The plain mode once more: shows the resolution of the method.
    PlainAgain,
    /// Installed, capture off.
    Off,
    /// Every interval on the host.
    Host,
    /// As `host`, with the NVTX tap and no tool attached.
    Nvtx,
    Steps,
    Blocks,
    Adaptive,
    All,
    /// As `all`, but marks are read back a tenth as often: shows what reading them costs the launching thread.
    AllSeldom,
    /// Kernels of every step.
    Cupti,
    /// Kernels of 5 tokens in 500.
    CuptiWindow,
    /// CUPTI set up, no window.
    CuptiIdle,
}

impl Mode {
    fn word(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map(|v| v.get_name().to_string()).unwrap_or_default()
    }

    /// The session that observes in this mode; `None` for none.
    fn session(self, dir: &std::path::Path) -> Result<Option<SessionBuilder>> {
        let builder = || Session::builder().exporter(ParquetExporter::new(ParquetConfig::new(dir.join(self.word()))));
        let clock = || CudaClock::new(CudaClockOptions::default());
        let timed =
            |tier| -> Result<Option<SessionBuilder>> { Ok(Some(builder().gpu(clock()?, GpuTiming::tier(tier)))) };
        // Two steps a token: the forward pass, and the choice of the token.
        let window = Schedule { skip_first: 0, wait: 980, warmup: 10, active: 10, repeat: 0 };
        let always = Schedule { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 };
        let kernels = |schedule| -> Result<Option<SessionBuilder>> {
            let cupti = Cupti::new(CuptiOptions::default());
            Ok(Some(builder().gpu(clock()?, GpuTiming::tier(GpuTier::Steps)).kernels(cupti, schedule)))
        };
        match self {
            Mode::Plain | Mode::PlainAgain => Ok(None),
            Mode::Off => Ok(Some(builder().gpu(clock()?, GpuTiming::default()).paused(true))),
            Mode::Host => Ok(Some(builder())),
            Mode::Nvtx => nvtx(builder()).map(Some),
            Mode::Steps => timed(GpuTier::Steps),
            Mode::Blocks => timed(GpuTier::Blocks),
            Mode::Adaptive => timed(GpuTier::Adaptive),
            Mode::All => timed(GpuTier::All),
            Mode::AllSeldom => Ok(timed(GpuTier::All)?.map(|b| b.drain_interval(Duration::from_millis(100)))),
            Mode::Cupti => kernels(Some(always)),
            Mode::CuptiWindow => kernels(Some(window)),
            Mode::CuptiIdle => kernels(None),
        }
    }
}

#[cfg(feature = "gpu-nvtx")]
fn nvtx(builder: SessionBuilder) -> Result<SessionBuilder> {
    Ok(builder.tap(candlescope_exporters::nvtx::NvtxTap::new()))
}
#[cfg(not(feature = "gpu-nvtx"))]
fn nvtx(_: SessionBuilder) -> Result<SessionBuilder> {
    bail!("the mode nvtx needs a build with the feature gpu-nvtx")
}

/// Random weights made once and handed out many times.
struct SharedWeights {
    made: HashMap<String, Tensor>,
    source: RandomWeights,
}

impl WeightSource for SharedWeights {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        if let Some(tensor) = self.made.get(name) {
            return Ok(tensor.clone());
        }
        let tensor = self.source.dense(name, shape)?;
        self.made.insert(name.to_string(), tensor.clone());
        Ok(tensor)
    }
}

/// One mode with its model and session.
struct Subject {
    mode: Mode,
    model: CandleLlama,
    dispatch: Dispatch,
    session: Option<Session>,
}

/// One generation's times.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Times {
    prefill_ns: f64,
    token_ns: f64,
}

impl Subject {
    fn new(
        mode: Mode,
        config: &ModelConfig,
        weights: &mut SharedWeights,
        device: &Device,
        dir: &std::path::Path,
    ) -> Result<Self> {
        let Some(builder) = mode.session(dir)? else {
            let model = CandleLlama::load(config, weights, DType::BF16, device)?;
            return Ok(Self { mode, model, dispatch: Dispatch::none(), session: None });
        };
        let (layer, session) = builder.start()?;
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
        let model =
            tracing::dispatcher::with_default(&dispatch, || CandleLlama::load(config, weights, DType::BF16, device))?;
        Ok(Self { mode, model, dispatch, session: Some(session) })
    }

    /// Runs the prompt; the time it took and the first token.
    fn prefill(&mut self, prompt: &Tensor) -> Result<(f64, u32)> {
        let dispatch = self.dispatch.clone();
        tracing::dispatcher::with_default(&dispatch, || {
            let length = prompt.dims2()?.1;
            let start = Instant::now();
            let logits = {
                let _phase = llm::prefill(llm::Tokens::new(length).context(length));
                self.model.forward(prompt, 0)?
            };
            let token = sample(&logits)?;
            Ok((start.elapsed().as_nanos() as f64, token))
        })
    }

    /// Runs one token; the time it took and the next one.
    fn step(&mut self, token: u32, position: usize, device: &Device) -> Result<(f64, u32)> {
        let dispatch = self.dispatch.clone();
        tracing::dispatcher::with_default(&dispatch, || {
            let start = Instant::now();
            let input = Tensor::new(&[token], device)?.unsqueeze(0)?;
            let logits = {
                let _phase = llm::decode(llm::Tokens::new(1).context(position + 1));
                self.model.forward(&input, position)?
            };
            let token = sample(&logits)?;
            Ok((start.elapsed().as_nanos() as f64, token))
        })
    }

    fn generate(&mut self, prompt: &Tensor, tokens: usize) -> Result<Times> {
        let (prefill_ns, mut token) = self.prefill(prompt)?;
        let (length, mut sum) = (prompt.dims2()?.1, 0.0);
        for n in 0..tokens {
            let (ns, next) = self.step(token, length + n, prompt.device())?;
            sum += ns;
            token = next;
        }
        Ok(Times { prefill_ns, token_ns: sum / tokens.max(1) as f64 })
    }

    fn finish(self) -> Option<Value> {
        let manifest = self.session?.finish();
        Some(json!({
            "loss": manifest.loss, "overhead": manifest.overhead, "gpu": manifest.gpu, "counts": manifest.counts,
            "findings": manifest.verdict.findings,
        }))
    }
}

fn sample(logits: &Tensor) -> Result<u32> {
    let _phase = llm::sample();
    Ok(logits.argmax(candle_core::D::Minus1)?.to_vec1::<u32>()?[0])
}

fn main() -> Result<()> {
    let options = Options::parse();
    let device = Device::new_cuda(options.device)?;
    let config = ModelConfig::named(&options.model)?;
    let source = RandomWeights::new(&config, 42, DType::BF16, &device);
    let mut weights = SharedWeights { made: HashMap::new(), source };
    let dir = output::scratch()?;
    let vocabulary = config.vocab_size as u32;
    let prompt: Vec<u32> = (0..options.prompt_tokens as u32).map(|i| (i * 7919 + 11) % vocabulary).collect();
    let prompt = Tensor::new(prompt, &device)?.unsqueeze(0)?;
    if let Some(seconds) = options.soak {
        return soak(&options, seconds, &config, &mut weights, &device, dir.path(), &prompt);
    }
    if let Some(mode) = options.child {
        let mut subject = Subject::new(mode, &config, &mut weights, &device, dir.path())?;
        if let Some(session) = &subject.session {
            session.handle().wait_for_kernels(Duration::from_secs(30));
        }
        for line in std::io::stdin().lock().lines() {
            let tokens: usize = line?.parse()?;
            println!("{}", serde_json::to_string(&subject.generate(&prompt, tokens)?)?);
        }
        println!("{}", subject.finish().unwrap_or(Value::Null));
        return Ok(());
    }
    let mut subjects = vec![Subject::new(Mode::Plain, &config, &mut weights, &device, dir.path())?];
    for &mode in &options.modes {
        subjects.push(Subject::new(mode, &config, &mut weights, &device, dir.path())?);
    }
    let mut apart = options.apart.iter().map(|&mode| Worker::start(mode, &options)).collect::<Result<Vec<_>>>()?;
    let report = measure(&options, &mut subjects, &mut apart, &prompt)?;
    let accounts: serde_json::Map<_, _> =
        subjects.into_iter().map(|s| (s.mode.word(), s)).filter_map(|(w, s)| Some((w, s.finish()?))).collect();
    let apart: serde_json::Map<_, _> = apart.into_iter().map(Worker::end).collect::<Result<_>>()?;
    let mut report = report;
    report["accounts"] = Value::Object(accounts);
    report["accounts_apart"] = Value::Object(apart);
    println!("{}", output::write(&options.name, &report)?.display());
    Ok(())
}

fn measure(options: &Options, subjects: &mut [Subject], apart: &mut [Worker], prompt: &Tensor) -> Result<Value> {
    let total = subjects.len() + apart.len();
    let mut taken: Vec<Vec<Times>> = vec![Vec::new(); total];
    let mut rng = StdRng::seed_from_u64(1);
    // The first rounds load kernels, fill pools and let the adaptive tier settle.
    let warm_up = 2;
    for round in 0..options.rounds + warm_up {
        // Modes in here take turns token by token: a disturbance of milliseconds then slows all of them.
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        let mut state = vec![(Times { prefill_ns: 0.0, token_ns: 0.0 }, 0); subjects.len()];
        order.shuffle(&mut rng);
        for &who in &order {
            let (ns, token) = subjects[who].prefill(prompt)?;
            state[who] = (Times { prefill_ns: ns, token_ns: 0.0 }, token);
        }
        for n in 0..options.tokens {
            order.shuffle(&mut rng);
            for &who in &order {
                let (times, token) = &mut state[who];
                let (ns, next) = subjects[who].step(*token, options.prompt_tokens + n, prompt.device())?;
                times.token_ns += ns / options.tokens as f64;
                *token = next;
            }
        }
        let tokens: Vec<u32> = state.iter().map(|s| s.1).collect();
        ensure!(tokens.windows(2).all(|w| w[0] == w[1]), "observing changed what the model says: {tokens:?}");
        let mut times: Vec<Times> = state.into_iter().map(|s| s.0).collect();
        let mut order: Vec<usize> = (0..apart.len()).collect();
        order.shuffle(&mut rng);
        let mut others = vec![None; apart.len()];
        for who in order {
            others[who] = Some(apart[who].generate(options.tokens)?);
        }
        times.extend(others.into_iter().flatten());
        if round >= warm_up {
            taken.iter_mut().zip(times).for_each(|(all, one)| all.push(one));
        }
    }
    let names =
        subjects.iter().map(|s| s.mode.word()).chain(apart.iter().map(|w| format!("{} (own process)", w.mode.word())));
    let mut rows = Vec::new();
    println!(
        "{}: {} rounds of {} tokens after a prompt of {}",
        options.model, options.rounds, options.tokens, options.prompt_tokens
    );
    println!("{:<28} {:>10} {:>30} {:>30}", "mode", "ms/token", "decode against plain", "prefill against plain");
    for (who, name) in names.enumerate() {
        let column = |who: usize, f: fn(&Times) -> f64| taken[who].iter().map(f).collect::<Vec<_>>();
        let against = |f: fn(&Times) -> f64| {
            ratio_of_quantiles(&column(who, f).into_iter().zip(column(0, f)).collect::<Vec<_>>(), 0.5)
        };
        let (decode, prefill) = (against(|t| t.token_ns), against(|t| t.prefill_ns));
        let percent = candlescope_bench::stats::Ratio::percent;
        let token_ms = column(who, |t| t.token_ns / 1e6);
        println!("{name:<28} {:>10.4} {:>30} {:>30}", median(&token_ms), percent(&decode), percent(&prefill));
        rows.push(json!({
            "mode": name, "decode": decode, "prefill": prefill,
            "ms_a_token": Spread::of(&token_ms), "prefill_ms": Spread::of(&column(who, |t| t.prefill_ns / 1e6)),
            "token_ns_of_rounds": column(who, |t| t.token_ns), "prefill_ns_of_rounds": column(who, |t| t.prefill_ns),
        }));
    }
    Ok(json!({
        "model": options.model, "rounds": options.rounds, "tokens": options.tokens, "prompt_tokens": options.prompt_tokens,
        "rows": rows, "machine": machine::describe(), "versions": machine::versions(),
    }))
}

/// A mode in a process of its own.
struct Worker {
    mode: Mode,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(mode: Mode, options: &Options) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--child", &mode.word(), "--model", &options.model])
            .args(["--prompt-tokens", &options.prompt_tokens.to_string(), "--device", &options.device.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().context("the child has no output")?);
        Ok(Self { mode, process, input, output })
    }

    fn generate(&mut self, tokens: usize) -> Result<Times> {
        writeln!(self.input.as_mut().context("the child has ended")?, "{tokens}")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("{} ended early: {}", self.mode.word(), self.process.wait()?);
        }
        Ok(line)
    }

    fn end(mut self) -> Result<(String, Value)> {
        self.input = None;
        let last = serde_json::from_str(&self.line()?)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "{} failed: {status}", self.mode.word());
        Ok((self.mode.word(), last))
    }
}

/// Everything on for a while: slopes of host and device memory after the first fifth of the time.
fn soak(
    options: &Options,
    seconds: u64,
    config: &ModelConfig,
    weights: &mut SharedWeights,
    device: &Device,
    dir: &std::path::Path,
    prompt: &Tensor,
) -> Result<()> {
    let window = Schedule { skip_first: 0, wait: 980, warmup: 10, active: 10, repeat: 0 };
    let parquet = ParquetConfig::new(dir.join("soak")).disk_budget(256 << 20);
    let builder = Session::builder()
        .exporter(ParquetExporter::new(parquet))
        .gpu(CudaClock::new(CudaClockOptions::default())?, GpuTiming::default())
        .collector(NvmlCollector::new()?);
    let builder = match options.no_kernels {
        true => builder,
        false => builder.kernels(Cupti::new(CuptiOptions::default()), Some(window)),
    };
    let (layer, session) = builder.start()?;
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let model =
        tracing::dispatcher::with_default(&dispatch, || CandleLlama::load(config, weights, DType::BF16, device))?;
    let mut subject = Subject { mode: Mode::Adaptive, model, dispatch, session: Some(session) };
    let probe = NvmlProbe::new()?;
    let (start, mut points, mut tokens) = (Instant::now(), Vec::new(), 0u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        subject.generate(prompt, options.tokens)?;
        tokens += options.tokens as u64;
        points.push((start.elapsed().as_secs_f64(), resident_bytes()?, probe.used_bytes()?));
    }
    let settled: Vec<_> = points.iter().filter(|p| p.0 > seconds as f64 / 5.0).collect();
    let mib_an_hour = |f: fn(&(f64, f64, f64)) -> f64| {
        candlescope_bench::stats::slope(&settled.iter().map(|p| (p.0, f(p))).collect::<Vec<_>>()) * 3600.0 / 1048576.0
    };
    let (first, last) = (settled.first().context("too short")?, settled.last().context("too short")?);
    let report = json!({
        "model": options.model, "seconds": seconds, "tokens": tokens,
        "host_mib": [first.1 / 1048576.0, last.1 / 1048576.0], "device_mib": [first.2 / 1048576.0, last.2 / 1048576.0],
        "points": points.iter().map(|p| [p.0, p.1 / 1048576.0, p.2 / 1048576.0]).collect::<Vec<_>>(),
        "host_mib_an_hour": mib_an_hour(|p| p.1), "device_mib_an_hour": mib_an_hour(|p| p.2),
        "account": subject.finish(), "machine": machine::describe(), "versions": machine::versions(),
    });
    println!(
        "{}",
        serde_json::to_string(
            &json!({"host": report["host_mib"], "device": report["device_mib"], "tokens": tokens, "an_hour": [report["host_mib_an_hour"], report["device_mib_an_hour"]], "windows": report["account"]["gpu"]["kernels"]["windows"], "findings": report["account"]["findings"], "loss": report["account"]["loss"]})
        )?
    );
    println!("{}", output::write(&format!("{}_soak", options.name), &report)?.display());
    Ok(())
}

fn resident_bytes() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = text.split(' ').nth(1).context("statm has no second number")?.parse()?;
    Ok(pages * rustix::param::page_size() as f64)
}

/// Memory in use on the first GPU that NVML shows.
struct NvmlProbe(std::cell::RefCell<NvmlCollector>);

impl NvmlProbe {
    fn new() -> Result<Self> {
        Ok(Self(std::cell::RefCell::new(NvmlCollector::new()?)))
    }

    fn used_bytes(&self) -> Result<f64> {
        use candlescope_core::{Collector, HostNs, Samples};
        let mut into = Vec::new();
        self.0.borrow_mut().sample(&mut Samples::new(HostNs::now(), &mut into))?;
        let used = into.iter().find(|s| s.metric == "hw_gpu_memory_usage_bytes");
        Ok(used.context("NVML gives no memory")?.value)
    }
}
