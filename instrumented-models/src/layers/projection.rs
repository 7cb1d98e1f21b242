//! A projection, dense or quantised.

use super::{Linear, QMatMul};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use candlescope_work::operation::{Cost, Count};

/// Either kind of projection, so that one model serves dense and quantised weights.
#[derive(Debug, Clone)]
pub enum Projection {
    /// A dense weight (out, in); input and output have its element type.
    Dense(Linear),
    /// A quantised weight (out, in); input and output are f32.
    Quantized(QMatMul),
}

impl Projection {
    /// Features of the output.
    pub fn out_features(&self) -> usize {
        match self {
            Projection::Dense(layer) => layer.out_features(),
            Projection::Quantized(layer) => layer.out_features(),
        }
    }

    /// Whether its weights are quantised.
    pub(crate) fn is_quantized(&self) -> bool {
        matches!(self, Projection::Quantized(_))
    }

    /// Cost for `rows` vectors.
    #[doc(hidden)]
    pub fn cost(&self, rows: impl Count) -> Cost {
        match self {
            Projection::Dense(layer) => layer.cost(rows),
            Projection::Quantized(layer) => layer.cost(rows),
        }
    }
}

impl Module for Projection {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        match self {
            Projection::Dense(layer) => layer.forward(xs),
            Projection::Quantized(layer) => layer.forward(xs),
        }
    }
}
