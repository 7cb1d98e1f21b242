//! Recording that takes a large share of step time.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

/// From this share of step time taken by the profiler on, there is a finding.
const OVERHEAD: f64 = 0.02;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let overhead = &run.manifest.overhead;
    let in_place = overhead.in_place.as_ref().filter(|in_place| in_place.n_plain > 0);
    // What was measured and cannot be told from nothing, or from little, is no finding.
    if in_place.and_then(|in_place| in_place.low).is_some_and(|low| low <= OVERHEAD) {
        return Vec::new();
    }
    let in_place = in_place.map(|in_place| in_place.ratio);
    let Some(ratio) = in_place.or(overhead.ratio).filter(|ratio| *ratio > OVERHEAD) else { return Vec::new() };
    let finding = Finding::new(
        Code::OverheadHigh,
        "the layer takes {share} of step time on the application's threads",
        "Record fewer spans (leave out the busiest target with exclude_target), or fewer steps (with a schedule)",
    );
    vec![finding.ratio("share", ratio)]
}
