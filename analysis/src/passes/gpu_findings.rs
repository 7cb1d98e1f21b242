//! Whether a run's GPU figures can be trusted, and what stands out in them.

use super::Analysis;
use super::busy::Busy;
use crate::reader::finding;
use crate::render::format::{count, duration, percent};
use candlescope_core::RecordKind;
use candlescope_core::run::{Finding, GPU_CLOCK_BOUND_NS, Severity};

/// Share of step time in gaps that the host caused, from which it is worth a finding.
const LAUNCH_BOUND: f64 = 0.20;
/// Share of GPU time in no path's self time, from which it is worth a finding.
const UNTOLD: f64 = 0.01;
/// Share of the GPU's work after its steps had ended, from which shares of their time say little.
const OUTLASTS: f64 = 0.05;
/// Share of samples in which something held clocks down, from which it is worth a finding.
const THROTTLED: f64 = 0.05;
/// Share of the recorded kernels launched outside every interval, from which figures by path are incomplete.
const UNATTRIBUTED: f64 = 0.01;

/// Adds what is to be said about GPU time, kernels, power and clocks.
pub(super) fn findings(analysis: &Analysis, findings: &mut Vec<Finding>) {
    absent(analysis, findings);
    kernels(analysis, findings);
    if let Some((path, gpu, children)) = &analysis.intervals.gpu_worst {
        findings.push(finding(
            Severity::Warning,
            "gpu_parent_shorter_than_children",
            format!(
                "{} intervals have less GPU time than their children together; the worst is `{path}` with {gpu} ns against {children} ns",
                count(analysis.intervals.gpu_impossible)
            ),
            "Work of one step went to several streams, or kernels of the parent were lost: its GPU self time is too small",
        ));
    }
    if let Some(busy) = &analysis.gpu.busy {
        device_time(busy, findings);
    }
    untold(analysis, findings);
    if let Some(ns) = analysis.gpu.clock_bound_ns.filter(|ns| *ns > GPU_CLOCK_BOUND_NS) {
        findings.push(finding(
            Severity::Warning,
            "gpu_clock_uncertain",
            format!(
                "the GPU's times may be off by {} on the host's time line; the report therefore leaves out how busy the GPU was while steps ran, why it was \
                 idle and how long kernels waited",
                duration(ns as f64)
            ),
            "Durations of kernels are not affected; record again once the model has loaded",
        ));
    }
    sensors(analysis, findings);
}

/// Asked for and not there. The session says more where it could; this is for what was lost since.
fn absent(analysis: &Analysis, findings: &mut Vec<Finding>) {
    let Some(account) = &analysis.manifest.gpu else { return };
    let asked = account.clock.is_some() && account.timing != "off";
    if asked && analysis.intervals.count > 0 && !has_gpu_time(analysis) {
        findings.push(finding(
            Severity::Error,
            "no_gpu_time",
            format!("GPU time was asked for (`{}`), but no interval and no step has any", account.timing),
            "Run the model on a CUDA device, and enter its spans on the thread that launches its work",
        ));
    }
    let Some(kernels) = &account.kernels else { return };
    if kernels.dropped > 0 {
        findings.push(finding(
            Severity::Warning,
            "kernels_dropped",
            format!("the recorder of kernels lost {} records", count(kernels.dropped)),
            "Use shorter windows",
        ));
    }
    if kernels.late > 0 {
        findings.push(finding(
            Severity::Warning,
            "kernels_late",
            format!(
                "{} kernels came after their intervals had gone out: these intervals' GPU time lacks them",
                count(kernels.late)
            ),
            "Kernels and shares of step time are complete; use shorter windows to have complete times of intervals as well",
        ));
    }
}

fn kernels(analysis: &Analysis, findings: &mut Vec<Finding>) {
    let kernels = &analysis.kernels;
    let (n, ns) = kernels.unattributed;
    if n > 0 {
        let share = n as f64 / kernels.records.max(1) as f64;
        findings.push(finding(
            if share > UNATTRIBUTED { Severity::Warning } else { Severity::Info },
            "kernels_unattributed",
            format!(
                "{} of {} kernels, copies and memsets ({}) were launched outside every recorded interval",
                count(n),
                count(kernels.records),
                duration(ns as f64)
            ),
            "Put a span around the work that launches them; they are in no path's time",
        ));
    }
    if analysis.gpu.without_step > 0 {
        findings.push(finding(
            Severity::Warning,
            "kernels_without_step",
            format!(
                "{} kernels, copies and memsets belong to steps that are not in the run",
                count(analysis.gpu.without_step)
            ),
            "See the findings about lost records and segments",
        ));
    }
}

/// GPU time of paths whose children were not all measured is in nobody's self time: shares then do not add up to 1.
fn untold(analysis: &Analysis, findings: &mut Vec<Finding>) {
    let told: f64 = analysis.operators.iter().filter_map(|o| o.gpu?.self_share).sum();
    let some = analysis.operators.iter().any(|o| o.gpu.is_some_and(|gpu| gpu.self_share.is_some()));
    if some && told < 1.0 - UNTOLD {
        let missing =
            analysis.operators.iter().filter_map(|o| o.gpu.filter(|gpu| gpu.self_ns.is_none()).map(|gpu| (o, gpu)));
        let worst = missing.max_by(|a, b| a.1.total_ns.total_cmp(&b.1.total_ns));
        let most = worst.map(|(o, _)| format!("; most of it below `{}`", o.path)).unwrap_or_default();
        findings.push(finding(
            Severity::Info,
            "gpu_time_untold",
            format!(
                "{} of GPU time is in no path's self time, because not all children were measured{most}",
                percent(1.0 - told)
            ),
            "Time every interval of some steps (tier `adaptive` or `all`), or record kernels",
        ));
    }
}

fn device_time(busy: &Busy, findings: &mut Vec<Finding>) {
    let after = busy.after_ns as f64 / busy.own_ns.max(1) as f64;
    if after > OUTLASTS {
        findings.push(finding(
            Severity::Info,
            "gpu_outlasts_steps",
            format!(
                "{} of the GPU's work ran after its steps had ended on the host: steps do not wait for the GPU",
                percent(after)
            ),
            "Read shares of step time with care, or put the call that waits for the result inside the step",
        ));
        return;
    }
    if let Some(share) = busy.launch_bound_share().filter(|share| *share > LAUNCH_BOUND) {
        let launches = busy.launches_per_step().map_or(String::new(), |n| format!(", {n:.0} kernels a step"));
        findings.push(finding(
            Severity::Info,
            "launch_bound",
            format!(
                "the GPU waits for the host in {} of the recorded steps' time (busy {}{launches})",
                percent(share),
                percent(busy.busy_share().unwrap_or(0.0))
            ),
            "Launch fewer, larger kernels (fuse, batch), capture the step as a CUDA graph, or take work off the launching thread; \
             recording kernels slows launches too, so compare with a run without it",
        ));
    }
}

fn sensors(analysis: &Analysis, findings: &mut Vec<Finding>) {
    for (uuid, sensor) in &analysis.energy.sensors {
        let off = sensor.check.and_then(|check| Some((check, check.ratio()?)));
        if let Some((check, ratio)) = off.filter(|(check, ratio)| (ratio - 1.0).abs() > check.tolerance()) {
            findings.push(finding(
                Severity::Warning,
                "energy_sensors_disagree",
                format!(
                    "energy added up from power is {:.2} of the energy counter's difference, over {} on `{uuid}`",
                    ratio,
                    duration(check.time_ns as f64)
                ),
                "Power may be a mean over a second on this GPU, or be sampled too rarely: trust the counter, and do not trust short windows",
            ));
        }
    }
    for device in &analysis.devices {
        if let Some((reason, share)) = device.throttled.first().filter(|(_, share)| *share > THROTTLED) {
            findings.push(finding(
                Severity::Warning,
                "gpu_throttled",
                format!("clocks of `{}` were held down ({}) in {} of the samples while measured steps ran", device.uuid, reason, percent(*share)),
                "Figures depend on heat and power limits: cool the GPU, raise its limit, or lock its clocks for comparisons",
            ));
        }
    }
}

/// Whether any interval or step has GPU time, or any kernel was recorded.
fn has_gpu_time(analysis: &Analysis) -> bool {
    !analysis.gpu.kinds.is_empty()
        || analysis.operators.iter().any(|o| o.gpu.is_some())
        || analysis.rows.get(RecordKind::Kernel.table()).is_some_and(|&n| n > 0)
}
