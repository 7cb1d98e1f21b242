//! Choosing the next token on the host.

use super::draft::{Draft, Out};
use super::gains::Change;
use super::query::intervals;
use super::scene::{Scene, StepScene};
use crate::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_core::Phase;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::HostSampling;
    if !step.decodes() {
        return;
    }
    let path = format!("{}/{}", step.name, Phase::Sample.as_str());
    let Some(totals) = scene.totals(&path).filter(|totals| totals.calls > 0) else {
        return out.abstain(code, step, Missing::SamplePhase);
    };
    let steps = step.row.steps.max(1) as f64;
    let host = totals.total_ns as f64 / steps;
    // On a GPU, most of it is waiting for the logits.
    let waits = match (scene.on_gpu, step.work) {
        (false, _) => 0.0,
        (true, None) => return out.abstain(code, step, Missing::Kernels),
        (true, Some(_)) => {
            let operator = scene.analysis.operators.iter().find(|operator| operator.path == path);
            operator.and_then(|operator| operator.host_wait_ns).unwrap_or(0.0) / steps
        }
    };
    let work = (host - waits).max(0.0);
    let draft = Draft::new(code, step)
        .at(|place| place.path(&path))
        .steps(step.row.steps)
        .measured("host_ns", "ns", host, totals.calls)
        .measured("waiting_ns", "ns", waits, totals.calls)
        .derived("work_ns", "ns", work, totals.calls)
        .query(intervals(&path));
    let draft = if scene.on_gpu {
        draft.sure(ConfidenceLevel::Medium, "the device has nothing to do until the token is chosen")
    } else {
        draft.sure(ConfidenceLevel::High, "measured on the host, where the step runs")
    };
    out.found.push(
        draft.change(
            |rate| {
                if scene.on_gpu { Change::Wait(path.clone(), work * rate) } else { Change::Host(work * rate) }
            },
        ),
    );
}
