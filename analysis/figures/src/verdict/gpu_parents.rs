//! Intervals with less GPU time than their children.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Place};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let Some((path, gpu, children)) = &run.intervals.gpu_worst else { return Vec::new() };
    let finding = Finding::new(
        Code::GpuParentShorterThanChildren,
        "{intervals} intervals have less GPU time than their children together; the worst is `{path}` with {gpu:raw} ns \
         against {children:raw} ns",
        "Work of one step went to several streams, or kernels of the parent were lost: its GPU self time is too small",
    );
    let finding = finding.at(Place::Path, path.as_str()).count("intervals", run.intervals.gpu_impossible);
    vec![finding.ns("gpu", *gpu).ns("children", *children)]
}
