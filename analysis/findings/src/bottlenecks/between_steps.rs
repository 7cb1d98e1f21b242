//! What the host does between the steps of a request: tokenising, detokenising, printing.

use super::draft::{Draft, RuleResults};
use super::scene::{Scene, StepScene};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::BetweenSteps;
    // A request's time is told once, at the steps that have most of it.
    if scene.steps.first().is_none_or(|first| first.name != step.name) {
        return;
    }
    let measured = scene.analysis.latency.requests.iter().filter(|request| !request.warmup);
    let known: Vec<(u64, u64)> = measured.filter_map(|request| request.outside_steps).collect();
    if known.is_empty() {
        return out.abstain(code, step, Missing::WholeRequests);
    }
    let (whole, outside) = known.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0 as f64, sum.1 + one.1 as f64));
    if outside <= 0.0 {
        return;
    }
    let n = known.len() as u64;
    let steps = step.row.steps.max(1) as f64;
    let draft = Draft::new(code, step)
        .steps(step.row.steps)
        .measured("requests_ns", "ns", whole, n)
        .derived("steps_ns", "ns", whole - outside, n)
        .derived("each_step_ns", "ns", outside / steps, n)
        .query(
            "SELECT run, request, max(r.host_start_ns + r.host_dur_ns) - min(s.host_start_ns) AS requests_ns, \
             CAST(sum(s.host_dur_ns) AS BIGINT) AS own_steps_ns FROM measured_requests AS r JOIN measured_steps AS s \
             USING (run, request) GROUP BY run, request ORDER BY requests_ns - own_steps_ns DESC"
                .to_string(),
        )
        .sure(ConfidenceLevel::Medium, "measured; a part of it cannot be left out");
    let share = if whole > 0.0 { outside / whole } else { 0.0 };
    out.found.push(draft.gain(|rate| share * rate));
}
