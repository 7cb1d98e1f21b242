//! What a remedy promises: the gain of the run's step time, simulated or of a finding.

use crate::account::Promise;
use crate::facts::Facts;
use crate::remedies::{Attempt, State};
use candlescope_predict::simulation::{Change, Simulation, StepGroup};
use candlescope_work::estimate::Estimate;

/// What an attempt promises; `None` where neither a simulation nor a finding says anything.
pub(crate) fn promise(state: &State<'_>, simulation: Option<&Simulation>, attempt: &Attempt) -> Option<Promise> {
    let finding = state.finding(attempt.obtains);
    let simulated = attempt
        .simulated
        .as_ref()
        .zip(simulation)
        .and_then(|(change, simulation)| Some((of_run(state, simulation, change)?, change.to_string())));
    let code = finding.map_or("what_if", |finding| finding.code.as_str());
    match (simulated, finding) {
        (Some((gain, change)), _) => Some(Promise::of(gain, code, Some(change))),
        (None, Some(finding)) => Some(Promise::of(finding.of_run(), code, None)),
        (None, None) => None,
    }
}

/// What the steps of the run gain, each kind by its share of their time.
fn of_run(state: &State<'_>, simulation: &Simulation, change: &Change) -> Option<Estimate> {
    let (mut sum, mut any) = (Estimate::default(), false);
    for group in simulation.groups() {
        let share = state.diagnosis.steps.iter().find(|step| step.phase == group.name())?.share_of_time;
        // Where there is nothing to change, nothing is gained.
        let Some(gain) = gain(group, change, state.facts) else { continue };
        any = true;
        sum = Estimate {
            low: sum.low + share * gain.low,
            mid: sum.mid + share * gain.mid,
            high: sum.high + share * gain.high,
        };
    }
    any.then_some(sum)
}

/// What a kind of step gains; of more sequences, what each of them gains.
fn gain(group: &StepGroup, change: &Change, facts: &Facts) -> Option<Estimate> {
    let outcome = group.simulate(std::slice::from_ref(change)).ok()?;
    let Some(each) = outcome.seconds_per_sequence else { return Some(outcome.share_of_step) };
    let now = group.typical().ok()?.unobserved.seconds.mid / facts.batch as f64;
    if now <= 0.0 {
        return None;
    }
    // The longest time gains the least.
    Some(Estimate { low: 1.0 - each.high / now, mid: 1.0 - each.mid / now, high: 1.0 - each.low / now })
}
