//! `candlescope overview`: a run in short.

use crate::json_arg::JsonArg;
use crate::kept_between_runs;
use crate::kept_between_runs::ledger_path;
use crate::limits::limits;
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Result, bail};
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_reader::{OpenError, ReadLimits, Run};
use candlescope_report::overview::{FolderOf, FolderOverview, document, overview, text};
use candlescope_report::terminal::TerminalOptions;
use clap::Args;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope overview runs/first
      what ran, whether it can be trusted, its figures, what to change, and which commands go on from there
  candlescope overview runs/first --json
      the same in at most 8 kB, for scripts and agents (docs/agents.md)
  candlescope overview runs
      of a folder of runs, or of a study: what it holds, and what to ask of it";

#[derive(Debug, Args)]
pub(crate) struct OverviewArgs {
    /// Directory of a run; of a folder of runs, of ranks or of a study it says what to ask
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    limits: Vec<String>,
    #[command(flatten)]
    json: JsonArg,
}

impl OverviewArgs {
    /// Of a run, as text.
    pub(crate) const fn of(run: PathBuf) -> Self {
        Self { run, limits: Vec::new(), json: JsonArg::TEXT }
    }
}

pub(crate) fn run(args: &OverviewArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    let mut run = match Run::open_within(&args.run, limits.clone()) {
        Ok(run) => run,
        Err(error) => return of_folder(&args.run, error, &limits, args.json),
    };
    kept_between_runs::add_kept(&mut run);
    // The findings that `analyze` has, in the same order.
    let analysis = analyze(&run, &AnalyzeOptions::default().ledger(ledger_path())).analysis;
    let found = overview(&analysis);
    if args.json.say(&found, || document(&found))? {
        return Ok(());
    }
    warn(&analysis.noticed);
    let options = TerminalOptions::default();
    say(text(&found, options.width, std::io::stdout().is_terminal()).trim_end())
}

/// Of what is no run: what it is, or why it is nothing.
fn of_folder(dir: &Path, error: OpenError, limits: &ReadLimits, json: JsonArg) -> Result<()> {
    let found = match &error {
        OpenError::DirectoryOfRuns { count, first, .. } => match crate::ranks::ranks_in(dir, limits, false)? {
            Some(ranks) => {
                let found = candlescope_report::ranks::document(&candlescope_ranks::analyse(&ranks)).conclusion;
                FolderOverview::of(dir, FolderOf::Ranks(ranks.all().len(), ranks.all()[0].run().dir(), &found))
            }
            None => FolderOverview::of(dir, FolderOf::Runs(*count, first)),
        },
        OpenError::NotARun(_) if is_study(dir) => FolderOverview::of(dir, FolderOf::Study),
        _ => return Err(error.into()),
    };
    if json.is_document() {
        bail!("--json=document is of a run: name one, or leave out `=document`");
    }
    if json.is_json() { say(&serde_json::to_string(&found)?) } else { say(&found.text()) }
}

#[cfg(feature = "lab")]
fn is_study(dir: &Path) -> bool {
    dir.join(candlescope_core::study_files::MANIFEST_FILE).is_file()
}

/// Without the lab there are no studies.
#[cfg(not(feature = "lab"))]
fn is_study(_: &Path) -> bool {
    false
}
