//! The table "Kernels by path (Nsight Systems)".

use super::format::{count, duration, head, percent, plural, significant};
use super::gpu_sheets::MOST_ROWS;
use candlescope_document::text::code;
use candlescope_document::{Block, Forms, MostRows, Row, Section, Table, cell, column, missing, words};
use candlescope_figures::Analysis;
use candlescope_figures::kernels_by_path::{Comparison, KernelSum, KernelsByPath};
use candlescope_figures::tree::ratio;
use serde_json::{Value, json};

const TITLE: &str = "Kernels by path (Nsight Systems)";
const MEANING: &str = "A kernel belongs to the innermost interval open on the launching thread when its launch began. Own: launched \
     by the path's intervals themselves; total: inside them at any depth. Times are sums of kernels' durations.";

/// The section; `None` without a profile. At most `most` rows on a terminal.
pub(super) fn section(analysis: &Analysis, most: usize) -> Option<Section> {
    let kernels = analysis.nsys.as_ref()?;
    let compared = kernels.rows.iter().any(|row| row.gpu.is_some());
    let mut columns = vec![
        column("intervals", ""),
        column("kernels", ""),
        column("own time", ""),
        column("share", "of all kernels"),
        column("total time", ""),
    ];
    if compared {
        columns.extend([
            column("run's GPU", "the run's own device time, and its ratio to the profile's for the same intervals"),
            words("source").only(Forms::FILES),
        ]);
    }
    columns.push(words("top kernel").only(Forms::FILES));
    let rows = kernels.rows.iter().filter(|row| row.all.kernels > 0).map(|row| {
        let time = |ns: u64| cell(duration(ns as f64), ns as f64);
        let share = ratio(row.own.ns, kernels.all.ns);
        let mut cells = vec![
            cell(count(row.intervals), row.intervals as f64),
            cell(count(row.own.kernels), row.own.kernels as f64),
            time(row.own.ns),
            cell(percent(share), share),
            time(row.all.ns),
        ];
        if compared {
            cells.push(row.gpu.map_or(missing(), |gpu| cell(times(&gpu), gpu.run_ns as f64)));
            cells.push(row.gpu.map_or(missing(), |gpu| gpu.source.to_string().into()));
        }
        let top = row.top.as_ref();
        cells.push(
            top.map_or(missing(), |(name, ns)| format!("{} {}", code(&head(name, 80)), duration(*ns as f64)).into()),
        );
        Row::new(row.path.clone(), cells)
    });
    let table = Table::new("path", columns, rows.collect()).of_code(if compared { 30 } else { 40 });
    let left = [("(outside every interval)", kernels.outside), ("(launch not recorded)", kernels.unlaunched)];
    let left = left.into_iter().filter(|(_, sum)| sum.kernels > 0).map(|(name, sum)| {
        let share = percent(ratio(sum.ns, kernels.all.ns));
        format!("{name}: {}, {} ({share})", plural(sum.kernels, "kernel"), duration(sum.ns as f64))
    });
    let summary = summary(kernels);
    let section = Section::new(
        "nsys",
        TITLE,
        format!("{summary}, from {}. {MEANING}", code(&kernels.file.display().to_string())),
    )
    .brief(summary)
    .nav("Kernels")
    .with(table.most(MostRows::of(most, MOST_ROWS, MOST_ROWS), "paths", "in metrics.json"))
    .with(Block::List(left.collect()))
    .or_say("No interval launched a kernel.");
    Some(section)
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

fn summary(kernels: &KernelsByPath) -> String {
    let ranges = format!("{} of {} ranges are intervals of this run", count(kernels.matched), count(kernels.ranges));
    format!("{}, {}; {ranges}", plural(kernels.all.kernels, "kernel"), duration(kernels.all.ns as f64))
}

/// The run's own device time, and its ratio to the profile's for the same intervals.
fn times(gpu: &Comparison) -> String {
    let own = duration(gpu.run_ns as f64);
    if gpu.nsys_ns == 0 { own } else { format!("{own} ({}×)", significant(gpu.run_ns as f64 / gpu.nsys_ns as f64)) }
}
