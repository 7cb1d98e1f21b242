//! Runs the graphs that this module writes with candle-onnx, on the CPU.
//!
//! candle-onnx does not read weights from a file beside the graph's, and would copy those within it at each call. So they
//! are read here, once, and handed over as values of their names beside the graph's inputs. Nothing else is changed.

use super::OnnxFiles;
use crate::weights::WeightError;
use candle_core::{DType, Device, Result, Tensor};
use candle_onnx::onnx::tensor_proto::DataLocation;
use candle_onnx::onnx::tensor_shape_proto::dimension;
use candle_onnx::onnx::{ModelProto, TensorProto, ValueInfoProto, type_proto};
use candle_onnx::simple_eval;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Tensors by their names in a graph.
type Values = HashMap<String, Tensor>;

/// A decoder's graph, with the keys and values of the text passed so far.
pub struct Evaluator {
    /// The graph that generates, and the one with the blocks' outputs; both without weights.
    model: ModelProto,
    blocks: ModelProto,
    weights: Values,
    /// Names of the graph's keys and values, each with its result's name, and their shape for a text of no tokens.
    caches: Vec<(String, String, Vec<usize>)>,
    cache: Values,
    /// Tokens in `cache`.
    past: usize,
}

impl std::fmt::Debug for Evaluator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evaluator").field("weights", &self.weights.len()).field("past", &self.past).finish()
    }
}

impl Evaluator {
    /// Reads what [`write_onnx`](super::write_onnx) wrote.
    ///
    /// # Errors
    /// When a file cannot be read, or is none of ours.
    pub fn open(files: &OnnxFiles) -> std::result::Result<Self, WeightError> {
        let (mut model, mut blocks) = (read(&files.model)?, read(&files.blocks)?);
        let mut weights = Values::new();
        let mut data = candlescope_core::files::open_regular(&files.data)
            .map_err(|cause| WeightError::Read { path: files.data.clone(), cause })?;
        for weight in take_weights(&mut model).into_iter().chain(take_weights(&mut blocks)) {
            // Both graphs have the same.
            if !weights.contains_key(&weight.name) {
                let tensor = tensor(&weight, &mut data, &files.data)?;
                weights.insert(weight.name, tensor);
            }
        }
        let caches = model.graph.iter().flat_map(|graph| &graph.input).filter_map(cache).collect();
        Ok(Self { model, blocks, weights, caches, cache: Values::new(), past: 0 })
    }

    /// Begins a new text.
    pub fn reset(&mut self) {
        (self.cache, self.past) = (Values::new(), 0);
    }

    /// Tokens passed since the beginning of the text.
    pub fn past(&self) -> usize {
        self.past
    }

    /// Bytes of keys and values that are held.
    pub fn kv_bytes(&self) -> u64 {
        bytes(&self.cache)
    }

    /// Bytes of the weights that are held.
    pub fn weight_bytes(&self) -> u64 {
        bytes(&self.weights)
    }

    /// Passes the next `tokens` of the text. Returns the logits (positions, vocabulary) of the positions `at`, which count
    /// from the first of `tokens`.
    ///
    /// # Errors
    /// When candle-onnx fails, for instance because a position is outside the model's context.
    pub fn forward(&mut self, tokens: &[u32], at: &[usize]) -> Result<Tensor> {
        let mut cache = std::mem::take(&mut self.cache);
        if cache.is_empty() {
            cache = self.empty()?;
        }
        let mut made = self.evaluate(&self.model, cache, (tokens, self.past), at)?;
        let names = self.caches.iter().map(|(past, present, _)| Ok((past.clone(), take(&mut made, present)?)));
        self.cache = names.collect::<Result<_>>()?;
        self.past += tokens.len();
        take(&mut made, "logits")
    }

    /// Logits of the positions `at` of a text by itself, and each block's output (tokens, features). What
    /// [`forward`](Self::forward) has passed stays.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn inspect(&self, tokens: &[u32], at: &[usize]) -> Result<(Tensor, Vec<Tensor>)> {
        let mut made = self.evaluate(&self.blocks, self.empty()?, (tokens, 0), at)?;
        let blocks = (0..).map_while(|layer| made.remove(&format!("hidden.{layer}"))).collect();
        Ok((take(&mut made, "logits")?, blocks))
    }

    fn empty(&self) -> Result<Values> {
        let zeros = |shape: &Vec<usize>| Tensor::zeros(shape.as_slice(), DType::F32, &Device::Cpu);
        self.caches.iter().map(|(past, _, shape)| Ok((past.clone(), zeros(shape)?))).collect()
    }

    fn evaluate(
        &self,
        model: &ModelProto,
        cache: Values,
        (tokens, position): (&[u32], usize),
        at: &[usize],
    ) -> Result<Values> {
        let list = |values: Vec<i64>| Tensor::new(values, &Device::Cpu);
        let mut values = self.weights.clone();
        values.extend(cache);
        let ids = tokens.iter().map(|token| i64::from(*token)).collect();
        let positions = (position..position + tokens.len()).map(|at| at as i64).collect();
        values.insert("input_ids".into(), list(ids)?.unsqueeze(0)?);
        values.insert("position_ids".into(), list(positions)?.unsqueeze(0)?);
        values.insert("logits_at".into(), list(at.iter().map(|at| *at as i64).collect())?);
        simple_eval(model, values)
    }
}

fn bytes(values: &Values) -> u64 {
    values.values().map(|tensor| (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64).sum()
}

fn take(made: &mut Values, name: &str) -> Result<Tensor> {
    made.remove(name).ok_or_else(|| candle_core::Error::Msg(format!("the graph gave no {name}")))
}

fn read(path: &Path) -> std::result::Result<ModelProto, WeightError> {
    candle_onnx::read_file(path).map_err(|error| not_onnx(path, error.to_string()))
}

fn not_onnx(path: &Path, reason: String) -> WeightError {
    WeightError::NotA { path: path.to_path_buf(), expected: "valid ONNX", reason }
}

/// Takes the weights that are in another file out of the graph.
fn take_weights(model: &mut ModelProto) -> Vec<TensorProto> {
    let Some(graph) = &mut model.graph else { return Vec::new() };
    let all = std::mem::take(&mut graph.initializer);
    let (outside, inside) = all.into_iter().partition(|own| own.data_location() == DataLocation::External);
    graph.initializer = inside;
    outside
}

/// A weight from its place in the file of weights.
fn tensor(weight: &TensorProto, data: &mut File, path: &Path) -> std::result::Result<Tensor, WeightError> {
    let entry = |key: &str| {
        let found = weight.external_data.iter().find(|entry| entry.key == key);
        let number = found.and_then(|entry| entry.value.parse::<u64>().ok());
        number.ok_or_else(|| not_onnx(path, format!("the graph gives no {key} of `{}`", weight.name)))
    };
    let (offset, length) = (entry("offset")?, entry("length")?);
    let unread = |cause| WeightError::Read { path: path.to_path_buf(), cause };
    let actual = data.metadata().map_err(unread)?.len();
    let needed = offset.saturating_add(length);
    if needed > actual {
        return Err(WeightError::Truncated { path: path.to_path_buf(), what: weight.name.clone(), needed, actual });
    }
    let mut bytes = Vec::new();
    data.seek(SeekFrom::Start(offset)).map_err(unread)?;
    data.take(length).read_to_end(&mut bytes).map_err(unread)?;
    let shape: Vec<usize> = weight.dims.iter().filter_map(|size| usize::try_from(*size).ok()).collect();
    let wanted = shape.iter().try_fold(4usize, |bytes, size| bytes.checked_mul(*size));
    if wanted != Some(bytes.len()) {
        return Err(not_onnx(path, format!("`{}` of shape {shape:?} has {} bytes", weight.name, bytes.len())));
    }
    Tensor::from_raw_buffer(&bytes, DType::F32, &shape, &Device::Cpu)
        .map_err(|cause| WeightError::Tensor { tensor: weight.name.clone(), cause })
}

/// An input for keys or values: its name, the name of the output that is the next call's, and the shape of none.
fn cache(input: &ValueInfoProto) -> Option<(String, String, Vec<usize>)> {
    let present = format!("present.{}", input.name.strip_prefix("past_key_values.")?);
    let Some(type_proto::Value::TensorType(tensor)) = &input.r#type.as_ref()?.value else { return None };
    let sizes = tensor.shape.as_ref()?.dim.iter().map(|dim| match dim.value {
        Some(dimension::Value::DimValue(size)) => usize::try_from(size).unwrap_or(0),
        // The tokens, which differ from call to call.
        _ => 0,
    });
    Some((input.name.clone(), present, sizes.collect()))
}
