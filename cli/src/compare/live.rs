//! `candlescope gate --prometheus`: a live server beside its own past.

use super::compare_args::{JudgingArgs, LiveArgs};
use super::printed::{colour, told};
use crate::api_key::api_key;
use crate::durations::time;
use anyhow::{Context, Result};
use candlescope_compare::{
    LEAST_VALUES, Outcome, ServerWindows, Window, WindowedFigure, WindowsComparison, compare_windows,
};
use candlescope_core::HostNs;
use candlescope_core::numbers::utc;
use candlescope_monitor::{
    EarlierWindows, FigureWindows, ServerReading, Span, SpanValues, WindowOptions, read_windows,
};
use candlescope_report::compare::{document_of_windows, text_of_windows};
use serde::Serialize;

const SECOND_NS: i64 = 1_000_000_000;

/// What the gate prints with `--json`.
#[derive(Serialize)]
struct LiveGate<'a> {
    schema: u32,
    outcome: Outcome,
    /// Where the server was read; shows no credentials.
    prometheus: String,
    select: &'a str,
    /// The window that was judged.
    now: JsonSpan,
    /// Those before.
    before: Vec<JsonSpan>,
    /// Length of a part of a window.
    part_ns: i64,
    /// The start that the window comes after, with `--since-deploy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_ns: Option<i64>,
    comparison: &'a WindowsComparison,
}

/// A stretch of time, Unix nanoseconds.
#[derive(Serialize)]
struct JsonSpan {
    from_ns: i64,
    to_ns: i64,
}

impl From<&Span> for JsonSpan {
    fn from(span: &Span) -> Self {
        Self { from_ns: span.from_s * SECOND_NS, to_ns: span.to_s * SECOND_NS }
    }
}

/// Reads the windows, judges the last one, says what came out, and returns the exit status.
pub(super) fn gated(args: &LiveArgs, judging: &JudgingArgs) -> Result<u8> {
    let reading = read_windows(&options(args)?, HostNs::now().0.div_euclid(SECOND_NS), LEAST_VALUES)?;
    let comparison = compare_windows(&server(&reading), args.any_traffic, &judging.options());
    let facts = facts(&reading, args);
    let document = || document_of_windows(&comparison, &facts);
    let text = || text_of_windows(&comparison, &facts, colour());
    told(judging, &object(&reading, args, &comparison), document, text)?;
    Ok(comparison.outcome.exit_code())
}

fn options(args: &LiveArgs) -> Result<WindowOptions> {
    let against = match args.since_deploy {
        true => EarlierWindows::LastStart,
        false => EarlierWindows::Earlier(time(&args.against).context("--against")?),
    };
    let options = WindowOptions::new(args.prometheus.as_deref().unwrap_or_default())
        .select(args.select.as_str())
        .last(time(&args.last).context("--last")?)
        .against(against)
        .windows(usize::from(args.windows));
    let Some(name) = &args.api_key_env else { return Ok(options) };
    Ok(options.key(api_key(name)?))
}

fn server(reading: &ServerReading) -> ServerWindows {
    let window = |of: &SpanValues| Window { from_ns: of.from_s * SECOND_NS, values: of.values.clone() };
    let windowed = |of: &FigureWindows| WindowedFigure {
        name: of.name.clone(),
        before: of.before.iter().map(window).collect(),
        now: window(&of.now),
    };
    let all = |figures: &[FigureWindows]| figures.iter().map(windowed).collect();
    ServerWindows { figures: all(&reading.figures), traffic: all(&reading.traffic), layers: all(&reading.layers) }
}

fn object<'a>(reading: &ServerReading, args: &'a LiveArgs, comparison: &'a WindowsComparison) -> LiveGate<'a> {
    let plan = &reading.plan;
    LiveGate {
        schema: 1,
        outcome: comparison.outcome,
        prometheus: reading.url.to_string(),
        select: &args.select,
        now: (&plan.now).into(),
        before: plan.before.iter().map(JsonSpan::from).collect(),
        part_ns: plan.every_s * SECOND_NS,
        started_ns: plan.started_s.map(|start| start * SECOND_NS),
        comparison,
    }
}

fn facts(reading: &ServerReading, args: &LiveArgs) -> Vec<(&'static str, String)> {
    let plan = &reading.plan;
    let at = |second: i64| utc(second * SECOND_NS);
    let before = match (plan.started_s, plan.before.len()) {
        (Some(start), n) => format!("{n} windows right before its last start, {}", at(start)),
        (None, n) => format!("{n} windows, {} earlier, twice as much, …", args.against),
    };
    let parts = format!("{} parts of {} s", plan.parts(), plan.every_s);
    vec![
        ("server", asked_of(&args.select, &reading.url)),
        ("now", format!("{} to {}, {parts}", at(plan.now.from_s), at(plan.now.to_s))),
        ("before", before),
    ]
}

/// Which programs were asked for, and where.
fn asked_of(select: &str, url: impl std::fmt::Display) -> String {
    if select.is_empty() { format!("at {url}") } else { format!("{{{select}}} at {url}") }
}
