//! Arguments of `compare` and `gate`.

use crate::json_arg::JsonArg;
use candlescope_compare::{ALLOWABLE, CompareOptions};
use clap::Args;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope compare runs/before runs/after
      two runs, two studies, or two folders of either
  candlescope compare --run './server-a --once' './server-b --once' --out runs/ab
      both programs in turns (A B B A, …) until it is clear which one is better; {out} stands for a run's directory
  candlescope compare runs/f32 runs/q8 --allow dtype --html compare.html
      a difference that is the change itself; both flame graphs and their difference
  candlescope compare runs/candle runs/torch
      two programs side by side, of which one was recorded as it is (candlescope record)
Exit status: 0 equivalent or better, or two programs side by side; 1 worse, 2 undecided, 3 an error.";

pub(crate) const GATE_EXAMPLES: &str = "\
Examples:
  candlescope gate runs/main --save .candlescope/baseline
      keep a run, or a folder of runs, as the baseline
  candlescope gate runs/today --baseline .candlescope/baseline
      hold runs against it and against how such runs went since
  candlescope gate --prometheus http://prometheus:9090 --last 30m --within 10
      hold a live server's last half hour against the same half hour of the 14 days before
  candlescope gate --prometheus http://prometheus:9090 --select 'job=\"api\"' --since-deploy --within 10
      hold what it does since its last start against the time right before
Exit status: 0 equivalent or better, 1 worse, 2 undecided, 3 an error.";

/// What both commands take.
#[derive(Debug, Args)]
pub(crate) struct JudgingArgs {
    /// Changes up to this many percent are the same
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent, allow_negative_numbers = true)]
    within: f64,
    /// Probability, in percent, with which an interval of times may miss the truth
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent, allow_negative_numbers = true)]
    alpha: f64,
    /// Share of the named paths, in percent, that may be wrong
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent, allow_negative_numbers = true)]
    false_discoveries: f64,
    /// What the same program differs by on this machine, in percent, in place of what A shows. With it one run of each,
    /// runs recorded apart, and a gate without a history can decide
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_negative_numbers = true)]
    floor: Option<f64>,
    /// Compare although this differs: batch, clocks, damage, dtype, machine, options, recording, threads (of studies),
    /// tokens, or all; can be repeated, or joined by commas
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = allowable)]
    allow: Vec<String>,
    /// Write a page with tables and flame graphs
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    pub(super) limits: Vec<String>,
    #[command(flatten)]
    pub(super) json: JsonArg,
}

impl JudgingArgs {
    pub(super) fn options(&self) -> CompareOptions {
        CompareOptions::default()
            .margin(self.within)
            .alpha(self.alpha)
            .false_discoveries(self.false_discoveries)
            .floor(self.floor)
            .allow(self.allow.clone())
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// What came before: a run, a study, or a folder of either
    #[arg(value_name = "A", required_unless_present = "run", conflicts_with = "run")]
    pub(super) a: Option<PathBuf>,
    /// What comes after
    #[arg(value_name = "B", required_unless_present = "run", conflicts_with = "run")]
    pub(super) b: Option<PathBuf>,
    /// Run two programs in turns and compare what they record: with the variable CANDLESCOPE, or in the directory that
    /// stands for {out} in the command. Of their words, only the programs' names are kept and shown
    #[arg(long, num_args = 2, value_names = ["COMMAND_A", "COMMAND_B"])]
    pub(super) run: Option<Vec<String>>,
    /// Most pairs of runs; fewer where the answer is clear before
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(2..=10_000))]
    #[arg(requires = "run")]
    pub(super) pairs: u16,
    /// Where the runs go; must be empty or absent [default: runs/compare-TIME]
    #[arg(long, value_name = "DIR", requires = "run")]
    pub(super) out: Option<PathBuf>,
    /// Seed of the order in which programs run
    #[arg(long, value_name = "N", default_value_t = 42, requires = "run")]
    pub(super) seed: u64,
    /// Keep the commands' words in compare.json and compare.html, and show them: they may hold keys
    #[arg(long, requires = "run")]
    pub(super) keep_commands: bool,
    /// Put two programs that do the same work side by side, without judging: so it is by itself where one of them does
    /// not link candlescope (`candlescope record`) and the other one does
    #[arg(long, conflicts_with = "run")]
    pub(super) programs: bool,
    /// No progress bar
    #[arg(long)]
    pub(super) no_progress: bool,
    #[command(flatten)]
    pub(super) judging: JudgingArgs,
}

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Runs, or folders of runs, of one thing: the more, the smaller the change that is seen
    #[arg(value_name = "RUN", required_unless_present = "prometheus")]
    pub(super) runs: Vec<PathBuf>,
    /// Directory of the baseline to hold them against
    #[arg(long, value_name = "DIR", required_unless_present_any = ["save", "prometheus"])]
    pub(super) baseline: Option<PathBuf>,
    /// Save them as the baseline in this directory instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["baseline", "html"])]
    pub(super) save: Option<PathBuf>,
    #[command(flatten)]
    pub(super) live: LiveArgs,
    #[command(flatten)]
    pub(super) judging: JudgingArgs,
}

/// A server that runs, in place of runs.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// Hold a live server against its own past, from the Prometheus at this address
    #[arg(long, value_name = "URL", conflicts_with_all = ["runs", "baseline", "save", "html", "allow"])]
    pub(super) prometheus: Option<String>,
    /// Label matchers of the server, as in PromQL: job="api",instance=~"10.0.0.*" [default: all candlescope programs]
    #[arg(long, value_name = "MATCHERS", requires = "prometheus", default_value = "", hide_default_value = true)]
    pub(super) select: String,
    /// Length of the window that is judged, which ends now, and of those before
    #[arg(long, value_name = "TIME", requires = "prometheus", default_value = "30m")]
    pub(super) last: String,
    /// Hold it against windows so much earlier, twice as much, and so on: 24h for the same time of other days
    #[arg(long, value_name = "TIME", requires = "prometheus", default_value = "24h")]
    pub(super) against: String,
    /// Hold the time since the last start of the server against windows right before it
    #[arg(long, requires = "prometheus", conflicts_with = "against")]
    pub(super) since_deploy: bool,
    /// Windows before, at most: how much they differ by themselves shows in four or more
    #[arg(long, value_name = "N", requires = "prometheus", default_value_t = 14)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) windows: u16,
    /// Judge although prompts, answers or the number of requests differ much from before
    #[arg(long, requires = "prometheus")]
    pub(super) any_traffic: bool,
    /// Environment variable with a key for Prometheus, which is sent as a bearer token and shown nowhere
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pub(super) api_key_env: Option<String>,
}

/// A share given in percent.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("wants a percentage above 0 and below 100, such as 2".to_string()),
    }
}

fn allowable(text: &str) -> Result<String, String> {
    match text == "all" || ALLOWABLE.contains(&text) {
        true => Ok(text.to_string()),
        false => Err(format!("wants one of {}, or all", ALLOWABLE.join(", "))),
    }
}
