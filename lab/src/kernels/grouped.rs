//! The three steps of attention as candlescope's instrumented layers compute them: query heads that share a key head
//! are rows of one product, so keys and values are never repeated, and only the softmax is in f32.

use super::kernel::{Kernel, PreparedKernel, Size, Work, bytes, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::{Element, Inputs};
use candle_core::{DType, Result as CandleResult};
use candle_transformers::utils::build_additive_causal_mask;
use candlescope_work::operation::{flops_an_element, pointwise, product_flops};

const SIZES: &[Size] = &[
    size("batch", "1,8", "2"),
    size("heads", "32", "4"),
    size("kv_heads", "8", "2"),
    size("head", "128", "8"),
    size("tokens", "1", "3"),
    size("context", "128,2048", "6"),
];

/// QKᵀ/√d.
pub(super) struct Scores;

/// The softmax over the scores, masked if there is more than one token.
pub(super) struct Weights;

/// AV, in the layout of the projections.
pub(super) struct Context;

struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    head: usize,
    tokens: usize,
    context: usize,
}

impl Sizes {
    fn of(shape: &Shape) -> Self {
        let [batch, heads, kv_heads, head, tokens, context] =
            ["batch", "heads", "kv_heads", "head", "tokens", "context"].map(|name| shape.get(name));
        Self { batch, heads, kv_heads, head, tokens, context }
    }

    fn check(self, kernel: &'static str, shape: &Shape) -> Result<Self, KernelError> {
        let wrong = |why| Err(KernelError::Shape { kernel, shape: shape.to_string(), why });
        if !self.heads.is_multiple_of(self.kv_heads) {
            return wrong("heads must be a multiple of kv_heads");
        }
        if self.tokens > self.context {
            return wrong("the context holds the tokens: it cannot be shorter");
        }
        Ok(self)
    }

    /// (batch, kv heads, queries that share one, …).
    fn stacked(&self, features: usize) -> (usize, usize, usize, usize) {
        (self.batch, self.kv_heads, self.heads / self.kv_heads * self.tokens, features)
    }

    /// 2·q·d·T·C FLOPs, masked positions too; one side of (batch, heads, tokens, head) and (batch, heads, tokens,
    /// context) is read and the other written, keys or values are read.
    fn product(&self, element: Element) -> Work {
        let Self { batch, heads, kv_heads, head, tokens, context } = *self;
        let moved: [&[usize]; 3] =
            [&[batch, heads, tokens, head], &[batch, kv_heads, context, head], &[batch, heads, tokens, context]];
        let io_bytes = bytes(&moved, element.width());
        let flops = product_flops(heads * head, product(&[batch, tokens, context]));
        Work { flops: Some(flops as u64), io_bytes, memory_bytes: io_bytes.saturating_mul(2) }
    }
}

impl Kernel for Scores {
    fn name(&self) -> &'static str {
        "attention_scores"
    }

    fn about(&self) -> &'static str {
        "attention's QKᵀ/√d as the instrumented layers do it, `tokens` new ones over `context`"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(Sizes::of(shape).check(self.name(), shape)?.product(element))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
        let sizes = Sizes::of(shape);
        let Sizes { batch, heads, kv_heads, head, tokens, context } = sizes;
        let queries = inputs.values((batch, heads, tokens, head), element)?;
        let keys = inputs.values((batch, kv_heads, context, head), element)?;
        Ok(PreparedKernel::new(vec![queries, keys], move |xs| {
            let queries = (&xs[0] * (1. / (head as f64).sqrt()))?.reshape(sizes.stacked(head))?;
            queries.matmul(&xs[1].t()?)?.reshape((batch, heads, tokens, context))
        }))
    }
}

impl Kernel for Weights {
    fn name(&self) -> &'static str {
        "attention_softmax"
    }

    fn about(&self) -> &'static str {
        "attention's softmax in f32, after the change of type and, for several tokens, the mask"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[
            size("batch", "1,8", "2"),
            size("heads", "32", "4"),
            size("tokens", "1", "3"),
            size("context", "128,2048", "6"),
        ];
        SIZES
    }

    /// 5 FLOPs a score (largest, difference, exponential, sum, division). Scores in their type, weights in f32.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let Sizes { batch, heads, tokens, context, .. } = Sizes::of(shape).check(self.name(), shape)?;
        let scores = product(&[batch, heads, tokens, context]);
        let work = Work::from(pointwise(scores, 1, element.width() + 4));
        let in_f32 = scores.saturating_mul(8);
        Ok(work.with_flops(scores.saturating_mul(flops_an_element::SOFTMAX)).with_intermediate(in_f32))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
        let Sizes { batch, heads, tokens, context, .. } = Sizes::of(shape);
        let mut operands = vec![inputs.values((batch, heads, tokens, context), element)?];
        if tokens > 1 {
            let mask = build_additive_causal_mask(tokens, context - tokens, None, inputs.device(), DType::F32)?;
            operands.push(mask);
        }
        Ok(PreparedKernel::new(operands, |xs| {
            let scores = xs[0].to_dtype(DType::F32)?;
            let scores = match xs.get(1) {
                Some(mask) => scores.broadcast_add(mask)?,
                None => scores,
            };
            candle_nn::ops::softmax_last_dim(&scores)
        }))
    }
}

impl Kernel for Context {
    fn name(&self) -> &'static str {
        "attention_context"
    }

    fn about(&self) -> &'static str {
        "attention's AV from weights in f32, back to the layout of the projections"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(Sizes::of(shape).check(self.name(), shape)?.product(element))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
        let sizes = Sizes::of(shape);
        let Sizes { batch, heads, kv_heads, head, tokens, context } = sizes;
        let weights = inputs.values((batch, heads, tokens, context), Element::F32)?;
        let values = inputs.values((batch, kv_heads, context, head), element)?;
        Ok(PreparedKernel::new(vec![weights, values], move |xs| {
            let weights = xs[0].to_dtype(xs[1].dtype())?.reshape(sizes.stacked(context))?;
            let context = weights.matmul(&xs[1])?.reshape((batch, heads, tokens, head))?.transpose(1, 2)?;
            context.reshape((batch, tokens, heads * head))
        }))
    }
}
