//! Weights kept in memory, from which the same model is made in several forms: wider, narrower, quantised.

use super::{WeightError, WeightSource, tensor_error, threads_for};
use crate::causal_lm::Inspect;
use crate::config::ModelConfig;
use crate::gpt2::Gpt2;
use crate::layers::{KvCacheDType, ggml_dtype_word, tensor_bytes};
use crate::llama::Llama;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The positions that GPT-2 learned. They are looked up and added, never multiplied, and llama.cpp keeps them wide too.
const POSITIONS: &str = "transformer.wpe.weight";

/// What weights are stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// All in this type.
    Dense(DType),
    /// Matrices in this type. Norms, biases and GPT-2's table of positions are f32.
    Quantized(GgmlDType),
}

impl Form {
    /// Types that matrices can be quantised to while they load, from the fewest bits to the most.
    pub const QUANTIZED: [Self; 10] = [
        Self::Quantized(GgmlDType::Q2K),
        Self::Quantized(GgmlDType::Q3K),
        Self::Quantized(GgmlDType::Q4_0),
        Self::Quantized(GgmlDType::Q4K),
        Self::Quantized(GgmlDType::Q4_1),
        Self::Quantized(GgmlDType::Q5_0),
        Self::Quantized(GgmlDType::Q5K),
        Self::Quantized(GgmlDType::Q5_1),
        Self::Quantized(GgmlDType::Q6K),
        Self::Quantized(GgmlDType::Q8_0),
    ];

    /// As tables have it: `f32`, `q4_k`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense(dtype) => dtype.as_str(),
            // llama.cpp's words; records have `q4k`.
            Self::Quantized(GgmlDType::Q2K) => "q2_k",
            Self::Quantized(GgmlDType::Q3K) => "q3_k",
            Self::Quantized(GgmlDType::Q4K) => "q4_k",
            Self::Quantized(GgmlDType::Q5K) => "q5_k",
            Self::Quantized(GgmlDType::Q6K) => "q6_k",
            Self::Quantized(dtype) => ggml_dtype_word(dtype).as_str(),
        }
    }

    /// The type in which a matrix called `name` is stored, if that is a quantised one.
    pub(super) fn quantised(self, name: &str, shape: &[usize]) -> Option<GgmlDType> {
        match self {
            Self::Quantized(dtype) if shape.len() == 2 && name != POSITIONS => Some(dtype),
            _ => None,
        }
    }
}

/// Dense weights by the names that models ask for, each in the layout that the model computes with.
#[derive(Debug, Clone, Default)]
pub struct HeldWeights {
    pub(super) tensors: BTreeMap<String, Tensor>,
    pub(super) rope_factors: Option<Vec<f32>>,
}

/// A model made of [`HeldWeights`].
pub struct HeldModel {
    /// The model, of our layers, in the form and on the device that were asked for.
    pub model: Box<dyn Inspect + Send>,
    /// Bytes of its weights as they are held, a shared table counted once.
    pub weight_bytes: u64,
}

impl std::fmt::Debug for HeldModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldModel").field("weight_bytes", &self.weight_bytes).finish_non_exhaustive()
    }
}

impl HeldWeights {
    /// The weight `name`, if it is held.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Names and tensors, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Divisors of the rotary frequencies, if the model came with any.
    pub fn rope_factors(&self) -> Option<&[f32]> {
        self.rope_factors.as_deref()
    }

    /// Fails if a matrix cannot be stored as `form`, whose blocks lie within a row: before any work is done.
    ///
    /// # Errors
    /// [`WeightError::Blocks`], with the first such matrix.
    pub fn check(&self, form: Form) -> Result<(), WeightError> {
        self.iter().try_for_each(|(name, tensor)| match form.quantised(name, tensor.dims()) {
            Some(dtype) => check_blocks(name, tensor, dtype),
            None => Ok(()),
        })
    }

    /// These weights as `form`, on `device`; fails if a matrix cannot be stored so.
    pub(crate) fn formed(&self, form: Form, device: &Device) -> Result<FormedWeights<'_>, WeightError> {
        self.check(form)?;
        Ok(FormedWeights { held: self, form, device: device.clone(), bytes: 0 })
    }

    /// The model of `config` with these weights as `form`, on `device`. Dense weights of the same type are shared, not
    /// copied.
    ///
    /// # Errors
    /// When a matrix cannot be stored as `form`, or memory ends.
    pub fn model(&self, config: &ModelConfig, form: Form, device: &Device) -> Result<HeldModel, WeightError> {
        self.model_with(config, (form, KvCacheDType::Auto), device)
    }

    /// The same, which holds keys and values in this way.
    ///
    /// # Errors
    /// As [`model`](Self::model).
    pub fn model_with(
        &self,
        config: &ModelConfig,
        (form, kept_as): (Form, KvCacheDType),
        device: &Device,
    ) -> Result<HeldModel, WeightError> {
        let mut source = self.formed(form, device)?;
        let dtype = match form {
            Form::Dense(dtype) => dtype,
            Form::Quantized(_) => DType::F32,
        };
        let model: Box<dyn Inspect + Send> = match config.is_gpt2() {
            true => Box::new(Gpt2::load(config, &mut source, dtype, device)?.kv_cache_dtype(kept_as)),
            false => Box::new(Llama::load(config, &mut source, dtype, device)?.kv_cache_dtype(kept_as)),
        };
        Ok(HeldModel { model, weight_bytes: source.bytes })
    }
}

fn check_blocks(name: &str, tensor: &Tensor, dtype: GgmlDType) -> Result<(), WeightError> {
    let (row, block) = (tensor.dims().last().copied().unwrap_or(0), dtype.block_size());
    if row.is_multiple_of(block) {
        return Ok(());
    }
    let remedy = match row.is_multiple_of(32) {
        true => "choose a type with blocks of 32, such as q4_0 or q8_0",
        false => "leave this model's weights dense, as f16 or bf16",
    };
    let dtype = Form::Quantized(dtype).name();
    Err(WeightError::Blocks { tensor: name.to_string(), row, dtype, block, remedy })
}

/// `tensor` stored as `dtype`, on `device`. Rows are checked, because candle counts blocks over the whole tensor.
pub(super) fn quantise(name: &str, tensor: &Tensor, dtype: GgmlDType, device: &Device) -> Result<QTensor, WeightError> {
    check_blocks(name, tensor, dtype)?;
    quantize_onto(tensor, dtype, device).map_err(tensor_error(name))
}

/// `tensor` stored as `dtype`, on `device`: quantised on the host and loaded as from a file.
///
/// candle's own `QTensor::quantize_onto` (0.11) leaves the memory after the last row on a GPU as it found it. Its products
/// of many rows take several blocks of a row of weights at a time, and read on past the end of a row that does not fill
/// them; what they read there is multiplied by zero, which is no number if a scale is none.
///
/// # Errors
/// candle's, when the number of values is no multiple of the type's blocks, or memory ends.
pub fn quantize_onto(tensor: &Tensor, dtype: GgmlDType, device: &Device) -> candle_core::Result<QTensor> {
    let host = tensor.to_device(&Device::Cpu)?;
    let rows = host.dim(0).unwrap_or(1);
    let is_whole_rows = host.elem_count().checked_div(rows).is_some_and(|row| row.is_multiple_of(dtype.block_size()));
    let threads = threads_for(host.elem_count()).min(rows);
    if is_whole_rows && threads >= WORTH_A_COPY {
        let bytes = quantized_bytes(&host, dtype, rows.div_ceil(threads))?;
        return QTensor::new(QStorage::from_data(bytes.into(), device, dtype)?, host.shape().clone());
    }
    let made = QTensor::quantize(&host, dtype)?;
    match device.is_cpu() {
        true => Ok(made),
        false => QTensor::new(QStorage::from_data(made.data()?, device, dtype)?, made.shape().clone()),
    }
}

/// From so many threads on they gain more than it costs that each copies its part: two take as long as one.
const WORTH_A_COPY: usize = 4;

/// The blocks of a tensor, quantised by a thread for so many `rows` at a time: blocks do not know of each other.
fn quantized_bytes(host: &Tensor, dtype: GgmlDType, rows: usize) -> candle_core::Result<Vec<u8>> {
    let all = host.dim(0)?;
    let part = |from: usize| {
        // candle looks at the whole memory behind a tensor, so that a part needs its own.
        let part = host.narrow(0, from, rows.min(all - from))?.to_dtype(DType::F32)?.force_contiguous()?;
        Ok::<_, candle_core::Error>(QTensor::quantize(&part, dtype)?.data()?.into_owned())
    };
    let part = &part;
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..all).step_by(rows).map(|from| scope.spawn(move || part(from))).collect();
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend(part.join().map_err(|_| candle_core::Error::Msg("a thread that quantised panicked".into()))??);
        }
        Ok(bytes)
    })
}

/// Held weights as a source, in a form.
#[derive(Debug)]
pub(crate) struct FormedWeights<'a> {
    held: &'a HeldWeights,
    form: Form,
    device: Device,
    bytes: u64,
}

impl FormedWeights<'_> {
    /// Bytes of what was taken so far, a shared table counted once.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<&Tensor, WeightError> {
        let path = || PathBuf::from("the weights in memory");
        let tensor = self.held.get(name);
        let tensor = tensor.ok_or_else(|| WeightError::MissingTensor { tensor: name.to_string(), path: path() })?;
        if tensor.dims() != shape {
            let (actual, expected) = (tensor.dims().to_vec(), shape.to_vec());
            return Err(WeightError::Shape { tensor: name.to_string(), path: path(), actual, expected });
        }
        Ok(tensor)
    }
}

impl WeightSource for FormedWeights<'_> {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        let dtype = match self.form {
            Form::Dense(dtype) => dtype,
            Form::Quantized(_) => DType::F32,
        };
        let made = self.tensor(name, shape)?.to_dtype(dtype).and_then(|tensor| tensor.to_device(&self.device));
        let tensor = made.map_err(tensor_error(name))?;
        self.bytes += tensor_bytes(&tensor);
        Ok(tensor)
    }

    fn quantized(&mut self, name: &str, shape: &[usize]) -> Result<Option<Arc<QTensor>>, WeightError> {
        let Some(dtype) = self.form.quantised(name, shape) else { return Ok(None) };
        let made = quantise(name, self.tensor(name, shape)?, dtype, &self.device)?;
        self.bytes += made.storage_size_in_bytes() as u64;
        Ok(Some(Arc::new(made)))
    }

    /// They are held as they are used.
    fn transposed(&mut self, name: &str, (out, input): (usize, usize)) -> Result<Tensor, WeightError> {
        self.dense(name, &[out, input])
    }

    fn quantized_transposed(
        &mut self,
        name: &str,
        (out, input): (usize, usize),
    ) -> Result<Option<Arc<QTensor>>, WeightError> {
        self.quantized(name, &[out, input])
    }

    fn contains(&self, name: &str) -> bool {
        self.held.get(name).is_some()
    }

    fn rope_factors(&mut self) -> Result<Option<Vec<f32>>, WeightError> {
        Ok(self.held.rope_factors.clone())
    }
}

/// Hands weights on and holds them.
pub(crate) struct HoldingSource<'a> {
    source: &'a mut dyn WeightSource,
    held: &'a mut HeldWeights,
}

impl<'a> HoldingSource<'a> {
    /// Hands on what `source` has, and holds it in `held`.
    pub(crate) fn new(source: &'a mut dyn WeightSource, held: &'a mut HeldWeights) -> Self {
        Self { source, held }
    }

    fn hold(&mut self, name: &str, tensor: Tensor) -> Tensor {
        self.held.tensors.insert(name.to_string(), tensor.clone());
        tensor
    }
}

impl WeightSource for HoldingSource<'_> {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        self.source.dense(name, shape).map(|tensor| self.hold(name, tensor))
    }

    fn transposed(&mut self, name: &str, shape: (usize, usize)) -> Result<Tensor, WeightError> {
        self.source.transposed(name, shape).map(|tensor| self.hold(name, tensor))
    }

    fn contains(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    fn rope_factors(&mut self) -> Result<Option<Vec<f32>>, WeightError> {
        let factors = self.source.rope_factors()?;
        self.held.rope_factors.clone_from(&factors);
        Ok(factors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_tensor_are_quantised_as_the_whole_is() {
        let values: Vec<f32> = (0..7 * 512).map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0).collect();
        let host = Tensor::from_vec(values, (7, 512), &Device::Cpu).unwrap();
        for dtype in [GgmlDType::Q8_0, GgmlDType::Q4_1, GgmlDType::Q4K] {
            for host in [host.clone(), host.to_dtype(DType::BF16).unwrap()] {
                let whole = QTensor::quantize(&host, dtype).unwrap();
                for rows in [1, 3, 7] {
                    assert_eq!(
                        *quantized_bytes(&host, dtype, rows).unwrap(),
                        *whole.data().unwrap(),
                        "{dtype:?}, {rows}"
                    );
                }
            }
        }
    }
}
