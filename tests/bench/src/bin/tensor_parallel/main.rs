//! Decoding by a Llama whose layers are split over several ranks, recorded as one run of them: candle and NCCL, a process or a thread a
//! GPU (`tests/gpu/ranks.sh`), or a sum through the host, where ranks share a GPU or have none (`tests/gpu/ranks_one_gpu.sh`,
//! `tests/bench/tests/tensor_parallel.rs`).
//!
//! A rank is made slow on purpose by computing MLPs more than once.

mod model;
#[cfg(feature = "nccl")]
mod nccl;

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device, Tensor};
use candlescope_bench::host_reduce::HostReduce;
use candlescope_bench::slowing::Slowing;
use candlescope_core::{Session, llm};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use clap::Parser;
use model::{Collective, Model, Shape, Split};
use std::path::PathBuf;
use std::time::Instant;
use tracing_subscriber::prelude::*;

/// Decodes on several ranks; `RANK` and `WORLD_SIZE` say which of how many this is.
#[derive(Parser, Clone)]
struct Options {
    /// So many ranks as threads of this process, each with a device of its own, in place of a process each.
    #[arg(long, value_name = "RANKS")]
    threads: Option<usize>,
    /// Where this rank's run goes, or that of all threads; nothing is recorded without it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A file by which ranks find each other, with --host-collectives one for each with its number behind the name; there must be none.
    #[arg(long)]
    meet: PathBuf,
    /// `cpu`, `cuda:N`, or `cuda`: the GPU of the rank's number, with --host-collectives the first one.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Sum through the host in place of NCCL: ranks can share a device.
    #[arg(long)]
    host_collectives: bool,
    /// Shape of the model.
    #[arg(long, value_enum, default_value = "8b")]
    shape: Shape,
    /// Layers.
    #[arg(long, default_value_t = 32)]
    layers: usize,
    /// Tokens that count.
    #[arg(long, default_value_t = 120)]
    tokens: usize,
    /// A rank that takes longer.
    #[arg(long)]
    slow_rank: Option<usize>,
    /// It computes as many MLPs again as make the step of all longer by this share, which is found while the prompt is fed.
    #[arg(long, requires = "slow_rank", conflicts_with = "slow_every")]
    slow_share: Option<f64>,
    /// It computes every n-th MLP twice.
    #[arg(long, default_value_t = 2)]
    slow_every: usize,
    /// Windows of kernels: steps of each, of how many; 0 records none.
    #[arg(long, default_value_t = 40)]
    kernels: u64,
    /// Positions of the KV cache that are full when decoding begins.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Sequences that a step decodes, all alike. With a thousand of them a step waits for its device, and not for its host.
    #[arg(long, default_value_t = 1)]
    rows: usize,
    /// MiB of a large exchange, of which a step each is made at the end; 0 makes none.
    #[arg(long, default_value_t = 256)]
    exchange: usize,
    #[arg(long, env = "RANK", default_value_t = 0)]
    rank: usize,
    #[arg(long, env = "WORLD_SIZE", default_value_t = 1)]
    world: usize,
}

/// Large exchanges.
const EXCHANGES: usize = 20;

impl Options {
    /// What a step decodes.
    fn new_tokens(&self) -> llm::Tokens {
        llm::Tokens::new(self.rows)
    }

    fn device(&self) -> Result<Device> {
        let number = match self.device.split_once(':') {
            None if self.device == "cpu" => return Ok(Device::Cpu),
            None if self.device == "cuda" => {
                if self.host_collectives {
                    0
                } else {
                    self.rank
                }
            }
            Some(("cuda", number)) => number.parse().with_context(|| format!("--device {}", self.device))?,
            _ => bail!("--device wants cpu, cuda or cuda:N, not `{}`", self.device),
        };
        Device::new_cuda(number).context("this program has CUDA if it is built with --features gpu or nccl")
    }

    fn collective(&self, device: &Device) -> Result<Collective> {
        Ok(match self.world {
            1 => Collective::Alone,
            _ if self.host_collectives => Collective::Host(HostReduce::meet(&self.meet, self.rank, self.world)?),
            _ => self.nccl(device)?,
        })
    }

    #[cfg(feature = "nccl")]
    fn nccl(&self, device: &Device) -> Result<Collective> {
        // NVLink multicast can put the GPUs of a shared host out of service.
        let without_multicast = std::env::var("NCCL_NVLS_ENABLE").is_ok_and(|value| value == "0");
        ensure!(without_multicast, "set NCCL_NVLS_ENABLE=0: this program does not use NVLink multicast");
        Ok(Collective::Nccl(nccl::AllReduce::meet(&self.meet, self.rank, self.world, device)?))
    }

    #[cfg(not(feature = "nccl"))]
    fn nccl(&self, _: &Device) -> Result<Collective> {
        bail!("this program was built without NCCL: build it with --features nccl, or give --host-collectives")
    }

    fn session(&self, out: &std::path::Path) -> Result<Session> {
        let builder = Session::builder().exporter(ParquetExporter::new(ParquetConfig::new(out)));
        let builder = self.on_gpu(builder)?;
        // Every thread feeds a prompt.
        let (layer, session) = builder.option("warmup", self.threads.unwrap_or(1) as u64).start()?;
        tracing_subscriber::registry().with(layer).init();
        Ok(session)
    }

    #[cfg(not(feature = "gpu"))]
    fn on_gpu(&self, builder: candlescope_core::SessionBuilder) -> Result<candlescope_core::SessionBuilder> {
        Ok(builder)
    }

    #[cfg(feature = "gpu")]
    fn on_gpu(&self, mut builder: candlescope_core::SessionBuilder) -> Result<candlescope_core::SessionBuilder> {
        use candlescope_collectors::cuda::{CudaClock, CudaClockOptions};
        use candlescope_collectors::cupti::{Cupti, CuptiOptions};
        use candlescope_collectors::nvml::NvmlCollector;
        use candlescope_core::{GpuTier, GpuTiming, Schedule};
        if self.device == "cpu" {
            return Ok(builder);
        }
        // Who sums through the host has no kernel of it: what it takes is known by the interval's time on the device.
        let tier = if self.host_collectives { GpuTier::All } else { GpuTier::Steps };
        builder = builder
            .collector(NvmlCollector::new()?)
            .gpu(CudaClock::new(CudaClockOptions::default())?, GpuTiming::tier(tier));
        if self.kernels > 0 {
            // Steps of all threads count.
            let threads = self.threads.unwrap_or(1) as u64;
            let skip_first = self.context as u64 * threads;
            let window = Schedule { skip_first, wait: 10, warmup: 2, active: self.kernels * threads, repeat: 1 };
            builder = builder.kernels(Cupti::new(CuptiOptions::default()), Some(window));
        }
        Ok(builder)
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let session = options.out.as_deref().map(|out| options.session(out)).transpose()?;
    match options.threads {
        None => decode(&options)?,
        Some(world) => threads(&options, world)?,
    }
    if let Some(session) = session {
        session.finish();
    }
    Ok(())
}

/// A thread a rank.
fn threads(options: &Options, world: usize) -> Result<()> {
    let rank = |rank: usize| -> Result<std::thread::JoinHandle<()>> {
        let options = Options { rank, world, ..options.clone() };
        let thread = std::thread::Builder::new().name(format!("rank-{rank}"));
        Ok(thread.spawn(move || {
            if let Err(error) = decode(&options) {
                // The others wait for it.
                eprintln!("rank {rank}: {error:#}");
                std::process::exit(1);
            }
        })?)
    };
    let all = (0..world).map(rank).collect::<Result<Vec<_>>>()?;
    for (rank, thread) in all.into_iter().enumerate() {
        thread.join().map_err(|_| anyhow::anyhow!("rank {rank} panicked"))?;
    }
    Ok(())
}

/// What a rank does.
fn decode(options: &Options) -> Result<()> {
    let sizes = options.shape.sizes();
    ensure!(
        sizes.kv_heads.is_multiple_of(options.world),
        "{} ranks do not divide {} heads",
        options.world,
        sizes.kv_heads
    );
    ensure!(options.rows > 0, "--rows 0");
    let device = options.device()?;
    let collective = options.collective(&device)?;
    let slow = options.slow_rank == Some(options.rank);
    let split = Split {
        sizes,
        layers: options.layers,
        rank: options.rank,
        world: options.world,
        twice_every: Some(options.slow_every.max(1)).filter(|_| slow && options.slow_share.is_none()),
        slowing: options.slow_share.filter(|_| slow).map(|share| Slowing::new(share, options.layers, options.context)),
        rows: options.rows,
    };
    let mut model = Model::new(split, &device, collective)?;
    let mut token = 1;
    {
        // The prompt is fed a token at a time, as a request of its own: a warm-up.
        let request = llm::Request::new("text_completion", "tensor_parallel");
        let _in_request = request.enter();
        for at in 0..options.context {
            let began = Instant::now();
            let step = llm::decode(options.new_tokens().context(at + 1));
            token = model.forward(token)?;
            drop(step);
            if let Some(slowing) = &mut model.slowing {
                slowing.step(began.elapsed());
            }
        }
    }
    let slowing = model.slowing.as_ref().and_then(Slowing::found);
    if let Some((repeats, plain, slowed)) = slowing {
        println!(
            "rank {} computes {repeats} MLPs of {} more: steps of {slowed:.3} ms in place of {plain:.3}",
            options.rank, options.layers
        );
    }
    ensure!(
        model.slowing.is_none() || slowing.is_some(),
        "--slow-share wants a context of 7 steps or more to find its repeats in"
    );
    let request = llm::Request::new("text_completion", "tensor_parallel");
    let in_request = request.enter();
    let mut took = Vec::new();
    for at in options.context..options.context + options.tokens {
        let began = Instant::now();
        let step = llm::decode(options.new_tokens().context(at + 1));
        token = model.forward(token)?;
        request.token();
        drop(step);
        took.push(began.elapsed());
    }
    if options.exchange > 0 && options.world > 1 {
        let dtype = if device.is_cuda() { DType::BF16 } else { DType::F32 };
        let large = Tensor::ones(((options.exchange << 20) / dtype.size_in_bytes(),), dtype, &device)?;
        for at in 0..EXCHANGES {
            let _step = llm::encode(llm::Tokens::new(1).context(at + 1));
            let sum = model.all_reduce(&large)?;
            // What is waited for, as a program does that needs the sum.
            let first = sum.narrow(0, 0, 1)?.to_dtype(DType::F32)?.to_vec1::<f32>()?[0];
            ensure!(first == options.world as f32, "the sum is wrong");
        }
    }
    drop(in_request);
    took.sort();
    let median = took.get(took.len() / 2).context("--tokens 0")?;
    println!(
        "rank {} of {}: {:.3} ms a token, last token {token}",
        options.rank,
        options.world,
        median.as_secs_f64() * 1e3
    );
    Ok(())
}
