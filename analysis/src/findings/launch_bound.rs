//! A GPU that waits for the host, or that works on after its steps have ended, so that waiting cannot be detected.

use crate::passes::Analysis;
use candlescope_schema::run::{Code, Finding};

/// From this share of step time in gaps that the host caused on, there is a finding.
const LAUNCH_BOUND: f64 = 0.20;
/// From this share of the GPU's work done after its steps had ended on, shares of step time say little.
const OUTLASTS: f64 = 0.05;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let Some(busy) = &run.gpu.busy else { return Vec::new() };
    let after = busy.after_ns as f64 / busy.own_ns.max(1) as f64;
    if after > OUTLASTS {
        let finding = Finding::new(
            Code::GpuOutlastsSteps,
            "{share} of the GPU's work ran after its steps had ended on the host: steps do not wait for the GPU",
            "Read shares of step time with care, or put the call that waits for the result inside the step",
        );
        return vec![finding.ratio("share", after)];
    }
    let Some(share) = busy.launch_bound_share().filter(|share| *share > LAUNCH_BOUND) else { return Vec::new() };
    let finding = Finding::new(
        Code::LaunchBound,
        "the GPU waits for the host in {share} of the recorded steps' time (busy {busy}[, {launches:.0} kernels a step])",
        "Launch fewer, larger kernels (fuse, batch), capture the step as a CUDA graph, or take work off the launching \
         thread; recording kernels slows launches too, so compare with a run without it",
    );
    let finding = finding.ratio("share", share).ratio("busy", busy.busy_share().unwrap_or(0.0));
    vec![match busy.launches_per_step() {
        Some(n) => finding.number("launches", "kernels/step", n),
        None => finding,
    }]
}
