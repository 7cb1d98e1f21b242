//! `candlescope report`.

use crate::args::ReportArgs;
use crate::limits::limits;
use crate::output::say;
use anyhow::{Result, bail};
use candlescope_analysis::passes::Price;
use candlescope_analysis::{ReportOptions, TerminalOptions, write_report};

pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    let price = args.price_per_hour.map(Price::given);
    if let (Some(usd), Some(None)) = (args.price_per_hour, price) {
        bail!("--price-per-hour is {usd}; it is US dollars an hour, 0 or more");
    }
    let options = ReportOptions {
        price: price.flatten(),
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
