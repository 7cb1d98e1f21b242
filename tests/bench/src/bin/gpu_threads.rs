//! Several threads that decode at once on one GPU, or steps that use two GPUs, recorded with CUPTI as a run on disk.
//! `tests/gpu/truth.py` uses it to check figures of a device over the union of its steps.
//!
//! With `--plain` nothing is recorded, to run the program under another profiler. Either way the last line is JSON with
//! the tokens and the wall time of the measured part.

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor};
use candlescope_collectors::cuda::{CudaClock, CudaClockOptions};
use candlescope_collectors::cupti::{Cupti, CuptiOptions};
use candlescope_collectors::nvml::NvmlCollector;
use candlescope_collectors::stacks::{StackOptions, StackSampler};
use candlescope_core::{GpuTier, GpuTiming, Schedule, Session, llm};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{CausalLm, Llama, ModelConfig};
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

/// Decodes on several threads at once and records it.
#[derive(Parser)]
struct Options {
    /// A named architecture with random weights.
    #[arg(long, default_value = "smollm2-135m")]
    model: String,
    /// Threads, each with a model of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// CUDA devices that every step uses, one model on each.
    #[arg(long, default_value_t = 1)]
    devices: usize,
    /// Tokens each thread decodes and records.
    #[arg(long, default_value_t = 100)]
    tokens: usize,
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 64)]
    prompt_tokens: usize,
    /// How GPU time of intervals is taken.
    #[arg(long, default_value = "steps")]
    timing: String,
    /// Record kernels of every step.
    #[arg(long)]
    kernels: bool,
    /// Sample call stacks.
    #[arg(long)]
    stacks: bool,
    /// Directory of the run; none is written with `--plain`.
    #[arg(long, default_value = "runs/gpu-threads")]
    out: PathBuf,
    /// Records nothing.
    #[arg(long)]
    plain: bool,
}

/// One thread's models; a step uses all of them.
struct Worker {
    models: Vec<Llama>,
}

impl Worker {
    fn load(config: &ModelConfig, devices: &[Device]) -> Result<Self> {
        let models = devices.iter().map(|device| {
            let mut weights = RandomWeights::new(config, 42, DType::BF16, device);
            let mut model = Llama::load(config, &mut weights, DType::BF16, device)?;
            model.reserve(config.max_context.min(4_096));
            Ok(model)
        });
        Ok(Self { models: models.collect::<Result<_>>()? })
    }

    /// One step on every device; returns the token of the first. The step waits for all devices.
    fn forward(&mut self, tokens: &[u32], position: usize) -> Result<u32> {
        let logits = self.models.iter_mut().map(|model| {
            let input = Tensor::new(tokens, model.device())?.unsqueeze(0)?;
            Ok(model.forward(&input, position)?.argmax(candle_core::D::Minus1)?)
        });
        let chosen: Vec<Tensor> = logits.collect::<Result<_>>()?;
        let tokens = chosen.iter().map(|token| Ok(token.to_vec1::<u32>()?[0]));
        let tokens: Vec<u32> = tokens.collect::<Result<_>>()?;
        ensure!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "devices disagree: {tokens:?}");
        tokens.first().copied().context("no device")
    }

    fn prefill(&mut self, prompt: &[u32]) -> Result<u32> {
        self.models.iter_mut().for_each(CausalLm::reset);
        let _phase = llm::prefill(llm::Tokens::new(prompt.len()).context(prompt.len()));
        self.forward(prompt, 0)
    }

    fn decode(&mut self, mut token: u32, from: usize, tokens: usize) -> Result<()> {
        for position in from..from + tokens {
            let _phase = llm::decode(llm::Tokens::new(1).context(position + 1));
            token = self.forward(&[token], position)?;
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let devices = (0..options.devices).map(Device::new_cuda).collect::<candle_core::Result<Vec<_>>>()?;
    let config = ModelConfig::named(&options.model)?;
    let session = if options.plain { None } else { Some(session(&options)?) };
    let vocabulary = config.vocab_size as u32;
    let prompt: Vec<u32> = (0..options.prompt_tokens as u32).map(|i| (i * 7919 + 11) % vocabulary).collect();
    let (loaded, recorded, done) =
        (Barrier::new(options.threads + 1), Barrier::new(options.threads + 1), Barrier::new(options.threads + 1));
    let wall = std::thread::scope(|scope| -> Result<Duration> {
        let workers: Vec<_> = (0..options.threads)
            .map(|n| {
                let (options, config, devices, prompt) = (&options, &config, &devices, &prompt);
                let (loaded, recorded, done) = (&loaded, &recorded, &done);
                let work = move || -> Result<()> {
                    let mut worker = Worker::load(config, devices)?;
                    // Warm: kernels are loaded, pools are full.
                    let token = worker.prefill(prompt)?;
                    worker.decode(token, prompt.len(), 16)?;
                    let token = worker.prefill(prompt)?;
                    loaded.wait();
                    recorded.wait();
                    worker.decode(token, prompt.len(), options.tokens)?;
                    done.wait();
                    Ok(())
                };
                std::thread::Builder::new().name(format!("worker-{n}")).spawn_scoped(scope, work)
            })
            .collect::<std::io::Result<_>>()?;
        loaded.wait();
        if let Some(session) = &session {
            session.handle().start();
            if options.kernels {
                session.handle().capture_kernels((options.threads * options.tokens) as u64)?;
                ensure!(
                    session.handle().wait_for_kernels(Duration::from_secs(60)),
                    "the recorder of kernels is not on"
                );
            }
        }
        let start = Instant::now();
        recorded.wait();
        done.wait();
        let wall = start.elapsed();
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        Ok(wall)
    })?;
    let run = session.map(|session| {
        let manifest = session.finish();
        json!({ "gpu": manifest.gpu, "loss": manifest.loss, "steps": manifest.steps, "verdict": manifest.verdict })
    });
    println!(
        "{}",
        json!({
            "threads": options.threads, "devices": options.devices, "tokens": options.threads * options.tokens,
            "wall_s": wall.as_secs_f64(), "run": run,
        })
    );
    Ok(())
}

/// A session that begins paused: warm-up and loading are not recorded.
fn session(options: &Options) -> Result<Session> {
    let tier = GpuTier::from_word(&options.timing).with_context(|| format!("`{}` is no tier", options.timing))?;
    let mut builder = Session::builder()
        .exporter(ParquetExporter::new(ParquetConfig::new(&options.out)))
        .collector(NvmlCollector::builder().build()?)
        .gpu(CudaClock::new(CudaClockOptions::default())?, GpuTiming::tier(tier))
        .paused(true);
    if options.stacks {
        builder = builder.stacks(StackSampler::new(StackOptions::default()));
    }
    if options.kernels {
        builder = builder.kernels(Cupti::new(CuptiOptions::default()), None::<Schedule>);
    }
    let (layer, session) = builder.start()?;
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    for (key, value) in [("threads", options.threads), ("devices", options.devices)] {
        session.handle().set_option(key, value as u64);
    }
    Ok(session)
}
