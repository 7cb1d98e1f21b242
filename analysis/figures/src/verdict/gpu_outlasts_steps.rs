//! A GPU that works on after its steps have ended, so that nobody sees it wait.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

/// From this share of the GPU's work done after its steps had ended on, shares of step time say little.
const OUTLASTS: f64 = 0.05;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let Some(busy) = &run.gpu.busy else { return Vec::new() };
    let after = busy.after_ns as f64 / busy.own_ns.max(1) as f64;
    if after <= OUTLASTS {
        return Vec::new();
    }
    let finding = Finding::new(
        Code::GpuOutlastsSteps,
        "{share} of the GPU's work ran after its steps had ended on the host: steps do not wait for the GPU",
        "Read shares of step time with care, or put the call that waits for the result inside the step",
    );
    vec![finding.ratio("share", after)]
}
