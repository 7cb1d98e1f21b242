//! `candlescope summary`: what changed over time in many runs.

use crate::json_arg::JsonArg;
use crate::limits::limits;
use crate::output::say;
use crate::query::warn_of_doubles;
use crate::query_guard::guard;
use crate::warnings::{warn, warn_unread};
use anyhow::{Context, Result, bail};
use candlescope_core::files::write_whole;
use candlescope_document::html;
use candlescope_sql::Sources;
use candlescope_trends::{GroupBy, Summary, UNKNOWN, document, headlines, open_metrics, summarise, text};
use clap::Args;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope summary /data/candlescope --by model,device,version --since 2026-05-01
      every headline figure over time, with the days on which its level changed
  candlescope summary s3://traces/candlescope --html summary.html
      the same as a page with charts, of runs in a bucket
  candlescope summary /data/candlescope --openmetrics fleet.txt
  promtool tsdb create-blocks-from openmetrics fleet.txt /var/lib/prometheus
      the same in Prometheus, for the dashboard Fleet";

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    of: RunSelection,
    /// Writes a page with charts there
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Writes it as OpenMetrics text with times, for `promtool tsdb create-blocks-from openmetrics` and the dashboard
    /// *Fleet*
    #[arg(long, value_name = "FILE")]
    openmetrics: Option<PathBuf>,
}

/// Which runs, and how they are put together.
#[derive(Debug, Args)]
pub(crate) struct RunSelection {
    /// Archives, runs and folders of these; s3://bucket/path, gs://, az:// and https:// as well
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// What tells runs apart, by commas: model, device, version, host, rank, option.NAME. Runs of one group are taken to do
    /// the same work
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "model,device")]
    by: Vec<GroupBy>,
    /// Only runs that began on this day (UTC) or later, as 2026-05-01
    #[arg(long, value_name = "DAY", value_parser = since)]
    since: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonArg,
}

/// The same thing twice tells nothing apart.
fn distinct(by: &[GroupBy]) -> Vec<GroupBy> {
    let mut distinct: Vec<GroupBy> = Vec::new();
    by.iter().for_each(|by| {
        if !distinct.contains(by) {
            distinct.push(by.clone());
        }
    });
    distinct
}

fn since(text: &str) -> Result<String, String> {
    let is_day = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if is_day { Ok(text.to_string()) } else { Err(format!("`{text}` is no day: write it as 2026-05-01")) }
}

impl RunSelection {
    pub(crate) fn summary(&self) -> Result<Summary> {
        let limits = limits(&[])?;
        let by = distinct(&self.by);
        let sources = Sources::open(&self.runs, &limits)?;
        let found = guard(&limits, || {
            warn_of_doubles(&sources, &limits);
            headlines(sources, &by, self.since.as_deref(), &limits)
        })?;
        warn(&found.noticed);
        warn_unread(&found.left_out, "--json");
        if found.runs.is_empty() {
            match (&self.since, found.left_out.first()) {
                (Some(day), _) => bail!("no run began on {day} or later: give an earlier --since"),
                (None, Some(first)) => bail!("no run can be followed. Of the first, `{}`: {}", first.run, first.why),
                (None, None) => bail!("there is no run: archive some, or name a folder that has them"),
            }
        }
        let unknown = by.iter().enumerate().find_map(|(at, by)| match by {
            GroupBy::Option(name) if found.runs.iter().all(|run| run.keys[at] == UNKNOWN) => Some(name),
            _ => None,
        });
        if let Some(unknown) = unknown {
            bail!("no run has the option `{unknown}`: `SELECT options FROM runs` shows what runs have");
        }
        let mut summary = summarise(&found.runs, &by);
        summary.left_out = found.left_out;
        Ok(summary)
    }
}

/// Every figure of many runs.
pub(crate) fn run(args: &SummaryArgs) -> Result<()> {
    let summary = args.of.summary()?;
    let write = |file: &Path, text: &str| {
        write_whole(file, |out| out.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", file.display()))
    };
    if let Some(file) = &args.html {
        write(file, &html::page(&document(&summary)))?;
    }
    if let Some(file) = &args.openmetrics {
        let places: Vec<String> = args.of.runs.iter().map(|place| place.display().to_string()).collect();
        write(file, &open_metrics(&summary, &places.join(" ")))?;
    }
    if args.of.json.say(&summary, || document(&summary))? {
        return Ok(());
    }
    say(&text(&summary, std::io::stdout().is_terminal()))?;
    args.html.iter().chain(&args.openmetrics).try_for_each(|file| say(&format!("wrote {}", file.display())))
}
