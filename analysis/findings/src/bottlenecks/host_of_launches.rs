//! What the host does while the device waits for it to launch work, by whose code it is.

use super::draft::{Draft, RuleResults};
use super::launch_bound::is_late;
use super::query::functions_by_crate;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing, RATES};

/// Fewer samples do not tell parts apart.
const FEWEST: u64 = 100;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::HostOfLaunches;
    if !scene.on_gpu || step.runs_as_graph() || !is_late(step) {
        return;
    }
    let Some(parts) = &step.launches else { return out.abstain(code, step, Missing::Stacks) };
    if parts.samples < FEWEST || parts.unobserved_ns() <= 0.0 {
        return;
    }
    let t = step.lines.t;
    let share = |ns: f64| ns / parts.whole_ns();
    let mut draft = Draft::new(code, step)
        .steps(step.row.steps)
        .derived("host_share", "ratio", share(parts.all_ns - parts.waiting_ns()), parts.samples)
        .derived("waiting", "ratio", share(parts.waiting_ns()), parts.samples)
        .derived_if("off_cpu", "ratio", (parts.off_cpu_ns > 0.0).then(|| share(parts.off_cpu_ns)), parts.samples);
    for (part, ns) in parts.by_part() {
        draft = draft.derived(part, "ratio", share(ns), parts.samples);
    }
    if let Some(function) = parts.top() {
        let function = function.function.clone();
        draft = draft.at(|at| at.function(&function));
    }
    let draft = draft.query(functions_by_crate(step)).sure(
        ConfidenceLevel::Low,
        "sampled; low is without allocation, high as if only the driver's and cuBLAS's own work were left",
    );
    let unobserved_ns = parts.unobserved_ns() + parts.off_cpu_ns;
    let [few, all] = [parts.allocation_ns(), parts.all_but_driver_ns()].map(|ns| ns / unobserved_ns * t);
    out.found.push(draft.relief(|rate| {
        let ns = match rate {
            rate if rate <= RATES[0] => few,
            rate if rate < RATES[2] => (few + all) / 2.0,
            _ => all,
        };
        Relief::Host(ns)
    }));
}
