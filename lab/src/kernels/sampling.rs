//! Choosing the next token from logits. The chosen numbers are on the host when a run ends, as a generation loop needs
//! them.

use super::kernel::{Kernel, PreparedKernel, Size, Work, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_core::{D, Device, Tensor};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use candlescope_work::operation::pointwise;
use std::cell::RefCell;

const SIZES: &[Size] = &[size("batch", "1,16", "2"), size("vocab", "32000,128256", "64")];
const K: usize = 40;
const P: f64 = 0.95;
const TEMPERATURE: f64 = 0.8;

/// The most likely token of each sequence.
pub(super) struct Greedy;

/// A token of each sequence, drawn by candle's `LogitsProcessor` among the 40 most likely that together reach 0.95, at
/// temperature 0.8.
pub(super) struct TopKThenTopP;

/// No FLOPs are counted. The logits once, and a 32-bit number for each sequence.
fn work(shape: &Shape, element: Element) -> Work {
    let (batch, vocab) = (shape.get("batch"), shape.get("vocab"));
    (pointwise(product(&[batch, vocab]), 1, element.width()) + pointwise(batch, 1, 4)).into()
}

impl Kernel for Greedy {
    fn name(&self) -> &'static str {
        "argmax"
    }

    fn about(&self) -> &'static str {
        "the most likely token of each sequence, fetched by the host"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn ends_on_host(&self) -> bool {
        true
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(work(shape, element))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let logits = inputs.values((shape.get("batch"), shape.get("vocab")), element)?;
        Ok(PreparedKernel::new(vec![logits], |xs| xs[0].argmax(D::Minus1)?.to_device(&Device::Cpu)))
    }
}

impl Kernel for TopKThenTopP {
    fn name(&self) -> &'static str {
        "sampling"
    }

    fn about(&self) -> &'static str {
        "a token of each sequence drawn on the host: top-k 40, then top-p 0.95, temperature 0.8"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn elements(&self) -> &'static [Element] {
        &[Element::F32]
    }

    fn ends_on_host(&self) -> bool {
        true
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(work(shape, element))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let logits = inputs.values((shape.get("batch"), shape.get("vocab")), element)?;
        let rule = Sampling::TopKThenTopP { k: K, p: P, temperature: TEMPERATURE };
        let sampler = RefCell::new(LogitsProcessor::from_sampling(inputs.seed(), rule));
        Ok(PreparedKernel::new(vec![logits], move |xs| {
            let logits = xs[0].to_device(&Device::Cpu)?;
            let rows = (0..logits.dim(0)?).map(|row| sampler.borrow_mut().sample(&logits.get(row)?));
            let chosen = rows.collect::<candle_core::Result<Vec<u32>>>()?;
            let count = chosen.len();
            Tensor::from_vec(chosen, count, &Device::Cpu)
        }))
    }
}
