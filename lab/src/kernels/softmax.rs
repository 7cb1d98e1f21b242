//! Softmax over the last dimension.

use super::error::KernelError;
use super::kernel::{Kernel, Prepared, Size, Work, bytes, product, size};
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;

/// `candle_nn::ops::softmax_last_dim`.
pub(super) struct Softmax;

impl Kernel for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn about(&self) -> &'static str {
        "candle_nn::ops::softmax_last_dim"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[size("rows", "1,256,4096", "4"), size("width", "4096", "16")];
        SIZES
    }

    /// 5 FLOPs an element: maximum, difference, exponential, sum, division. Input and output once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let io_bytes = bytes(&[&[2, rows, width]], element.width());
        Ok(Work { flops: Some(product(&[5, rows, width])), io_bytes, memory_bytes: io_bytes })
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<Prepared> {
        let xs = inputs.values((shape.get("rows"), shape.get("width")), element)?;
        Ok(Prepared::new(vec![xs], |xs| candle_nn::ops::softmax_last_dim(&xs[0])))
    }
}
