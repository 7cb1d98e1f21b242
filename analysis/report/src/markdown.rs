//! `report.md`, `operators.md`, `stakeholder_summary.md`, `assumptions.md`: reports for places that do not show HTML, such
//! as an issue or a pull request.

use super::report;
use candlescope_document::markdown::draw;
use candlescope_figures::Analysis;

/// `report.md`: begins with the conclusion.
pub fn report(analysis: &Analysis) -> String {
    draw(&report::document(analysis, 0, 0))
}

/// `operators.md`: a row for every path without ordinals, by self time, without a limit of rows.
pub fn operators(analysis: &Analysis) -> String {
    report::operators(analysis)
}

/// `stakeholder_summary.md`: one page for somebody who decides.
pub fn stakeholder_summary(analysis: &Analysis) -> String {
    draw(&report::stakeholder::document(analysis))
}

/// `assumptions.md`: what the figures rest on.
pub fn assumptions(analysis: &Analysis) -> String {
    draw(&report::assumptions::document(analysis))
}
