//! Arguments of `candlescope bench`.

use super::common_args::CommonArgs;
use clap::{Arg, Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Repeat one prompt: time to first token, time per output token, their spread
    Latency(Box<LatencyArgs>),
    /// More and more sequences at once, until memory ends: where batching stops paying
    Throughput(Box<ThroughputArgs>),
    /// Lengths of prompt and output: what a longer prompt costs
    Seqlen(Box<SeqlenArgs>),
    /// Latency, throughput and sequence length in one study
    Suite(Box<SuiteArgs>),
    /// The same model without KV cache, with it, in 16 bits, quantised and as ONNX: speed, size and quality
    // Variants choose their own types, and our layers make them.
    #[command(after_help = super::variants_args::EXAMPLES)]
    #[command(mut_arg("dtype", hidden), mut_arg("dequantize", hidden), mut_arg("engine", hidden))]
    #[command(mut_arg("kv_cache_dtype", hidden))]
    Variants(Box<super::variants_args::VariantsArgs>),
    /// Measure single operations (GEMM, attention, norms, …) over shapes and element types
    #[command(after_help = super::kernels::EXAMPLES)]
    Kernels(Box<super::kernels::KernelsArgs>),
    /// Measure what the device reaches at best, and keep it as the measured denominator of reports
    Peaks(super::peaks::PeaksArgs),
    /// Measure one round of a study: the command starts itself with this
    #[command(hide = true)]
    Round(RoundArgs),
}

/// Takes an option out of a command's help.
fn hidden(option: Arg) -> Arg {
    option.hide(true)
}

#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Tokens of the prompt, seeded random ones [default: 32]
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<usize>,
    /// File with the prompt; its text is recorded nowhere
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_tokens")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Tokens of the output [default: 64]
    #[arg(long, value_name = "N")]
    pub(crate) output_tokens: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ThroughputArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Sequences at once: a list such as 1,4,8 or a range such as 1-32*2 [default: 1,4,8,16,32]
    #[arg(long, value_name = "LIST")]
    pub(crate) batches: Option<String>,
    /// Let requests join and leave between steps, four for each that is under way at once, in place of batches that
    /// begin and end together (continuous batching); our layers only
    #[arg(long)]
    pub(crate) continuous: bool,
    /// Most tokens of a prompt that pass between two steps of the requests that generate (chunked prefill)
    #[arg(long, value_name = "TOKENS", requires = "continuous", default_value_t = 256)]
    pub(crate) prompt_piece: usize,
    /// Compute what prompts begin with only once, where a slot holds it still
    #[arg(long, requires = "continuous")]
    pub(crate) prefix_reuse: bool,
    /// Tokens with which all prompts begin
    #[arg(long, value_name = "N", requires = "continuous", default_value_t = 0)]
    pub(crate) shared_tokens: usize,
    /// Capture steps as CUDA graphs and replay them; elsewhere than on a GPU they run call by call, and say so
    #[arg(long, requires = "continuous")]
    pub(crate) cuda_graph: bool,
    /// Tokens of each prompt [default: 32]
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<usize>,
    /// Tokens of each output [default: 64]
    #[arg(long, value_name = "N")]
    pub(crate) output_tokens: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct SeqlenArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Tokens of the prompts: a list such as 10,50 or a range such as 128-512+128 [default: 10,50,200,1000]
    #[arg(long, value_name = "LIST")]
    pub(crate) prompts: Option<String>,
    /// Tokens of the outputs, each with each prompt [default: 50,100,200]
    #[arg(long, value_name = "LIST")]
    pub(crate) outputs: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SuiteArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Sequences at once of the suite throughput [default: 1,4,8,16,32]
    #[arg(long, value_name = "LIST")]
    pub(crate) batches: Option<String>,
    /// Tokens of the prompts of the suite seqlen [default: 10,50,200,1000]
    #[arg(long, value_name = "LIST")]
    pub(crate) prompts: Option<String>,
    /// Tokens of the outputs of the suite seqlen [default: 50,100,200]
    #[arg(long, value_name = "LIST")]
    pub(crate) outputs: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RoundArgs {
    /// Directory of the study
    pub(crate) study: PathBuf,
    /// Number of this start
    #[arg(long)]
    pub(crate) process: u32,
    /// Round of the plan
    #[arg(long)]
    pub(crate) round: u32,
    /// Number of the first start since the study was begun or gone on with
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u32,
    /// Take the recorded repetitions
    #[arg(long)]
    pub(crate) recorded: bool,
    /// Milliseconds since the study began
    #[arg(long, default_value_t = 0)]
    pub(crate) since_ms: u64,
    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
}
