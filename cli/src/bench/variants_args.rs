//! Arguments of `candlescope bench variants`.

use super::common_args::CommonArgs;
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  candlescope bench variants --quick
  candlescope bench variants --model MODEL.gguf --text BOOK.txt --out results/variants
  candlescope bench variants --model config:gpt2 --variants no_cache,kv_cache,q8_0,q4_k,onnx --keep files";

#[derive(Debug, Args)]
pub(crate) struct VariantsArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Variants, separated by commas: no_cache, kv_cache, kv_q8, f16, bf16, q8_0, q4_0, q4_1, q4_k, onnx, onnx_candle
    /// [default: all but kv_q8, q4_1 and onnx_candle]. kv_cache in f32 is always there, as the base
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) variants: Vec<String>,
    /// Tokens of the prompt, seeded random ones [default: 32, with --quick 16]
    #[arg(long, value_name = "N")]
    pub(super) prompt_tokens: Option<usize>,
    /// Tokens of the output [default: 50, with --quick 8]
    #[arg(long, value_name = "N")]
    pub(super) output_tokens: Option<usize>,
    /// Text that quality is measured on; recorded nowhere [default: /usr/share/common-licenses/GPL-3 for a model with
    /// real weights]
    #[arg(long, value_name = "FILE", conflicts_with = "no_quality")]
    pub(super) text: Option<PathBuf>,
    /// Tokens of a piece of the text, of which the second half is scored [default: 256, with --quick 64]
    #[arg(long, value_name = "N")]
    pub(super) chunk: Option<usize>,
    /// Most pieces of the text [default: 8, with --quick 2]
    #[arg(long, value_name = "N")]
    pub(super) chunks: Option<usize>,
    /// Measure speed and size only
    #[arg(long)]
    pub(super) no_quality: bool,
    /// Directory for the variants' GGUF and ONNX files; must be empty or absent
    #[arg(long, value_name = "DIR")]
    pub(super) keep: Option<PathBuf>,
    /// ONNX Runtime's library, which is loaded into this process [default: that of ORT_DYLIB_PATH, or of the activated
    /// Python environment; never one that lies below the working directory]
    #[arg(long, value_name = "FILE")]
    pub(super) onnxruntime: Option<PathBuf>,
}
