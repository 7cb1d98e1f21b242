//! `candlescope trend`: one figure of many runs, day by day.

use crate::output::say;
use crate::summary::RunSelection;
use anyhow::{Result, bail};
use candlescope_trends::{FIGURES, Figure, document_of, text_of};
use clap::Args;
use std::io::IsTerminal;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope trend tpot /data/candlescope
      time per output token day by day, with the runs of each day
  candlescope trend decode_tokens_per_s runs --by model,option.batch";

#[derive(Debug, Args)]
pub(crate) struct TrendArgs {
    /// ttft, tpot, prefill_step, decode_step, decode_tokens_per_s or energy_mj_per_token
    #[arg(value_name = "FIGURE")]
    figure: String,
    #[command(flatten)]
    of: RunSelection,
}

/// One figure, day by day.
pub(crate) fn run(args: &TrendArgs) -> Result<()> {
    let Some(figure) = Figure::named(&args.figure) else {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        bail!("`{}` is no figure that is followed: {}", args.figure, names.join(", "));
    };
    let mut summary = args.of.summary()?;
    for group in &mut summary.groups {
        group.trends.retain(|trend| trend.figure.name == figure.name);
    }
    summary.groups.retain(|group| !group.trends.is_empty());
    if summary.groups.is_empty() {
        bail!("no run has the figure `{}`: {} of {} runs", figure.name, 0, summary.runs);
    }
    if args.of.json.say(&summary, || document_of(&summary))? {
        return Ok(());
    }
    say(&text_of(&summary, std::io::stdout().is_terminal()))
}
