//! Intervals whose parent is not in the run.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    if run.intervals.orphans == 0 {
        return Vec::new();
    }
    let finding = Finding::new(
        Code::Orphans,
        "the parents of {intervals} intervals were lost; these intervals count as outermost",
        "See the findings about lost intervals and segments",
    );
    vec![finding.count("intervals", run.intervals.orphans)]
}
