//! The device waits for the host to launch work: a CUDA graph would launch all of it at once.

use super::draft::{Draft, Out};
use super::gains::Change;
use super::query::steps_of;
use super::scene::{Scene, StepScene};
use crate::advice::{AdviceCode, ConfidenceLevel, Missing};
use crate::simulation::Change as Replayed;

/// From this share of the steps' time on, spent in gaps whose launch came too late.
const LATE: f64 = 0.15;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::LaunchBound;
    if !scene.on_gpu || step.runs_as_graph() {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    if work.launch_every.is_none() {
        return out.abstain(code, step, Missing::LaunchCalls);
    }
    let Some(line) = step.line else { return out.abstain(code, step, Missing::CommonClock) };
    let gaps = &line.gaps;
    let profiler_ns = line.profiler_ns.unwrap_or(0);
    let share = |ns: u64| line.of_wall(ns.saturating_sub(profiler_ns)).unwrap_or(0.0);
    // Gaps that the clocks cannot judge may all have waited for the host, or none. How long they are is measured on the
    // device's own clock, and whether a graph closes them is simulated, so they count where the replay holds.
    let (late, late_at_most) = (share(gaps.host_bound.ns), share(gaps.host_bound.ns + gaps.uncertain.ns));
    if late_at_most <= LATE {
        return;
    }
    if late <= LATE && step.replays.is_none() {
        return out.abstain(code, step, Missing::CommonClock);
    }
    let n = work.steps;
    let level = match () {
        () if late <= LATE => ConfidenceLevel::Low,
        () if work.plain.is_some() => ConfidenceLevel::High,
        () => ConfidenceLevel::Medium,
    };
    let reason = match level {
        ConfidenceLevel::Low => {
            "the clocks of host and device cannot tell which gaps waited for the host; that a graph closes them is \
             simulated"
        }
        ConfidenceLevel::High => {
            "kernels were measured, and the step's time agrees with that of steps without recorded kernels"
        }
        _ => "kernels were measured, but all steps are slowed by recording them, so the gain is rather too large",
    };
    let sql = format!(
        "SELECT run, step, operator_of(path, module) AS operator, name, gpu_start_ns - idle_from_ns AS gap_ns FROM (\
         SELECT *, max(gpu_start_ns + gpu_dur_ns) OVER (PARTITION BY run, device ORDER BY gpu_start_ns, correlation \
         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_from_ns FROM kernels) AS k \
         WHERE (run, step) IN {} AND launch_start_ns > idle_from_ns ORDER BY gap_ns DESC",
        steps_of(step)
    );
    let draft = Draft::new(code, step)
        .measured("late", "ratio", late, n)
        .measured("late_at_most", "ratio", late_at_most, n)
        .measured("device_ns", "ns", step.each(work.busy_ns), n)
        .measured("kernels", "count", step.each(work.kernels), n)
        .derived("step_ns", "ns", step.time.unobserved_ns, step.time.n)
        .derived("host_outside_ns", "ns", step.model.host_outside, n)
        .query(sql)
        .sure(level, reason);
    out.found.push(draft.replayed(Change::Graph, |_| Some(vec![Replayed::Graph])));
}
