//! Softmax over the last dimension.

use super::kernel::{Kernel, PreparedKernel, Size, Work, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candlescope_work::operation::{flops_an_element, pointwise};

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

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let elements = product(&[rows, width]);
        let work = Work::from(pointwise(elements, 2, element.width()));
        Ok(work.with_flops(elements.saturating_mul(flops_an_element::SOFTMAX)))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let xs = inputs.values((shape.get("rows"), shape.get("width")), element)?;
        Ok(PreparedKernel::new(vec![xs], |xs| candle_nn::ops::softmax_last_dim(&xs[0])))
    }
}
