//! `candlescope journey`: what was tried by hand, as an account.

use crate::limits::limits;
use crate::optimise::{GoalName, show};
use anyhow::{Context, Result, bail};
use candlescope_optimise::{Station, journey, write_journey};
use clap::Args;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope journey results/before results/eight-threads results/q8
      three studies of `bench`: each held against the best before it
  candlescope journey vllm-default.json vllm-64.json='--max-num-seqs 64' --goal throughput
      results of vLLM's or SGLang's benchmark of a server, or of `candlescope load`, with what was changed
  candlescope journey results/optimise-1 runs/compare-2026-01-05
      an optimisation, and a comparison that was made after it";

#[derive(Debug, Args)]
pub(crate) struct JourneyArgs {
    /// Studies of `bench`, `load`, `optimise`, folders of `compare --run`, results of other benchmarks of servers, in the
    /// order in which they were made; PATH=LABEL says what was changed
    #[arg(value_name = "STUDY[=LABEL]", required = true)]
    stations: Vec<String>,
    /// By which figure results of load tests are judged
    #[arg(long, value_enum, default_value_t = GoalName::Latency)]
    goal: GoalName,
    /// Directory of the account; must be empty or absent [default: results/journey-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    limits: Vec<String>,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    json: bool,
}

/// Writes the account.
pub(crate) fn run(args: &JourneyArgs) -> Result<()> {
    let out = crate::out_dir::chosen(args.out.as_deref(), "journey", false)?;
    crate::out_dir::must_be_empty(&out, "")?;
    let stations: Vec<Station> = args.stations.iter().map(|text| Station::parse(text)).collect();
    let account = journey(&stations, args.goal.into(), &limits(&args.limits)?)?;
    if account.phases.is_empty() {
        bail!("one state alone is no journey: give what came after it as well");
    }
    write_journey(&account, &out).with_context(|| format!("in {}", out.display()))?;
    show(&account, &[], None, &out, args.json)
}
