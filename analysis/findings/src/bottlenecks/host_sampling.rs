//! Choosing the next token on the host.

use super::draft::{Draft, RuleResults};
use super::query::{all_intervals, intervals};
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing, RATES};
use candlescope_schema::Phase;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::HostSampling;
    if !step.decodes() {
        return;
    }
    let path = format!("{}/{}", step.name, Phase::Sample.as_str());
    let Some(totals) = scene.totals(&path).filter(|totals| totals.calls > 0) else {
        return out.abstain(code, step, Missing::SamplePhase);
    };
    // On a CPU from the usual steps, as its share of them; a stall of one is not what choosing takes.
    let usual = step.usual.filter(|usual| !scene.on_gpu && usual.steps > 0);
    let share = usual.and_then(|usual| totals.usual.share(usual));
    let steps = usual.map_or(step.row.steps, |usual| usual.steps).max(1) as f64;
    let host = if usual.is_some() { totals.usual.total_ns } else { totals.total_ns } as f64 / steps;
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
        .steps(steps as u64)
        .measured("host_ns", "ns", host, if usual.is_some() { totals.usual.calls } else { totals.calls })
        .derived("waiting_ns", "ns", waits, totals.calls)
        .derived("work_ns", "ns", work, totals.calls)
        .query(if usual.is_some() { intervals(step, "host_ns", [path.as_str()]) } else { all_intervals(step, &path) });
    let draft = if scene.on_gpu {
        draft.sure(ConfidenceLevel::Medium, "the device has nothing to do until the token is chosen")
    } else {
        draft.sure(ConfidenceLevel::High, "measured on the host, where the step runs")
    };
    out.found.push(draft.relief(|rate| {
        let t = step.time.unobserved_ns;
        match share {
            Some((_, least)) if rate <= RATES[0] => Relief::Operation(path.clone(), least * t * rate),
            Some((share, _)) => Relief::Operation(path.clone(), share * t * rate),
            None => Relief::Wait(path.clone(), work * rate),
        }
    }));
}
