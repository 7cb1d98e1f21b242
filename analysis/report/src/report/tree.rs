//! Where the time goes: the tree of paths.

use super::super::format::{count, duration, percent};
use candlescope_document::{Bar, Forms, MostRows, Row, Section, Table, cell, column, maybe, missing};
use candlescope_figures::Analysis;
use candlescope_figures::operators::OperatorGpu;
use candlescope_figures::tree::ratio;
use std::collections::BTreeMap;

/// Branches with a smaller share are left out (terminal, Markdown, page), so that they do not hide the rest.
const SMALLEST: [f64; 3] = [0.005, 0.001, f64::MIN];
/// Forms with room for every column.
const LARGE: Forms = Forms::PAGE.and(Forms::JSON);

/// At most `most` rows on a terminal.
pub(super) fn section(analysis: &Analysis, most: usize) -> Section {
    let tree = &analysis.tree;
    let gpu: BTreeMap<&str, &OperatorGpu> =
        analysis.operators.iter().filter_map(|o| Some((o.path.as_str(), o.gpu.as_ref()?))).collect();
    let time = |ns: Option<f64>| maybe(ns, duration);
    let share = |share: Option<f64>| maybe(share, percent);
    let rows = tree.rows.iter().map(|row| {
        let (own, g) = (ratio(row.self_ns, tree.total_ns), gpu.get(row.rollup.as_str()));
        let mut cells = vec![
            row.calls.map_or(missing(), |n| cell(count(n), n as f64)),
            time(Some(row.total_ns as f64)),
            share(Some(row.share)),
            time(Some(row.self_ns as f64)),
            share(Some(own)),
            if row.has_children { share(Some(ratio(row.self_ns, row.total_ns))) } else { String::new().into() },
        ];
        if !gpu.is_empty() {
            cells.extend([
                time(g.map(|g| g.total_ns)),
                time(g.and_then(|g| g.self_ns)),
                share(g.and_then(|g| g.self_share)),
            ]);
        }
        let bar = Bar::Gauge(row.share, own);
        Row { bar, depth: row.depth, share: row.share, ..Row::new(row.label.clone(), cells) }
    });
    let mut columns = vec![
        column("calls", ""),
        column("total", ""),
        column("share", ""),
        column("self", ""),
        column("self share", "").short("share"),
        column("unaccounted", "self time ÷ total time of a path with children").only(LARGE),
    ];
    if !gpu.is_empty() {
        columns.extend([
            column("GPU total", "children included; mean of the measured intervals × calls").only(LARGE),
            column("GPU self", "").only(LARGE),
            column("GPU share", "GPU self time ÷ GPU time of the outermost steps").only(LARGE),
        ]);
    }
    let note = format!(
        "Shares are of the {} in steps. Self time of a path with children is what none of them accounts for: {} over all. A \
         page's bars show total time, their solid part self time.",
        duration(tree.total_ns as f64),
        percent(ratio(tree.unaccounted_ns(), tree.total_ns))
    );
    let table = Table::new("path", columns, rows.collect()).of_code(42);
    let most = MostRows { smallest: SMALLEST, ..MostRows::of(most, 100, 1000) };
    let section = Section::new("tree", "Where the time goes", note)
        .brief("self: of a path with children, what none of them accounts for")
        .nav("Tree")
        .with(table.most(most, "paths", "in metrics.json"));
    if tree.rows.is_empty() { section.only(Forms::FILES).or_say("The run holds no intervals.") } else { section }
}
