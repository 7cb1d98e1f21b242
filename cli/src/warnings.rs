//! Warnings of what is wrong with the files of a run, for commands whose answer has no place for them.

use crate::output::note;
use candlescope_core::run::Finding;

/// Findings that are told; of further ones the number.
const MOST: usize = 20;
/// Runs that are left out of which each is told.
#[cfg(feature = "query")]
const MOST_LEFT_OUT: usize = 10;

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

/// Tells on standard error which runs are left out, a line each of the first ones, of which each says what it is about.
/// `all` is what names them all.
#[cfg(feature = "query")]
pub(crate) fn warn_left_out(lines: impl ExactSizeIterator<Item = String>, all: &str) {
    let more = lines.len().saturating_sub(MOST_LEFT_OUT);
    lines.take(MOST_LEFT_OUT).for_each(|line| note(&format!("warning: {line}")));
    if more > 0 {
        note(&format!("warning: {more} more are left out: {all} names all"));
    }
}

/// The same of what could not be read in folders.
#[cfg(feature = "query")]
pub(crate) fn warn_unread(left_out: &[candlescope_sql::LeftOut], all: &str) {
    warn_left_out(left_out.iter().map(|of| format!("`{}` is left out: {}", of.run, of.why)), all);
}
