//! A `VarBuilder` over one of our sources of weights, so that candle's models load from all of them, and a tensor that
//! is missing or has another shape is told as for ours.

use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Shape, Tensor, bail};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// How much a model read, each tensor counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Elements of all tensors.
    pub parameters: u64,
    /// Their bytes in memory.
    pub bytes: u64,
}

struct Book<'a> {
    source: &'a mut dyn WeightSource,
    read: HashSet<String>,
    size: Size,
    /// The first failure: candle's own message would lack the file and the remedy.
    failure: Option<WeightError>,
}

struct Reading<'a>(Arc<Mutex<Book<'a>>>);

impl SimpleBackend for Reading<'_> {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, _: &Device) -> Result<Tensor> {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tensor = match book.source.dense(name, shape.dims()) {
            Ok(tensor) => tensor.to_dtype(dtype)?,
            Err(error) => {
                let message = error.to_string();
                book.failure.get_or_insert(error);
                bail!("{message}")
            }
        };
        if book.read.insert(name.to_string()) {
            book.size.parameters += tensor.elem_count() as u64;
            book.size.bytes += (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64;
        }
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        bail!("`{name}` is read without a shape, which no model of ours does")
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).source.contains(name)
    }
}

/// Makes a model of candle's from `source`, observed, so that its layers have names. `what` names it in errors.
///
/// What is known of the architecture has to be told to [`candlescope_core::modules`] before.
pub(crate) fn build<M>(
    what: &'static str,
    source: &mut dyn WeightSource,
    dtype: DType,
    device: &Device,
    make: impl FnOnce(VarBuilder<'_>) -> Result<M>,
) -> std::result::Result<(M, Size), WeightError> {
    let book = Book { source, read: HashSet::new(), size: Size::default(), failure: None };
    let book = Arc::new(Mutex::new(book));
    let vb = VarBuilder::from_backend(Box::new(Reading(book.clone())), dtype, device.clone());
    let made = make(candlescope::observe(vb));
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    match made {
        Ok(model) => Ok((model, book.size)),
        // A tensor that was asked for in vain and not needed is no failure.
        Err(cause) => Err(book.failure.take().unwrap_or(WeightError::Tensor { tensor: what.into(), cause })),
    }
}
