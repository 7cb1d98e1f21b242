//! Arguments of `candlescope optimise`.

use candlescope_optimise::Aim;
use candlescope_work::slo::Slo;
use clap::{Arg, Args, ValueEnum};
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope optimise embedded --budget 2m
      the built-in model: records it, tries what its findings say, keeps what makes it faster
  candlescope optimise MODEL.gguf --dequantize --quality kl=0.05
      also what changes answers, as long as their mean KL divergence stays below 0.05
  candlescope optimise config:llama-3-8b --device cuda:0 --goal throughput --slo tpot=50ms --prompt-tokens 512
      more sequences at once as well, as long as a token takes no longer than 50 ms
  candlescope optimise --run './server once' --try 'MALLOC_ARENA_MAX=1 ./server once'
      a change by hand, of any program with candlescope::init()
What is run is said before it is. No file is changed but below --out, and the ledger of promises in the cache directory.";

/// What is to become better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GoalName {
    /// The time of a request alone
    Latency,
    /// Tokens a second over all sequences
    Throughput,
    /// Requests a second that keep all limits: those of --slo, or, of load tests, those that they were made with
    Goodput,
}

impl From<GoalName> for Aim {
    fn from(name: GoalName) -> Self {
        match name {
            GoalName::Latency => Self::Latency,
            GoalName::Throughput => Self::Throughput,
            GoalName::Goodput => Self::Goodput,
        }
    }
}

#[derive(Debug, Args)]
#[command(mut_arg("out", study))]
pub(crate) struct OptimiseArgs {
    /// The model, as for --model [default: embedded]; then groups' files and keys' values
    #[arg(value_name = "MODEL", conflicts_with = "run")]
    pub(super) words: Vec<String>,
    /// What is to become better
    #[arg(long, value_enum, default_value_t = GoalName::Latency)]
    pub(super) goal: GoalName,
    /// Limits of requests, such as ttft=500ms,tpot=50ms: nothing is kept whose medians break them; with the goal goodput,
    /// requests count that keep all of them. Those of percentiles, such as ttft_p99=800ms, are of all requests of a side
    #[arg(long, value_name = "LIMITS")]
    pub(super) slo: Option<Slo>,
    /// Allow what changes answers, by at most so much: kl=0.05 is a mean KL divergence of 0.05 from f32
    #[arg(long, value_name = "kl=MOST", value_parser = quality)]
    pub(super) quality: Option<f64>,
    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = budget)]
    pub(super) budget: Duration,
    /// Most pairs of runs for each remedy; fewer where the answer is clear before
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(8..=1000))]
    pub(super) pairs: u16,
    /// A command to try in place of remedies, in turns with the program as it is; can be repeated
    #[arg(long = "try", value_name = "COMMAND")]
    pub(super) tries: Vec<String>,
    /// What the command of --try at the same place obtains: a finding of the program as it is, such as constant_cost,
    /// ngram_lookup, together for all findings at once, or changes as --what-if of `analyze` takes them; can be
    /// repeated
    #[arg(long = "promise", value_name = "FINDING|CHANGES", requires = "tries")]
    pub(super) promises: Vec<String>,
    /// The program that is tried by hand, in place of `candlescope profile`; it writes a run where {out} stands, or by
    /// candlescope::init()
    #[arg(long, value_name = "COMMAND", requires = "tries")]
    pub(super) run: Option<String>,
    /// Go on with the optimisation in --out, which was begun with the same options, model and candlescope
    #[arg(long)]
    pub(super) resume: bool,
    /// Remember no promise, and look at none
    #[arg(long)]
    pub(super) no_ledger: bool,
    #[command(flatten)]
    pub(super) flags: crate::conf::Flags,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    pub(super) limits: Vec<String>,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    pub(super) json: bool,
    /// Do not say what is done, but for the programs that are started
    #[arg(long)]
    pub(super) no_progress: bool,
}

/// The flags are those of `profile`, whose directory is that of a run.
fn study(out: Arg) -> Arg {
    out.value_name("DIR").help(
        "Directory of the study; must be empty or absent, unless --resume is given [default: results/optimise-TIME]",
    )
}

fn quality(text: &str) -> Result<f64, String> {
    let number = text.strip_prefix("kl=").and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|most| *most >= 0.0 && most.is_finite())
        .ok_or_else(|| "write kl=0.05: a mean KL divergence in nats".into())
}

fn budget(text: &str) -> Result<Duration, String> {
    crate::durations::time(text).map_err(|error| error.to_string())
}
