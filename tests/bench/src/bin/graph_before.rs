//! Replays of a CUDA graph that was captured before the session began, and of one of the same model that is captured within it:
//! whether the kernels of the former get the layers of the latter. `tests/gpu/replays.sh` runs it. The last line is JSON with
//! what became of the kernels.

use anyhow::{Context, Result, ensure};
use candle_core::{D, DType, Device, Tensor};
use candlescope_collectors::cuda::{CudaClock, CudaClockOptions};
use candlescope_collectors::cupti::{Cupti, CuptiOptions};
use candlescope_core::{GpuTier, GpuTiming, Schedule, Session, llm};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_models::slots::{SlotDecoder, SlotOptions, SlotStepRun, capturable_device};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{Llama, ModelConfig};
use clap::Parser;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// Replays a graph that was captured before the session, beside one that is captured in it.
#[derive(Parser)]
struct Options {
    /// A named architecture with random weights.
    #[arg(long, default_value = "smollm2-135m")]
    model: String,
    /// CUDA device.
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Steps of each.
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// Directory of the run.
    #[arg(long, default_value = "runs/graph-before")]
    out: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let device = capturable_device(options.device)?;
    let mut before = decoder(&options, &device)?;
    decode(&mut before, 8)?;
    ensure!(matches!(before.last_ran(), Some(SlotStepRun::Replay { .. })), "no graph: {:?}", before.capture_failures());
    let session = session(&options, &device)?;
    let mut within = decoder(&options, &device)?;
    // A prompt and its steps, of both.
    session.handle().capture_kernels(2 * (options.steps as u64 + 1))?;
    ensure!(session.handle().wait_for_kernels(Duration::from_secs(60)), "the recorder of kernels is not on");
    for decoder in [&mut within, &mut before] {
        decode(decoder, options.steps)?;
    }
    let manifest = session.finish();
    let kernels = manifest.gpu.as_ref().map(|gpu| &gpu.kernels);
    println!("{}", json!({ "kernels": kernels, "verdict": manifest.verdict }));
    Ok(())
}

/// One slot, whose steps are captured.
fn decoder(options: &Options, device: &Device) -> Result<SlotDecoder> {
    let config = ModelConfig::named(&options.model)?;
    let mut weights = RandomWeights::new(&config, 42, DType::BF16, device);
    let model = Llama::load(&config, &mut weights, DType::BF16, device)?;
    let options = SlotOptions { slots: 1, context: Some(256), ..SlotOptions::default() };
    Ok(SlotDecoder::new(Box::new(model), &options)?)
}

/// A prompt, and so many steps after it.
fn decode(decoder: &mut SlotDecoder, steps: usize) -> Result<()> {
    let (device, prompt) = (decoder.device().clone(), [3u32, 1, 4, 1, 5, 9, 2, 6]);
    let chosen = |logits: Tensor| -> Result<u32> {
        let tokens = logits.argmax(D::Minus1)?.to_vec1::<u32>()?;
        tokens.first().copied().context("no logits")
    };
    let mut next = {
        let _step = llm::prefill(llm::Tokens::new(prompt.len()).context(prompt.len()));
        chosen(decoder.prefill(0, &Tensor::new(&[prompt], &device)?, 0)?)?
    };
    for n in 1..=steps {
        let _step = llm::decode(llm::Tokens::new(1).context(prompt.len() + n));
        next = chosen(decoder.step(&Tensor::new(&[[next]], &device)?, &[0])?)?;
    }
    Ok(())
}

/// A session that records kernels of the steps that are asked for, and follows graphs from their capture on.
fn session(options: &Options, device: &Device) -> Result<Session> {
    let stream = device.as_cuda_device()?.cuda_stream();
    let clock = CudaClock::new(CudaClockOptions::default().stream(options.device, &stream))?;
    let (layer, session) = Session::builder()
        .exporter(ParquetExporter::new(ParquetConfig::new(&options.out)))
        .gpu(clock, GpuTiming::tier(GpuTier::Steps))
        .kernels(Cupti::new(CuptiOptions::default().follow_graphs(true)), None::<Schedule>)
        .start()?;
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    Ok(session)
}
