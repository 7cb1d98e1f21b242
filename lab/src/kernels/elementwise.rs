//! Operations element by element, and sums with a row.

use super::kernel::{Kernel, PreparedKernel, Size, Work, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::{Element, Inputs};
use candle_core::{Result as CandleResult, Tensor};
use candlescope_work::operation::{flops_an_element, pointwise};

const SIZES: &[Size] = &[size("rows", "1,256,4096", "4"), size("width", "4096", "16")];

/// An operation over rows of equal widths.
pub(super) struct Elementwise {
    name: &'static str,
    about: &'static str,
    /// Matrices that it reads, and whether it reads a row besides.
    reads: (usize, bool),
    /// FLOPs an element.
    flops: u64,
    apply: fn(&[Tensor]) -> CandleResult<Tensor>,
}

/// Adding a layer's output to its input.
pub(super) const ADD: Elementwise = Elementwise {
    name: "add",
    about: "the sum of two tensors, as of a layer's output and its input",
    reads: (2, false),
    flops: flops_an_element::SUM,
    apply: |xs| &xs[0] + &xs[1],
};

/// Adding a bias.
pub(super) const ADD_BIAS: Elementwise = Elementwise {
    name: "add_bias",
    about: "the sum of rows and one row, as of a projection and its bias",
    reads: (1, true),
    flops: flops_an_element::SUM,
    apply: |xs| xs[0].broadcast_add(&xs[1]),
};

/// GPT-2's activation.
pub(super) const GELU: Elementwise = Elementwise {
    name: "gelu",
    about: "GELU in its tanh form",
    reads: (1, false),
    flops: flops_an_element::GELU_TANH,
    apply: |xs| xs[0].gelu(),
};

/// Llama's activation.
pub(super) const SWIGLU: Elementwise = Elementwise {
    name: "swiglu",
    about: "silu(gate) · up",
    reads: (2, false),
    flops: flops_an_element::SWIGLU,
    apply: |xs| xs[0].silu()? * &xs[1],
};

impl Kernel for Elementwise {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    /// Its FLOPs an element (an exponential or a tanh counts as one); inputs and output once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let (elements, row) = (product(&[rows, width]), if self.reads.1 { width } else { 0 });
        let cost = pointwise(elements, self.reads.0 + 1, element.width()) + pointwise(row, 1, element.width());
        let work = Work::from(cost).with_flops(elements.saturating_mul(self.flops));
        Ok(work.with_intermediate(work.io_bytes))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> CandleResult<PreparedKernel> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let mut operands =
            (0..self.reads.0).map(|_| inputs.values((rows, width), element)).collect::<CandleResult<Vec<_>>>()?;
        if self.reads.1 {
            operands.push(inputs.values(width, element)?);
        }
        Ok(PreparedKernel::new(operands, self.apply))
    }
}
