//! What a remedy promises: the gain of the run's step time, simulated or of a finding.

use crate::account::Promise;
use crate::facts::Facts;
use crate::remedies::{Attempt, State};
use candlescope_core::Phase;
use candlescope_figures::advice::{Advice, AdviceCode, UnobservedStep};
use candlescope_predict::simulation::{Change, Simulation, StepGroup, parse_changes};
use candlescope_work::estimate::Estimate;
use std::collections::BTreeMap;

/// Shares of a step's time that are gained, by kind of step.
pub(crate) type ByKind = BTreeMap<String, Estimate>;

/// A promise, and what it rests on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromisedGain {
    pub(crate) promise: Promise,
    /// What each kind of step gains; of the others nothing is said.
    pub(crate) by_kind: ByKind,
    /// What was simulated; empty for the gain of findings.
    pub(crate) changes: Vec<Change>,
}

/// What an attempt promises; `None` where neither a simulation nor a finding says anything.
pub(crate) fn promise(state: &State<'_>, simulation: Option<&Simulation>, attempt: &Attempt) -> Option<PromisedGain> {
    let simulated = attempt.simulated.as_ref().zip(simulation);
    // A replay's own gain is not the finding's, which reckons with what is left of the device's rate.
    simulated
        .and_then(|(change, simulation)| of_replay(state, simulation, vec![change.clone()]))
        .or_else(|| of_findings(state.findings(attempt.obtains)))
}

/// The word for a promise of several findings at once, where one's has its code.
pub(crate) const TOGETHER: &str = "together";

/// What somebody says that a change obtains: a finding by its code, all findings at once, or changes as `--what-if`
/// takes them.
///
/// # Errors
/// There is no such finding, or the changes cannot be read or simulated.
pub(crate) fn named(state: &State<'_>, simulation: Option<&Simulation>, text: &str) -> Result<PromisedGain, String> {
    if let Some(code) = AdviceCode::named(text) {
        // Who names it takes it as it was found, on a disturbed machine, too: a neighbour is what `preempted` is about.
        let of_code = state.diagnosis.findings.iter().filter(|advice| advice.code == code);
        return of_findings(of_code).ok_or_else(|| {
            let there: Vec<&str> = state.diagnosis.findings.iter().map(|advice| advice.code.as_str()).collect();
            format!("the run has no finding `{text}`; it has {}", there.join(", "))
        });
    }
    if text == TOGETHER {
        let all = state.diagnosis.together.iter().map(|together| (together.phase.clone(), together.gain));
        let by_kind: ByKind = all.collect();
        let gain = of_run(state, &by_kind).ok_or("the run has no findings that would gain anything together")?;
        return Ok(PromisedGain { promise: Promise::of(gain, TOGETHER, None), by_kind, changes: Vec::new() });
    }
    let changes = parse_changes(text).map_err(|error| format!("`{text}` is no finding, and {error}"))?;
    let simulation = simulation.ok_or("no step of the run can be replayed, so nothing can be simulated")?;
    let mut found =
        of_replay(state, simulation, changes).ok_or_else(|| format!("nothing in the run is changed by `{text}`"))?;
    found.promise.simulated = Some(text.to_string());
    Ok(found)
}

/// What a replay of all changes at once gains the run; `None` where there is nothing to change.
pub(crate) fn of_replay(state: &State<'_>, simulation: &Simulation, changes: Vec<Change>) -> Option<PromisedGain> {
    let mut by_kind = ByKind::new();
    for group in simulation.groups() {
        state.diagnosis.steps.iter().find(|step| step.phase == group.name())?;
        // Where there is nothing to change, nothing is gained.
        let Some(gain) = gain(group, &changes, state.facts) else { continue };
        by_kind.insert(group.name().to_string(), gain);
    }
    with_prompts(&mut by_kind, &state.diagnosis.steps, &changes, state.facts);
    let gain = of_run(state, &by_kind)?;
    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
    Some(PromisedGain { promise: Promise::of(gain, "what_if", Some(words.join("+"))), by_kind, changes })
}

/// What findings gain the run: of each kind of step the one that gains the most, because a remedy is for all kinds of steps. The
/// code is that of the largest.
pub(crate) fn of_findings<'a>(findings: impl Iterator<Item = &'a Advice>) -> Option<PromisedGain> {
    let mut of_steps: BTreeMap<&str, &Advice> = BTreeMap::new();
    for advice in findings {
        let kept = of_steps.entry(&advice.place.phase).or_insert(advice);
        if advice.of_run().mid > kept.of_run().mid {
            *kept = advice;
        }
    }
    let largest = of_steps.values().max_by(|a, b| a.of_run().mid.total_cmp(&b.of_run().mid))?;
    let by_kind: ByKind = of_steps.iter().map(|(kind, advice)| (kind.to_string(), advice.gain)).collect();
    let sum = |of: fn(&Estimate) -> f64| of_steps.values().map(|advice| of(&advice.of_run())).sum::<f64>().min(1.0);
    let gain = Estimate { low: sum(|e| e.low), mid: sum(|e| e.mid), high: sum(|e| e.high) };
    let promise = Promise::of(gain, largest.code.as_str(), None);
    Some(PromisedGain { promise, by_kind, changes: Vec::new() })
}

/// What the run gains where its kinds of steps gain this, each by its share of their time; `None` where none does.
pub(crate) fn of_run(state: &State<'_>, by_kind: &ByKind) -> Option<Estimate> {
    let share =
        |kind: &str| state.diagnosis.steps.iter().find(|step| step.phase == kind).map(|step| step.share_of_time);
    let add = |sum: Estimate, gain: Estimate| Estimate {
        low: sum.low + gain.low,
        mid: sum.mid + gain.mid,
        high: sum.high + gain.high,
    };
    let gains = by_kind.iter().filter_map(|(kind, gain)| Some(gain.times(share(kind)?)));
    gains.reduce(add)
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

/// Adds what prompts gain that pass together as a batch, to what its decode steps gain by a replay: a step of prompts cannot be replayed
/// with more of them. Where nothing could be replayed, nothing is promised, for prompts alone are little of it.
fn with_prompts(by_kind: &mut ByKind, steps: &[UnobservedStep], changes: &[Change], facts: &Facts) {
    if by_kind.is_empty() {
        return;
    }
    for step in steps {
        if let Some(gain) = prompts_together(step, changes, facts).filter(|_| !by_kind.contains_key(&step.phase)) {
            by_kind.insert(step.phase.clone(), gain);
        }
    }
}

/// What each of so many sequences gains of a prompt's step on a device. The host does for all what it did for one; the device does at best
/// no more, either, and as a rule the work of all, so that the step takes the longer of the two. At worst each prompt takes what it took
/// alone, as where requests come one after the other into slots. `None` where the number of sequences is not what changes, and without
/// recorded kernels.
fn prompts_together(step: &UnobservedStep, changes: &[Change], facts: &Facts) -> Option<Estimate> {
    let sequences = changes.iter().rev().find_map(|change| match change {
        Change::Batch { sequences } => Some(f64::from(*sequences)),
        _ => None,
    })?;
    let device = step.device_ns.filter(|_| step.phase == Phase::Prefill.as_str() && step.unobserved_ns > 0.0)?;
    let least = facts.batch as f64 / sequences;
    let usually = if facts.is_continuous { 1.0 } else { least.max(device / step.unobserved_ns).min(1.0) };
    (least < 1.0).then_some(Estimate { low: 0.0, mid: 1.0 - usually, high: 1.0 - least })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Goal;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::{Diagnosis, JointGain};

    fn step(phase: &str) -> UnobservedStep {
        UnobservedStep {
            phase: phase.into(),
            n: 20,
            observed_ns: 1e6,
            unobserved_ns: 1e6,
            bound_ns: None,
            range_ns: None,
            basis: "made",
            device_ns: None,
            share_of_time: 0.5,
        }
    }

    #[test]
    fn prompts_of_a_batch_pass_together_on_a_device() {
        let facts = Facts::of(&RunManifest::default());
        let four = [Change::Batch { sequences: 4 }];
        let waits = UnobservedStep { device_ns: Some(1e5), ..step("prefill") };
        let found = prompts_together(&waits, &four, &facts).unwrap();
        assert_eq!((found.low, found.mid, found.high), (0.0, 0.75, 0.75), "the host's work is that of one prompt");
        let works = UnobservedStep { device_ns: Some(9e5), ..step("prefill") };
        let found = prompts_together(&works, &four, &facts).unwrap();
        assert!((found.mid - 0.1).abs() < 1e-9 && found.high == 0.75, "{found:?}");
        assert_eq!(prompts_together(&step("prefill"), &four, &facts), None, "on a processor");
        assert_eq!(prompts_together(&UnobservedStep { device_ns: Some(1e5), ..step("decode") }, &four, &facts), None);
        assert_eq!(prompts_together(&waits, &[Change::Graph], &facts), None);
        assert_eq!(prompts_together(&waits, &[Change::Batch { sequences: 1 }], &facts), None);

        // Decode steps could not be replayed: nothing is promised, rather than too little.
        let mut by_kind = ByKind::new();
        with_prompts(&mut by_kind, &[step("decode"), waits.clone()], &four, &facts);
        assert!(by_kind.is_empty());
        by_kind.insert("decode".to_string(), Estimate::exact(0.7));
        with_prompts(&mut by_kind, &[step("decode"), waits], &four, &facts);
        assert_eq!(by_kind.len(), 2, "{by_kind:?}");
    }

    #[test]
    fn all_findings_at_once_are_a_promise_that_somebody_can_name() {
        let step = step("decode");
        let gain = Estimate { low: 0.2, mid: 0.4, high: 0.6 };
        let together = JointGain { phase: "decode".into(), codes: vec![AdviceCode::Preempted], gain };
        let (facts, goal) = (Facts::of(&RunManifest::default()), Goal::default());
        let of = |diagnosis: &Diagnosis| named(&State { facts: &facts, goal: &goal, diagnosis }, None, "together");
        let found = of(&Diagnosis { steps: vec![step], together: vec![together], ..Diagnosis::default() }).unwrap();
        let Promise { low, mid, high, code, .. } = found.promise;
        assert_eq!(((low, mid, high), code.as_str(), found.by_kind["decode"]), ((0.1, 0.2, 0.3), "together", gain));
        assert!(of(&Diagnosis::default()).unwrap_err().contains("no findings"));
    }
}
