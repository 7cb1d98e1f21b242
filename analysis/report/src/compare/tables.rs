//! The tables of a comparison.

use super::words::{clock, interval, signed_value};
use crate::format::{bytes, count, duration, json, path, percent, printable, signed_percent, significant, value};
use candlescope_compare::{
    Basis, CaseComparison, CasesComparison, Class, Comparison, CountChange, Difference, FigureChange, FunctionChange,
    FunctionChanges, PathChanges, figure,
};
use candlescope_document::{Block, Cell, Row, Section, Table, column};

/// A section with one table; it is empty, and so left out, without rows and a note.
pub(super) fn section(id: &str, title: &str, note: String, table: Table) -> Section {
    let table = table.words(&["what", "figure", "count of a step", "clock", "outcome"]);
    Section::new(id, title, "").with(Block::Text(note)).with(table)
}

/// The tables of a comparison of runs, in the order of the reports.
pub(super) fn tables(comparison: &Comparison) -> Vec<Section> {
    let limit = comparison.false_discoveries;
    vec![
        differences(&comparison.differences),
        counts(comparison),
        times(comparison),
        paths("paths", "Paths that changed", &comparison.paths, limit),
        paths("modules", "Modules that changed (paths without ordinals)", &comparison.modules, limit),
        functions(comparison.functions.as_ref(), limit, comparison.a.runs.len().min(comparison.b.runs.len()) < 2),
    ]
}

/// Tables of cases.
pub(super) fn tables_of_cases(comparison: &CasesComparison) -> Vec<Section> {
    let row = |case: &CaseComparison| {
        let change = case.decisive.as_ref();
        let estimate = change.and_then(|change| change.estimate.as_ref());
        vec![
            printable(&case.case),
            change.map_or("–".to_string(), |change| value(change.unit, change.a)),
            change.map_or("–".to_string(), |change| value(change.unit, change.b)),
            estimate.map_or("–".to_string(), |e| signed_percent(e.change)),
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
    vec![
        differences(&comparison.differences),
        section(
            "cases",
            "Cases",
            note.trim_end().to_string(),
            Table::of_texts(
                &["case", "A", "B", "change", "interval", "A/A floor", "outcome"],
                comparison.cases.iter().map(row).collect(),
            ),
        ),
        section(
            "figures",
            "Further figures",
            String::new(),
            Table::of_texts(&["case", "figure", "A", "B", "change", "interval", "A/A floor", "outcome"], others),
        ),
    ]
}

fn differences(differences: &[Difference]) -> Section {
    let rows = differences.iter().map(|difference| {
        let what = match (difference.class, difference.allowed) {
            (Class::Note, _) => difference.what.to_string(),
            _ => format!("{} (allowed)", difference.what),
        };
        let shown = |value| crate::format::head(&printable(&json(value)), 60);
        vec![what, printable(&difference.key), shown(&difference.a), shown(&difference.b)]
    });
    let table = Table::of_texts(&["what", "", "A", "B"], rows.collect()).words(&["", "A", "B"]);
    section("differences", "What differs", String::new(), table)
}

fn counts(comparison: &Comparison) -> Section {
    let differ: Vec<&CountChange> = comparison.counts.iter().filter(|count| !count.equal).collect();
    let equal = comparison.counts.len() - differ.len();
    let rows = differ.iter().map(|change| {
        let shown = |n: Option<f64>| n.map_or("–".to_string(), |n| counted(&change.name, n));
        vec![
            printable(&change.kind),
            format!("{}{}", change.name.replace('_', " "), if change.exact { "" } else { " (varies)" }),
            shown(change.a),
            shown(change.b),
            change.change.map_or("–".to_string(), signed_percent),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let allocations = comparison.allocations.map_or(String::new(), |reason| format!(" Allocations: {reason}."));
    let note = format!("{equal} of {} are equal, exactly.{allocations}", comparison.counts.len());
    section("counts", "Counts", note, Table::of_texts(&["kind", "count of a step", "A", "B", "change"], rows))
}

fn counted(name: &str, n: f64) -> String {
    match name {
        _ if name.contains("bytes") => bytes(n),
        _ if n.fract().abs() < 1e-9 && n >= 0.0 => count(n as u64),
        _ => significant(n),
    }
}

fn times(comparison: &Comparison) -> Section {
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
    let estimates = comparison.step.iter().chain(&comparison.figures).filter_map(|change| change.estimate.as_ref());
    let change = estimates.map(|estimate| change_of(estimate.basis)).find(|text| !text.is_empty()).unwrap_or_default();
    let note = format!("The step decides; each other row is judged by itself.{change}");
    let rows = comparison.step.iter().chain(&comparison.figures).map(row).collect();
    let head = ["figure", "A", "B", "change", "interval", "A/A floor", "outcome"];
    section("times", "Times, memory, energy, quality", note, Table::of_texts(&head, rows))
}

/// What a change is of, where it need not be the quotient of the figures beside it.
fn change_of(basis: Basis) -> &'static str {
    match basis {
        Basis::Pairs => {
            " A and B are medians of all runs; the change is that within pairs of runs, and need not be their quotient."
        }
        Basis::Runs => {
            " A and B are medians of all runs; the change is between the means of both sides, from which a steady drift is \
             taken, and need not be their quotient."
        }
        Basis::Days | Basis::Windows | Basis::Parts => "",
    }
}

/// A figure's row, its name yet to be set.
pub(super) fn cells(change: &FigureChange) -> Vec<String> {
    let estimate = change.estimate.as_ref();
    vec![
        String::new(),
        value(change.unit, change.a),
        value(change.unit, change.b),
        estimate.map_or("–".to_string(), |e| signed_percent(e.change)),
        estimate.map_or("–".to_string(), interval),
        change.floor.share.map_or("–".to_string(), percent),
        change.outcome.map_or("–".to_string(), |outcome| outcome.as_str().to_string()),
    ]
}

fn paths(id: &str, title: &str, changes: &PathChanges, limit: f64) -> Section {
    const MOST: usize = 20;
    let proven = if changes.changed.is_empty() { &changes.unproven } else { &changes.changed };
    let rows = proven.iter().take(MOST).map(|change| {
        let module = change.module.as_deref().filter(|module| !change.path.ends_with(module));
        let mut remark = module.map_or(String::new(), |module| format!("({})", path(module, 40)));
        if change.outside_others {
            remark.push_str(if remark.is_empty() { "(self time)" } else { " (self time)" });
        }
        let cells = [
            clock(change.clock).to_string(),
            duration(change.a_ns),
            duration(change.b_ns),
            signed_value("ns", change.estimate.change),
            signed_percent(change.share_of_step),
            change.share_of_change.map_or("–".to_string(), percent),
        ];
        Row { remark, ..Row::new(change.path.clone(), cells.map(Cell::from).into()) }
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
    let head = ["clock", "A", "B", "change", "of the step", "of the change"];
    let columns = head.map(|head| column(head, "")).into();
    section(id, title, note, Table::new("path", columns, rows.collect()).of_code(60).longest(100))
}

fn functions(changes: Option<&FunctionChanges>, limit: f64, one_run: bool) -> Section {
    const MOST: usize = 20;
    let empty = FunctionChanges::default();
    let known = changes.unwrap_or(&empty);
    let named = if known.changed.is_empty() { &known.unproven } else { &known.changed };
    let rows = named.iter().take(MOST).map(|change| {
        let FunctionChange { interval_ns: (low, high), .. } = change;
        let cells = [
            duration(change.a_ns),
            duration(change.b_ns),
            signed_value("ns", change.change_ns),
            format!("{} to {}", signed_value("ns", *low), signed_value("ns", *high)),
            change.share_of_change.map_or("–".to_string(), percent),
            path(&change.path, 48),
        ];
        Row::new(printable(&change.function), cells.map(Cell::from).into())
    });
    let more = named.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" The {MOST} largest of {}.", named.len()) } else { String::new() };
    let note = match (changes, known.tested, known.changed.len()) {
        (None, ..) => String::new(),
        (_, 0, _) => "None could be tested.".to_string(),
        (_, tested, 0) => format!(
            "None of {tested} is named: none differs by more than its samples can by chance, or runs cannot decide. These differ most."
        ),
        (_, tested, n) => format!(
            "Time on the CPU in the function itself, of all threads, for each step, sampled. {n} of {tested} tested; of those \
             named, at most {} are expected to be wrong.{more}{}",
            percent(limit),
            if one_run { " What single runs differ by among themselves is not in it." } else { "" }
        ),
    };
    let head = ["A", "B", "change", "interval", "of the change", "most in"];
    let columns = head.map(|head| column(head, "")).into();
    section(
        "functions",
        "Functions that changed",
        note,
        Table::new("function", columns, rows.collect()).of_code(60).longest(100),
    )
}
