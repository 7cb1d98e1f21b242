//! The host waits for the device, and only then prepares what comes next.

use super::draft::{Draft, RuleResults};
use super::query::kernels;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::SyncDrain;
    if !scene.on_gpu {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    if work.launch_every.is_none() {
        return out.abstain(code, step, Missing::LaunchCalls);
    }
    if step.line.is_none() {
        return out.abstain(code, step, Missing::CommonClock);
    }
    for drain in &work.drains {
        let idle = step.each(drain.idle_ns) * step.slowed();
        let place = drain.path.as_deref();
        let draft = Draft::new(code, step)
            .at(|at| match place {
                Some(path) => at.path(path).kernel(&drain.name),
                None => at.kernel(&drain.name),
            })
            .derived("waits", "count", step.each(drain.count), drain.count)
            .derived("blocked_ns", "ns", step.each(drain.blocked_ns), drain.count)
            .derived("idle_ns", "ns", step.each(drain.idle_ns), drain.count)
            .query(kernels(
                step,
                "kind = 'memcpy' AND name = 'dtoh' AND launch_start_ns + launch_dur_ns >= gpu_start_ns + gpu_dur_ns",
            ))
            .sure(
                ConfidenceLevel::Medium,
                "the idle time is measured; whether the next launch needs what was waited for is not known",
            );
        out.found.push(draft.relief(|rate| Relief::Wait(place.unwrap_or_default().to_string(), idle * rate)));
    }
}
