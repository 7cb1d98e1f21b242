//! The time line of one step as a picture: launches under their intervals on the host, kernels by stream on the device.

use super::super::format::{duration, head, printable};
use super::super::kernel_name::short;
use candlescope_document::html::Plain;
use candlescope_document::{Row, Table, column, figure, words};
use candlescope_figures::account::{LineWork, StepLine};
use candlescope_schema::KernelKind;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of the picture, in its own units.
const WIDTH: f64 = 1140.0;
/// Height of a row.
const ROW: f64 = 16.0;
/// Levels of intervals.
const MOST_LEVELS: usize = 5;
/// Narrower bars are drawn this wide.
const THINNEST: f64 = 0.35;

/// A bar: row, from, to, class, what it is.
struct Bar {
    row: usize,
    from: i64,
    to: i64,
    class: &'static str,
    title: String,
    label: String,
}

/// The picture as SVG.
pub(crate) fn svg(line: &StepLine) -> String {
    let end = line.work.iter().map(|work| work.end_ns).max().unwrap_or(0).max(line.open_ns as i64).max(1);
    let (bars, rows) = bars(line);
    let height = rows as f64 * ROW;
    let mut out = format!(
        "<svg class=\"line\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Time line of one step\">"
    );
    for bar in bars {
        let x = |at: i64| at.clamp(0, end) as f64 / end as f64 * WIDTH;
        let (from, width) = (x(bar.from), (x(bar.to) - x(bar.from)).max(THINNEST));
        let y = bar.row as f64 * ROW;
        let _ = write!(
            out,
            "<rect class=\"{}\" x=\"{from:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\"><title>{}</title></rect>",
            bar.class,
            ROW - 2.0,
            Plain(&bar.title)
        );
        // About six units a letter.
        if width > 6.0 * (bar.label.chars().count() as f64 + 1.0) {
            let _ = write!(out, "<text x=\"{:.2}\" y=\"{}\">{}</text>", from + 3.0, y + ROW - 5.0, Plain(&bar.label));
        }
    }
    out.push_str("</svg>");
    out
}

/// Every bar from top to bottom, and how many rows there are.
fn bars(line: &StepLine) -> (Vec<Bar>, usize) {
    let (mut bars, levels) = intervals(line);
    let calls = levels;
    for work in &line.work {
        if let Some((from, to)) = work.call {
            bars.push(bar(calls, (from, to), "call", work));
        }
    }
    let mut streams: BTreeMap<u32, usize> = BTreeMap::new();
    for work in &line.work {
        let next = calls + 1 + streams.len();
        let row = *streams.entry(work.stream).or_insert(next);
        let class = if work.kind == KernelKind::Kernel { "kernel" } else { "copy" };
        bars.push(bar(row, (work.start_ns, work.end_ns), class, work));
    }
    (bars, calls + 1 + streams.len())
}

/// The bars as a table: where each is, and what it is.
pub(crate) fn table(line: &StepLine) -> Table {
    let (bars, _) = bars(line);
    let rows = bars.into_iter().map(|bar| {
        let time = |ns: i64| figure(duration(ns as f64), ns as f64);
        let row = figure(bar.row.to_string(), bar.row as f64);
        Row::new(bar.title, vec![bar.class.to_string().into(), row, time(bar.from), time(bar.to - bar.from)])
    });
    let columns = vec![words("kind"), column("row", "from the top"), column("from", ""), column("duration", "")];
    Table::new("bar", columns, rows.collect())
}

fn bar(row: usize, (from, to): (i64, i64), class: &'static str, work: &LineWork) -> Bar {
    let name = head(&printable(&short(&work.name)), 60);
    let path = work.path.as_deref().map_or(String::new(), |path| format!(" · {}", printable(path)));
    let title = format!("{name}{path} · {} at {}", duration((to - from) as f64), duration(from.max(0) as f64));
    Bar { row, from, to, class, title, label: if class == "call" { String::new() } else { name } }
}

/// Intervals as their launches show them: from the first call to the last, level by level. Returns how many levels there
/// are.
fn intervals(line: &StepLine) -> (Vec<Bar>, usize) {
    let mut order: Vec<(&str, i64, i64)> =
        line.work.iter().filter_map(|work| Some((work.path.as_deref()?, work.call?.0, work.call?.1))).collect();
    order.sort_by_key(|work| work.1);
    let (mut bars, mut levels) = (Vec::new(), 0);
    for level in 0..MOST_LEVELS {
        let mut open: Option<(&str, i64, i64)> = None;
        let mut close = |open: Option<(&str, i64, i64)>| {
            let Some((path, from, to)) = open else { return };
            let name = printable(path.rsplit('/').next().unwrap_or(path));
            let title = format!("{} · {}", printable(path), duration((to - from) as f64));
            bars.push(Bar { row: level, from, to, class: "interval", title, label: head(&name, 40) });
        };
        for (path, from, to) in &order {
            let here = upto(path, level);
            match open.as_mut().filter(|last| Some(last.0) == here) {
                Some(last) => last.2 = last.2.max(*to),
                None => {
                    close(open.take());
                    open = here.map(|here| (here, *from, *to));
                }
            }
        }
        close(open.take());
        if bars.iter().any(|bar| bar.row == level) {
            levels = level + 1;
        }
    }
    (bars, levels)
}

/// A path down to a level; `None` if it does not reach it.
fn upto(path: &str, level: usize) -> Option<&str> {
    let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.nth(level).map(|end| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(path: &str, call: i64, start: i64) -> LineWork {
        LineWork {
            path: Some(path.into()),
            name: "a&b".into(),
            kind: KernelKind::Kernel,
            stream: 7,
            call: Some((call, call + 10)),
            start_ns: start,
            end_ns: start + 50,
        }
    }

    #[test]
    fn intervals_reach_from_their_first_launch_to_their_last() {
        let list = vec![
            work("decode/block[0]/norm", 0, 100),
            work("decode/block[0]/mlp", 20, 200),
            work("decode/head", 40, 300),
        ];
        let line = StepLine { step: 1, name: "decode".to_string(), open_ns: 400, thread: None, work: list };
        let (bars, levels) = intervals(&line);
        let found: Vec<_> = bars.iter().map(|bar| (bar.row, bar.label.as_str(), bar.from, bar.to)).collect();
        assert_eq!(levels, 3);
        assert_eq!(
            found,
            [(0, "decode", 0, 50), (1, "block[0]", 0, 30), (1, "head", 40, 50), (2, "norm", 0, 10), (2, "mlp", 20, 30),]
        );
        let picture = svg(&line);
        assert!(picture.contains("a&amp;b") && picture.matches("class=\"kernel\"").count() == 3, "{picture}");
    }
}
