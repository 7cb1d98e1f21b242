//! What observing cost, and where every record went.

use super::super::format::{bytes, count, duration};
use super::super::head_facts::{background, overhead};
use candlescope_document::{Block, Cell, Forms, Row, Section, Table, column, sentences, words};
use candlescope_figures::Analysis;
use candlescope_figures::stats::total;
use candlescope_schema::run::Code;
use std::collections::BTreeMap;

type Pairs = Vec<(String, String)>;

/// The section: four lines on a terminal, all of it in files.
pub(super) fn section(analysis: &Analysis) -> Section {
    let section = Section::new("accounts", "Cost and loss", "What observing cost, and where every record went.")
        .brief("")
        .with_in(Forms::TERMINAL, Block::Pairs("", in_short(analysis)))
        .with_in(Forms::FILES, Block::Pairs("", in_full(analysis)))
        .with_in(Forms::FILES, exporters(analysis));
    Section { side_by_side: true, ..section }
}

fn in_short(analysis: &Analysis) -> Pairs {
    let manifest = &analysis.manifest;
    let lost = match manifest.loss.emitted {
        0 => "loss counts unknown".to_string(),
        all => format!("{} of {} intervals lost", count(manifest.loss.lost()), count(all)),
    };
    let dropped = analysis.verdict.findings.iter().filter(|finding| finding.code == Code::ExporterDropped);
    let dropped: f64 = dropped.filter_map(|finding| finding.figure("records")).sum();
    let lost =
        if dropped > 0.0 { format!("{lost}; exporters dropped {} records", count(dropped as u64)) } else { lost };
    let size: u64 = analysis.file_bytes.values().sum();
    let spans = analysis.rows.get("spans").copied().unwrap_or(0);
    let each = analysis.file_bytes.get("spans").copied().unwrap_or(0) as f64 / spans.max(1) as f64;
    let each = if spans > 0 { format!(", {each:.1} bytes an interval") } else { String::new() };
    let lines = [
        ("overhead", overhead(manifest).or_else(|| Some("unknown".to_string()))),
        ("threads", background(manifest)),
        ("loss", Some(lost)),
        ("on disk", Some(format!("{}{each}", bytes(size as f64)))),
    ];
    lines.into_iter().filter_map(|(label, text)| Some((label.to_string(), text?))).collect()
}

fn in_full(analysis: &Analysis) -> Pairs {
    let manifest = &analysis.manifest;
    let (loss, clock) = (&manifest.loss, &manifest.clock);
    let mut pairs: Pairs = Vec::new();
    let mut add = |name: &str, value: String| pairs.push((name.to_string(), value));
    if let Some(text) = overhead(manifest) {
        add("overhead", text);
    }
    if manifest.overhead.application_ns > 0 {
        add("taken from the application's threads (derived)", duration(manifest.overhead.application_ns as f64));
    }
    if let Some(text) = background(manifest) {
        add("background threads", text);
    }
    if loss.emitted == 0 {
        add("intervals lost", "loss counts unknown".to_string());
    } else {
        add("intervals emitted", count(loss.emitted));
        add("intervals lost", count(loss.lost()));
        add("lost: ring full", count(loss.ring_full));
        add("lost: too deep", count(loss.too_deep));
        add("lost: thread without a ring", count(loss.no_ring));
        add("lost: after shutdown", count(loss.after_shutdown));
        add("lost: unresolved", count(loss.unresolved));
        add("requests lost", count(loss.requests_lost));
        add("requests open at the end", count(loss.requests_open_at_end));
        add("samples lost", count(loss.samples_lost));
        add("still open at the end", count(loss.open_at_end));
    }
    for (table, rows) in &analysis.rows {
        let size = analysis.file_bytes.get(table).copied().unwrap_or(0) as f64;
        let each = if *rows > 0 { format!(", {:.1} B a row", size / *rows as f64) } else { String::new() };
        add(&format!("table {table}"), format!("{} rows, {}{each}", count(*rows), bytes(size)));
    }
    if !clock.source.is_empty() {
        let tick = if clock.ticks_per_second > 0.0 { 1e9 / clock.ticks_per_second } else { 0.0 };
        add("clock", format!("{}, a tick of {tick:.2} ns, {:.0} ns a reading", clock.source, clock.read_ns));
    }
    pairs
}

fn exporters(analysis: &Analysis) -> Table {
    let rows = analysis.manifest.exporters.iter().map(|exporter| {
        let sum = |map: &BTreeMap<String, u64>| count(total(map.values().copied()));
        let reasons = exporter.dropped.values().flatten().map(|(reason, n)| format!("{reason} {}", count(*n)));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        let cells = [
            sum(&exporter.received),
            sum(&exporter.exported),
            if reasons.is_empty() { "0".to_string() } else { reasons },
            if exporter.conserved() { "yes" } else { "no" }.to_string(),
            exporter.last_error.clone().unwrap_or_default(),
        ];
        Row::new(exporter.name.clone(), cells.map(Cell::from).into())
    });
    let columns = vec![
        column("received", ""),
        column("exported", ""),
        words("dropped"),
        words("conserved"),
        sentences("last error"),
    ];
    Table::new("exporter", columns, rows.collect())
}
