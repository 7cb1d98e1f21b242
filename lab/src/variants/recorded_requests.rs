//! What the recorded requests of the base show, without a KV cache and with one: links, bottlenecks, operators, layers.

use super::layers::layers;
use super::row::VariantRow;
use super::variant::Variant;
use crate::study::{CaseSummary, Study};
use crate::suites::{Recorded, bound_sentences, ms, recorded};
use std::fmt::Write as _;
use std::path::Path;

/// Operators of each variant that are listed.
const OPERATORS: usize = 8;
/// Layers that are listed.
const LAYERS: usize = 20;

/// The sections of the report, as Markdown; empty without recorded requests.
pub(super) fn sections(study: &Study, rows: &[VariantRow]) -> String {
    let mut text = String::new();
    let base = |row: &&VariantRow| matches!(row.variant, Variant::NoCache | Variant::KvCache);
    let rows: Vec<&VariantRow> = rows.iter().filter(base).collect();
    let summaries: Vec<CaseSummary> = rows.iter().map(|row| row.summary.clone()).collect();
    let all = recorded(study.dir(), &summaries);
    if all.is_empty() {
        return text;
    }
    let title = |of: &Recorded<'_>| {
        let row = rows.iter().find(|row| row.summary.case == of.case.case);
        row.map_or("", |row| row.variant.title())
    };
    let _ = writeln!(text, "## Recorded requests\n");
    for of in &all {
        if let Some(run) = of.case.last_run() {
            let n = of.requests;
            let requests = if n == 1 { "1 request".to_string() } else { format!("{n} requests") };
            let _ =
                writeln!(text, "- {}: {requests}, every layer of each step: [report]({run}/report.html)", title(of));
        }
    }
    let _ = writeln!(text, "\n### What bounds them\n");
    for of in &all {
        for sentence in bound_sentences(of) {
            let _ = writeln!(text, "- {}: {sentence}", title(of));
        }
    }
    for of in &all {
        operators(&mut text, title(of), of);
    }
    if let [one, other] = &all[..] {
        layers_of_both(&mut text, study.dir(), (title(one), one), (title(other), other));
    }
    text.push('\n');
    text
}

/// Where the time of recorded requests goes.
fn operators(text: &mut String, title: &str, of: &Recorded<'_>) {
    let mut all: Vec<_> = of.analysis.operators.iter().filter(|operator| operator.self_ns > 0).collect();
    all.sort_by_key(|operator| std::cmp::Reverse(operator.self_ns));
    if all.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n### Operators, {title}\n\n| operator | calls a request | self time a request | share of step time |\n|---|---|---|---|"
    );
    let requests = of.requests.max(1) as f64;
    for operator in all.iter().take(OPERATORS) {
        let _ = writeln!(
            text,
            "| `{}` | {:.0} | {} | {:.1} % |",
            operator.path.replace('|', "\\|"),
            operator.calls as f64 / requests,
            ms(Some(operator.self_ns as f64 / requests)),
            operator.self_share * 100.0
        );
    }
    if all.len() > OPERATORS {
        let _ = writeln!(text, "\n{} smaller ones are in the run's report.", all.len() - OPERATORS);
    }
}

/// What a cache saves, layer by layer.
fn layers_of_both(
    text: &mut String,
    study: &Path,
    (without, one): (&str, &Recorded<'_>),
    (with, other): (&str, &Recorded<'_>),
) {
    let both = layers(study, one, other);
    if both.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n### Layers without and with the cache\n\nSelf time in a typical request, all phases together: calls × their \
         median, so that a stall of single calls counts for nothing. The ratio has the least and the most that the calls \
         allow; where these do not show which takes longer, there is none. The largest clear difference first.\n\n\
         | layer | {without} | {with} | less by | times |\n|---|---|---|---|---|"
    );
    for layer in both.iter().take(LAYERS) {
        let (a, b) = (layer.without.ns, layer.with.ns);
        let times = layer.times().map_or_else(
            || "not clear".to_string(),
            |(times, low, high)| format!("{times:.1}x ({low:.1} to {high:.1})"),
        );
        let less = if a >= b { ms(Some(a - b)) } else { format!("−{}", ms(Some(b - a))) };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {less} | {times} |",
            layer.name.replace('|', "\\|"),
            ms(Some(a)),
            ms(Some(b)),
        );
    }
}
