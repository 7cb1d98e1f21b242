//! Normalisations: LayerNorm, the same with the GELU after it, and RMSNorm.

use super::error::KernelError;
use super::kernel::{Kernel, Prepared, Size, Work, bytes, product, size};
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_nn::{LayerNorm, Module, RmsNorm};

const SIZES: &[Size] = &[size("rows", "1,256,4096", "4"), size("width", "4096", "16")];
const EPSILON: f64 = 1e-5;

/// `candle_nn::LayerNorm`, then `gelu_erf`.
pub(super) struct LayerNormGelu;

/// `candle_nn::LayerNorm`.
pub(super) struct Layer;

/// `candle_nn::RmsNorm`.
pub(super) struct Rms;

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

    /// 12 FLOPs an element: 7 of the LayerNorm (mean, difference, square, its sum, scaling, weight, bias) and 5 of
    /// x/2·(1 + erf(x/√2)), the error function counted as one. Input, output, weight and bias once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let io_bytes = bytes(&[&[2, rows, width], &[2, width]], element.width());
        let between = bytes(&[&[rows, width]], element.width());
        Ok(Work { flops: Some(product(&[12, rows, width])), io_bytes, memory_bytes: io_bytes.saturating_add(between) })
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<Prepared> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let xs = inputs.values((rows, width), element)?;
        let (weight, bias) = (inputs.scales(width, element)?, inputs.values(width, element)?);
        let layer = LayerNorm::new(weight.clone(), bias.clone(), EPSILON);
        Ok(Prepared::new(vec![xs, weight, bias], move |xs| layer.forward(&xs[0])?.gelu_erf()))
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

    /// 7 FLOPs an element: mean, difference, square, its sum, scaling, weight, bias. Input, output, weight and bias once
    /// each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let io_bytes = bytes(&[&[2, rows, width], &[2, width]], element.width());
        Ok(Work { flops: Some(product(&[7, rows, width])), io_bytes, memory_bytes: io_bytes })
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<Prepared> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let xs = inputs.values((rows, width), element)?;
        let (weight, bias) = (inputs.scales(width, element)?, inputs.values(width, element)?);
        let layer = LayerNorm::new(weight.clone(), bias.clone(), EPSILON);
        Ok(Prepared::new(vec![xs, weight, bias], move |xs| layer.forward(&xs[0])))
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

    /// 4 FLOPs an element: square, its sum, scaling, weight. Input, output and weight once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let io_bytes = bytes(&[&[2, rows, width], &[width]], element.width());
        Ok(Work { flops: Some(product(&[4, rows, width])), io_bytes, memory_bytes: io_bytes })
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<Prepared> {
        let (rows, width) = (shape.get("rows"), shape.get("width"));
        let xs = inputs.values((rows, width), element)?;
        let weight = inputs.scales(width, element)?;
        let layer = RmsNorm::new(weight.clone(), EPSILON);
        Ok(Prepared::new(vec![xs, weight], move |xs| layer.forward(&xs[0])))
    }
}
