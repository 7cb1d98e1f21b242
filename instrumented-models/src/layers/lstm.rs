//! A long short-term memory layer.

use super::{dtype_word, join, layer_span, record};
use candle_core::{DType, Result, Tensor};
use candle_nn::rnn::{LSTMConfig, LSTMState};
use candle_nn::{LSTM, RNN, VarBuilder};
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, lstm, pointwise};
use tracing::Span;

/// One LSTM layer over (batch, time, features). Each time step is an interval `step` inside the layer's own.
#[derive(Debug, Clone)]
pub struct Lstm {
    inner: LSTM,
    in_features: usize,
    hidden: usize,
    width: usize,
    biases: usize,
    span: Span,
    step_span: Span,
}

impl Lstm {
    /// Loads a layer from `vb`, whose weights PyTorch would name `weight_ih_l0` and so on. `path` names the interval.
    pub fn new(path: &str, in_features: usize, hidden: usize, config: LSTMConfig, vb: VarBuilder<'_>) -> Result<Self> {
        let width = vb.dtype().size_in_bytes();
        let biases = usize::from(config.b_ih_init.is_some()) + usize::from(config.b_hh_init.is_some());
        let inner = LSTM::new(in_features, hidden, config, vb)?;
        let step_span = layer_span!("step", &join(path, "step"));
        Ok(Self { inner, in_features, hidden, width, biases, span: layer_span!("lstm", path), step_span })
    }

    /// Cost of one time step of `batch` sequences: four gates, each a product with the input and one with the state.
    ///
    /// Activations, in units of batch·hidden elements: the products read the input (features / hidden of them) and the
    /// state (1) and write 4 each, a bias reads and writes 4, the sum of the products is 12, four activation functions
    /// are 8, the cell's new state from its old is 9, and the hidden state from that is 5.
    #[doc(hidden)]
    pub fn step_cost(&self, batch: impl Count) -> Cost {
        let states = 1 + 2 * 4 + 8 * self.biases + 12 + 8 + 9 + 5;
        lstm(batch, self.in_features, self.hidden, self.biases, self.width)
            + pointwise(batch.count() * self.hidden as f64, states, self.width)
    }

    /// One time step: (batch, features) and the state before it to the state after it.
    pub fn step(&self, input: &Tensor, state: &LSTMState) -> Result<LSTMState> {
        let _entered = self.step_span.enter();
        let next = self.inner.step(input, state)?;
        record(|| {
            let batch = input.dims().first().copied().unwrap_or(1);
            Annotation::from(self.step_cost(batch)).dtype(dtype_word(input.dtype())).shape(next.h().dims())
        });
        Ok(next)
    }

    /// All time steps from a zero state: (batch, time, features) to the hidden states (batch, time, hidden).
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let (batch, time, _) = xs.dims3()?;
        if time == 0 {
            return Tensor::zeros((batch, 0, self.hidden), DType::F32, xs.device())?.to_dtype(xs.dtype());
        }
        let mut state = self.inner.zero_state(batch)?;
        let mut outputs = Vec::with_capacity(time);
        for t in 0..time {
            state = self.step(&xs.narrow(1, t, 1)?.squeeze(1)?.contiguous()?, &state)?;
            outputs.push(state.h().clone());
        }
        Tensor::stack(&outputs, 1)
    }
}
