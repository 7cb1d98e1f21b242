//! `assumptions.md`: what the figures rest on: peaks, formulas, and what was left out.

use super::super::format::{count, plural, significant};
use super::super::shown_definitions::shown_definitions;
use super::text::{escape, table};
use crate::definitions::{DEFINITIONS, STATISTICS};
use crate::passes::Analysis;
use crate::passes::peaks::peaks;
use candlescope_schema::run::Severity;
use std::fmt::Write as _;

/// `assumptions.md`.
pub fn assumptions(analysis: &Analysis) -> String {
    let mut out = String::from(
        "# Assumptions\n\nEvery figure is labelled: *measured* was read off a clock or a sensor, *derived* was computed from \
         measured and analytic figures, *datasheet* is what a maker says. What is not known is left out, never taken as \
         zero.\n",
    );
    machine_peaks(&mut out, analysis);
    work(&mut out, analysis);
    price(&mut out, analysis);
    left_out(&mut out, analysis);
    formulas(&mut out, analysis);
    out
}

fn machine_peaks(out: &mut String, analysis: &Analysis) {
    let _ = writeln!(out, "\n## Peaks\n");
    let peaks = peaks(&analysis.manifest);
    if peaks.is_empty() {
        out.push_str(
            "The run names none, so nothing is compared with what the machine can do. `candlescope bench peaks` measures \
             them; runs made after that have them.\n",
        );
        return;
    }
    let rows = peaks.iter().map(|peak| {
        let (what, unit) = if peak.is_flops() { ("work", "TFLOP/s") } else { ("memory", "GB/s") };
        let scale = if peak.is_flops() { 1e12 } else { 1e9 };
        vec![
            what.to_string(),
            format!("{} {unit}", significant(peak.value / scale)),
            escape(peak.dtype.as_deref().unwrap_or("any")),
            escape(&peak.label),
            escape(&peak.source),
        ]
    });
    out.push_str(&table(&["", "peak", "element type", "label", "source"], rows));
    out.push_str(
        "\nWork is compared with a peak of the element type that is multiplied, or with none; several devices count with \
         the sum of their peaks.\n",
    );
}

fn work(out: &mut String, analysis: &Analysis) {
    let _ = writeln!(out, "\n## Work\n");
    if analysis.operators.iter().any(|operator| operator.flops.is_some()) {
        out.push_str(
            "FLOPs and bytes are analytic: computed from the shapes that layers state, not counted by the hardware. A \
             multiplication and an addition are two FLOPs. Bytes of weights and KV cache are those that have to be moved \
             at least, once for each use; caches may move fewer, and repeated reads more.\n",
        );
    } else {
        out.push_str("No layer states its FLOPs or bytes: rates, MFU and MBU are not known.\n");
    }
    if analysis.operators.iter().any(|operator| operator.gpu.is_some()) {
        out.push_str(
            "\nGPU time is sampled: totals are means of the measured intervals × all intervals, as the formulas below say.\n",
        );
    }
}

fn price(out: &mut String, analysis: &Analysis) {
    let _ = writeln!(out, "\n## Price\n");
    let _ = match analysis.price {
        None => writeln!(out, "No price per hour was given: what tokens cost is not known."),
        Some(price) => writeln!(
            out,
            "${} an hour, as given with the {}; not checked against any list. What tokens cost assumes that the machine is \
             as busy all the time as while the measured requests ran, and counts output tokens only.",
            significant(price.usd_per_hour),
            if price.given_for_report { "report" } else { "run" }
        ),
    };
}

fn left_out(out: &mut String, analysis: &Analysis) {
    let _ = writeln!(out, "\n## What was left out\n");
    let mut lines = Vec::new();
    match analysis.latency.warmup {
        0 => lines.push("no request warmed up: the first one may be slower than the others".to_string()),
        n => lines.push(format!("warm-up: {} at the beginning, in none of the figures", plural(n as u64, "request"))),
    }
    lines.push("loading of the model: no figure has it".to_string());
    if analysis.sampling.is_sampled() {
        lines.push(
            "steps without a record, because of a schedule, a pause or a probe: figures that need all are missing"
                .into(),
        );
    }
    let loss = &analysis.manifest.loss;
    lines.push(match loss.lost() {
        0 => format!("no interval was lost, of {}", count(loss.emitted)),
        lost => format!("{} of {} intervals were lost", count(lost), count(loss.emitted)),
    });
    lines.push("the time that recording itself takes is part of all times; report.md says how much".to_string());
    for finding in analysis.verdict.findings.iter().filter(|finding| finding.severity != Severity::Info) {
        lines.push(finding.message().trim_end_matches('.').to_string());
    }
    let known: Vec<&str> = shown_definitions(analysis).map(|definition| definition.key).collect();
    let unknown: Vec<&str> = DEFINITIONS.iter().filter(|d| !known.contains(&d.key)).map(|d| d.title).collect();
    if !unknown.is_empty() {
        lines.push(format!("not known of this run: {}", unknown.join(", ")));
    }
    for line in lines {
        let _ = writeln!(out, "- {}", escape(&line));
    }
}

fn formulas(out: &mut String, analysis: &Analysis) {
    let _ = writeln!(out, "\n## Formulas\n\n{STATISTICS}\n");
    out.push_str("| name | label | meaning |\n|---|---|---|\n");
    for definition in shown_definitions(analysis) {
        let _ = writeln!(out, "| {} | {} | {} |", definition.title, definition.label, escape(definition.meaning));
    }
}
