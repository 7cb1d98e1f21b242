//! Kernels by name and by path, and copies.

use super::super::format::{bytes, count, duration, head};
use super::super::kernel_name::short;
use super::cells::{number, rate, share, sheet, time};
use candlescope_document::{Row, Section, Table, cell, column, maybe, missing, wide};
use candlescope_figures::Analysis;

pub(super) fn kernels(analysis: &Analysis) -> Section {
    let kernels = &analysis.kernels;
    let largest = kernels.by_name.first().map_or(1.0, |k| k.share.max(1e-9));
    let rows = kernels.by_name.iter().map(|k| {
        let name = short(&k.name);
        let whole = (name != *k.name).then(|| k.name.to_string());
        let row = Row::new(
            name,
            vec![
                number(k.count),
                time(Some(k.total_ns as f64)),
                share(Some(k.share)),
                time(Some(k.mean_ns)),
                time(Some(k.p50_ns)),
                time(k.p95_ns),
            ],
        );
        Row { whole, ..row.meter(k.share / largest) }
    });
    let columns = vec![
        column("count", "how often it ran"),
        column("total", ""),
        column("share", "of all recorded device time"),
        column("mean", ""),
        column("p50", ""),
        column("p95", ""),
    ];
    let note = format!(
        "{} kernels, copies and memsets of the recorded steps, {} on the device; shares are of that. {}",
        count(kernels.records),
        duration(kernels.total_ns as f64),
        unattributed(analysis)
    );
    let table = Table::new("kernel", columns, rows.collect());
    sheet("kernels", "Kernels", note, table, 8, "kernels")
}

fn unattributed(analysis: &Analysis) -> String {
    match analysis.kernels.unattributed {
        (0, _) => "All were launched inside recorded intervals.".to_string(),
        (n, ns) => format!("{} ({}) were launched outside every recorded interval.", count(n), duration(ns as f64)),
    }
}

pub(super) fn paths(analysis: &Analysis) -> Section {
    let largest = analysis.kernels.by_path.first().map_or(1.0, |row| row.share.max(1e-9));
    let rows = analysis.kernels.by_path.iter().map(|row| {
        let name = row.path.clone().unwrap_or_else(|| "(outside every interval)".to_string());
        let cells = vec![
            if row.path.is_some() { number(row.calls) } else { missing() },
            number(row.kernels),
            rate(row.launches_per_call),
            number(row.copies),
            time(Some(row.total_ns as f64)),
            share(Some(row.share)),
            row.top.as_ref().map_or(missing(), |(name, ns)| {
                cell(format!("{} {}", head(&short(name), 48), duration(*ns as f64)), *ns as f64)
            }),
        ];
        Row::new(name, cells).meter(row.share / largest)
    });
    let columns = vec![
        column("calls", "intervals in recorded steps"),
        column("kernels", ""),
        column("a call", "kernels for each of these intervals"),
        wide("copies", "copies and memsets"),
        column("total", "time on the device"),
        column("share", "of all recorded device time"),
        wide("top", "the kernel, copy or memset with most of it"),
    ];
    let note = "By the innermost interval open at the launch; what inner intervals launched is in their rows.";
    let table = Table::new("path", columns, rows.collect());
    sheet("kernel-paths", "Kernels by path", note, table, 8, "paths")
}

pub(super) fn copies(analysis: &Analysis) -> Section {
    let rows = analysis.kernels.copies.iter().map(|row| {
        Row::new(
            row.direction.to_string(),
            vec![
                number(row.count),
                maybe(row.bytes.map(|n| n as f64), bytes),
                time(Some(row.total_ns as f64)),
                rate(row.gbytes),
                share(Some(row.share)),
            ],
        )
    });
    let columns = vec![
        column("count", ""),
        column("bytes", ""),
        column("total", "time on the device"),
        column("GB/s", "bytes ÷ that time"),
        column("share", "of all recorded device time"),
    ];
    let note = "Copies by direction, and memsets, of the recorded steps.";
    let table = Table::new("direction", columns, rows.collect());
    sheet("copies", "Copies", note, table, 6, "directions")
}
