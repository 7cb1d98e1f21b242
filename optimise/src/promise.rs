//! What a remedy promises: the gain of the run's step time, simulated or of a finding.

use crate::account::Promise;
use crate::facts::Facts;
use crate::remedies::{Attempt, State};
use candlescope_figures::advice::{Advice, AdviceCode};
use candlescope_predict::simulation::{Change, Simulation, StepGroup, parse_changes};
use candlescope_work::estimate::Estimate;
use std::collections::BTreeMap;

/// What an attempt promises; `None` where neither a simulation nor a finding says anything.
pub(crate) fn promise(state: &State<'_>, simulation: Option<&Simulation>, attempt: &Attempt) -> Option<Promise> {
    let finding = of_findings(state.findings(attempt.obtains));
    let simulated = attempt.simulated.as_ref().zip(simulation).and_then(|(change, simulation)| {
        Some((of_run(state, simulation, std::slice::from_ref(change))?, change.to_string()))
    });
    match (simulated, finding) {
        // A replay's own gain is not the finding's, which reckons with what is left of the device's rate.
        (Some((gain, change)), _) => Some(Promise::of(gain, "what_if", Some(change))),
        (None, Some((code, gain))) => Some(Promise::of(gain, code.as_str(), None)),
        (None, None) => None,
    }
}

/// What somebody says that a change obtains: a finding by its code, or changes as `--what-if` takes them.
///
/// # Errors
/// There is no such finding, or the changes cannot be read or simulated.
pub(crate) fn named(state: &State<'_>, simulation: Option<&Simulation>, text: &str) -> Result<Promise, String> {
    if let Some(code) = AdviceCode::ALL.iter().find(|code| code.as_str() == text) {
        // Who names it takes it as it was found, on a disturbed machine, too: a neighbour is what `preempted` is about.
        let of_code = state.diagnosis.findings.iter().filter(|advice| advice.code == *code);
        let (_, gain) = of_findings(of_code).ok_or_else(|| {
            let there: Vec<&str> = state.diagnosis.findings.iter().map(|advice| advice.code.as_str()).collect();
            format!("the run has no finding `{text}`; it has {}", there.join(", "))
        })?;
        return Ok(Promise::of(gain, text, None));
    }
    let changes = parse_changes(text).map_err(|error| format!("`{text}` is no finding, and {error}"))?;
    let simulation = simulation.ok_or("no step of the run can be replayed, so nothing can be simulated")?;
    let gain =
        of_run(state, simulation, &changes).ok_or_else(|| format!("nothing in the run is changed by `{text}`"))?;
    Ok(Promise::of(gain, "what_if", Some(text.to_string())))
}

/// What findings gain the run: of each kind of step the one that gains the most, because a remedy is for all kinds of steps. The
/// code is that of the largest.
fn of_findings<'a>(findings: impl Iterator<Item = &'a Advice>) -> Option<(AdviceCode, Estimate)> {
    let mut of_steps: BTreeMap<&str, &Advice> = BTreeMap::new();
    for advice in findings {
        let kept = of_steps.entry(&advice.place.phase).or_insert(advice);
        if advice.of_run().mid > kept.of_run().mid {
            *kept = advice;
        }
    }
    let largest = of_steps.values().max_by(|a, b| a.of_run().mid.total_cmp(&b.of_run().mid))?;
    let sum = |of: fn(&Estimate) -> f64| of_steps.values().map(|advice| of(&advice.of_run())).sum::<f64>().min(1.0);
    Some((largest.code, Estimate { low: sum(|e| e.low), mid: sum(|e| e.mid), high: sum(|e| e.high) }))
}

/// What the steps of the run gain, each kind by its share of their time.
fn of_run(state: &State<'_>, simulation: &Simulation, changes: &[Change]) -> Option<Estimate> {
    let (mut sum, mut any) = (Estimate::default(), false);
    for group in simulation.groups() {
        let share = state.diagnosis.steps.iter().find(|step| step.phase == group.name())?.share_of_time;
        // Where there is nothing to change, nothing is gained.
        let Some(gain) = gain(group, changes, state.facts) else { continue };
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
fn gain(group: &StepGroup, changes: &[Change], facts: &Facts) -> Option<Estimate> {
    let outcome = group.simulate(changes).ok()?;
    let Some(each) = outcome.seconds_per_sequence else { return Some(outcome.share_of_step) };
    let now = group.typical().ok()?.unobserved.seconds.mid / facts.batch as f64;
    if now <= 0.0 {
        return None;
    }
    // The longest time gains the least.
    Some(Estimate { low: 1.0 - each.high / now, mid: 1.0 - each.mid / now, high: 1.0 - each.low / now })
}
