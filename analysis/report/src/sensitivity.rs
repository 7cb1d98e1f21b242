//! What was made slower, and what steps took then: the criticality of paths, by experiment, beside what a replay says.

use super::format::{count, duration, percent};
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::{Block, Document, Row, Section, Table, cell, column, maybe, missing, words};
use candlescope_figures::sensitivity::Criticality;
use candlescope_schema::Perturbation;
use serde_json::{Value, json};

/// The section of a report; `None` without an experiment.
pub(super) fn section(rows: &[Criticality]) -> Option<Section> {
    if rows.is_empty() {
        return None;
    }
    let note = "Intervals of these paths were made slower by a known time, at random, and steps were compared with steps beside \
                them. Criticality is the time that a step grows by for each nanosecond added: 1 if all of the path's time is \
                waited for, 0 if none is. Share × criticality is how much of a step's time hangs on the path. A replay of \
                recorded steps says the same by a model.";
    let columns = vec![
        words("on"),
        words("of steps"),
        column("share of the step", "time of its intervals there, without what was added").short("share"),
        column("added", "to a step, median"),
        column("criticality", "with its 95 % interval"),
        column("share × criticality", "").short("hangs on it"),
        column("replay", "with its bounds"),
        column("pairs", ""),
    ];
    let all = rows.iter().map(|row| {
        let hangs = row.share * row.criticality;
        let cells = vec![
            row.side.as_str().to_string().into(),
            row.step.clone().into(),
            maybe(Some(row.share), percent),
            cell(duration(row.added_ns), row.added_ns),
            cell(with_interval(row.criticality, row.interval), row.criticality),
            maybe(Some(hangs), percent),
            row.replay.map_or_else(missing, |replay| {
                let apart = if row.disagrees() == Some(true) { ", disagrees" } else { "" };
                cell(format!("{}{apart}", with_interval(replay.mid, Some((replay.low, replay.high)))), replay.mid)
            }),
            cell(count(row.pairs), row.pairs as f64),
        ];
        Row::new(Perturbation::path_of(&row.target).to_string(), cells)
    });
    let section = Section::new("sensitivity", "Criticality, by experiment", note).nav("Criticality");
    let section = section.with(Table::new("path", columns, all.collect()).of_code(44));
    Some(match disagreements(rows) {
        text if text.is_empty() => section,
        text => section.with(Block::Text(text)),
    })
}

/// Columns of a line: the table is wide.
const WIDTH: usize = 120;

fn with_interval(value: f64, interval: Option<(f64, f64)>) -> String {
    match interval {
        Some((low, high)) => format!("{value:.2} ({low:.2} to {high:.2})"),
        None => format!("{value:.2}"),
    }
}

/// Where replay and experiment say different things, in words; empty if nowhere.
fn disagreements(rows: &[Criticality]) -> String {
    let named = |row: &Criticality| format!("{} on the {}", row.target, row.side);
    let apart: Vec<String> = rows.iter().filter(|row| row.disagrees() == Some(true)).map(named).collect();
    match apart.is_empty() {
        true => String::new(),
        false => format!(
            "Replay and experiment disagree about {}: gains that are promised there rest on a replay that does not hold for this \
             program.",
            apart.join(", ")
        ),
    }
}

/// The same on a terminal, for `analyze`; empty without an experiment.
pub fn text(rows: &[Criticality]) -> String {
    section(rows).map_or_else(String::new, |section| {
        let document = Document { sections: vec![section], ..Document::default() };
        draw(&document, Layout { width: WIDTH, color: false })
    })
}

/// The same for programs.
pub fn json(rows: &[Criticality]) -> Value {
    let one = |row: &Criticality| {
        let mut object = json!(row);
        object["disagrees"] = json!(row.disagrees());
        object
    };
    rows.iter().map(one).collect()
}
