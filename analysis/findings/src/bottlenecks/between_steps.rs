//! What the host does between the steps of a request: tokenising, detokenising, printing.

use super::draft::{Draft, RuleResults};
use super::scene::{Scene, StepScene};
use candlescope_figures::OutsideSteps;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::stats::percentile_of;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::BetweenSteps;
    // A request's time is told once, at the steps that have most of it.
    if scene.steps.first().is_none_or(|first| first.name != step.name) {
        return;
    }
    let measured = scene.analysis.latency.requests.iter().filter(|request| !request.warmup);
    let known: Vec<OutsideSteps> = measured.filter_map(|request| request.outside_steps).collect();
    if known.is_empty() {
        return out.abstain(code, step, Missing::WholeRequests);
    }
    let sum = |of: fn(&OutsideSteps) -> u64| known.iter().map(|one| of(one) as f64).sum::<f64>();
    let (whole, outside) = (sum(|one| one.whole_ns), sum(|one| one.outside_ns));
    // What others took in single gaps is no work of the program's: medians do not have it, of gaps as of steps.
    let middle = |of: fn(&OutsideSteps) -> Option<f64>| {
        let all: Vec<f64> = known.iter().filter_map(of).collect();
        percentile_of(&all, 0.5).unwrap_or(0.0)
    };
    let gap = middle(|one| (one.gaps > 0).then_some(one.usual_gap_ns));
    let after = middle(|one| Some(one.after_ns as f64));
    let n = known.len() as u64;
    let usual = (gap * sum(|one| one.gaps) + after * n as f64).min(outside);
    if usual <= 0.0 {
        return;
    }
    let steps = step.row.steps.max(1) as f64;
    let usual_steps = step.usual_median_ns().map_or(1.0, |median| median * steps / step.row.total_ns.max(1) as f64);
    let in_steps = (whole - outside) * usual_steps.min(1.0);
    // A gap is each waiting request's, and a step may serve several of them.
    let shared = known.iter().map(|one| one.shared_steps).sum::<f64>();
    let for_each = if shared > 0.0 { steps * sum(|one| one.steps) / shared } else { steps };
    let draft = Draft::new(code, step)
        .steps(step.row.steps)
        .measured("requests_ns", "ns", whole, n)
        .derived("steps_ns", "ns", whole - outside, n)
        .derived("each_step_ns", "ns", usual / for_each, n)
        .derived("mean_ns", "ns", outside / for_each, n)
        .query(
            "SELECT run, request, max(r.host_start_ns + r.host_dur_ns) - min(s.host_start_ns) AS requests_ns, \
             CAST(sum(s.host_dur_ns) AS BIGINT) AS own_steps_ns FROM measured_requests AS r JOIN measured_steps AS s \
             USING (run, request) GROUP BY run, request ORDER BY requests_ns - own_steps_ns DESC"
                .to_string(),
        )
        .sure(ConfidenceLevel::Medium, "measured; a part of it cannot be left out");
    let share = usual / (usual + in_steps);
    out.found.push(draft.gain(|rate| share * rate));
}
