//! A reader of a GGUF file that tells which tensors were read.

use candle_core::quantized::{GgmlDType, gguf_file};
use candlescope_core::modules;
use candlescope_work::config::Dimensions;
use std::collections::HashMap;
use std::io::{Read, Result, Seek, SeekFrom};

/// Watches a GGUF file being loaded, as [`observe`](crate::observe) watches a `VarBuilder`: give what it returns to
/// `gguf_file::Content::read` and to the model, in place of the file.
///
/// The names are those of the file (`blk.7.attn_q`). Models that read the whole file before they build anything
/// (`quantized_var_builder::VarBuilder::from_gguf`) cannot be told apart this way.
///
/// # Errors
/// When `file` is no GGUF file, or one that is cut short.
///
/// ```no_run
/// use candle_core::{Device, quantized::gguf_file};
/// let file = std::fs::File::open("model.gguf")?;
/// let mut file = candlescope::observe_gguf(file)?;
/// let content = gguf_file::Content::read(&mut file)?;
/// // ModelWeights::from_gguf(content, &mut file, &Device::Cpu)
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn observe_gguf<R: Read + Seek>(mut file: R) -> candle_core::Result<ObservedGguf<R>> {
    let start = file.stream_position()?;
    let content = gguf_file::Content::read(&mut file)?;
    file.seek(SeekFrom::Start(start))?;
    let tensors = content.tensor_infos.into_iter().filter_map(|(name, info)| {
        let elements = info.shape.elem_count();
        let stored = elements.checked_div(info.ggml_dtype.block_size())?.checked_mul(info.ggml_dtype.type_size())?;
        let at = content.tensor_data_offset.checked_add(info.offset)?;
        // candle multiplies by quantised blocks as they are, and makes all others f32.
        let (dtype, bytes) = match info.ggml_dtype {
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => ("f32".to_owned(), elements.checked_mul(4)?),
            quantised => (format!("{quantised:?}"), stored),
        };
        let (stored, bytes) = (stored as u64, bytes as u64);
        Some((at, StoredTensor { name, dims: info.shape.into_dims(), dtype, stored, bytes }))
    });
    let name = content.metadata.get("general.architecture").and_then(|value| value.to_string().ok());
    let number = |key: &str| content.metadata.get(key).map(|value| value.to_u32().ok().map(u64::from));
    let known = name.map(|name| Dimensions::of_gguf(name, number)).unwrap_or_default();
    modules::architecture(name.map(String::as_str), known.heads.zip(known.kv_heads), known.window);
    Ok(ObservedGguf { tensors: tensors.collect(), reading: None, file })
}

/// A GGUF file that is watched; made by [`observe_gguf`]. Reads and seeks as the file itself.
#[derive(Debug)]
pub struct ObservedGguf<R> {
    file: R,
    /// By their place in the file.
    tensors: HashMap<u64, StoredTensor>,
    /// Place of the tensor being read, and the bytes of it that are still to come.
    reading: Option<(u64, u64)>,
}

#[derive(Debug)]
struct StoredTensor {
    name: String,
    dims: Vec<usize>,
    /// In memory.
    dtype: String,
    bytes: u64,
    /// Bytes in the file.
    stored: u64,
}

impl<R> ObservedGguf<R> {
    /// The reader that was given; what it reads from now on is not seen.
    pub fn into_inner(self) -> R {
        self.file
    }

    fn at(&mut self, position: u64) {
        self.reading = self.tensors.get(&position).map(|tensor| (position, tensor.stored));
    }

    fn got(&mut self, bytes: usize) {
        let Some((place, left)) = self.reading else { return };
        let left = left.saturating_sub(bytes as u64);
        self.reading = (left > 0).then_some((place, left));
        if let (0, Some(tensor)) = (left, self.tensors.get(&place)) {
            modules::loaded(&tensor.name, &tensor.dims, &tensor.dtype, tensor.bytes);
        }
    }
}

impl<R: Read> Read for ObservedGguf<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.got(bytes);
        Ok(bytes)
    }

    // What the file does better than by single reads, it goes on doing.
    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact(buffer)?;
        self.got(buffer.len());
        Ok(())
    }
}

impl<R: Seek> Seek for ObservedGguf<R> {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let position = self.file.seek(to)?;
        self.at(position);
        Ok(position)
    }
}
