//! `candlescope prune`: removes what is oldest in an archive.

use crate::limits::limits;
use crate::output::say;
use anyhow::Result;
use candlescope_archive::disk::Disk;
use candlescope_archive::{Keep, prune};
use clap::Args;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope prune /data/candlescope --keep 30d --dry-run
  candlescope prune /data/candlescope --keep 500GB";

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// An archive
    #[arg(value_name = "ROOT")]
    root: PathBuf,
    /// How much stays: what ended in the last 30d, 12h or 8w, or what ended last up to 20GB or 1TB; runs that began on
    /// one day on one machine go together, when the last of them does
    #[arg(long, value_name = "TIME|SIZE")]
    keep: String,
    /// Says what would be removed, and removes nothing
    #[arg(long)]
    dry_run: bool,
    /// Says what was removed as JSON
    #[arg(long)]
    json: bool,
}

/// Removes what is oldest.
pub(crate) fn run(args: &PruneArgs) -> Result<()> {
    let keep: Keep = args.keep.parse()?;
    let found = prune(&args.root, keep, args.dry_run, &limits(&[])?, &Disk::default())?;
    if args.json {
        return say(&serde_json::to_string(&found)?);
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let days = match (found.days.first(), found.days.last()) {
        (Some(first), Some(last)) if first != last => format!("{} days, {first} to {last}", found.days.len()),
        (Some(day), _) => day.clone(),
        _ => "nothing".into(),
    };
    let runs = match found.runs.len() {
        1 => "1 run".to_string(),
        n => format!("{n} runs"),
    };
    say(&format!("{verb} {days}: {runs}, {}; {} stay", megabytes(found.bytes), megabytes(found.kept_bytes)))
}
