//! What one page says to somebody who decides: what ran, how fast, what it costs, what limits it, what to do.

use super::super::conclusion;
use super::super::format::{bytes, count, joules, percent, plural, significant, utc, value};
use super::super::head_facts::{machine, model, model_name, overhead};
use super::super::headline_figures::{FigureValue, figures, interval};
use super::super::plain_changes::{changes, count_of};
use candlescope_document::{Block, Cell, Document, Row, Section, Table, column, words};
use candlescope_figures::peaks::{Metric, TimeBase, utilisation};
use candlescope_figures::{Analysis, usd_per_million_output_tokens};
use candlescope_schema::run::{Severity, result_key};
use serde_json::Value;

/// Findings about the data that the page names.
const MOST_FINDINGS: usize = 5;
/// Changes that the page names.
const MOST_CHANGES: usize = 3;

/// Figures of the table, by key.
const SPEED: [&str; 6] = ["ttft", "tpot", "e2e", "prefill_tps", "decode_tps", "output_tps"];

/// `stakeholder_summary.md`: one page for somebody who decides. What is not known says so.
pub(crate) fn document(analysis: &Analysis) -> Document {
    let pairs = |title: &str, facts: Vec<(&'static str, String)>| {
        let facts = facts.into_iter().map(|(label, text)| (label.to_string(), text)).collect();
        Section::new("", title, "").with(Block::Pairs("", facts))
    };
    let list = |title: &str, first: Vec<String>, more: Vec<String>| {
        Section::new("", title, "").with(Block::List(first.into_iter().chain(more).collect()))
    };
    let changes = changes_and_rest(analysis);
    let of_gains = match changes.is_empty() {
        true => String::new(),
        false => "A gain is a share of the time named with it, in brackets from the least that can be hoped for to the most; \
                  gains do not add up."
            .to_string(),
    };
    let labels = "Measured: read off a clock or a sensor. Derived: computed from that. `assumptions.md` has peaks and \
                  formulas, `report.html` the layers, `inputs.yaml` what to run again.";
    let columns = vec![column("median", ""), words("spread"), column("n", ""), words("label")];
    let sections = vec![
        pairs("What ran", ran(analysis)),
        Section::new("", "How fast", "")
            .with(Table::new("", columns, speed(analysis)))
            .or_say("Not known: the run marks no requests, so there is no latency. `report.md` has its steps."),
        pairs("What it costs", cost(analysis)),
        list("What limits it", vec![limit(analysis)], limits(analysis)),
        list("What to do", changes, todo(analysis)).with(Block::Text(of_gains)).with(Block::Text(labels.to_string())),
    ];
    Document {
        title: conclusion::title(analysis),
        conclusion: conclusion::plain_sentence(analysis),
        sections,
        ..Document::default()
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
pub(crate) fn work(analysis: &Analysis) -> String {
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
    let set = result_key::DATASET.of(&analysis.manifest.results)?;
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

fn speed(analysis: &Analysis) -> Vec<Row> {
    let figures = figures(analysis);
    let shown = figures.iter().filter(|figure| SPEED.contains(&figure.definition.key));
    let rows = shown.map(|figure| {
        let unit = figure.definition.unit;
        let (spread, n) = match &figure.value {
            FigureValue::Spread(d) => (interval(unit, d, false).unwrap_or_default(), d.n),
            FigureValue::Single(_, n) => (String::new(), *n),
        };
        let cells = [value(unit, figure.central()), spread, count(n as u64), figure.definition.label.to_string()];
        Row::new(figure.title(), cells.map(Cell::from).into())
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
        |peak| format!("{} of the process at most, with what recording holds (measured)", bytes(peak.bytes)),
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

fn limit(analysis: &Analysis) -> String {
    match conclusion::plain_limit(analysis) {
        Some(limit) => format!("{limit} (derived)"),
        None => "not known: no intervals were recorded".to_string(),
    }
}

pub(crate) fn limits(analysis: &Analysis) -> Vec<String> {
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
        telling && used.over == TimeBase::Wall
    });
    let lines = shown.map(|used| {
        let peak = if used.peak.is_flops() { "FLOP/s" } else { "memory bandwidth" };
        format!(
            "{} reaches {} of the peak {peak} ({}, derived; the peak: {})",
            used.phase,
            percent(used.ratio),
            used.metric.name(),
            used.peak.label_in_words()
        )
    });
    lines.collect()
}

fn todo(analysis: &Analysis) -> Vec<String> {
    let findings = || analysis.verdict.findings.iter().filter(|finding| finding.severity != Severity::Info);
    let trimmed = |text: String| text.trim_end_matches('.').to_string();
    let mut lines: Vec<String> = findings()
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

fn changes_and_rest(analysis: &Analysis) -> Vec<String> {
    let mut lines = changes(analysis, MOST_CHANGES);
    match count_of(analysis).saturating_sub(MOST_CHANGES) {
        0 => {}
        more => lines.push(format!("{} in report.md, with what each rests on", plural(more as u64, "further change"))),
    }
    lines
}
