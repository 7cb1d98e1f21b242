//! The tables of a comparison, which the terminal and the page draw each in its own way.

use super::words::{clock, interval, signed, signed_value};
use crate::compare::{
    CaseComparison, CasesComparison, Class, Comparison, CountChange, Difference, FigureChange, PathChanges, figure,
};
use crate::render::format::{bytes, count, duration, json, path, percent, printable, significant, value};

/// A table of printable cells.
pub(super) struct Table {
    pub(super) id: &'static str,
    pub(super) title: String,
    pub(super) note: String,
    pub(super) head: Vec<&'static str>,
    /// Columns of words, which are set to the left.
    pub(super) words: Vec<usize>,
    pub(super) rows: Vec<Vec<String>>,
}

/// All tables that have rows, or something to say about having none.
pub(super) fn tables(comparison: &Comparison, longest_path: usize) -> Vec<Table> {
    let mut tables = vec![differences(&comparison.differences), counts(comparison), times(comparison)];
    tables.push(paths("paths", "Paths that changed", &comparison.paths, comparison.false_discoveries, longest_path));
    tables.push(paths(
        "modules",
        "Modules that changed (paths without ordinals)",
        &comparison.modules,
        comparison.false_discoveries,
        longest_path,
    ));
    tables.retain(|table| !table.rows.is_empty() || !table.note.is_empty());
    tables
}

/// Tables of cases.
pub(super) fn tables_of_cases(comparison: &CasesComparison) -> Vec<Table> {
    let row = |case: &CaseComparison| {
        let change = case.decisive.as_ref();
        let estimate = change.and_then(|change| change.estimate.as_ref());
        vec![
            printable(&case.case),
            change.map_or("–".to_string(), |change| value(change.unit, change.a)),
            change.map_or("–".to_string(), |change| value(change.unit, change.b)),
            estimate.map_or("–".to_string(), |e| signed(e.change)),
            estimate.map_or("–".to_string(), interval),
            change.and_then(|change| change.floor.share).map_or("–".to_string(), percent),
            case.outcome.as_str().to_string(),
        ]
    };
    let mut note = String::new();
    for (side, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            note.push_str(&format!("Only in {side}: {}. ", printable(&only.join(", "))));
        }
    }
    let mut others = Vec::new();
    for case in &comparison.cases {
        for change in &case.figures {
            let mut cells = cells(change);
            cells[0] = printable(&figure::title(&change.name));
            cells.insert(0, printable(&case.case));
            others.push(cells);
        }
    }
    let mut tables = vec![
        differences(&comparison.differences),
        Table {
            id: "cases",
            title: "Cases".to_string(),
            note: note.trim_end().to_string(),
            head: vec!["case", "A", "B", "change", "interval", "A/A floor", "outcome"],
            words: vec![0, 6],
            rows: comparison.cases.iter().map(row).collect(),
        },
        Table {
            id: "figures",
            title: "Further figures".to_string(),
            note: String::new(),
            head: vec!["case", "figure", "A", "B", "change", "interval", "A/A floor", "outcome"],
            words: vec![0, 1, 7],
            rows: others,
        },
    ];
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn differences(differences: &[Difference]) -> Table {
    let rows = differences.iter().map(|difference| {
        let what = match (difference.class, difference.allowed) {
            (Class::Note, _) => difference.what.to_string(),
            _ => format!("{} (allowed)", difference.what),
        };
        let shown = |value| crate::render::format::head(&printable(&json(value)), 60);
        vec![what, printable(&difference.key), shown(&difference.a), shown(&difference.b)]
    });
    Table {
        id: "differences",
        title: "What differs".to_string(),
        note: String::new(),
        head: vec!["what", "", "A", "B"],
        words: vec![0, 1, 2, 3],
        rows: rows.collect(),
    }
}

fn counts(comparison: &Comparison) -> Table {
    let differ: Vec<&CountChange> = comparison.counts.iter().filter(|count| !count.equal).collect();
    let equal = comparison.counts.len() - differ.len();
    let rows = differ.iter().map(|change| {
        let shown = |n: Option<f64>| n.map_or("–".to_string(), |n| counted(&change.name, n));
        vec![
            printable(&change.kind),
            format!("{}{}", change.name.replace('_', " "), if change.exact { "" } else { " (varies)" }),
            shown(change.a),
            shown(change.b),
            change.change.map_or("–".to_string(), signed),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let allocations = comparison.allocations.map_or(String::new(), |reason| format!(" Allocations: {reason}."));
    Table {
        id: "counts",
        title: "Counts".to_string(),
        note: format!("{equal} of {} are equal, exactly.{allocations}", comparison.counts.len()),
        head: vec!["kind", "count of a step", "A", "B", "change"],
        words: vec![0, 1],
        rows,
    }
}

fn counted(name: &str, n: f64) -> String {
    match name {
        _ if name.contains("bytes") => bytes(n),
        _ if n.fract().abs() < 1e-9 && n >= 0.0 => count(n as u64),
        _ => significant(n),
    }
}

fn times(comparison: &Comparison) -> Table {
    let row = |change: &FigureChange| {
        let (name, kind) = change.name.split_once(' ').unwrap_or((&change.name, ""));
        let title = match (name, kind.is_empty()) {
            ("step_ns", false) => format!("  {}", printable(kind)),
            ("gpu_ns", _) => format!("  {} on the device", printable(kind)),
            _ => printable(&figure::title(name)),
        };
        let mut cells = cells(change);
        cells[0] = title;
        cells
    };
    Table {
        id: "times",
        title: "Times, memory, energy, quality".to_string(),
        note: "The step decides; each other row is judged by itself.".to_string(),
        head: vec!["figure", "A", "B", "change", "interval", "A/A floor", "outcome"],
        words: vec![0, 6],
        rows: comparison.step.iter().chain(&comparison.figures).map(row).collect(),
    }
}

/// A figure's row, its name yet to be set.
fn cells(change: &FigureChange) -> Vec<String> {
    let estimate = change.estimate.as_ref();
    vec![
        String::new(),
        value(change.unit, change.a),
        value(change.unit, change.b),
        estimate.map_or("–".to_string(), |e| signed(e.change)),
        estimate.map_or("–".to_string(), interval),
        change.floor.share.map_or("–".to_string(), percent),
        change.outcome.map_or("–".to_string(), |outcome| outcome.as_str().to_string()),
    ]
}

fn paths(id: &'static str, title: &str, changes: &PathChanges, limit: f64, longest: usize) -> Table {
    const MOST: usize = 20;
    let proven = if changes.changed.is_empty() { &changes.unproven } else { &changes.changed };
    let rows = proven.iter().take(MOST).map(|change| {
        let mut name = path(&printable(&change.path), longest);
        if let Some(module) = change.module.as_deref().filter(|module| !change.path.ends_with(module)) {
            name = format!("{name} ({})", path(&printable(module), 40));
        }
        if change.outside_others {
            name.push_str(" (self time)");
        }
        vec![
            name,
            clock(change.clock).to_string(),
            duration(change.a_ns),
            duration(change.b_ns),
            signed_value("ns", change.estimate.change),
            signed(change.share_of_step),
            change.share_of_change.map_or("–".to_string(), percent),
        ]
    });
    let more = changes.changed.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" The {MOST} largest of {}.", changes.changed.len()) } else { String::new() };
    let note = match (changes.tested, changes.changed.len()) {
        (0, _) => "None could be tested.".to_string(),
        (tested, 0) if !changes.unproven.is_empty() => {
            format!("None of {tested} is named: the runs cannot decide. These differ most, for whatever reason.")
        }
        (tested, 0) => format!("None of {tested} that were tested."),
        (tested, n) => format!(
            "{n} of {tested} tested; of those named, at most {} are expected to be wrong.{more}",
            percent(limit)
        ),
    };
    Table {
        id,
        title: title.to_string(),
        note,
        head: vec!["path", "clock", "A", "B", "change", "of the step", "of the change"],
        words: vec![0, 1],
        rows: rows.collect(),
    }
}
