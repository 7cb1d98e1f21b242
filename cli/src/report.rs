//! `candlescope report`.

use crate::args::ReportArgs;
use crate::json_arg::JsonArg;
use crate::limits::limits;
use crate::output::note;
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_core::files::{read_text_limited, write_whole};
use candlescope_core::run::MANIFEST_FILE;
use candlescope_document::Document;
use candlescope_figures::{PRICE_PER_HOUR, Price, RequestAccount};
use candlescope_reader::Run;
use candlescope_report::{ReportOptions, TerminalOptions, write_report_of, write_request};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Rows of the operator table, if nothing is said.
const TOP: usize = 15;
/// The largest `run.json` that is changed.
const MOST_BYTES: u64 = 64 << 20;

pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    if let Some(ranks) = crate::ranks::ranks_in(&args.run, &limits, args.by_thread)? {
        let of_a_run = [
            ("--request", args.request.is_some()),
            ("--nsys", args.nsys.is_some()),
            ("--price-per-hour", args.price_per_hour.is_some()),
            ("--top", args.top.is_some()),
        ];
        crate::ranks::takes_none(&ranks, &args.run, &of_a_run)?;
        return crate::ranks::reported(&ranks, &args.run, args.out.as_deref(), args.json);
    }
    let price = crate::price::price_of(args.price_per_hour)?;
    let options = ReportOptions {
        price,
        out: args.out.clone(),
        terminal: TerminalOptions { operators: args.top.unwrap_or(TOP), ..TerminalOptions::default() },
        nsys: args.nsys.as_deref().map(|file| crate::nsys::open(file, &limits)).transpose()?,
        limits: limits.clone(),
    };
    let mut run = Run::open_within(&args.run, limits)?;
    if let Some(request) = args.request {
        // A request that is not there may be in a file that cannot be read.
        let account = RequestAccount::of(&run, request).inspect_err(|_| warn(run.findings()))?;
        if args.json.is_json() {
            warn(&account.noticed);
        }
        let report = write_request(&run, &account, &options)?;
        return shown(args.json, (&report.account, report.document), &report.summary, &report.files);
    }
    crate::kept_between_runs::add_kept(&mut run);
    let report = write_report_of(&run, &options)?;
    // Whoever names another place for the files wants the run left as it is.
    if let Some(price) = price.filter(|_| args.out.is_none()) {
        keep_price(&args.run, price);
    }
    shown(args.json, (&report.metrics, report.document), &report.summary, &report.files)
}

/// Says one of them, and after the summary which files were written.
fn shown(json: JsonArg, (figures, document): (&Value, Document), summary: &str, files: &[PathBuf]) -> Result<()> {
    if json.say(figures, || document)? {
        return Ok(());
    }
    say(summary)?;
    files.iter().try_for_each(|file| say(&format!("wrote {}", file.display())))
}

/// Keeps a price in `run.json`, so that the next report has it without being told.
fn keep_price(run: &Path, price: Price) {
    if let Err(error) = write_price(&run.join(MANIFEST_FILE), price) {
        note(&format!("the price is in this report only: {error:#}"));
    }
}

/// Changes the one option and leaves everything else of the file as it is.
fn write_price(file: &Path, price: Price) -> Result<()> {
    let text = read_text_limited(file, MOST_BYTES).with_context(|| format!("cannot read {}", file.display()))?;
    let mut manifest: Value = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))?;
    if manifest["complete"] != Value::Bool(true) {
        bail!("the run was not closed, so its file is left as it is");
    }
    let options = manifest.get_mut("options").and_then(Value::as_object_mut).context("the run has no options")?;
    let new = Value::from(price.usd_per_hour);
    if options.get(PRICE_PER_HOUR) == Some(&new) {
        return Ok(());
    }
    options.insert(PRICE_PER_HOUR.to_string(), new);
    let text = format!("{manifest:#}\n");
    write_whole(file, |out| out.write_all(text.as_bytes())).with_context(|| format!("cannot write {}", file.display()))
}
