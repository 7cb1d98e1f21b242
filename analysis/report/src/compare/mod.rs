//! A comparison as a document.

mod flames;
mod programs;
mod tables;
mod windows;
mod words;

pub use programs::{document_of_programs, text_of_programs};
pub use windows::{conclusion_of_windows, document_of_windows, text_of_windows};
pub use words::{before_times, conclusion, conclusion_of_cases, floor_source};

use super::format::{head, percent, plural};
use candlescope_compare::{CasesComparison, Comparison, SideInfo, Stacks};
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::{Block, Document, Fact, Forms, Section};
use flames::frames;
use tables::{tables, tables_of_cases};
use words::{divided, followed};

/// Characters of a side's name in the title. The facts below it, and the JSON, have the whole.
const LONGEST_NAME: usize = 40;

/// The comparison as text: what has to be known before, the conclusion, then what it rests on.
pub fn text(comparison: &Comparison, color: bool) -> String {
    draw(&shared(comparison), layout(color))
}

/// What the page of a comparison of runs shows.
pub fn document(comparison: &Comparison) -> Document {
    let mut document = shared(comparison);
    document.sections.push(flames("Flame graphs", &comparison.stacks));
    document
}

/// A comparison of cases as text, with the paths of recorded runs that changed.
pub fn text_of_cases(comparison: &CasesComparison, color: bool) -> String {
    draw(&shared_of_cases(comparison), layout(color))
}

/// What the page of a comparison of cases shows. Its flame graphs are those of the case whose recorded runs differ most.
pub fn document_of_cases(comparison: &CasesComparison) -> Document {
    let mut document = shared_of_cases(comparison);
    let recorded = comparison.cases.iter().filter_map(|case| Some((case, case.recorded.as_ref()?)));
    let change = |recorded: &Comparison| {
        recorded.step.as_ref().and_then(|step| step.estimate).map_or(0.0, |estimate| estimate.change.abs())
    };
    if let Some((case, recorded)) = recorded.max_by(|a, b| change(a.1).total_cmp(&change(b.1))) {
        document.sections.push(flames(&format!("Flame graphs of {}", case.case), &recorded.stacks));
    }
    document
}

/// Lines are as long as they are: who reads them through a pipe looks for whole sentences.
fn layout(color: bool) -> Layout {
    Layout { color, width: usize::MAX }
}

/// What text and page show.
fn shared(comparison: &Comparison) -> Document {
    let side = |side: &SideInfo| format!("{} ({})", side.name, plural(side.runs.len() as u64, "run"));
    let mut facts = vec![
        Fact::new("A", side(&comparison.a)),
        Fact::new("B", side(&comparison.b)),
        Fact::new("machine", comparison.a.machine.clone()),
    ];
    if let Some(step) = &comparison.step {
        let floor = step.floor.share.map_or("not known".to_string(), percent);
        let judged = format!(
            "A/A floor: {floor} ({}). Margin: {}. Intervals miss the truth with a probability of {}.",
            floor_source(&step.floor),
            percent(comparison.margin),
            percent(comparison.alpha)
        );
        facts.push(Fact::new("judged", judged));
        facts.extend(step.estimate.as_ref().and_then(followed).map(|said| Fact::new("series", said)));
    } else {
        facts.push(Fact::new("judged", format!("margin {}", percent(comparison.margin))));
    }
    Document {
        kind: format!("{} · compare", comparison.outcome.as_str()),
        title: title(&comparison.a.name, &comparison.b.name),
        before: before_times(&comparison.disturbed, &comparison.differences)
            .into_iter()
            .chain(divided(comparison))
            .collect(),
        conclusion: conclusion(comparison),
        facts,
        sections: tables(comparison),
        ..Document::default()
    }
}

fn shared_of_cases(comparison: &CasesComparison) -> Document {
    let mut sections = tables_of_cases(comparison);
    for (nth, case) in comparison.cases.iter().enumerate() {
        let reason = case.not_recorded.as_ref().map(|reason| format!("Recorded runs are not compared: {reason}"));
        let mut parts = Vec::new();
        if let Some(recorded) = &case.recorded {
            // A terminal shows what changed in each, and no more.
            parts.extend(tables(recorded).into_iter().filter(|part| part.id != "differences").map(|part| {
                let on_terminal = ["counts", "paths"].contains(&part.id.as_str()) && has_rows(&part);
                let forms = if on_terminal { Forms::ALL } else { Forms::FILES };
                Section { id: format!("{}-{nth}", part.id), ..part }.only(forms)
            }));
        }
        let section = Section::new(format!("case-{nth}"), format!("{}, recorded runs", case.case), "");
        sections.push(Section { parts, ..section.with(Block::Text(reason.unwrap_or_default())) });
    }
    Document {
        kind: format!("{} · compare", comparison.outcome.as_str()),
        title: title(&comparison.a, &comparison.b),
        before: before_times(&[], &comparison.differences),
        conclusion: conclusion_of_cases(comparison),
        facts: vec![
            Fact::new("A", comparison.a.clone()),
            Fact::new("B", comparison.b.clone()),
            Fact::new("machine", comparison.machine.clone()),
            Fact::new("judged", format!("margin {}", percent(comparison.margin))),
        ],
        sections,
        ..Document::default()
    }
}

fn title(a: &str, b: &str) -> String {
    format!("{} → {}", head(a, LONGEST_NAME), head(b, LONGEST_NAME))
}

fn has_rows(section: &Section) -> bool {
    section.blocks.iter().any(|(_, block)| matches!(block, Block::Table(table) if !table.rows.is_empty()))
}

fn flames(title: &str, stacks: &Stacks) -> Section {
    let note = "Width is self time of a typical step, in hundredths of a nanosecond; ordinals are left out. Click a frame to \
                zoom. In the difference, width is that of B; red takes longer in B, blue takes less.";
    Section::new("flames", title, note).only(Forms::PAGE.and(Forms::JSON)).with(Block::Frames(frames(stacks)))
}
