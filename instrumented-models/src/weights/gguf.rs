//! Weights from a GGUF file, quantised as stored or widened.

use super::gguf_header::{self, Fault};
use super::{WeightError, WeightSource, tensor_error};
use crate::candle_message;
use crate::config::ModelConfig;
use candle_core::quantized::gguf_file::{Content, TensorInfo};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use candlescope_core::files::open_regular;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open GGUF file whose header has been read and whose tensors are known to lie within it.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    content: Content,
    reader: BufReader<File>,
}

impl GgufFile {
    /// Opens a file, reads its header and checks that no tensor reaches beyond its end.
    pub fn open(path: &Path) -> Result<Self, WeightError> {
        let read = |cause| WeightError::Read { path: path.to_path_buf(), cause };
        let not = |reason: String| WeightError::NotA { path: path.to_path_buf(), expected: "GGUF", reason };
        let file = open_regular(path).map_err(read)?;
        let actual = file.metadata().map_err(read)?.len();
        let truncated =
            |what: String, needed| WeightError::Truncated { path: path.to_path_buf(), what, needed, actual };
        let mut reader = BufReader::new(file);
        let mut start = [0u8; 8];
        if actual < start.len() as u64 {
            return Err(not(format!("it has {actual} bytes, less than a GGUF header")));
        }
        reader.read_exact(&mut start).map_err(read)?;
        if &start[..4] != b"GGUF" {
            let found = String::from_utf8_lossy(&start[..4]).escape_debug().to_string();
            return Err(not(format!("it begins with `{found}`, not `GGUF`; pass a .gguf file or a model directory")));
        }
        reader.seek(SeekFrom::Start(0)).map_err(read)?;
        gguf_header::check(&mut reader, actual).map_err(|fault| match fault {
            Fault::Read(cause) => read(cause),
            Fault::Truncated { what, needed } => truncated(what, needed),
            Fault::Not(reason) => not(reason),
        })?;
        reader.seek(SeekFrom::Start(0)).map_err(read)?;
        let content = Content::read(&mut reader).map_err(|error| match (&error, candle_message(&error)) {
            (candle_core::Error::Io(_), _) => truncated("the header".into(), actual + 1),
            (_, message) if message.contains("remaining") => truncated("the header".into(), actual + 1),
            (_, message) => not(format!("its header cannot be read: {message}")),
        })?;
        // Tensors in file order, so that the first truncated one is named.
        let mut ends = Vec::with_capacity(content.tensor_infos.len());
        let mut all = 0u64;
        for (name, info) in &content.tensor_infos {
            let size = stored_bytes(info).ok_or_else(|| {
                let shape = info.shape.dims();
                not(format!(
                    "tensor `{name}` has shape {shape:?}: it is empty, overflows, or is no whole number of blocks"
                ))
            })?;
            all = all.saturating_add(size);
            ends.push((content.tensor_data_offset.saturating_add(info.offset).saturating_add(size), name));
        }
        ends.sort();
        if let Some((needed, name)) = ends.into_iter().find(|(end, _)| *end > actual) {
            return Err(truncated(format!("tensor `{name}`"), needed));
        }
        if all > actual {
            return Err(not(format!("its tensors have {all} bytes in a file of {actual}: they overlap")));
        }
        Ok(Self { path: path.to_path_buf(), content, reader })
    }

    /// Header as candle reads it: metadata, and type, shape and place of each tensor, without their data.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A text of the metadata.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.content.metadata.get(key).and_then(|v| v.to_string().ok()).map(String::as_str)
    }

    /// The element type that most bytes of the tensors are stored in, if there are any, and the bytes of all as stored.
    pub fn quantization(&self) -> (Option<GgmlDType>, u64) {
        let mut by_type: Vec<(GgmlDType, u64)> = Vec::new();
        for info in self.content.tensor_infos.values() {
            // Not `None`, or opening the file would have failed.
            let bytes = stored_bytes(info).unwrap_or_default();
            match by_type.iter_mut().find(|(known, _)| *known == info.ggml_dtype) {
                Some((_, total)) => *total += bytes,
                None => by_type.push((info.ggml_dtype, bytes)),
            }
        }
        let total = by_type.iter().map(|(_, bytes)| bytes).sum();
        (by_type.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(dtype, _)| dtype), total)
    }

    /// Bits of a value, scales included, on average over all tensors: a file mixes types, such as 8 bits for the head beside 4.
    /// `None` without tensors.
    pub fn bits(&self) -> Option<f64> {
        let values: usize = self.content.tensor_infos.values().map(|info| info.shape.elem_count()).sum();
        (values > 0).then(|| self.quantization().1 as f64 * 8.0 / values as f64)
    }

    /// The configuration that the metadata describes.
    pub fn config(&self) -> Result<ModelConfig, WeightError> {
        let name = self.path.file_stem().and_then(|s| s.to_str()).unwrap_or("model");
        ModelConfig::from_gguf(name, &self.content)
            .map_err(|cause| WeightError::Config { path: self.path.clone(), cause })
    }

    fn info(&self, name: &str) -> Result<&TensorInfo, WeightError> {
        self.content
            .tensor_infos
            .get(name)
            .ok_or_else(|| WeightError::MissingTensor { tensor: name.to_string(), path: self.path.clone() })
    }

    /// Reads the tensor that Hugging Face calls `name`.
    fn read(&mut self, name: &str, shape: &[usize], device: &Device) -> Result<QTensor, WeightError> {
        let stored = gguf_name(name);
        let info = self.info(&stored)?;
        if info.shape.dims() != shape {
            return Err(WeightError::Shape {
                tensor: stored,
                path: self.path.clone(),
                actual: info.shape.dims().to_vec(),
                expected: shape.to_vec(),
            });
        }
        self.content.tensor(&mut self.reader, &stored, device).map_err(tensor_error(&stored))
    }
}

/// Bytes of a tensor as stored; `None` if it is empty, overflows, or is not a whole number of blocks.
fn stored_bytes(info: &TensorInfo) -> Option<u64> {
    let elements = info.shape.dims().iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    let block = info.ggml_dtype.block_size();
    if elements == 0 || !elements.is_multiple_of(block) {
        return None;
    }
    (elements / block).checked_mul(info.ggml_dtype.type_size()).map(|bytes| bytes as u64)
}

/// llama.cpp's name of a weight that Hugging Face calls `name`.
pub(super) fn gguf_name(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => return "token_embd.weight".into(),
        "model.norm.weight" => return "output_norm.weight".into(),
        "lm_head.weight" => return "output.weight".into(),
        _ => {}
    }
    let rest = name.strip_prefix("model.layers.").unwrap_or(name);
    let Some((layer, rest)) = rest.split_once('.') else { return name.to_string() };
    let (module, kind) = rest.rsplit_once('.').unwrap_or((rest, "weight"));
    let module = match module {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        other => other,
    };
    format!("blk.{layer}.{module}.{kind}")
}

/// The weights of a GGUF file.
#[derive(Debug)]
pub struct GgufWeights<'a> {
    file: &'a mut GgufFile,
    device: Device,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Quantized,
    /// Widened to this type, with queries and keys in Hugging Face's order, for this number of heads and features per
    /// head.
    Dense {
        dtype: DType,
        heads: Option<usize>,
        head_dim: usize,
    },
}

impl<'a> GgufWeights<'a> {
    /// Weights as stored, on `device`.
    pub fn quantized(file: &'a mut GgufFile, device: &Device) -> Self {
        Self { file, device: device.clone(), mode: Mode::Quantized }
    }

    /// Weights widened to `dtype`, in Hugging Face's order; `config` is that of the file, and is changed to that order.
    pub fn dequantized(file: &'a mut GgufFile, config: &mut ModelConfig, dtype: DType, device: &Device) -> Self {
        let permuted = std::mem::replace(&mut config.rope.interleaved, false);
        let mode = Mode::Dense { dtype, heads: permuted.then_some(config.num_heads), head_dim: config.head_dim };
        Self { file, device: device.clone(), mode }
    }
}

impl WeightSource for GgufWeights<'_> {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        let tensor = self.file.read(name, shape, &self.device)?;
        let device = &self.device;
        match self.mode {
            Mode::Quantized => tensor.dequantize(device),
            Mode::Dense { dtype, heads, head_dim } => tensor.dequantize(device).and_then(|t| {
                let turned = name.contains(".q_proj.") || name.contains(".k_proj.");
                let t = if heads.is_some() && turned { unpermute(&t, head_dim)? } else { t };
                t.to_dtype(dtype)
            }),
        }
        .map_err(tensor_error(name))
    }

    fn quantized(&mut self, name: &str, shape: &[usize]) -> Result<Option<Arc<QTensor>>, WeightError> {
        match self.mode {
            Mode::Quantized => self.file.read(name, shape, &self.device).map(|t| Some(Arc::new(t))),
            Mode::Dense { .. } => Ok(None),
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.file.content.tensor_infos.contains_key(&gguf_name(name))
    }

    fn rope_factors(&mut self) -> Result<Option<Vec<f32>>, WeightError> {
        let name = "rope_freqs.weight";
        if !self.file.content.tensor_infos.contains_key(name) {
            return Ok(None);
        }
        self.file
            .content
            .tensor(&mut self.file.reader, name, &Device::Cpu)
            .and_then(|t| t.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1())
            .map(Some)
            .map_err(tensor_error(name))
    }
}

/// Undoes llama.cpp's permutation of query and key weights (`convert_hf_to_gguf.py`, `LlamaModel.permute`): rows of a
/// head are in the order (d/2, 2) and are put back into (2, d/2).
fn unpermute(weight: &Tensor, head_dim: usize) -> candle_core::Result<Tensor> {
    let shape = weight.dims().to_vec();
    let (rows, inner) = (shape[0], shape[1..].iter().product::<usize>());
    weight.reshape((rows / head_dim, head_dim / 2, 2, inner))?.transpose(1, 2)?.contiguous()?.reshape(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (hf, gguf) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias"),
            ("model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"),
            ("model.layers.3.post_attention_layernorm.weight", "blk.3.ffn_norm.weight"),
        ] {
            assert_eq!(gguf_name(hf), gguf);
        }
    }

    #[test]
    fn unpermute_undoes_the_converter() {
        // The converter: reshape(heads, 2, d/2, in).swapaxes(1, 2).reshape(rows, in).
        let (heads, d, input) = (3usize, 8usize, 5usize);
        let original = Tensor::arange(0f32, (heads * d * input) as f32, &Device::Cpu).unwrap();
        let original = original.reshape((heads * d, input)).unwrap();
        let permuted =
            original.reshape((heads, 2, d / 2, input)).unwrap().transpose(1, 2).unwrap().contiguous().unwrap();
        let back = unpermute(&permuted.reshape((heads * d, input)).unwrap(), d).unwrap();
        assert_eq!(back.to_vec2::<f32>().unwrap(), original.to_vec2::<f32>().unwrap());
    }
}
