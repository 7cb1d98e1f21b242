//! Looking up rows of a table.

use super::kernel::{Kernel, PreparedKernel, Size, Work, bytes, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_nn::{Embedding, Module};
use candlescope_work::operation::lookup;

/// `candle_nn::Embedding`.
pub(super) struct Lookup;

impl Kernel for Lookup {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn about(&self) -> &'static str {
        "candle_nn::Embedding: rows of a table by token"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] =
            &[size("tokens", "1,128,2048", "5"), size("vocab", "32000", "50"), size("width", "4096", "16")];
        SIZES
    }

    /// No FLOPs; 32-bit numbers of the tokens, their rows read and written.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (tokens, vocab, width) = (shape.get("tokens"), shape.get("vocab"), shape.get("width"));
        let memory_bytes =
            bytes(&[&[tokens]], 4).saturating_add(bytes(&[&[vocab, width], &[tokens, width]], element.width()));
        let cost = lookup(tokens, width, width * element.width(), element.width());
        Ok(Work { memory_bytes, ..cost.into() })
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (tokens, vocab, width) = (shape.get("tokens"), shape.get("vocab"), shape.get("width"));
        let operands = vec![inputs.ids(tokens, vocab)?, inputs.values((vocab, width), element)?];
        let layer = Embedding::new(operands[1].clone(), width);
        Ok(PreparedKernel::new(operands, move |xs| layer.forward(&xs[0])))
    }
}
