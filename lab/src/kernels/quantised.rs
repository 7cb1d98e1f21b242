//! Matrix products with quantised weights.

use super::kernel::{Kernel, PreparedKernel, Size, Work, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_core::Module;
use candle_core::quantized::{GgmlDType, QMatMul};
use candlescope_models::weights::quantize_onto;
use candlescope_work::operation::linear;

/// candle's `QMatMul`: f32 activations by weights in GGML's blocks.
pub(super) struct QuantisedMatMul;

impl Kernel for QuantisedMatMul {
    fn name(&self) -> &'static str {
        "qmatmul"
    }

    fn about(&self) -> &'static str {
        "QMatMul, m rows from k to n features, with quantised weights"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[size("m", "1,16,256", "2"), size("n", "4096", "16"), size("k", "4096", "256")];
        SIZES
    }

    fn elements(&self) -> &'static [Element] {
        &[Element::Q4K, Element::Q8_0]
    }

    /// 2·M·N·K FLOPs; N·K weights in their blocks, and (M·K + M·N) activations of 4 bytes.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (m, n, k) = (shape.get("m"), shape.get("n"), shape.get("k"));
        let (_, block, block_bytes) = element.blocks().unwrap_or((GgmlDType::F32, 1, 4));
        if k % block != 0 {
            let why = "k must be a multiple of the weights' block, 256 for q4_k and 32 for q8_0";
            return Err(KernelError::Shape { kernel: self.name(), shape: shape.to_string(), why });
        }
        let weights = product(&[n, k / block, block_bytes]);
        Ok(linear(m, k, n, weights, element.width()).into())
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (m, n, k) = (shape.get("m"), shape.get("n"), shape.get("k"));
        let xs = inputs.values((m, k), element)?;
        let dense = inputs.values((n, k), element)?;
        let (dtype, ..) = element.blocks().unwrap_or((GgmlDType::F32, 1, 4));
        // Quantised on the host, which has all types.
        let weights = quantize_onto(&dense, dtype, inputs.device())?;
        let product = QMatMul::from_qtensor(weights)?;
        Ok(PreparedKernel::new(vec![xs], move |xs| product.forward(&xs[0])))
    }
}
