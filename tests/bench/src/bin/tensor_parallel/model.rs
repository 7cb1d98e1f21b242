//! A Llama whose layers are split over ranks, with random weights. Attention and MLP end in an all-reduce each, as in Megatron-LM: two a
//! layer.

use anyhow::Result;
use candle_core::{D, DType, Device, Tensor};
use candlescope_bench::host_reduce::HostReduce;
use candlescope_bench::slowing::Slowing;
use candlescope_core::{Annotation, annotate};
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tracing::trace_span;

/// The shape of the model.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Shape {
    /// As Llama-3-8B.
    #[value(name = "8b")]
    Llama8b,
    /// So small that a processor computes it.
    Small,
}

/// Sizes of a shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    hidden: usize,
    heads: usize,
    pub(crate) kv_heads: usize,
    head: usize,
    inter: usize,
    vocab: usize,
}

impl Shape {
    pub(crate) fn sizes(self) -> Sizes {
        match self {
            Self::Llama8b => Sizes { hidden: 4096, heads: 32, kv_heads: 8, head: 128, inter: 14_336, vocab: 128_256 },
            Self::Small => Sizes { hidden: 256, heads: 8, kv_heads: 4, head: 32, inter: 704, vocab: 1_024 },
        }
    }
}

/// The sum over all ranks.
pub(crate) enum Collective {
    /// There is one rank.
    Alone,
    /// Through the host.
    Host(HostReduce),
    /// On the stream that computes.
    #[cfg(feature = "nccl")]
    Nccl(crate::nccl::AllReduce),
}

/// A linear layer without bias: `[out, in]`.
struct Linear(Tensor);

impl Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let span = trace_span!(target: "tensor_parallel", "linear");
        let _entered = span.enter();
        let (out, inner) = self.0.dims2()?;
        let rows = x.elem_count() / inner;
        let bytes = self.0.dtype().size_in_bytes() * out * inner;
        annotate(Annotation::new().flops(2 * (rows * out * inner) as u64).bytes(bytes as u64));
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

pub(crate) struct Model {
    layers: Vec<Layer>,
    head: Linear,
    embedding: Tensor,
    collective: Collective,
    sizes: Sizes,
    world: usize,
    /// Of a rank that is to be slow.
    pub(crate) slowing: Option<Slowing>,
    /// Of a rank that computes every n-th MLP twice: which n.
    twice_every: Option<usize>,
    rows: usize,
}

/// A part of a weight: of its rows or its columns.
#[derive(Clone, Copy)]
enum Cut {
    Whole,
    Rows,
    Columns,
}

/// The model, and how it is split.
pub(crate) struct Split {
    pub(crate) sizes: Sizes,
    pub(crate) layers: usize,
    pub(crate) rank: usize,
    pub(crate) world: usize,
    pub(crate) twice_every: Option<usize>,
    pub(crate) slowing: Option<Slowing>,
    /// Sequences that a step decodes, all alike.
    pub(crate) rows: usize,
}

/// Values of a variance that keeps activations as large as they are, from a seed.
fn random(out: usize, inner: usize, seed: u64, device: &Device) -> Result<Tensor> {
    let deviation = (1.0 / (inner as f32)).sqrt();
    if device.is_cuda() {
        device.set_seed(seed)?;
        // In pieces: whole ones of 32 bits need room that 16 bits do not.
        return Ok(Tensor::randn(0f32, deviation, (out, inner), device)?.to_dtype(DType::BF16)?);
    }
    // candle's generator of processors takes no seed.
    let mut numbers = StdRng::seed_from_u64(seed);
    let most = 3f32.sqrt() * deviation;
    let values: Vec<f32> = (0..out * inner).map(|_| numbers.random_range(-most..most)).collect();
    Ok(Tensor::from_vec(values, (out, inner), device)?)
}

impl Model {
    /// Weights are made whole on each device from the same seeds and cut, so that any number of ranks computes the same.
    pub(crate) fn new(split: Split, device: &Device, collective: Collective) -> Result<Self> {
        let Split { sizes, rank, world, .. } = split;
        let mut seed = 0;
        let mut weight = |out: usize, inner: usize, cut: Cut| -> Result<Tensor> {
            seed += 1;
            let whole = random(out, inner, seed, device)?;
            Ok(match cut {
                Cut::Whole => whole,
                Cut::Rows => whole.narrow(0, rank * out / world, out / world)?.copy()?,
                Cut::Columns => whole.narrow(1, rank * inner / world, inner / world)?.contiguous()?,
            })
        };
        let Sizes { hidden, heads, kv_heads, head, inter, vocab } = sizes;
        let mut layers = Vec::new();
        for _ in 0..split.layers {
            let qkv = [heads, kv_heads, kv_heads].map(|heads| weight(heads * head, hidden, Cut::Rows).map(Linear));
            let [q, k, v] = qkv;
            layers.push(Layer {
                qkv: [q?, k?, v?],
                out: Linear(weight(hidden, heads * head, Cut::Columns)?),
                gate: Linear(weight(inter, hidden, Cut::Rows)?),
                up: Linear(weight(inter, hidden, Cut::Rows)?),
                down: Linear(weight(hidden, inter, Cut::Columns)?),
                cache: None,
            });
        }
        let embedding = weight(vocab, hidden, Cut::Whole)?;
        let head = Linear(embedding.clone());
        let (slowing, twice_every, rows) = (split.slowing, split.twice_every, split.rows);
        Ok(Self { layers, head, embedding, collective, sizes, world, slowing, twice_every, rows })
    }

    pub(crate) fn all_reduce(&mut self, x: &Tensor) -> Result<Tensor> {
        if matches!(self.collective, Collective::Alone) {
            return Ok(x.clone());
        }
        let span = trace_span!(target: "tensor_parallel", "all_reduce");
        let _entered = span.enter();
        annotate(Annotation::new().io_bytes((x.dtype().size_in_bytes() * x.elem_count()) as u64));
        match &mut self.collective {
            Collective::Alone => Ok(x.clone()),
            Collective::Host(reduce) => {
                let mut values = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
                reduce.sum(&mut values)?;
                Ok(Tensor::from_vec(values, x.shape(), x.device())?.to_dtype(x.dtype())?)
            }
            #[cfg(feature = "nccl")]
            Collective::Nccl(reduce) => Ok(x.apply_op1_no_bwd(&*reduce)?),
        }
    }

    fn norm(x: &Tensor) -> Result<Tensor> {
        let span = trace_span!(target: "tensor_parallel", "rms_norm");
        let _entered = span.enter();
        let wide = x.to_dtype(DType::F32)?;
        let mean = (wide.sqr()?.sum_keepdim(D::Minus1)? / x.dim(D::Minus1)? as f64)?;
        Ok(wide.broadcast_div(&(mean + 1e-5)?.sqrt()?)?.to_dtype(x.dtype())?)
    }

    /// One token of each sequence: `[rows, hidden]`.
    fn attention(&mut self, at: usize, x: &Tensor) -> Result<Tensor> {
        let (heads, kv, head) = (self.sizes.heads / self.world, self.sizes.kv_heads / self.world, self.sizes.head);
        let rows = self.rows;
        let layer = &mut self.layers[at];
        let split = |linear: &Linear, heads: usize| -> Result<Tensor> {
            Ok(linear.forward(x)?.reshape((rows * heads, 1, head))?)
        };
        let (q, k, v) = (split(&layer.qkv[0], heads)?, split(&layer.qkv[1], kv)?, split(&layer.qkv[2], kv)?);
        let (k, v) = match &layer.cache {
            Some((keys, values)) => (Tensor::cat(&[keys, &k], 1)?, Tensor::cat(&[values, &v], 1)?),
            None => (k, v),
        };
        layer.cache = Some((k.clone(), v.clone()));
        // Queries that share keys and values are rows of one product.
        let q = q.reshape((rows * kv, heads / kv, head))?;
        let scores = (q.matmul(&k.transpose(1, 2)?)? / (head as f64).sqrt())?.to_dtype(DType::F32)?;
        let scores = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
        let weights = scores.broadcast_div(&scores.sum_keepdim(D::Minus1)?)?.to_dtype(x.dtype())?;
        let mixed = weights.matmul(&v)?.reshape((rows, heads * head))?;
        layer.out.forward(&mixed)
    }

    fn mlp(&self, at: usize, x: &Tensor) -> Result<Tensor> {
        let layer = &self.layers[at];
        let gate = layer.gate.forward(x)?;
        layer.down.forward(&(gate.silu()? * layer.up.forward(x)?)?)
    }

    /// How often this rank computes an MLP.
    fn times(&self, at: usize) -> usize {
        let twice = self.twice_every.is_some_and(|every| at.is_multiple_of(every));
        self.slowing.as_ref().map_or(1 + usize::from(twice), |slowing| slowing.times(at))
    }

    pub(crate) fn forward(&mut self, token: u32) -> Result<u32> {
        let model = trace_span!(target: "tensor_parallel", "model");
        let _model = model.enter();
        let mut x = self.embedding.narrow(0, token as usize, 1)?;
        if self.rows > 1 {
            x = x.repeat((self.rows, 1))?;
        }
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
                for _ in 1..self.times(at) {
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
