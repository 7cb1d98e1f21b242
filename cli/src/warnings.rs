//! Warnings of what is wrong with the files of a run, for commands whose answer has no place for them.

use crate::output::note;
use candlescope_core::run::Finding;

/// Findings that are told; of further ones the number.
const MOST: usize = 20;

/// Tells on standard error what was noticed while runs were opened and read, a line each.
pub(crate) fn warn<'a>(findings: impl IntoIterator<Item = &'a Finding>) {
    let mut findings = findings.into_iter();
    for finding in findings.by_ref().take(MOST) {
        note(&format!("warning: {}. {}", finding.message(), finding.remedy()));
    }
    match findings.count() {
        0 => {}
        more => {
            note(&format!("warning: {more} more things are wrong with these files; `candlescope report` tells all"))
        }
    }
}
