//! Intervals that are shorter than their children together.
//!
//! If the session noticed spans that were not left in reverse order, that is the reason, and its warning stands. If
//! not, the data contradict themselves, and no self time can be trusted.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Place, Severity};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let Some((path, own, children)) = &run.intervals.worst else { return Vec::new() };
    let finding = Finding::new(
        Code::ParentShorterThanChildren,
        "{intervals} intervals are shorter than their children together; the worst is `{path}` with {own:raw} ns against \
         {children:raw} ns",
        "The clock or the data are wrong: compare the clock's anchors in run.json, and look for a segment that is there twice",
    );
    let finding = finding.severity(Severity::Error).at(Place::Path, path.as_str());
    vec![finding.count("intervals", run.intervals.impossible).ns("own", *own).ns("children", *children)]
}
