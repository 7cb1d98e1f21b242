//! A recurrent layer.

use super::kernel::{Kernel, PreparedKernel, Size, Work, bytes, product, size};
use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_nn::{LSTMConfig, RNN, VarBuilder, lstm};
use candlescope_work::operation::{lstm as lstm_of, pointwise};
use std::collections::HashMap;

/// `candle_nn::LSTM` over whole sequences, from a zero state.
pub(super) struct Lstm;

impl Kernel for Lstm {
    fn name(&self) -> &'static str {
        "lstm"
    }

    fn about(&self) -> &'static str {
        "candle_nn::LSTM, one layer over sequences of `length`, from `in` to `hidden` features"
    }

    fn sizes(&self) -> &'static [Size] {
        const SIZES: &[Size] = &[
            size("batch", "1,16", "2"),
            size("length", "64", "3"),
            size("in", "256", "4"),
            size("hidden", "256", "5"),
        ];
        SIZES
    }

    /// The matrix products: 2·B·T·4·H·(I + H) FLOPs. Input, weights, two biases and output once each.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError> {
        let (batch, length) = (shape.get("batch"), shape.get("length"));
        let (features, hidden) = (shape.get("in"), shape.get("hidden"));
        let states = bytes(&[&[batch, length, hidden]], element.width());
        let cost = lstm_of(product(&[batch, length]), features, hidden, 2, element.width()) + pointwise(states, 1, 1);
        // The cell states stay as long as the outputs.
        Ok(Work::from(cost).with_intermediate(states))
    }

    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel> {
        let (batch, length) = (shape.get("batch"), shape.get("length"));
        let (features, hidden) = (shape.get("in"), shape.get("hidden"));
        let xs = inputs.values((batch, length, features), element)?;
        let weights = [
            ("weight_ih_l0", inputs.values((4 * hidden, features), element)?),
            ("weight_hh_l0", inputs.values((4 * hidden, hidden), element)?),
            ("bias_ih_l0", inputs.values(4 * hidden, element)?),
            ("bias_hh_l0", inputs.values(4 * hidden, element)?),
        ];
        let named: HashMap<String, _> = weights.iter().map(|(name, w)| ((*name).to_string(), w.clone())).collect();
        let named = VarBuilder::from_tensors(named, element.activations(), inputs.device());
        let layer = lstm(features, hidden, LSTMConfig::default(), named)?;
        let operands = [vec![xs], weights.into_iter().map(|(_, w)| w).collect()].concat();
        Ok(PreparedKernel::new(operands, move |xs| layer.states_to_tensor(&layer.seq(&xs[0])?)))
    }
}
