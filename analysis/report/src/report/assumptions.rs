//! `assumptions.md`: what the figures rest on: peaks, formulas, and what was left out.

use super::super::format::{count, plural, significant};
use super::super::shown_definitions::shown_definitions;
use candlescope_document::{Block, Cell, Document, Row, Section, Table, column, sentences, words};
use candlescope_figures::Analysis;
use candlescope_figures::definitions::{DEFINITIONS, STATISTICS};
use candlescope_figures::peaks::peaks;
use candlescope_schema::run::Severity;

/// The document.
pub(crate) fn document(analysis: &Analysis) -> Document {
    let said = "Every figure is labelled: measured was read off a clock or a sensor, derived was computed from measured and \
                analytic figures, datasheet is what a maker says. What is not known is left out, never taken as zero.";
    let left_out = Section::new("", "What was left out", "").with(Block::List(left_out(analysis)));
    Document {
        title: "Assumptions".to_string(),
        before: vec![said.to_string()],
        sections: vec![machine_peaks(analysis), work(analysis), price(analysis), left_out, formulas(analysis)],
        ..Document::default()
    }
}

fn machine_peaks(analysis: &Analysis) -> Section {
    let rows: Vec<Row> = peaks(&analysis.manifest)
        .iter()
        .map(|peak| {
            let (what, unit, scale) = if peak.is_flops() { ("work", "TFLOP/s", 1e12) } else { ("memory", "GB/s", 1e9) };
            let cells = [
                format!("{} {unit}", significant(peak.value / scale)),
                peak.dtype.clone().unwrap_or_else(|| "any".to_string()),
                peak.label_in_words(),
                peak.source.clone(),
            ];
            Row::new(what, cells.map(Cell::from).into())
        })
        .collect();
    let said = match rows.is_empty() {
        true => {
            "The run names none, so nothing is compared with what the machine can do. `candlescope bench peaks` measures \
             them; runs made after that have them."
        }
        false => {
            "Work is compared with a peak of the element type that is multiplied, or with none; several devices count with \
             the sum of their peaks."
        }
    };
    let columns = vec![column("peak", ""), words("element type"), words("label"), sentences("source")];
    Section::new("", "Peaks", "").with(Table::new("", columns, rows)).with(Block::Text(said.to_string()))
}

fn work(analysis: &Analysis) -> Section {
    let known = analysis.operators.iter().any(|operator| operator.work.flops.is_some());
    let said = match known {
        true => {
            "FLOPs and bytes are analytic: computed from the shapes that layers state, not counted by the hardware. A \
             multiplication and an addition are two FLOPs. Bytes of weights and KV cache are those that have to be moved \
             at least, once for each use; caches may move fewer, and repeated reads more."
        }
        false => "No layer states its FLOPs or bytes: rates, MFU and MBU are not known.",
    };
    let sampled = match analysis.operators.iter().any(|operator| operator.gpu.is_some()) {
        true => {
            "GPU time is sampled: totals are means of the measured intervals × all intervals, as the formulas below say."
        }
        false => "",
    };
    Section::new("", "Work", "").with(Block::Text(said.to_string())).with(Block::Text(sampled.to_string()))
}

fn price(analysis: &Analysis) -> Section {
    let said = match analysis.price {
        None => "No price per hour was given: what tokens cost is not known.".to_string(),
        Some(price) => format!(
            "${} an hour, as given with the {}; not checked against any list. What tokens cost assumes that the machine is \
             as busy all the time as while the measured requests ran, and counts output tokens only.",
            significant(price.usd_per_hour),
            if price.given_for_report { "report" } else { "run" }
        ),
    };
    Section::new("", "Price", "").with(Block::Text(said))
}

fn left_out(analysis: &Analysis) -> Vec<String> {
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
    lines
}

fn formulas(analysis: &Analysis) -> Section {
    let rows = shown_definitions(analysis).map(|definition| {
        Row::new(definition.title, vec![definition.label.to_string().into(), definition.meaning.to_string().into()])
    });
    let table = Table::new("name", vec![words("label"), sentences("meaning")], rows.collect());
    Section::new("", "Formulas", STATISTICS).with(table)
}
