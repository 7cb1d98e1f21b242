//! Normalisations: LayerNorm, the same with the GELU after it, and RMSNorm.

use super::kernel::{Kernel, PreparedKernel, Size, Work, bytes, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_nn::{LayerNorm, Module, RmsNorm};
use candlescope_work::operation::flops_an_element::{GELU_ERF, LAYER_NORM, RMS_NORM};
use candlescope_work::operation::norm;

const SIZES: &[Size] = &[size("rows", "1,256,4096", "4"), size("width", "4096", "16")];
const EPSILON: f64 = 1e-5;

/// `candle_nn::LayerNorm`, then `gelu_erf`.
pub(super) struct LayerNormGelu;

/// `candle_nn::LayerNorm`.
pub(super) struct Layer;

/// `candle_nn::RmsNorm`.
pub(super) struct Rms;

/// Input, output and `vectors` of weights and biases once each, with so many FLOPs an element.
fn work(shape: &Shape, element: Element, vectors: usize, flops: u64) -> Work {
    let (elements, width) = (product(&[shape.get("rows"), shape.get("width")]), element.width());
    Work::from(norm(elements, bytes(&[&[vectors, shape.get("width")]], width), width))
        .with_flops(elements.saturating_mul(flops))
}

impl Kernel for LayerNormGelu {
    fn name(&self) -> &'static str {
        "layernorm_gelu"
    }

    fn about(&self) -> &'static str {
        "candle_nn::LayerNorm, then GELU with the error function"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let between = bytes(&[&[shape.get("rows"), shape.get("width")]], element.width());
        Ok(work(shape, element, 2, LAYER_NORM + GELU_ERF).with_intermediate(between))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let xs = inputs.values((rows, width), element)?;
        let (weight, bias) = (inputs.scales(width, element)?, inputs.values(width, element)?);
        let layer = LayerNorm::new(weight.clone(), bias.clone(), EPSILON);
        Ok(PreparedKernel::new(vec![xs, weight, bias], move |xs| layer.forward(&xs[0])?.gelu_erf()))
    }
}

impl Kernel for Layer {
    fn name(&self) -> &'static str {
        "layernorm"
    }

    fn about(&self) -> &'static str {
        "candle_nn::LayerNorm"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(work(shape, element, 2, LAYER_NORM))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let xs = inputs.values((rows, width), element)?;
        let (weight, bias) = (inputs.scales(width, element)?, inputs.values(width, element)?);
        let layer = LayerNorm::new(weight.clone(), bias.clone(), EPSILON);
        Ok(PreparedKernel::new(vec![xs, weight, bias], move |xs| layer.forward(&xs[0])))
    }
}

impl Kernel for Rms {
    fn name(&self) -> &'static str {
        "rmsnorm"
    }

    fn about(&self) -> &'static str {
        "candle_nn::RmsNorm"
    }

    fn sizes(&self) -> &'static [Size] {
        SIZES
    }

    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        Ok(work(shape, element, 1, RMS_NORM))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let xs = inputs.values((rows, width), element)?;
        let weight = inputs.scales(width, element)?;
        let layer = RmsNorm::new(weight.clone(), EPSILON);
        Ok(PreparedKernel::new(vec![xs, weight], move |xs| layer.forward(&xs[0])))
    }
}
