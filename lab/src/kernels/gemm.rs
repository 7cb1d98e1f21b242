//! Matrix products with dense weights.

use super::kernel::{Kernel, PreparedKernel, Size, Work, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_nn::{Linear, Module};
use candlescope_work::operation::gemm;

/// (M×K)·(K×N), with both matrices row by row.
pub(super) struct Gemm;

/// `candle_nn::Linear` without a bias: (M×K) by weights of N×K.
pub(super) struct Projection;

fn work(shape: &Shape, element: Element) -> Work {
    gemm(shape.get("m"), shape.get("n"), shape.get("k"), element.width()).into()
}

impl Kernel for Gemm {
    fn name(&self) -> &'static str {
        "gemm"
    }

    fn about(&self) -> &'static str {
        "matrix product (m×k)·(k×n)"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[size("m", "1,16,256,1024", "8"), size("n", "4096", "32"), size("k", "4096", "16")];
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(work(shape, element))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (m, n, k) = (shape.get("m"), shape.get("n"), shape.get("k"));
        let operands = vec![inputs.values((m, k), element)?, inputs.values((k, n), element)?];
        Ok(PreparedKernel::new(operands, |xs| xs[0].matmul(&xs[1])))
    }
}

impl Kernel for Projection {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn about(&self) -> &'static str {
        "candle_nn::Linear without bias, m rows from k to n features"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[size("m", "1,16,256", "4"), size("n", "4096", "32"), size("k", "4096", "16")];
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(work(shape, element))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (m, n, k) = (shape.get("m"), shape.get("n"), shape.get("k"));
        let operands = vec![inputs.values((m, k), element)?, inputs.values((n, k), element)?];
        let layer = Linear::new(operands[1].clone(), None);
        Ok(PreparedKernel::new(operands, move |xs| layer.forward(&xs[0])))
    }
}
