//! Writes held weights as a GGUF file.

use super::gguf::gguf_name;
use super::held::{Form, HeldWeights, quantise};
use super::{WeightError, tensor_error};
use crate::config::{GPT2, ModelConfig};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use candlescope_core::files::write_whole;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// The tokenizer's part of a file's metadata: taken from another file of the same model, or empty.
#[derive(Debug, Clone, Default)]
pub struct GgufText(Vec<(String, Value)>);

impl GgufText {
    /// The tokenizer of an open file.
    pub fn of(file: &super::gguf::GgufFile) -> Self {
        let own = file.content().metadata.iter().filter(|(key, _)| key.starts_with("tokenizer."));
        let mut entries: Vec<(String, Value)> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Self(entries)
    }
}

/// Writes the model of `config` as `form` into `path`, or counts its bytes without a `path`; returns them. Matrices
/// have that form, norms and biases are f32, as in llama.cpp's files; unlike there, the head has the type of all others.
///
/// # Errors
/// When a matrix cannot be stored as `form`, the format has no place for a part of the model, or the file cannot be
/// written.
pub fn write_gguf(
    path: Option<&Path>,
    config: &ModelConfig,
    held: &HeldWeights,
    form: Form,
    text: &GgufText,
) -> Result<u64, WeightError> {
    let place = path.unwrap_or(Path::new("a GGUF file"));
    let unwritable = |reason: String| WeightError::Unwritable { path: place.to_path_buf(), reason };
    if config.rope.scaling.is_some() && held.rope_factors().is_none() {
        return Err(unwritable("GGUF keeps stretched rotary frequencies as a tensor, which this model lacks".into()));
    }
    let mut tensors: Vec<(String, QTensor)> = Vec::new();
    for (name, tensor) in held.iter() {
        tensors.push((file_name(config, name), stored(config, name, tensor, form)?));
    }
    if let Some(factors) = held.rope_factors() {
        let made = Tensor::new(factors, &Device::Cpu).and_then(|t| QTensor::quantize(&t, GgmlDType::F32));
        tensors.push(("rope_freqs.weight".into(), made.map_err(tensor_error("rope_freqs.weight"))?));
    }
    let metadata = metadata(config, form, text);
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut size = 0;
    let mut write = |out: &mut dyn Write| -> io::Result<()> {
        let mut counted = CountedWrite { out, at: 0 };
        gguf_file::write(&mut counted, &metadata, &tensors).map_err(io::Error::other)?;
        size = counted.at;
        Ok(())
    };
    match path {
        Some(path) => write_whole(path, |file| write(file)),
        None => write(&mut io::sink()),
    }
    .map_err(|cause| unwritable(cause.to_string()))?;
    Ok(size)
}

/// llama.cpp's architecture: its converter writes Mistral as Llama.
fn architecture(config: &ModelConfig) -> &str {
    if config.architecture == "mistral" { "llama" } else { &config.architecture }
}

fn stored(config: &ModelConfig, name: &str, tensor: &Tensor, form: Form) -> Result<QTensor, WeightError> {
    let turned = name.contains(".q_proj.") || name.contains(".k_proj.");
    let tensor = match turned && architecture(config) == "llama" && !config.rope.interleaved {
        true => &permute(tensor, config.head_dim).map_err(tensor_error(name))?,
        false => tensor,
    };
    let dtype = match (form.quantised(name, tensor.dims()), form, tensor.rank()) {
        (Some(dtype), ..) => dtype,
        (None, Form::Dense(DType::F16), 2) => GgmlDType::F16,
        (None, Form::Dense(DType::BF16), 2) => GgmlDType::BF16,
        _ => GgmlDType::F32,
    };
    quantise(name, tensor, dtype, &Device::Cpu)
}

/// llama.cpp's permutation of query and key weights (`convert_hf_to_gguf.py`, `LlamaModel.permute`): rows of a head in
/// the order (2, d/2) are put into (d/2, 2).
fn permute(weight: &Tensor, head_dim: usize) -> candle_core::Result<Tensor> {
    let shape = weight.dims().to_vec();
    let (rows, inner) = (shape[0], shape[1..].iter().product::<usize>());
    weight.reshape((rows / head_dim, 2, head_dim / 2, inner))?.transpose(1, 2)?.contiguous()?.reshape(shape)
}

/// The name of a weight in a file of llama.cpp.
fn file_name(config: &ModelConfig, name: &str) -> String {
    if config.architecture != GPT2 {
        return gguf_name(name);
    }
    let rest = name.strip_prefix("transformer.").unwrap_or(name);
    let (module, kind) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let (layer, module) = match module.strip_prefix("h.").and_then(|rest| rest.split_once('.')) {
        Some((layer, module)) => (Some(layer), module),
        None => (None, module),
    };
    let module = match module {
        "wte" => "token_embd",
        "wpe" => "position_embd",
        "ln_f" => "output_norm",
        "lm_head" => "output",
        "ln_1" => "attn_norm",
        "ln_2" => "ffn_norm",
        "attn.c_attn" => "attn_qkv",
        "attn.c_proj" => "attn_output",
        "mlp.c_fc" => "ffn_up",
        "mlp.c_proj" => "ffn_down",
        other => other,
    };
    layer.map_or_else(|| format!("{module}.{kind}"), |layer| format!("blk.{layer}.{module}.{kind}"))
}

/// llama.cpp's number of a file's type (`enum llama_ftype`).
fn file_type(form: Form) -> Option<u32> {
    Some(match form {
        Form::Dense(DType::F32) => 0,
        Form::Dense(DType::F16) => 1,
        Form::Dense(DType::BF16) => 32,
        Form::Quantized(GgmlDType::Q4_0) => 2,
        Form::Quantized(GgmlDType::Q4_1) => 3,
        Form::Quantized(GgmlDType::Q8_0) => 7,
        Form::Quantized(GgmlDType::Q4K) => 14,
        _ => return None,
    })
}

fn metadata(config: &ModelConfig, form: Form, text: &GgufText) -> Vec<(String, Value)> {
    let architecture = architecture(config);
    let count = |value: usize| Value::U32(u32::try_from(value).unwrap_or(u32::MAX));
    let mut all = vec![
        ("general.architecture".to_string(), Value::String(architecture.to_string())),
        ("general.name".to_string(), Value::String(config.name.clone())),
    ];
    all.extend(file_type(form).map(|number| ("general.file_type".to_string(), Value::U32(number))));
    let mut own = |key: &str, value: Value| all.push((format!("{architecture}.{key}"), value));
    own("context_length", count(config.max_context));
    own("embedding_length", count(config.hidden_size));
    own("block_count", count(config.num_layers));
    own("feed_forward_length", count(config.intermediate()));
    own("attention.head_count", count(config.num_heads));
    own("attention.head_count_kv", count(config.num_kv_heads));
    let eps = Value::F32(config.rms_norm_eps as f32);
    if config.architecture == GPT2 {
        own("attention.layer_norm_epsilon", eps);
    } else {
        own("attention.layer_norm_rms_epsilon", eps);
        own("attention.key_length", count(config.head_dim));
        own("attention.value_length", count(config.head_dim));
        own("rope.dimension_count", count(config.head_dim));
        own("rope.freq_base", Value::F32(config.rope.theta));
        own("vocab_size", count(config.vocab_size));
    }
    if text.0.is_empty() {
        let token = |key: &str, id: Option<&u32>| id.map(|id| (format!("tokenizer.ggml.{key}"), Value::U32(*id)));
        all.extend(token("bos_token_id", config.bos.as_ref()));
        all.extend(token("eos_token_id", config.eos.first()));
    }
    all.extend(text.0.iter().cloned());
    all
}

/// Counts what goes through. `gguf_file::write` asks where it is, and goes nowhere else.
struct CountedWrite<'a> {
    out: &'a mut dyn Write,
    at: u64,
}

impl Write for CountedWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for CountedWrite<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Current(0) => Ok(self.at),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "only the position can be asked for")),
        }
    }
}
