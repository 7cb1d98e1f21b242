//! The report of a run, as a document that each form draws.

mod advice;
pub(super) mod assumptions;
mod cards;
mod cost;
mod definitions;
mod figures;
mod head;
mod host;
mod operators;
mod samples;
mod slow;
pub(super) mod stakeholder;
mod steps;
mod tree;

use super::charts::flame;
use super::{gpu_sheets, nsys_table, sensitivity};
use candlescope_document::{Block, Document, Forms, Section, markdown};
use candlescope_figures::Analysis;

/// Everything that a report shows of a run; a terminal shows so many rows of the tree and of the operators.
pub(crate) fn document(analysis: &Analysis, tree: usize, operators: usize) -> Document {
    let [peaks, gpu] = gpu(analysis);
    let sections = [
        advice::section(analysis),
        sensitivity::section(&analysis.sensitivity),
        figures::section(analysis),
        slow::section(analysis),
        Some(steps::section(analysis)),
        Some(tree::section(analysis, tree)),
        Some(operators::section(analysis, operators, 15)),
        host::section(analysis, operators.min(10)),
        Some(peaks),
        Some(gpu),
        nsys_table::section(analysis, operators),
        Some(
            Section::new("flame", "Flame graph", flame::note(analysis))
                .with(Block::Frames(flame::of_run(analysis)))
                .or_say("There is nothing to draw.")
                .only(Forms::PAGE.and(Forms::JSON)),
        ),
        Some(samples::tokens(analysis)),
        Some(samples::section(analysis)),
        Some(cost::section(analysis)),
        Some(head::findings(analysis)),
        Some(head::environment(analysis)),
        Some(definitions::section(analysis)),
    ];
    Document { sections: sections.into_iter().flatten().collect(), ..head::head(analysis) }
}

/// `operators.md`: every operator.
pub(super) fn operators(analysis: &Analysis) -> String {
    markdown::section(&operators::section(analysis, 0, usize::MAX), 1).trim_start().to_string()
}

/// The GPU's figures and tables; of the processor's peaks, a terminal has no other table.
fn gpu(analysis: &Analysis) -> [Section; 2] {
    let pairs = |lines: Vec<(&'static str, String)>| {
        Block::Pairs("", lines.into_iter().map(|(label, text)| (label.to_string(), text)).collect())
    };
    let used = gpu_sheets::peaks(analysis);
    let on_cpu = analysis.gpu.kinds.is_empty() && !used.is_empty();
    let used = if on_cpu { vec![("peak", used.join("; "))] } else { Vec::new() };
    let gpu = Section::new("gpu", "GPU", "").with(pairs(gpu_sheets::lines(analysis)));
    [
        Section::new("peaks", "Peaks", "").with(pairs(used)).only(Forms::TERMINAL),
        Section { parts: gpu_sheets::sheets(analysis), ..gpu },
    ]
}
