//! The table "Kernels by path (Nsight Systems)": its values, for each of the reports.

use super::format::{count, duration, head, percent, printable, significant, tail};
use crate::passes::Analysis;
use crate::passes::kernels_by_path::{Comparison, KernelSum, KernelsByPath, PathKernels};
use crate::passes::tree::ratio;
use serde_json::{Value, json};

pub(super) const TITLE: &str = "Kernels by path (Nsight Systems)";
pub(super) const MEANING: &str = "A kernel belongs to the innermost interval open on the launching thread when its launch began. Own: launched \
     by the path's intervals themselves; total: inside them at any depth. Times are sums of kernels' durations.";
/// Rows in the HTML and Markdown reports; `metrics.json` has them all.
pub(super) const MOST_ROWS: usize = 200;

/// The table for a terminal.
pub(super) struct TerminalTable {
    /// Shown beside the heading.
    pub(super) note: String,
    pub(super) header: Vec<&'static str>,
    /// Empty if no kernel was launched.
    pub(super) rows: Vec<Vec<String>>,
    /// Number of paths that are not shown.
    pub(super) more: usize,
}

/// At most `most` paths for a terminal; `None` without a profile.
pub(super) fn terminal(analysis: &Analysis, most: usize) -> Option<TerminalTable> {
    let kernels = analysis.nsys.as_ref()?;
    let compared = compared(kernels);
    let mut header = vec!["", "intervals", "kernels", "own time", "share", "total time"];
    if compared {
        header.push("run's GPU");
    }
    let mut rows: Vec<_> = launching(kernels)
        .take(most)
        .map(|row| {
            let mut cells = vec![tail(&printable(&row.path), if compared { 30 } else { 40 }), count(row.intervals)];
            cells.extend(sums(kernels, row));
            if compared {
                cells.push(row.gpu.map_or("–".to_string(), |gpu| times(&gpu)));
            }
            cells
        })
        .collect();
    for (name, sum) in leftovers(kernels) {
        let share = percent(ratio(sum.ns, kernels.all.ns));
        let mut cells = vec![name.to_string(), "–".to_string(), count(sum.kernels), duration(sum.ns as f64), share];
        cells.resize(header.len(), "–".to_string());
        rows.push(cells);
    }
    let more = launching(kernels).count().saturating_sub(most);
    Some(TerminalTable { note: summary(kernels), header, rows, more })
}

/// Values for `report.html`; null without a profile.
pub(super) fn html(analysis: &Analysis) -> Value {
    let Some(kernels) = &analysis.nsys else { return Value::Null };
    let compared = compared(kernels);
    let mut header = vec!["intervals", "kernels", "own time", "share", "total time"];
    if compared {
        header.push("run's GPU");
    }
    let rows = launching(kernels).take(MOST_ROWS).map(|row| {
        let mut cells = vec![count(row.intervals)];
        cells.extend(sums(kernels, row));
        if compared {
            cells.push(row.gpu.map_or("–".to_string(), |gpu| times(&gpu)));
        }
        let top = row.top.as_ref().map(|(name, ns)| {
            json!({ "name": printable(&head(name, 80)), "whole": printable(name), "time": duration(*ns as f64) })
        });
        json!({ "path": printable(&row.path), "cells": cells, "top": top })
    });
    let left = leftovers(kernels)
        .into_iter()
        .map(|(name, sum)| format!("{name}: {}, {}", kernels_text(sum), duration(sum.ns as f64)));
    json!({
        "title": TITLE, "meaning": MEANING, "summary": summary(kernels), "file": printable(&kernels.file.display().to_string()),
        "header": header, "rows": rows.collect::<Vec<_>>(), "more": launching(kernels).count().saturating_sub(MOST_ROWS),
        "left": left.collect::<Vec<_>>(),
    })
}

/// `nsys` in `metrics.json`; null without a profile.
pub(super) fn json(analysis: &Analysis) -> Value {
    let Some(kernels) = &analysis.nsys else { return Value::Null };
    let sum = |sum: &KernelSum| json!({ "kernels": sum.kernels, "kernel_ns": sum.ns });
    let rows = kernels.rows.iter().map(|row| {
        json!({
            "path": row.path,
            "intervals": row.intervals,
            "own": sum(&row.own),
            "total": sum(&row.all),
            "top_kernel": row.top.as_ref().map(|(name, ns)| json!({ "name": name, "kernel_ns": ns })),
            "gpu": row.gpu.map(|gpu| json!({
                "intervals": gpu.intervals,
                "run_ns": gpu.run_ns,
                "nsys_ns": gpu.nsys_ns,
                "source": gpu.source,
            })),
        })
    });
    json!({
        "file": kernels.file.display().to_string(),
        "version": kernels.version,
        "ranges": kernels.ranges,
        "matched": kernels.matched,
        "all": sum(&kernels.all),
        "outside": sum(&kernels.outside),
        "unlaunched": sum(&kernels.unlaunched),
        "paths": rows.collect::<Vec<_>>(),
    })
}

/// Rows worth reading: `metrics.json` also has the paths that launch nothing.
pub(super) fn launching(kernels: &KernelsByPath) -> impl Iterator<Item = &PathKernels> {
    kernels.rows.iter().filter(|row| row.all.kernels > 0)
}

pub(super) fn summary(kernels: &KernelsByPath) -> String {
    let ranges = format!("{} of {} ranges are intervals of this run", count(kernels.matched), count(kernels.ranges));
    format!("{}, {}; {ranges}", kernels_text(kernels.all), duration(kernels.all.ns as f64))
}

pub(super) fn kernels_text(sum: KernelSum) -> String {
    format!("{} kernel{}", count(sum.kernels), if sum.kernels == 1 { "" } else { "s" })
}

/// Kernels, own time, its share of all kernels, total time.
pub(super) fn sums(kernels: &KernelsByPath, row: &PathKernels) -> [String; 4] {
    [
        count(row.own.kernels),
        duration(row.own.ns as f64),
        percent(ratio(row.own.ns, kernels.all.ns)),
        duration(row.all.ns as f64),
    ]
}

pub(super) fn compared(kernels: &KernelsByPath) -> bool {
    kernels.rows.iter().any(|row| row.gpu.is_some())
}

/// The run's own device time, and its ratio to the profile's for the same intervals.
pub(super) fn times(gpu: &Comparison) -> String {
    let own = duration(gpu.run_ns as f64);
    if gpu.nsys_ns == 0 { own } else { format!("{own} ({}×)", significant(gpu.run_ns as f64 / gpu.nsys_ns as f64)) }
}

pub(super) fn leftovers(kernels: &KernelsByPath) -> Vec<(&'static str, KernelSum)> {
    let all = [("(outside every interval)", kernels.outside), ("(launch not recorded)", kernels.unlaunched)];
    all.into_iter().filter(|(_, sum)| sum.kernels > 0).collect()
}
