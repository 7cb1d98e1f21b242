//! Decoding by a Llama of the shape of 8B whose layers are split over several GPUs, one process a device: candle and NCCL, random
//! weights, recorded as ranks of one run. `tests/gpu/ranks.sh` starts it.
//!
//! Weights are made whole on each device from the same seeds and cut, so that any number of ranks computes the same. Attention and
//! MLP end in an all-reduce each, as in Megatron-LM: two a layer.
#![allow(unsafe_code, reason = "NCCL's handle is a pointer, which candle's trait does not allow")]

use anyhow::{Context, Result, ensure};
use candle_core::cuda_backend::CudaStorage;
use candle_core::cuda_backend::cudarc::nccl::safe::{Comm, Id, ReduceOp};
use candle_core::{CpuStorage, CustomOp1, D, DType, Device, Layout, Shape, Tensor};
use candlescope_collectors::cuda::{CudaClock, CudaClockOptions};
use candlescope_collectors::cupti::{Cupti, CuptiOptions};
use candlescope_collectors::nvml::NvmlCollector;
use candlescope_core::{Annotation, GpuTier, GpuTiming, Schedule, Session, annotate, llm};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use clap::Parser;
use half::bf16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

/// Decodes on several GPUs; `RANK` and `WORLD_SIZE` say which of how many this is.
#[derive(Parser)]
struct Options {
    /// Where this rank's run goes; nothing is recorded without it.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A file by which ranks find each other; it must not exist.
    #[arg(long)]
    meet: PathBuf,
    /// Layers.
    #[arg(long, default_value_t = 32)]
    layers: usize,
    /// Tokens that count.
    #[arg(long, default_value_t = 120)]
    tokens: usize,
    /// A rank that computes every n-th MLP twice.
    #[arg(long)]
    slow_rank: Option<usize>,
    /// Which n.
    #[arg(long, default_value_t = 2)]
    slow_every: usize,
    /// Windows of kernels: steps of each, of how many; 0 records none.
    #[arg(long, default_value_t = 40)]
    kernels: u64,
    /// Positions of the KV cache that are full when decoding begins.
    #[arg(long, default_value_t = 128)]
    context: usize,
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
const HIDDEN: usize = 4096;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD: usize = 128;
const INTER: usize = 14_336;
const VOCAB: usize = 128_256;

/// The sum over all ranks, on the stream that computes.
struct AllReduce(Arc<Comm>);

// SAFETY: NCCL's handle is a pointer, which candle's trait does not allow; the one thread of the process uses it.
unsafe impl Send for AllReduce {}
// SAFETY: as above.
unsafe impl Sync for AllReduce {}

impl CustomOp1 for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        candle_core::bail!("all_reduce is for CUDA devices")
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> candle_core::Result<(CudaStorage, Shape)> {
        let device = storage.device.clone();
        let Some((0, len)) = layout.contiguous_offsets() else { candle_core::bail!("all_reduce wants a whole tensor") };
        let from = storage.as_cuda_slice::<bf16>()?;
        let mut to = device.alloc_zeros::<bf16>(len)?;
        self.0.all_reduce(&from.slice(0..len), &mut to, &ReduceOp::Sum).map_err(candle_core::Error::debug)?;
        Ok((CudaStorage::wrap_cuda_slice(to, device), layout.shape().clone()))
    }
}

/// A linear layer without bias: `[out, in]`.
struct Linear(Tensor);

impl Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let span = trace_span!(target: "tensor_parallel", "linear");
        let _entered = span.enter();
        let (out, inner) = self.0.dims2()?;
        let rows = x.elem_count() / inner;
        annotate(Annotation::new().flops(2 * (rows * out * inner) as u64).bytes(2 * (out * inner) as u64));
        Ok(x.matmul(&self.0.t()?)?)
    }
}

struct Layer {
    qkv: [Linear; 3],
    out: Linear,
    gate: Linear,
    up: Linear,
    down: Linear,
    cache: Option<(Tensor, Tensor)>,
}

struct Model {
    layers: Vec<Layer>,
    head: Linear,
    embedding: Tensor,
    comm: Option<Arc<Comm>>,
    rank: usize,
    world: usize,
    slow: Option<usize>,
}

/// A part of a weight: of its rows or its columns.
#[derive(Clone, Copy)]
enum Cut {
    Whole,
    Rows,
    Columns,
}

impl Model {
    fn new(options: &Options, device: &Device, comm: Option<Arc<Comm>>) -> Result<Self> {
        let (rank, world) = (options.rank, options.world);
        let mut seed = 0;
        let mut weight = |out: usize, inner: usize, cut: Cut| -> Result<Tensor> {
            seed += 1;
            device.set_seed(seed)?;
            // In pieces: whole ones of 32 bits need room that 16 bits do not.
            let whole =
                Tensor::randn(0f32, (1.0 / (inner as f32)).sqrt(), (out, inner), device)?.to_dtype(DType::BF16)?;
            Ok(match cut {
                Cut::Whole => whole,
                Cut::Rows => whole.narrow(0, rank * out / world, out / world)?.copy()?,
                Cut::Columns => whole.narrow(1, rank * inner / world, inner / world)?.contiguous()?,
            })
        };
        let mut layers = Vec::new();
        for _ in 0..options.layers {
            let qkv = [HEADS, KV_HEADS, KV_HEADS].map(|heads| weight(heads * HEAD, HIDDEN, Cut::Rows).map(Linear));
            let [q, k, v] = qkv;
            layers.push(Layer {
                qkv: [q?, k?, v?],
                out: Linear(weight(HIDDEN, HEADS * HEAD, Cut::Columns)?),
                gate: Linear(weight(INTER, HIDDEN, Cut::Rows)?),
                up: Linear(weight(INTER, HIDDEN, Cut::Rows)?),
                down: Linear(weight(HIDDEN, INTER, Cut::Columns)?),
                cache: None,
            });
        }
        let embedding = weight(VOCAB, HIDDEN, Cut::Whole)?;
        let head = Linear(embedding.clone());
        let slow = options.slow_rank.filter(|slow| *slow == rank).map(|_| options.slow_every.max(1));
        Ok(Self { layers, head, embedding, comm, rank, world, slow })
    }

    fn all_reduce(&self, x: &Tensor) -> Result<Tensor> {
        let Some(comm) = &self.comm else { return Ok(x.clone()) };
        let span = trace_span!(target: "tensor_parallel", "all_reduce");
        let _entered = span.enter();
        annotate(Annotation::new().io_bytes(2 * x.elem_count() as u64));
        Ok(x.apply_op1_no_bwd(&AllReduce(Arc::clone(comm)))?)
    }

    fn norm(x: &Tensor) -> Result<Tensor> {
        let span = trace_span!(target: "tensor_parallel", "rms_norm");
        let _entered = span.enter();
        let wide = x.to_dtype(DType::F32)?;
        let mean = (wide.sqr()?.sum_keepdim(D::Minus1)? / HIDDEN as f64)?;
        Ok(wide.broadcast_div(&(mean + 1e-5)?.sqrt()?)?.to_dtype(DType::BF16)?)
    }

    /// One sequence, one token.
    fn attention(&mut self, at: usize, x: &Tensor) -> Result<Tensor> {
        let (heads, kv) = (HEADS / self.world, KV_HEADS / self.world);
        let layer = &mut self.layers[at];
        let split =
            |linear: &Linear, heads: usize| -> Result<Tensor> { Ok(linear.forward(x)?.reshape((heads, 1, HEAD))?) };
        let (q, k, v) = (split(&layer.qkv[0], heads)?, split(&layer.qkv[1], kv)?, split(&layer.qkv[2], kv)?);
        let (k, v) = match &layer.cache {
            Some((keys, values)) => (Tensor::cat(&[keys, &k], 1)?, Tensor::cat(&[values, &v], 1)?),
            None => (k, v),
        };
        layer.cache = Some((k.clone(), v.clone()));
        // Queries that share keys and values are rows of one product.
        let q = q.reshape((kv, heads / kv, HEAD))?;
        let scores = (q.matmul(&k.transpose(1, 2)?)? / (HEAD as f64).sqrt())?.to_dtype(DType::F32)?;
        let scores = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        let weights = scores.broadcast_div(&scores.sum_keepdim(D::Minus1)?)?.to_dtype(DType::BF16)?;
        let mixed = weights.matmul(&v)?.reshape((1, heads * HEAD))?;
        layer.out.forward(&mixed)
    }

    fn mlp(&self, at: usize, x: &Tensor) -> Result<Tensor> {
        let layer = &self.layers[at];
        let gate = layer.gate.forward(x)?;
        layer.down.forward(&(gate.silu()? * layer.up.forward(x)?)?)
    }

    fn forward(&mut self, token: u32) -> Result<u32> {
        let model = trace_span!(target: "tensor_parallel", "model");
        let _model = model.enter();
        let mut x = self.embedding.narrow(0, token as usize, 1)?;
        for at in 0..self.layers.len() {
            let block = trace_span!(target: "tensor_parallel", "block");
            let _block = block.enter();
            let mixed = trace_span!(target: "tensor_parallel", "attn").in_scope(|| -> Result<Tensor> {
                let x = Self::norm(&x)?;
                let part = self.attention(at, &x)?;
                self.all_reduce(&part)
            })?;
            x = (x + mixed)?;
            let mixed = trace_span!(target: "tensor_parallel", "mlp").in_scope(|| -> Result<Tensor> {
                let x = Self::norm(&x)?;
                if self.slow.is_some_and(|every| at % every == 0) {
                    self.mlp(at, &x)?;
                }
                let part = self.mlp(at, &x)?;
                self.all_reduce(&part)
            })?;
            x = (x + mixed)?;
        }
        let logits = self.head.forward(&Self::norm(&x)?)?;
        Ok(logits.argmax(D::Minus1)?.to_vec1::<u32>()?[0])
    }
}

/// Ranks find each other by a file that the first one writes.
fn meet(options: &Options, device: &Device) -> Result<Option<Arc<Comm>>> {
    if options.world == 1 {
        return Ok(None);
    }
    let id = if options.rank == 0 {
        let id = Id::new().map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let bytes: Vec<u8> = id.internal().iter().map(|byte| *byte as u8).collect();
        let beside = options.meet.with_extension("part");
        std::fs::write(&beside, bytes)?;
        std::fs::rename(beside, &options.meet)?;
        id
    } else {
        let began = Instant::now();
        let bytes = loop {
            match std::fs::read(&options.meet) {
                Ok(bytes) => break bytes,
                Err(_) if began.elapsed() < Duration::from_secs(120) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error).context("the first rank did not come"),
            }
        };
        ensure!(bytes.len() == 128, "{} is no id of NCCL", options.meet.display());
        let mut internal = [0; 128];
        internal.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as std::ffi::c_char);
        Id::uninit(internal)
    };
    let stream = device.as_cuda_device()?.cuda_stream();
    let comm = Comm::from_rank(stream, options.rank, options.world, id);
    Ok(Some(Arc::new(comm.map_err(|error| anyhow::anyhow!("NCCL: {error:?}"))?)))
}

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(KV_HEADS % options.world == 0, "{} ranks do not divide {KV_HEADS} heads", options.world);
    let session = match &options.out {
        Some(out) => {
            let mut builder = Session::builder()
                .exporter(ParquetExporter::new(ParquetConfig::new(out)))
                .collector(NvmlCollector::new()?)
                .gpu(CudaClock::new(CudaClockOptions::default())?, GpuTiming::tier(GpuTier::Steps));
            if options.kernels > 0 {
                let window = Schedule {
                    skip_first: options.context as u64,
                    wait: 10,
                    warmup: 2,
                    active: options.kernels,
                    repeat: 1,
                };
                builder = builder.kernels(Cupti::new(CuptiOptions::default()), Some(window));
            }
            let (layer, session) = builder.option("warmup", 1).start()?;
            tracing_subscriber::registry().with(layer).init();
            Some(session)
        }
        None => None,
    };
    let device = Device::new_cuda(options.rank)?;
    let comm = meet(&options, &device)?;
    let mut model = Model::new(&options, &device, comm)?;
    let mut token = 1;
    let mut took = Vec::new();
    for at in 0..options.context + options.tokens {
        let began = Instant::now();
        // The prompt is fed a token at a time: its steps are a warm-up.
        let step = llm::decode(llm::Tokens::new(1).context(at + 1));
        token = model.forward(token)?;
        drop(step);
        if at >= options.context {
            took.push(began.elapsed());
        }
    }
    if options.exchange > 0 && options.world > 1 {
        let large = Tensor::ones((options.exchange << 19,), DType::BF16, &device)?;
        for at in 0..EXCHANGES {
            let _step = llm::encode(llm::Tokens::new(1).context(at + 1));
            let sum = model.all_reduce(&large)?;
            // What is waited for, as a program does that needs the sum.
            ensure!(sum.narrow(0, 0, 1)?.to_vec1::<bf16>()?[0].to_f32() == options.world as f32, "the sum is wrong");
        }
    }
    took.sort();
    let median = took[took.len() / 2];
    println!(
        "rank {} of {}: {:.3} ms a token, last token {token}",
        model.rank,
        model.world,
        median.as_secs_f64() * 1e3
    );
    if let Some(session) = session {
        session.finish();
    }
    Ok(())
}
