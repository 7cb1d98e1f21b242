//! Convolution of images.

use super::kernel::{Kernel, PreparedKernel, Size, Work, bytes, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_nn::{Conv2d, Conv2dConfig, Module};
use candlescope_work::operation::convolution;

/// `candle_nn::Conv2d` over square images, padded by half of the filter, without a bias.
pub(super) struct Convolution;

/// Pixels of a side of the output: ⌊(side + 2·⌊filter/2⌋ − filter) / stride⌋ + 1.
fn out_side(shape: &Shape) -> usize {
    let (side, filter, stride) = (shape.get("side"), shape.get("filter"), shape.get("stride"));
    (side + 2 * (filter / 2)).saturating_sub(filter) / stride + 1
}

impl Kernel for Convolution {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn about(&self) -> &'static str {
        "candle_nn::Conv2d, `in` to `out` channels, square images padded by half of the filter"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[
            size("batch", "1,8", "1"),
            size("in", "64", "3"),
            size("out", "64", "4"),
            size("side", "56", "6"),
            size("filter", "3", "3"),
            size("stride", "1", "1"),
        ];
        SIZES
    }

    /// 2·B·out·s²·in·f² FLOPs, with s the side of the output; image, filters and output once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (batch, channels, out) = (shape.get("batch"), shape.get("in"), shape.get("out"));
        let (side, filter, out_side) = (shape.get("side"), shape.get("filter"), out_side(shape));
        if filter > side {
            let why = "the filter is larger than the image";
            return Err(KernelError::Shape { kernel: self.name(), shape: shape.to_string(), why });
        }
        let width = element.width();
        let [image, made] = [(channels, side), (out, out_side)].map(|(c, side)| product(&[batch, c, side, side]));
        let window = product(&[channels, filter, filter]);
        let cost = convolution(image, made, window, bytes(&[&[out, channels, filter, filter]], width), width);
        // candle unfolds the image: each pixel once for each place of the filter.
        let unfolded = bytes(&[&[batch, out_side, out_side, channels, filter, filter]], width);
        Ok(Work::from(cost).with_intermediate(unfolded))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (batch, channels, out) = (shape.get("batch"), shape.get("in"), shape.get("out"));
        let (side, filter) = (shape.get("side"), shape.get("filter"));
        let images = inputs.values((batch, channels, side, side), element)?;
        let filters = inputs.values((out, channels, filter, filter), element)?;
        let config = Conv2dConfig { padding: filter / 2, stride: shape.get("stride"), ..Conv2dConfig::default() };
        let layer = Conv2d::new(filters.clone(), None, config);
        Ok(PreparedKernel::new(vec![images, filters], move |xs| layer.forward(&xs[0])))
    }
}
