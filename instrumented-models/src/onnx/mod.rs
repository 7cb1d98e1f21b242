//! Writes our decoders as ONNX files, for runtimes that read those.
//!
//! One sequence at a time. Inputs: `input_ids` and `position_ids` (1, tokens), `logits_at` (the positions, counted within
//! this call, whose logits are wanted), and `past_key_values.N.key` and `.value` (1, kv heads, past, head) for each
//! layer, with a `past` of 0 at the beginning of a text. Outputs: `logits` (positions, vocabulary), and
//! `present.N.key`, `present.N.value`, which are the next call's past. All numbers are f32. Operators are those of opset
//! 17, of which runtimes need no more than two dozen: those that both ONNX Runtime and candle-onnx have.

mod builder;
#[cfg(feature = "candle-onnx")]
mod evaluator;
mod onnx_decoder;
mod proto;

use crate::config::ModelConfig;
use crate::weights::{HeldWeights, WeightError};
use builder::Builder;
use candle_core::{DType, Device};
use candlescope_core::files::write_whole;
#[cfg(feature = "candle-onnx")]
pub use evaluator::Evaluator;
use prost::Message;
use proto::{Model, OperatorSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the operators.
const OPSET: i64 = 17;
/// Version of the file format that belongs to it.
const IR_VERSION: i64 = 8;

/// The files of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxFiles {
    /// The graph that generates.
    pub model: PathBuf,
    /// The same graph with each block's output `hidden.N` (tokens, features), to look into it.
    pub blocks: PathBuf,
    /// The weights of both.
    pub data: PathBuf,
    /// Bytes of the graph that generates and of the weights.
    pub bytes: u64,
}

impl OnnxFiles {
    /// The files of this name in `dir`, if all are there.
    pub fn in_dir(dir: &Path, stem: &str) -> Option<Self> {
        let (model, blocks) = (dir.join(format!("{stem}.onnx")), dir.join(format!("{stem}.blocks.onnx")));
        let data = dir.join(format!("{stem}.onnx.data"));
        let size = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.len());
        size(&blocks)?;
        let bytes = size(&model)? + size(&data)?;
        Some(Self { model, blocks, data, bytes })
    }
}

/// Writes `STEM.onnx`, `STEM.blocks.onnx` and `STEM.onnx.data` into `dir`.
///
/// # Errors
/// When the model cannot be written as ONNX, or a file cannot be written.
pub fn write_onnx(dir: &Path, stem: &str, config: &ModelConfig, held: &HeldWeights) -> Result<OnnxFiles, WeightError> {
    let (model, blocks) = (dir.join(format!("{stem}.onnx")), dir.join(format!("{stem}.blocks.onnx")));
    let unwritable = |path: &Path, reason: String| WeightError::Unwritable { path: path.to_path_buf(), reason };
    if config.rope.interleaved {
        return Err(unwritable(&model, "rotary pairs are interleaved; load the model with widened weights".into()));
    }
    let name = format!("{stem}.onnx.data");
    let data = dir.join(&name);
    let graph = onnx_decoder::decoder(config, held, &name, false)?;
    let written = write_whole(&data, |file| weights(&graph, file)).and_then(|size| {
        let bytes = file_of(graph);
        write_whole(&model, |file| file.write_all(&bytes))?;
        Ok(size + bytes.len() as u64)
    });
    let bytes = written.map_err(|cause| unwritable(&model, cause.to_string()))?;
    let graph = file_of(onnx_decoder::decoder(config, held, &name, true)?);
    write_whole(&blocks, |file| file.write_all(&graph)).map_err(|cause| unwritable(&blocks, cause.to_string()))?;
    Ok(OnnxFiles { model, blocks, data, bytes })
}

/// Writes weights to their places and returns how many bytes the file has.
fn weights(graph: &Builder, file: &mut dyn Write) -> io::Result<u64> {
    let mut at = 0;
    for (offset, tensor) in &graph.weights {
        file.write_all(&vec![0; usize::try_from(offset - at).map_err(io::Error::other)?])?;
        let values = tensor.to_device(&Device::Cpu).and_then(|t| t.to_dtype(DType::F32)?.flatten_all()?.to_vec1());
        let values: Vec<f32> = values.map_err(io::Error::other)?;
        // A part at a time: the bytes of a large table need no second copy of it.
        for part in values.chunks(1 << 16) {
            let bytes: Vec<u8> = part.iter().flat_map(|value| value.to_le_bytes()).collect();
            file.write_all(&bytes)?;
        }
        at = offset + 4 * values.len() as u64;
    }
    Ok(at)
}

fn file_of(graph: Builder) -> Vec<u8> {
    let model = Model {
        ir_version: IR_VERSION,
        producer_name: "candlescope".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        graph: Some(graph.graph),
        opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
    };
    model.encode_to_vec()
}
