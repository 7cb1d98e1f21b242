//! The section of findings with gains, and the account of the devices' time below them.

use super::super::advice::{abstentions, rows, steps, together};
use super::super::format::{count, duration, percent, printable};
use crate::passes::Analysis;
use serde_json::{Value, json};

/// Findings in the page; `candlescope analyze` shows all.
const MOST: usize = 20;
/// Rows of each table of the account.
const ACCOUNT_ROWS: usize = 10;

/// The time line of a median step of the device that worked most.
fn line(analysis: &Analysis) -> Value {
    let devices = analysis.account.iter().flat_map(|account| &account.devices);
    let most = devices.max_by_key(|device| device.trace.busy_ns).and_then(|device| device.median_step.as_ref());
    most.map_or(Value::Null, |step| {
        json!({
            "svg": super::step_line::svg(step),
            "name": printable(&step.name),
            "step": count(step.step),
            "time": duration(step.open_ns as f64),
        })
    })
}

/// What the section shows; null if nobody looked for findings.
pub(super) fn values(analysis: &Analysis) -> Value {
    let Some(diagnosis) = &analysis.diagnosis else { return Value::Null };
    let found = rows(diagnosis);
    let list = found.iter().take(MOST).map(|row| {
        let (advice, part) = (row.advice, row.advice.of_run());
        json!({
            "code": advice.code.as_str(),
            "severity": advice.severity.name(),
            "gain": row.gain,
            // One scale for every bar of every page: the whole width is the time of all steps of the run.
            "width": part.mid * 100.0,
            "most": part.high * 100.0,
            "phase": printable(&advice.place.phase),
            "place": row.place,
            "message": row.words.message,
            "remedy": row.words.remedy,
            "evidence": row.evidence,
            "confidence": format!("{}: {}", advice.confidence.level.name(), advice.confidence.reason),
            "coverage": format!("{} steps, {} of the steps' time", count(advice.coverage.steps), percent(advice.coverage.share_of_time)),
            "query": printable(&advice.query),
        })
    });
    let missing = abstentions(diagnosis);
    json!({
        "rows": list.collect::<Vec<_>>(),
        "more": found.len().saturating_sub(MOST),
        "steps": steps(diagnosis),
        "together": together(diagnosis),
        "abstained": missing.iter().map(|(codes, what, record)| json!([codes, what, record])).collect::<Vec<_>>(),
        "line": line(analysis),
        "account": analysis.account.as_ref().map(|account| super::super::account::text(account, ACCOUNT_ROWS, &[])),
    })
}
