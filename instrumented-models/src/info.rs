//! Facts about the model for the run's manifest.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use serde_json::{Map, Value};

/// Facts about the model for the run's manifest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelInfo {
    /// Name for people and for `gen_ai.request.model`.
    pub name: String,
    /// What it was loaded from.
    pub source: String,
    /// Such as `llama` or `gpt2`: `model_type` of `config.json`, `general.architecture` of a GGUF file.
    pub architecture: String,
    /// What runs it: `instrumented` for our layers, `candle` for candle-transformers' own model.
    pub engine: &'static str,
    /// Parameters, a shared embedding table counted once.
    pub parameters: u64,
    /// Bytes of the weights: in memory, of a GGUF file as stored. candle widens some stored types when it loads them, and
    /// what is read in a step is said by the modules.
    pub weight_bytes: u64,
    /// Element type of most weights, of a GGUF file as stored, such as `q4_1` or `f32`.
    pub quantization: String,
    /// Element type of the activations.
    pub dtype: String,
    /// Element type that the projections multiply in, `int8` of quantised ones; see [`compute_dtype`]. FLOPs may only
    /// be compared with peaks of this type. `None` if it is not known.
    pub compute_dtype: Option<&'static str>,
    /// `q8` if keys and values are held in 8 bits; `None` if in the activations' type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_dtype: Option<&'static str>,
    /// Features of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    pub intermediate_size: usize,
    /// Layers of the decoder; of a model without one, of the encoder.
    pub layers: usize,
    /// Layers of the encoder, of a model that has both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_layers: Option<usize>,
    /// Query heads of a layer of the decoder; of a model without one, of the encoder.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Longest context in tokens.
    pub context_length: usize,
    /// Seed of random weights.
    pub seed: Option<u64>,
    /// Tokens that end a text.
    pub eos_tokens: Vec<u32>,
}

/// Dimensions of a model with an encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimensions {
    /// `model_type` of `config.json`: `bert`, `t5`, `whisper` or `paddleocr_vl`.
    pub architecture: String,
    /// Features of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward network.
    pub intermediate_size: usize,
    /// Layers of the decoder; of a model without one, of the encoder.
    pub layers: usize,
    /// Layers of the encoder, of a model that has both.
    pub encoder_layers: Option<usize>,
    /// Query heads of a layer of the decoder; of a model without one, of the encoder.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Longest source, in positions of the encoder.
    pub source_positions: usize,
    /// Longest text, in tokens.
    pub positions: usize,
    /// Tokens that a text begins with.
    pub start: Vec<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
    /// Whether the head is the embedding table.
    pub tied: bool,
}

/// The element type in which candle multiplies projections with weights of type `dtype` on `device`: `f32`, `tf32`,
/// `bf16` or `f16`.
///
/// On a GPU it is the weights' own type: candle uses cuBLAS with 32-bit sums (candle-core `cuda_backend/mod.rs`,
/// `gemm_strided_batched_*`); for f32 it is tf32 if the program enabled that. On a CPU candle widens bf16 to f32
/// (candle-core `cpu_backend/mod.rs`, `matmul`), and the crate `gemm-f16` does so with f16, except on CPUs with
/// arithmetic of 16-bit floats, for which it is not known.
pub fn compute_dtype(dtype: DType, device: &Device) -> Option<&'static str> {
    match (dtype, device) {
        (DType::F32, Device::Cuda(_)) if candle_core::cuda::gemm_reduced_precision_f32() => Some("tf32"),
        (DType::F32, _) | (DType::BF16, Device::Cpu) => Some("f32"),
        (DType::F16, Device::Cpu) => (!cfg!(target_arch = "aarch64")).then_some("f32"),
        (DType::BF16 | DType::F16, Device::Cuda(_)) => Some(dtype.as_str()),
        _ => None,
    }
}

/// The element type in which candle multiplies projections with weights quantised to `dtype` on `device`.
///
/// On CUDA and on CPUs activations are quantised to 8 bits and multiplied as integers, in prefill and decode alike
/// (candle-core `quantized/cuda.rs`, `fwd`: up to 8 rows `mmvq_gguf.cu` with `__dp4a`, above `mmq_mma.cuh` with
/// `mma.sync … s8.s8.s32`; `quantized/k_quants.rs`, `VecDotType` is `BlockQ8_0`, `BlockQ8_1` or `BlockQ8K`). candle
/// widens weights stored as f32, f16 or bf16 to f32, and all weights if `CANDLE_DEQUANTIZE_ALL` is set
/// (`quantized/mod.rs`, `QMatMul::from_arc`); this is determined by calling candle.
///
/// # Errors
/// If candle cannot make a weight of this type.
pub fn quantized_compute_dtype(dtype: GgmlDType, device: &Device) -> candle_core::Result<Option<&'static str>> {
    let probe = Tensor::zeros((1, dtype.block_size()), DType::F32, &Device::Cpu)?;
    Ok(match QMatMul::from_qtensor(QTensor::quantize(&probe, dtype)?)? {
        QMatMul::QTensor(_) => (device.is_cpu() || device.is_cuda()).then_some("int8"),
        QMatMul::Tensor(t) | QMatMul::TensorF16(t) => compute_dtype(t.dtype(), device),
    })
}

impl ModelInfo {
    /// The `model` object of `run.json`.
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }
}
