//! Ranks side by side, as text and as a page.

use super::analysis::RankAnalysis;
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::{Cell, Document, Fact, Row, Section, Table, cell, column, html, maybe, words};
use candlescope_schema::numbers::{bytes, duration, percent};

/// As text.
pub fn text(analysis: &RankAnalysis, color: bool) -> String {
    draw(&document(analysis), Layout { color, width: usize::MAX })
}

/// As a page.
pub fn page(analysis: &RankAnalysis) -> String {
    html::page(&document(analysis))
}

/// What both show.
pub fn document(analysis: &RankAnalysis) -> Document {
    let conclusion = match analysis.findings.first() {
        Some(first) => format!("{} {}.", first.text, first.remedy),
        None if analysis.steps < 8 => "Too few measured steps that all ranks have, to judge.".to_string(),
        None => "Ranks take equal times, and lose little to each other.".to_string(),
    };
    let mut facts = vec![Fact::new("", format!("{} measured steps of all ranks", analysis.steps))];
    let on = if analysis.on_device { "kernels of the devices" } else { "intervals of the hosts" };
    facts.push(Fact::new("Collectives", on));
    let mut document = Document {
        kind: "ranks".to_string(),
        title: format!("{} of {} ranks", analysis.ranks.len(), analysis.world_size),
        before: analysis.damage.iter().map(|finding| format!("{}. {}", finding.message(), finding.remedy())).collect(),
        conclusion,
        facts,
        ..Document::default()
    };
    if !analysis.missing.is_empty() {
        let missing: Vec<String> = analysis.missing.iter().map(ToString::to_string).collect();
        document
            .before
            .push(format!("There are no runs of the ranks {}: what is said is of the others.", missing.join(", ")));
    }
    if analysis.unmatched_steps > 0 {
        document.before.push(format!(
            "In {} steps ranks have different numbers of collectives: those are in no figure.",
            analysis.unmatched_steps
        ));
    }
    document.sections = vec![findings(analysis), ranks(analysis), collectives(analysis)];
    document
}

fn findings(analysis: &RankAnalysis) -> Section {
    let sentences = analysis.findings.iter().map(|finding| {
        let gain = finding.gain.map(|gain| format!(" Gain at most {} of a step.", percent(gain))).unwrap_or_default();
        format!("`{}`: {} {}.{gain}", finding.code.as_str(), finding.text, finding.remedy)
    });
    Section::new("findings", "What ranks lose to each other", "").list(sentences.collect())
}

fn ranks(analysis: &RankAnalysis) -> Section {
    let columns = vec![
        column("Step", "Median of the measured steps"),
        column("Own", "The same without waiting for other ranks"),
        column("Slowest in", "Steps in which its own time was the longest"),
        column("Waiting", "In collectives, until the last rank had come; a step"),
        column("Transfer", "In collectives after that; a step"),
        column("Exposed", "Of both, while nothing else was computed; a step"),
        words("Device"),
        words("Host"),
    ];
    let time = |ns: f64| cell(duration(ns), ns);
    let rows = analysis.ranks.iter().map(|rank| {
        Row::new(
            format!("rank {}", rank.rank),
            vec![
                time(rank.step_ns),
                time(rank.own_ns),
                cell(format!("{} of {}", rank.longest, rank.steps), rank.longest as f64),
                time(rank.waiting_ns),
                time(rank.transfer_ns),
                time(rank.exposed_ns),
                Cell::from(rank.device.clone()),
                Cell::from(rank.host.clone()),
            ],
        )
    });
    Section::new("ranks", "Ranks", analysis.clocks.text()).with(Table::new("Rank", columns, rows.collect()))
}

fn collectives(analysis: &RankAnalysis) -> Section {
    let columns = vec![
        column("Count", "In measured steps of all ranks"),
        column("Waiting", "Until the last rank had come: mean over ranks, a collective"),
        column("Transfer", "After that: mean over ranks, a collective"),
        column("Bytes", "Of a collective, where intervals say it"),
        column("On the bus", "Bytes a second over each link, of transfers of 8 MiB and more; measured"),
        column("Link", "Bytes a second in one direction; datasheet"),
    ];
    let rate = |value: Option<f64>| maybe(value, |rate| format!("{:.1} GB/s", rate / 1e9));
    let rows = analysis.collectives.iter().map(|of| {
        Row::new(
            of.kind.name(),
            vec![
                cell(of.count.to_string(), of.count as f64),
                cell(duration(of.waiting_ns), of.waiting_ns),
                cell(duration(of.transfer_ns), of.transfer_ns),
                maybe(of.bytes, bytes),
                rate(of.bus_bytes_per_s),
                rate(of.link_bytes_per_s),
            ],
        )
    });
    let note = "Only operations in which every rank waits for all. Between two ranks there is no such order.";
    Section::new("collectives", "Collectives", note)
        .with(Table::new("Operation", columns, rows.collect()))
        .or_say("No collective was recorded by all ranks: name an interval all_reduce, or record kernels (--cupti).")
}
