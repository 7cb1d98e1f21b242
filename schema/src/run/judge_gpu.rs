//! GPU time and kernels: the rules of [`judge`](super::judge) for them.

use super::{Code, Finding, GPU_CLOCK_BOUND_NS, GpuAccount};
use std::collections::BTreeMap;

/// GPU time and kernels that are missing, and what their times are worth.
pub(super) fn findings(account: &GpuAccount, found: &mut Vec<Finding>) {
    let get = |map: &BTreeMap<String, u64>, key: &str| map.get(key).copied().unwrap_or(0);
    let marks = |key| get(&account.marks, key);
    let recorded = marks("recorded");
    if account.clock.is_some() && account.timing != "off" && recorded == 0 {
        let (message, remedy) = if marks("capturing") > 0 {
            (
                "GPU time was asked for, but there is none: the stream was capturing a CUDA graph throughout",
                "put a span around the graph's launches, too",
            )
        } else if marks("failed") > 0 {
            (
                "GPU time was asked for, but there is none: the driver refused every mark",
                "see gpu.statistics in run.json for the driver's reason",
            )
        } else {
            (
                "GPU time was asked for, but there is none: no thread that entered a span had a CUDA context",
                "run the model on a CUDA device, and enter its spans on the thread that launches its work",
            )
        };
        found.push(Finding::new(Code::NoGpuTime, message, remedy));
    }
    let (full, failed, aged) = (marks("full"), marks("failed"), marks("lost"));
    if full + failed + aged > 0 && recorded > 0 {
        found.push(
            Finding::new(
                Code::GpuMarksLost,
                "{lost} GPU marks are missing ({full} because too many were under way, {refused} refused, {aged} never \
                 reached)",
                "intervals without both marks have no GPU time; use the adaptive tier, which makes fewer marks, or \
                 allow more of them under way (in_flight)",
            )
            .count("lost", full + failed + aged)
            .count("full", full)
            .count("refused", failed)
            .count("aged", aged),
        );
    }
    let late = get(&account.intervals, "late") + get(&account.intervals, "forgotten");
    if late > 0 {
        let finding = Finding::new(
            Code::GpuTimeLate,
            "{intervals} intervals went out without their GPU time, because the device or the pipeline was too far behind",
            "nothing to do: their host times are complete",
        );
        found.push(finding.count("intervals", late));
    }
    if account.outside_parent > 0 {
        let finding = Finding::new(
            Code::GpuOutsideParent,
            "{intervals} intervals have GPU time outside their parent's",
            "work of one step went to several streams: GPU times of its parents are too small",
        );
        found.push(finding.count("intervals", account.outside_parent));
    }
    gpu_clock(account, found);
    kernels(account, found);
}

/// A device's clock that is too uncertain for its times to be compared with the host's.
fn gpu_clock(account: &GpuAccount, found: &mut Vec<Finding>) {
    let uncertain = |ns: &u64| *ns > GPU_CLOCK_BOUND_NS;
    let devices = account.devices.iter().filter(|d| !d.anchors.is_empty()).map(|d| d.skew_bound_ns);
    if let Some(bound) = devices.max().filter(uncertain) {
        let finding = Finding::new(
            Code::GpuClockUncertain,
            "the GPU's clock is known only to {bound} of the host's: where intervals began on the GPU is not comparable \
             with host times",
            "GPU durations are right; run again with a warm-up before what matters (modules load at first use and hold \
             up the driver), or leave the machine a core for the profiler's threads",
        );
        found.push(finding.ns("bound", bound));
    }
    if let Some(bound) = account.kernels.as_ref().and_then(|k| k.clock_bound_ns).filter(uncertain) {
        let finding = Finding::new(
            Code::GpuClockUncertain,
            "the kernel recorder's clock is off from the host's by {bound} or more: how busy the GPU was while steps \
             ran, why it was idle, and queue delays say nothing, and reports leave them out",
            "kernels' durations are right; check that nothing set the system clock during the run, and record the \
             window again",
        );
        found.push(finding.ns("bound", bound));
    }
}

fn kernels(account: &GpuAccount, found: &mut Vec<Finding>) {
    let Some(kernels) = &account.kernels else { return };
    if let Some(error) = &kernels.error {
        let finding = Finding::new(
            Code::NoKernels,
            "kernels were not recorded: {error}",
            "times of intervals are not affected; `--cupti=off` has layers timed by marks",
        );
        found.push(finding.text("error", error));
    } else if kernels.windows == 0 {
        // The schedule did not reach a window, or nobody asked for one.
        found.push(Finding::new(
            Code::NoKernelWindow,
            "no window of kernels was reached",
            "run more steps, or begin the window earlier",
        ));
    } else if kernels.recorded <= kernels.outside_window {
        let finding = Finding::new(
            Code::NoKernels,
            "{windows} windows of kernels with {steps} steps recorded none",
            "run more steps after the recorder is ready, on a CUDA device",
        );
        found.push(finding.count("windows", kernels.windows).count("steps", kernels.steps));
    }
    let lost = |message| Finding::new(Code::KernelsDropped, message, "use shorter windows");
    match (kernels.dropped, kernels.untold) {
        (0, 0) => {}
        (records, 0) => found.push(lost("the recorder of kernels lost {records} records").count("records", records)),
        (0, untold) => {
            let message = "the recorder of kernels lost {untold} records without a word of it: replays of graphs had fewer than \
                           others of the same graph";
            found.push(lost(message).count("untold", untold));
        }
        (records, untold) => {
            let message = "the recorder of kernels lost {records} records, and {untold} more without a word of it: replays of \
                           graphs had fewer than others of the same graph";
            found.push(lost(message).count("records", records).count("untold", untold));
        }
    }
    if kernels.late > 0 {
        let finding = Finding::new(
            Code::KernelsLate,
            "{kernels} kernels came after their intervals had gone out: these intervals' GPU time lacks them",
            "Kernels and shares of step time are complete; use shorter windows to have complete times of intervals as well",
        );
        found.push(finding.count("kernels", kernels.late));
    }
}
