//! Counters of Nsight Compute on a terminal.

use super::format::{bytes, count, duration, head, path, plural, printable, significant};
use super::kernel_name::short;
use candlescope_document::Table;
use candlescope_document::terminal::{Layout, table as table_text};
use candlescope_figures::ncu::{CountersByPath, CountersRow, Limiter};
use std::fmt::Write as _;

/// Longest name in a table, in characters.
const NAME: usize = 36;

/// The counters with at most `top` rows (0: all).
pub fn text(counters: &CountersByPath, top: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Counters of {} ({} inside intervals of the run{}): each ran alone, several times, with cold caches.",
        plural(counters.kernels, "kernel"),
        count(counters.matched),
        if counters.outside > 0 {
            format!(", {} outside every interval", count(counters.outside))
        } else {
            String::new()
        },
    );
    let shown = if top == 0 { counters.rows.len() } else { top.min(counters.rows.len()) };
    let header = [
        "path",
        "kernel",
        "n",
        "time",
        "compute",
        "memory",
        "DRAM",
        "moved",
        "expected",
        "occupancy",
        "waves",
        "waits for",
        "limited by",
    ];
    let rows = counters.rows[..shown].iter().map(cells).collect();
    let table = Table::of_texts(&header, rows).words(&["kernel", "waits for", "limited by"]);
    // As wide as it is: paths and names of kernels stay whole, as one looks for them.
    let layout = Layout { width: usize::MAX, ..Layout::default() };
    let _ = writeln!(out, "\n{}", table_text(&table, layout));
    if counters.rows.len() > shown {
        let _ = writeln!(out, "… and {} more: --top 0 shows all", counters.rows.len() - shown);
    }
    let _ = writeln!(
        out,
        "\nMedians over launches, measured. Compute, memory, DRAM: % of what the device sustains. Moved: bytes of the\n\
         device's memory; expected: what the operation should move (derived), where it is a single kernel. Waits for: the\n\
         commonest reason and its share of a warp's time. Limited by: compute or memory from 60 % on, the grid below one\n\
         wave, else latency."
    );
    out
}

fn cells(row: &CountersRow) -> Vec<String> {
    let absent = || "–".to_string();
    let percent = |value: Option<f64>| value.map_or_else(absent, |value| format!("{} %", significant(value)));
    let sized = |value: Option<f64>| value.map_or_else(absent, bytes);
    let stall = row.stall.as_ref().zip(row.stall_share);
    vec![
        path(&printable(&row.path), NAME),
        head(&printable(&short(&row.kernel)), NAME),
        count(row.n),
        row.duration_ns.map_or_else(absent, duration),
        percent(row.compute_percent),
        percent(row.memory_percent),
        percent(row.dram_percent),
        sized(row.dram_bytes),
        sized(row.expected_bytes),
        percent(row.occupancy_percent),
        row.waves.map_or_else(absent, significant),
        stall.map_or_else(absent, |(reason, share)| format!("{} {:.0} %", printable(reason), share * 100.0)),
        match row.limiter {
            Some(Limiter::Compute) => "compute".to_string(),
            Some(Limiter::Memory) => "memory".to_string(),
            Some(Limiter::Grid) => "a small grid".to_string(),
            Some(Limiter::Latency) => "latency".to_string(),
            None => absent(),
        },
    ]
}
