//! Sources of weights, one per file.

#[doc(hidden)]
pub mod gguf;
mod gguf_header;
mod gguf_writer;
mod held;
mod prefixed;
pub mod random;
#[doc(hidden)]
pub mod safetensors;

use crate::candle_message;
use crate::config::ConfigError;
use crate::layers::{Embedding, LayerNorm, Linear, Projection, QMatMul, RmsNorm};
use candle_core::Tensor;
use candle_core::quantized::QTensor;
#[doc(hidden)]
pub use gguf_writer::{GgufText, write_gguf};
pub(crate) use held::HoldingSource;
#[doc(hidden)]
pub use held::{Form, HeldModel, HeldWeights, quantize_onto};
#[doc(hidden)]
pub use prefixed::WithoutPrefix;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

/// Values that one thread makes before another is worth starting.
const A_THREAD: usize = 1 << 20;

/// How many threads make `count` values: weights of a model of eight billion take one thread two minutes. They are threads
/// of their own, since loading is over before any pool computes, whose size is the user's.
fn threads_for(count: usize) -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(count / A_THREAD)
}

/// Why weights could not be loaded. A message includes that of its cause, which is therefore not a `source()`: a
/// printed chain would contain it twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum WeightError {
    /// The file is missing or cannot be read.
    #[error("cannot read {path}: {cause}; check the path and its permissions", path = path.display())]
    Read { path: PathBuf, cause: std::io::Error },
    /// The file is something else.
    #[error("{path} is not a {expected} file: {reason}", path = path.display())]
    NotA {
        path: PathBuf,
        /// What it should have been.
        expected: &'static str,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// The file ends before its contents do.
    #[error(
        "{path} is truncated: {what} needs a file of {needed} bytes at least, this one has {actual}; download or copy it again",
        path = path.display()
    )]
    Truncated {
        path: PathBuf,
        /// The tensor or section that is cut off.
        what: String,
        needed: u64,
        /// Bytes in the file.
        actual: u64,
    },
    /// A tensor is missing.
    #[error("tensor `{tensor}` is missing from {path}; the file is incomplete or of another architecture", path = path.display())]
    MissingTensor {
        tensor: String,
        /// File or directory searched.
        path: PathBuf,
    },
    /// A tensor has another shape than the configuration says.
    #[error(
        "tensor `{tensor}` in {path} has shape {actual:?}, the configuration says {expected:?}; \
         configuration and weights belong to different models",
        path = path.display()
    )]
    Shape {
        tensor: String,
        path: PathBuf,
        /// Shape in the file.
        actual: Vec<usize>,
        /// Shape by the configuration.
        expected: Vec<usize>,
    },
    /// The model's dimensions or architecture cannot be run.
    #[error("{path}: {cause}", path = path.display())]
    Config { path: PathBuf, cause: ConfigError },
    /// Rows of a tensor cannot be divided into the blocks of a quantised type.
    #[error(
        "`{tensor}` has rows of {row} values, which are no multiple of the {block} that {dtype} stores together; {remedy}"
    )]
    Blocks {
        tensor: String,
        /// Values in a row.
        row: usize,
        dtype: &'static str,
        /// Values in one of its blocks.
        block: usize,
        /// Which type to choose.
        remedy: &'static str,
    },
    /// The weights cannot be written in a file's format.
    #[error("cannot write {path}: {reason}", path = path.display())]
    Unwritable { path: PathBuf, reason: String },
    /// candle could not make a tensor from the data.
    #[error("cannot make tensor `{tensor}`: {}", candle_message(.cause))]
    Tensor { tensor: String, cause: candle_core::Error },
}

/// A source of weights under their Hugging Face names (`model.layers.0.self_attn.q_proj.weight`).
pub trait WeightSource: Send {
    /// The tensor `name`, dense, in the requested element type and on the requested device. It must have the shape
    /// `shape`.
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError>;

    /// The tensor `name` in its quantised form, if this source has quantised weights.
    fn quantized(&mut self, name: &str, shape: &[usize]) -> Result<Option<Arc<QTensor>>, WeightError> {
        let _ = (name, shape);
        Ok(None)
    }

    /// The tensor `name` in its quantised form, of the shape (out, in), where its dense form is stored as its transpose.
    fn quantized_transposed(&mut self, name: &str, shape: (usize, usize)) -> Result<Option<Arc<QTensor>>, WeightError> {
        let _ = (name, shape);
        Ok(None)
    }

    /// The tensor `name`, dense, of the shape (out, in), where it is stored as its transpose: GPT-2's projections.
    fn transposed(&mut self, name: &str, (out, input): (usize, usize)) -> Result<Tensor, WeightError> {
        // In the layout that all other models' projections have.
        self.dense(name, &[input, out])?.t().and_then(|weight| weight.contiguous()).map_err(tensor_error(name))
    }

    /// Whether there is a tensor of this name. A source that cannot tell says yes, and fails when it is read.
    fn contains(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// Divisors of the rotary frequencies, if the source has them.
    fn rope_factors(&mut self) -> Result<Option<Vec<f32>>, WeightError> {
        Ok(None)
    }
}

pub(crate) fn tensor_error(tensor: &str) -> impl FnOnce(candle_core::Error) -> WeightError + '_ {
    move |cause| WeightError::Tensor { tensor: tensor.to_string(), cause }
}

/// The projection at `path`, (out, in), dense or quantised, as in the source.
pub(crate) fn projection(
    source: &mut dyn WeightSource,
    path: &str,
    (out, input): (usize, usize),
    bias: bool,
) -> Result<Projection, WeightError> {
    let name = format!("{path}.weight");
    let bias = if bias { Some(source.dense(&format!("{path}.bias"), &[out])?) } else { None };
    match source.quantized(&name, &[out, input])? {
        Some(weight) => QMatMul::new(path, weight, bias).map(Projection::Quantized),
        None => Linear::new(path, source.dense(&name, &[out, input])?, bias).map(Projection::Dense),
    }
    .map_err(tensor_error(&name))
}

/// The projection at `path`, (out, in), with a bias, stored as its transpose.
pub(crate) fn transposed_projection(
    source: &mut dyn WeightSource,
    path: &str,
    (out, input): (usize, usize),
) -> Result<Projection, WeightError> {
    let name = format!("{path}.weight");
    // Random weights depend on the order in which they are asked for: the bias comes last.
    match source.quantized_transposed(&name, (out, input))? {
        Some(weight) => {
            let bias = source.dense(&format!("{path}.bias"), &[out])?;
            QMatMul::new(path, weight, Some(bias)).map(Projection::Quantized)
        }
        None => {
            let weight = source.transposed(&name, (out, input))?;
            let bias = source.dense(&format!("{path}.bias"), &[out])?;
            Linear::new(path, weight, Some(bias)).map(Projection::Dense)
        }
    }
    .map_err(tensor_error(&name))
}

/// The layer norm at `path`, with a bias.
pub(crate) fn layer_norm(
    source: &mut dyn WeightSource,
    path: &str,
    size: usize,
    eps: f64,
) -> Result<LayerNorm, WeightError> {
    let weight = source.dense(&format!("{path}.weight"), &[size])?;
    Ok(LayerNorm::new(path, weight, Some(source.dense(&format!("{path}.bias"), &[size])?), eps))
}

/// The norm at `path`.
pub(crate) fn norm(source: &mut dyn WeightSource, path: &str, size: usize, eps: f64) -> Result<RmsNorm, WeightError> {
    Ok(RmsNorm::new(path, source.dense(&format!("{path}.weight"), &[size])?, eps))
}

/// The embedding table at `path` and, if `head` names one, the projection that shares it.
pub(crate) fn embedding(
    source: &mut dyn WeightSource,
    path: &str,
    (vocabulary, hidden): (usize, usize),
    tied_head: Option<&str>,
) -> Result<(Embedding, Option<Projection>), WeightError> {
    let name = format!("{path}.weight");
    let pair = match source.quantized(&name, &[vocabulary, hidden])? {
        Some(table) => Embedding::quantized(path, table.clone()).and_then(|embedding| {
            let head = tied_head.map(|head| QMatMul::new(head, table, None).map(Projection::Quantized));
            Ok((embedding, head.transpose()?))
        }),
        None => {
            let table = source.dense(&name, &[vocabulary, hidden])?;
            Embedding::new(path, table.clone()).and_then(|embedding| {
                let head = tied_head.map(|head| Linear::new(head, table, None).map(Projection::Dense));
                Ok((embedding, head.transpose()?))
            })
        }
    };
    pair.map_err(tensor_error(&name))
}
