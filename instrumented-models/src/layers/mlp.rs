//! Feed-forward networks of decoder layers.

use super::{Projection, dtype_word, join, layer_span, record};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, pointwise, swiglu};
use tracing::Span;

/// What is between the projections.
#[derive(Debug, Clone)]
pub enum Activation {
    /// `silu(gate(x)) · up(x)`: three projections in all.
    SwiGlu {
        /// The gate, from hidden to intermediate.
        gate: Projection,
    },
    /// `gelu(up(x))`, with the error function as in BERT: two projections in all.
    Gelu,
    /// `gelu(up(x))`, in the tanh form of GPT-2.
    GeluTanh,
}

/// A feed-forward network: up, activation, down. The activation is an interval `act_fn`.
#[derive(Debug, Clone)]
pub struct Mlp {
    activation: Activation,
    up: Projection,
    down: Projection,
    span: Span,
    act_span: Span,
}

impl Mlp {
    /// A network named by `path`, from hidden to intermediate (`up`) and back (`down`).
    pub fn new(path: &str, activation: Activation, up: Projection, down: Projection) -> Self {
        let act_span = layer_span!("act_fn", &join(path, "act_fn"));
        Self { activation, up, down, span: layer_span!("mlp", path), act_span }
    }

    /// Whether any of its weights is quantised.
    pub(crate) fn is_quantized(&self) -> bool {
        let gate = matches!(&self.activation, Activation::SwiGlu { gate } if gate.is_quantized());
        gate || self.up.is_quantized() || self.down.is_quantized()
    }

    /// Cost for `rows` vectors whose activations have `width` bytes: the projections and the activation between them.
    #[doc(hidden)]
    pub fn cost(&self, rows: impl Count, width: impl Count) -> Cost {
        let gate = match &self.activation {
            Activation::SwiGlu { gate } => gate.cost(rows),
            Activation::Gelu | Activation::GeluTanh => Cost::ZERO,
        };
        let activation = self.activation_cost(rows.count() * self.up.out_features() as f64, width);
        gate + self.up.cost(rows) + activation + self.down.cost(rows)
    }

    /// Cost of the activation over `elements` elements of `width` bytes.
    fn activation_cost(&self, elements: impl Count, width: impl Count) -> Cost {
        match &self.activation {
            Activation::SwiGlu { .. } => swiglu(elements, width),
            Activation::Gelu | Activation::GeluTanh => pointwise(elements, 2, width),
        }
    }

    fn activate(&self, up: Tensor, gate: Option<Tensor>) -> Result<Tensor> {
        let _entered = self.act_span.enter();
        let ys = match (gate, &self.activation) {
            (Some(gate), _) => (candle_nn::ops::silu(&gate)? * up)?,
            (None, Activation::GeluTanh) => up.gelu()?,
            (None, _) => up.gelu_erf()?,
        };
        record(|| {
            let cost = self.activation_cost(ys.elem_count(), ys.dtype().size_in_bytes());
            Annotation::from(cost).dtype(dtype_word(ys.dtype())).shape(ys.dims())
        });
        Ok(ys)
    }
}

impl Module for Mlp {
    /// The shape (…, hidden) is kept.
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let gate = match &self.activation {
            Activation::SwiGlu { gate } => Some(gate.forward(xs)?),
            Activation::Gelu | Activation::GeluTanh => None,
        };
        let up = self.up.forward(xs)?;
        self.down.forward(&self.activate(up, gate)?)
    }
}
