//! A layer of the tower or of the decoder: a norm, attention, a norm and a feed-forward network on the residual stream.

use super::attention::{Angles, Attention};
use crate::blocks::Norm;
use crate::cost::pointwise;
use crate::layers::{Mlp, record};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use tracing::Span;

#[derive(Debug)]
pub(super) struct Block<N> {
    norm: N,
    attention: Attention,
    mlp_norm: N,
    mlp: Mlp,
    span: Span,
}

impl<N: Norm> Block<N> {
    pub(super) fn new(path: &str, norm: N, attention: Attention, mlp_norm: N, mlp: Mlp) -> Self {
        // Always named `block`: its number is the interval's ordinal.
        let span = tracing::trace_span!(target: "candlescope_models", parent: None, "block", weight = path);
        Self { norm, attention, mlp_norm, mlp, span }
    }

    pub(super) fn forward(
        &mut self,
        xs: &Tensor,
        angles: &Angles,
        mask: Option<&Tensor>,
        position: usize,
    ) -> Result<Tensor> {
        let span = self.span.clone();
        let _entered = span.enter();
        let xs = (self.attention.forward(&self.norm.forward(xs)?, angles, mask, position)? + xs)?;
        let fed = self.mlp.forward(&self.mlp_norm.forward(&xs)?)?;
        record(|| pointwise(xs.elem_count(), 2 * 3, xs.dtype().size_in_bytes()).annotation());
        fed + xs
    }

    pub(super) fn reset(&mut self) {
        self.attention.reset();
    }
}
