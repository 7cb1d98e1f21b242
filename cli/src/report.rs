//! `candlescope report`.

use crate::args::ReportArgs;
use crate::limits::limits;
use crate::output::say;
use anyhow::Result;
use candlescope_analysis::{ReportOptions, TerminalOptions, write_report};

pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    let options = ReportOptions {
        out: args.out.clone(),
        terminal: TerminalOptions { operators: args.top, ..TerminalOptions::default() },
        nsys: args.nsys.as_deref().map(|file| crate::nsys::open(file, &limits)).transpose()?,
        limits,
    };
    let report = write_report(&args.run, &options)?;
    if args.json {
        return say(&serde_json::to_string(&report.metrics)?);
    }
    say(&report.summary)?;
    report.files.iter().try_for_each(|file| say(&format!("wrote {}", file.display())))
}
