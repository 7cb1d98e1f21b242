//! Rotary position embedding.

use super::kernel::{Kernel, PreparedKernel, Size, Work, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candlescope_work::operation::{flops_an_element, rotary};

/// `candle_nn::rotary_emb::rope`: halves of a head are rotated against each other.
pub(super) struct Rotary;

impl Kernel for Rotary {
    fn name(&self) -> &'static str {
        "rotary"
    }

    fn about(&self) -> &'static str {
        "candle_nn::rotary_emb::rope"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[
            size("batch", "1", "2"),
            size("heads", "32", "3"),
            size("tokens", "1,128,2048", "4"),
            size("head", "128", "8"),
        ];
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (batch, heads) = (shape.get("batch"), shape.get("heads"));
        let (tokens, head) = (shape.get("tokens"), shape.get("head"));
        if head % 2 != 0 {
            let why = "head must be even";
            return Err(KernelError::Shape { kernel: self.name(), shape: shape.to_string(), why });
        }
        let elements = product(&[batch, heads, tokens, head]);
        let work = Work::from(rotary(elements, tokens, head, element.width()));
        Ok(work.with_flops(elements.saturating_mul(flops_an_element::ROTARY)))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (batch, heads) = (shape.get("batch"), shape.get("heads"));
        let (tokens, head) = (shape.get("tokens"), shape.get("head"));
        let xs = inputs.values((batch, heads, tokens, head), element)?;
        let angles = inputs.values((tokens, head / 2), element)?;
        let operands = vec![xs, angles.cos()?, angles.sin()?];
        Ok(PreparedKernel::new(operands, |xs| candle_nn::rotary_emb::rope(&xs[0], &xs[1], &xs[2])))
    }
}
