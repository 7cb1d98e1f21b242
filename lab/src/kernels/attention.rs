//! Attention over a context, with grouped queries, as candle's models compute it without flash attention.

use super::kernel::{Kernel, PreparedKernel, Size, Work, bytes, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_core::{DType, Result as CandleResult, Tensor};
use candle_transformers::utils::{build_additive_causal_mask, repeat_kv};
use candlescope_work::input::Input;
use candlescope_work::operation::Heads;

/// A prompt that attends to itself: as many tokens as positions, masked.
pub(super) struct Prefill;

/// One new token that attends to the context.
pub(super) struct Decode;

/// What is told apart by the number of new tokens.
fn work(kernel: &'static str, shape: &Shape, tokens: usize, element: Element) -> Result<Work, KernelError> {
    let [batch, heads, kv_heads, head, context] = sizes(shape);
    if heads % kv_heads != 0 {
        let why = "heads must be a multiple of kv_heads";
        return Err(KernelError::Shape { kernel, shape: shape.to_string(), why });
    }
    let whole = Heads::new(heads, kv_heads, head).whole(Input::new(batch, tokens, context - tokens), element.width());
    // Keys and values repeated for each query head, in f32 as well, and the scores before and after the softmax.
    let repeated = bytes(&[&[2, batch, heads, context, head]], element.width() + 4);
    let scores = bytes(&[&[2, batch, heads, tokens, context]], 4);
    Ok(Work::from(whole).with_intermediate(repeated).with_intermediate(scores))
}

fn sizes(shape: &Shape) -> [usize; 5] {
    ["batch", "heads", "kv_heads", "head", "context"].map(|name| shape.get(name))
}

/// candle's `llama`, from keys and values as they lie in its cache: they are repeated for the heads that share them,
/// everything is widened to f32, the scores are masked, and the result goes back to the type of the queries.
fn prepare(shape: &Shape, tokens: usize, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
    let [batch, heads, kv_heads, head, context] = sizes(shape);
    let q = inputs.values((batch, heads, tokens, head), element)?;
    let k = inputs.values((batch, kv_heads, context, head), element)?;
    let v = inputs.values((batch, kv_heads, context, head), element)?;
    let mask = match tokens {
        1 => None,
        tokens => Some(build_additive_causal_mask(tokens, context - tokens, None, inputs.device(), DType::F32)?),
    };
    let operands = [vec![q, k, v], mask.into_iter().collect()].concat();
    Ok(PreparedKernel::new(operands, move |xs| attend(xs, heads / kv_heads, head)))
}

fn attend(xs: &[Tensor], group: usize, head: usize) -> CandleResult<Tensor> {
    let dtype = xs[0].dtype();
    let k = repeat_kv(xs[1].clone(), group)?.to_dtype(DType::F32)?;
    let v = repeat_kv(xs[2].clone(), group)?.to_dtype(DType::F32)?;
    let scores = (xs[0].to_dtype(DType::F32)?.matmul(&k.t()?)? / (head as f64).sqrt())?;
    let scores = match xs.get(3) {
        Some(mask) => scores.broadcast_add(mask)?,
        None => scores,
    };
    candle_nn::ops::softmax_last_dim(&scores)?.matmul(&v.contiguous()?)?.to_dtype(dtype)
}

impl Kernel for Prefill {
    fn name(&self) -> &'static str {
        "attention_prefill"
    }

    fn about(&self) -> &'static str {
        "causal attention of `context` tokens among themselves"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[
            size("batch", "1", "1"),
            size("heads", "32", "4"),
            size("kv_heads", "8", "2"),
            size("head", "128", "8"),
            size("context", "128,512,2048", "6"),
        ];
        SIZES
    }

    /// 4·q·d·Σ(attended) FLOPs; queries, keys, values and output once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        work(self.name(), shape, shape.get("context"), element)
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
        prepare(shape, shape.get("context"), element, inputs)
    }
}

impl Kernel for Decode {
    fn name(&self) -> &'static str {
        "attention_decode"
    }

    fn about(&self) -> &'static str {
        "attention of one new token to `context` positions"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[
            size("batch", "1,8", "2"),
            size("heads", "32", "4"),
            size("kv_heads", "8", "2"),
            size("head", "128", "8"),
            size("context", "128,2048,8192", "6"),
        ];
        SIZES
    }

    /// 4·q·d·C FLOPs; query, keys, values and output once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        work(self.name(), shape, 1, element)
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
        prepare(shape, 1, element, inputs)
    }
}
