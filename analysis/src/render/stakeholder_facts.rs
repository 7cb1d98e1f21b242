//! What one page says to somebody who decides: what ran, how fast, what it costs, what limits it, what to do. This is
//! its content; what is not known says so.

use super::conclusion;
use super::format::{bytes, count, joules, percent, plural, significant, utc, value};
use super::head_facts::{machine, model, model_name, overhead};
use super::headline_figures::{FigureValue, figures, interval};
use super::plain_changes::{changes, count_of};
use crate::passes::peaks::{Metric, Over, utilisation};
use crate::passes::{Analysis, usd_per_million_output_tokens};
use candlescope_schema::run::Severity;
use serde_json::Value;

/// Findings about the data that the page names.
const MOST_FINDINGS: usize = 5;
/// Changes that the page names.
const MOST_CHANGES: usize = 3;

/// Figures of the table, by key.
const SPEED: [&str; 6] = ["ttft", "tpot", "e2e", "prefill_tps", "decode_tps", "output_tps"];

/// The page.
pub(super) struct StakeholderFacts {
    pub(super) title: String,
    /// Conclusion and verdict.
    pub(super) conclusion: String,
    pub(super) ran: Vec<(&'static str, String)>,
    pub(super) speed: Vec<SpeedRow>,
    pub(super) cost: Vec<(&'static str, String)>,
    /// What limits it, with paths formatted already.
    pub(super) limit: String,
    /// More about that, in plain text.
    pub(super) limits: Vec<String>,
    /// What makes the program faster, the most first, with paths formatted already.
    pub(super) changes: Vec<String>,
    /// What the findings about the data ask for, in plain text.
    pub(super) todo: Vec<String>,
}

/// One figure of speed.
pub(super) struct SpeedRow {
    pub(super) title: String,
    /// Median, or the single value.
    pub(super) central: String,
    /// Interval or range under its name; empty if there is none.
    pub(super) spread: String,
    pub(super) n: String,
    pub(super) label: &'static str,
}

/// The page of a run, with paths formatted by `code`.
pub(super) fn stakeholder_facts(analysis: &Analysis, code: fn(&str) -> String) -> StakeholderFacts {
    StakeholderFacts {
        title: conclusion::title(analysis),
        conclusion: conclusion::plain_sentence(analysis, code),
        ran: ran(analysis),
        speed: speed(analysis),
        cost: cost(analysis),
        limit: limit(analysis, code),
        limits: limits(analysis),
        changes: changes_and_rest(analysis, code),
        todo: todo(analysis),
    }
}

fn or_unknown(parts: Vec<String>, what: &str) -> String {
    if parts.is_empty() { format!("not known: the run does not name its {what}") } else { parts.join(" · ") }
}

fn ran(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let manifest = &analysis.manifest;
    let model = model_name(manifest).into_iter().chain(model(manifest)).collect();
    let mut facts = vec![
        ("model", or_unknown(model, "model")),
        ("machine", or_unknown(machine(manifest), "machine")),
        ("work", work(analysis)),
    ];
    facts.extend(data_set(analysis).map(|text| ("data set", text)));
    if manifest.started_ns > 0 {
        facts.push(("when", utc(manifest.started_ns)));
    }
    if !manifest.run_id.is_empty() {
        facts.push(("run", manifest.run_id.clone()));
    }
    facts
}

/// The requests that count: how many, and their lengths.
pub(super) fn work(analysis: &Analysis) -> String {
    let latency = &analysis.latency;
    let measured: Vec<_> = latency.requests.iter().filter(|request| !request.warmup).collect();
    if measured.is_empty() {
        return "not known: the run marks no requests".to_string();
    }
    let mut text = plural(measured.len() as u64, "measured request");
    if latency.warmup > 0 {
        text.push_str(&format!(" after {} that warmed up", latency.warmup));
    }
    if let Some(lengths) = lengths(measured.iter().map(|request| request.prompt_tokens)) {
        text.push_str(&format!(", prompts of {lengths} tokens"));
    }
    if let Some(tokens) = latency.output_tokens {
        text.push_str(&format!(", {} output tokens in all", count(tokens)));
    }
    if let Some(batches) = lengths(measured.iter().map(|request| request.batch.map(u64::from))) {
        text.push_str(&format!(", batch {batches}"));
    }
    text
}

/// `64`, or `17 – 64`; `None` if one is not known.
fn lengths(values: impl Iterator<Item = Option<u64>>) -> Option<String> {
    let values: Vec<u64> = values.collect::<Option<_>>()?;
    let (least, most) = (values.iter().min()?, values.iter().max()?);
    Some(if least == most { count(*least) } else { format!("{} – {}", count(*least), count(*most)) })
}

fn data_set(analysis: &Analysis) -> Option<String> {
    let set = analysis.manifest.results.get("dataset")?;
    let number = |key: &str| set.get(key).and_then(Value::as_u64);
    let name = set.get("name")?.as_str()?;
    let mut text = name.to_string();
    if let Some((used, there)) = number("prompts_used").zip(number("prompts_there")) {
        text.push_str(&format!(", {} of its {} prompts", count(used), count(there)));
    }
    if let Some(left_out) = number("left_out_too_long").filter(|n| *n > 0) {
        text.push_str(&format!(", {} left out as too long", count(left_out)));
    }
    Some(text)
}

fn speed(analysis: &Analysis) -> Vec<SpeedRow> {
    let figures = figures(analysis);
    let shown = figures.iter().filter(|figure| SPEED.contains(&figure.definition.key));
    let rows = shown.map(|figure| {
        let unit = figure.definition.unit;
        let (spread, n) = match &figure.value {
            FigureValue::Spread(d) => (interval(unit, d, false).unwrap_or_default(), d.n),
            FigureValue::Single(_, n) => (String::new(), *n),
        };
        SpeedRow {
            title: figure.title(),
            central: value(unit, figure.central()),
            spread,
            n: count(n as u64),
            label: figure.definition.label,
        }
    });
    rows.collect()
}

/// US dollars.
fn usd(amount: f64) -> String {
    format!("${}", significant(amount))
}

fn cost(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let tokens = match (analysis.price, usd_per_million_output_tokens(analysis)) {
        (None, _) => "not known: no price per hour was given (--price-per-hour, hardware.price_per_hour)".to_string(),
        (Some(price), None) => format!(
            "not known: the machine costs {} an hour, but the run does not say how many tokens came out in its time",
            usd(price.usd_per_hour)
        ),
        (Some(price), Some(million)) => format!(
            "{} for 1M output tokens (derived: {} an hour, given with the {}, ÷ the output throughput of this run)",
            usd(million),
            usd(price.usd_per_hour),
            if price.given_for_report { "report" } else { "run" }
        ),
    };
    let memory = analysis.memory.peak_resident().map_or_else(
        || "not known: the process was not sampled".to_string(),
        |peak| format!("{} of the process at most (measured)", bytes(peak.bytes)),
    );
    let energy = match analysis.energy.per_output_token() {
        Some((gross, _)) => format!("{} an output token (derived)", joules(gross)),
        // Too few samples of a GPU that it used are no sensor either.
        None if analysis.energy.sensors.is_empty()
            && !analysis.ran_on_gpu()
            && analysis.devices.iter().any(|gpu| gpu.power_watts.is_some()) =>
        {
            "not known: it ran on processors, whose power is not sampled; the GPU's is not the run's".to_string()
        }
        None => "not known: no sensor of power was sampled, or the run was too short for it".to_string(),
    };
    let mut facts = vec![("tokens", tokens), ("memory", memory), ("energy", energy)];
    facts.extend(overhead(&analysis.manifest).map(|text| ("recording", text)));
    facts
}

fn limit(analysis: &Analysis, code: fn(&str) -> String) -> String {
    match conclusion::plain_limit(analysis, code) {
        Some(limit) => format!("{limit} (derived)"),
        None => "not known: no intervals were recorded".to_string(),
    }
}

pub(super) fn limits(analysis: &Analysis) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(busy) = analysis.gpu.busy.as_ref().and_then(|busy| busy.busy_share()) {
        lines.push(format!("the GPU is busy {} of the recorded steps' time (derived)", percent(busy)));
    }
    let used = of_peaks(analysis);
    if used.is_empty() {
        lines.push(
            "how near that is to what the machine can do is not known: the run names no peaks for this work; \
             candlescope bench peaks measures them"
                .to_string(),
        );
    }
    lines.extend(used);
    lines
}

/// How close prefill comes to the peak of arithmetic, and decode to that of bandwidth, over wall time.
fn of_peaks(analysis: &Analysis) -> Vec<String> {
    let all = utilisation(analysis);
    let shown = all.iter().filter(|used| {
        let telling = matches!((used.phase.as_str(), used.metric), ("prefill", Metric::Mfu) | ("decode", Metric::Mbu));
        telling && used.over == Over::Wall
    });
    let lines = shown.map(|used| {
        let peak = if used.peak.is_flops() { "FLOP/s" } else { "memory bandwidth" };
        format!(
            "{} reaches {} of the peak {peak} ({}, derived; the peak: {})",
            used.phase,
            percent(used.ratio),
            used.metric.name(),
            used.peak.label
        )
    });
    lines.collect()
}

fn todo(analysis: &Analysis) -> Vec<String> {
    let findings = || analysis.verdict.findings.iter().filter(|finding| finding.severity != Severity::Info);
    let ordered = findings()
        .filter(|finding| finding.severity == Severity::Error)
        .chain(findings().filter(|finding| finding.severity != Severity::Error));
    let trimmed = |text: String| text.trim_end_matches('.').to_string();
    let mut lines: Vec<String> = ordered
        .take(MOST_FINDINGS)
        .map(|finding| format!("{}: {}", trimmed(finding.message()), trimmed(finding.remedy())))
        .collect();
    match findings().count().saturating_sub(MOST_FINDINGS) {
        0 => {}
        more => lines.push(format!("{} more about the data in report.md", plural(more as u64, "finding"))),
    }
    if lines.is_empty() && count_of(analysis) == 0 {
        lines.push(
            "no finding asks for anything; to make it faster, begin with what takes most of the time, above"
                .to_string(),
        );
    }
    lines
}

fn changes_and_rest(analysis: &Analysis, code: fn(&str) -> String) -> Vec<String> {
    let mut lines = changes(analysis, MOST_CHANGES, code);
    match count_of(analysis).saturating_sub(MOST_CHANGES) {
        0 => {}
        more => lines.push(format!("{} in report.md, with what each rests on", plural(more as u64, "further change"))),
    }
    lines
}
