//! A wrapper that instruments any module.

use super::{dtype_word, layer_span, record};
use candle_core::{Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::Cost;
use std::fmt;
use std::sync::Arc;
use tracing::Span;

/// Works out the cost of a module for an input.
type CostOf<M> = Arc<dyn Fn(&M, &Tensor) -> Cost + Send + Sync>;

/// A module with a span around its forward pass. It is annotated with shape and element type, and with the FLOPs and
/// bytes that the function given to [`Instrumented::with_cost`] computes, if any.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use candle_nn::{Activation, Module};
/// use candlescope_models::layers::Instrumented;
/// let gelu = Instrumented::new("encoder.act", Activation::Gelu);
/// let ys = gelu.forward(&Tensor::zeros((2, 3), candle_core::DType::F32, &Device::Cpu)?)?;
/// assert_eq!(ys.dims(), &[2, 3]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Instrumented<M> {
    inner: M,
    cost: Option<CostOf<M>>,
    span: Span,
}

impl<M: fmt::Debug> fmt::Debug for Instrumented<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instrumented").field("inner", &self.inner).field("span", &self.span).finish_non_exhaustive()
    }
}

impl<M> Instrumented<M> {
    /// Wraps `inner`; its interval is named after the last component of `path`.
    pub fn new(path: &str, inner: M) -> Self {
        Self { inner, cost: None, span: layer_span!("module", path) }
    }

    /// Wraps `inner`, whose cost for an input is `cost(inner, input)`: for example [`candlescope_work::operation::linear`] for a
    /// projection, [`candlescope_work::operation::pointwise`] for an activation function. It is called only while something is
    /// recorded.
    pub fn with_cost(path: &str, inner: M, cost: impl Fn(&M, &Tensor) -> Cost + Send + Sync + 'static) -> Self {
        Self { inner, cost: Some(Arc::new(cost)), span: layer_span!("module", path) }
    }

    /// The wrapped module; a pass through it alone opens no interval of this wrapper.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Removes the wrapper, and with it the interval around each pass.
    pub fn into_inner(self) -> M {
        self.inner
    }
}

impl<M: Module> Module for Instrumented<M> {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = self.inner.forward(xs)?;
        record(|| {
            let cost = self.cost.as_ref().map(|cost| cost(&self.inner, xs)).unwrap_or_default();
            Annotation::from(cost).dtype(dtype_word(ys.dtype())).shape(ys.dims())
        });
        Ok(ys)
    }
}
