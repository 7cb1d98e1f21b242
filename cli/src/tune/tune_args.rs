//! Arguments of `candlescope tune`.

use crate::bench::ModelArgs;
use crate::json_arg::JsonArg;
use candlescope_work::slo::Slo;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  candlescope tune batch --model embedded --end 16 --quick
      a look: the built-in model
  candlescope tune batch --model config:llama-3-8b --device cuda:0 --end 256 --slo tpot=20ms
      the highest throughput with at most 20 ms for a token
  candlescope tune batch --model MODEL.gguf --metric goodput --slo ttft=500ms,tpot=50ms
      the most tokens of requests that keep both limits";

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    pub(crate) command: TuneCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// How many sequences at once: predicts all batches, measures a few, says which is best, and where the knee and the
    /// end of memory are
    #[command(after_help = EXAMPLES)]
    Batch(Box<BatchArgs>),
    /// How many threads compute on a CPU: tries counts in turns, says which is best, or that it is undecided
    #[command(after_help = super::threads::EXAMPLES)]
    Threads(Box<super::threads::ThreadsArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    pub(crate) subject: ModelArgs,
    /// The smallest batch
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) start: u64,
    /// The largest batch
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) end: u64,
    /// What is best: the most output tokens a second, the shortest request, or the most tokens of requests that keep
    /// the service level
    #[arg(long, value_enum, default_value_t = MetricArg::Throughput)]
    pub(crate) metric: MetricArg,
    /// Limits to keep: ttft=TIME, tpot=TIME, e2e=TIME, separated by commas, as in ttft=200ms,tpot=50ms
    #[arg(long, value_name = "LIMITS")]
    pub(crate) slo: Option<Slo>,
    /// What the machine costs, in US dollars an hour: which batch's tokens cost least
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub(crate) price_per_hour: Option<f64>,
    /// Tokens of each prompt, seeded random ones [default: 32, with --quick 16]
    #[arg(long, value_name = "N")]
    pub(crate) prompt_tokens: Option<usize>,
    /// Tokens of each output [default: 64, with --quick 8]
    #[arg(long, value_name = "N")]
    pub(crate) output_tokens: Option<usize>,
    /// The most batches that are measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub(crate) points: u32,
    /// Longest time for one batch, in seconds [default: 20, with --quick 2]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) time_limit: Option<u64>,
    /// Exactly this many requests of a batch in each pass, in place of the rules that stop it [with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: Option<u32>,
    /// Memory that a batch may need beside the weights, in MiB [default: what the machine has left; no limit on a GPU]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_limit: Option<u64>,
    /// Peaks to predict with, instead of those that `bench peaks` keeps of this device, or its datasheet's
    #[arg(long, value_name = "FILE")]
    pub(crate) peaks: Option<PathBuf>,
    /// Seed of random weights, of prompts, and of the order of repetitions
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Directory of the study; must be empty or absent [default: results/tune-batch-TIME]
    #[arg(long, value_name = "STUDY")]
    pub(crate) out: Option<PathBuf>,
    /// Short requests, and few of them: a look, no measurement to rely on
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) json: JsonArg,
    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricArg {
    Throughput,
    Latency,
    Goodput,
}
