//! A comparison on a terminal.

use super::tables::{Table, tables, tables_of_cases};
use super::words::{before_times, conclusion, conclusion_of_cases, divided, floor_source, followed};
use crate::compare::{CasesComparison, Comparison, SideInfo};
use crate::render::format::{percent, plural, printable};
use crate::render::text_table::text_table;
use std::fmt::Write as _;

/// The comparison as text: what has to be known before, the conclusion, then what it rests on.
pub fn text(comparison: &Comparison, color: bool) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        let _ = writeln!(out, "{text}");
    };
    before_times(&comparison.disturbed, &comparison.differences).iter().for_each(|said| line(said));
    divided(comparison).iter().for_each(|said| line(said));
    line(&sentence(&conclusion(comparison)));
    line(&side("A", &comparison.a));
    line(&side("B", &comparison.b));
    line(&format!("Machine: {}", printable(&comparison.a.machine)));
    if let Some(step) = &comparison.step {
        let floor = step.floor.share.map_or("not known".to_string(), percent);
        line(&format!(
            "A/A floor: {floor} ({}). Margin: {}. Intervals miss the truth with a probability of {}.",
            floor_source(&step.floor),
            percent(comparison.margin),
            percent(comparison.alpha)
        ));
        step.estimate.as_ref().and_then(followed).iter().for_each(|said| line(said));
    }
    add_tables(&mut out, tables(comparison, 60), color);
    out
}

/// A comparison of cases as text, with the paths of recorded runs that changed.
pub fn text_of_cases(comparison: &CasesComparison, color: bool) -> String {
    let mut out = before_times(&[], &comparison.differences).iter().map(|said| format!("{said}\n")).collect::<String>();
    let _ = write!(
        out,
        "{}\nA: {}\nB: {}\nMachine: {}\n",
        sentence(&conclusion_of_cases(comparison)),
        printable(&comparison.a),
        printable(&comparison.b),
        printable(&comparison.machine)
    );
    add_tables(&mut out, tables_of_cases(comparison), color);
    for case in &comparison.cases {
        if let Some(reason) = &case.not_recorded {
            let _ = writeln!(out, "\n{}: recorded runs are not compared: {reason}", printable(&case.case));
        }
        let Some(recorded) = &case.recorded else { continue };
        let mut tables = tables(recorded, 60);
        tables.retain(|table| ["counts", "paths"].contains(&table.id) && !table.rows.is_empty());
        if !tables.is_empty() {
            let _ = writeln!(out, "\n{}, recorded runs", printable(&case.case));
            add_tables(&mut out, tables, color);
        }
    }
    out
}

/// A sentence with its first letter and its end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let capital: String = letters.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    format!("{capital}{}.", letters.as_str().trim_end_matches('.'))
}

fn add_tables(out: &mut String, tables: Vec<Table>, color: bool) {
    for table in tables {
        let _ = writeln!(out, "\n{}", table.title);
        if !table.note.is_empty() {
            let _ = writeln!(out, "{}", table.note);
        }
        if !table.rows.is_empty() {
            let _ = writeln!(out, "{}", text_table(&table.head, table.rows, &table.words, color));
        }
    }
}

fn side(letter: &str, side: &SideInfo) -> String {
    format!("{letter}: {} ({})", printable(&side.name), plural(side.runs.len() as u64, "run"))
}
