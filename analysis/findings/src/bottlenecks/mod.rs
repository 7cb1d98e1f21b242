//! Findings with gains: where time goes that could be had back, and how much. One rule per file; the list is that of
//! the codes, in `analysis/figures/src/advice/code.rs`.
//!
//! A rule looks at one kind of step in a [`Scene`](scene::Scene), and puts what it finds, or what it lacks, into
//! [`RuleResults`](draft::RuleResults). It never words anything: `candlescope_report` does.
//!
//! `CONTRIBUTING.md` has the walk "Add a finding".

mod counted_gain;
mod draft;
mod host_causes;
mod kernel_groups;
mod launch_parts;
mod operations;
mod product_line;
mod query;
mod roadmap;
mod roof;
mod scene;
mod spread;
mod two_lines;

use candlescope_figures::Analysis;
use candlescope_figures::account::Account;
use candlescope_figures::advice::{
    Abstention, Advice, AdviceCode, AdviceSeverity, ConfidenceLevel, Diagnosis, JointGain, LEAST_GAIN,
};
use candlescope_predict::simulation::Simulation;
use candlescope_schema::run::env_key;
use draft::{Candidate, RuleResults, each_once, replayed_gain};
use host_causes::{HostOfStep, POOL_SYNC};
use launch_parts::LaunchParts;
use scene::{Scene, StepScene};
use two_lines::Relief;

/// Looks for one thing in one kind of step.
type Rule = fn(&Scene<'_>, &StepScene<'_>, &mut RuleResults);

/// Declares the file of each finding of steps in the list, and all rules in its order. Those of ranks are in
/// `candlescope-ranks`.
macro_rules! rules {
    (of_steps { $($(#[$_meaning:meta])+ $_code:ident = $rule:ident, $_test:literal, $_gain:literal;)+ } of_ranks { $($_ranks:tt)+ }) => {
        $(mod $rule;)+

        const RULES: &[Rule] = &[$($rule::find,)+];
    };
}

candlescope_figures::each_advice!(rules);

pub use weight_streaming::STREAMED_BYTES;

/// Findings whose gain is simulated together, for each kind of step.
const TOGETHER: usize = 10;

/// What holds the run back, and what changing that would gain.
pub(crate) fn diagnose(analysis: &Analysis, account: Option<&Account>, simulation: Option<&Simulation>) -> Diagnosis {
    let mut scene = Scene::of(analysis, account, simulation);
    // What rests on operations under the roof, once both are known, and what several rules look at.
    let source = env_key::STACKS_SOURCE.of(&analysis.manifest.environment);
    let of_step = |step: &StepScene<'_>| {
        let threads = scene.totals(step.name).map(|totals| &totals.threads);
        let host = HostOfStep::of(step.host_places(&scene), step.row.total_ns, source, threads);
        // Where nothing is launched, no code launches.
        let places = || step.host_places(&scene).map(|(_, place)| place);
        let launches = scene.on_gpu.then(|| LaunchParts::of(places(), step.row.total_ns)).flatten();
        (constant_cost::of(&scene, step), operations::floors(&scene, step), host, launches)
    };
    let of_steps: Vec<_> = scene.steps.iter().map(of_step).collect();
    for (step, (constant, floors, host, launches)) in scene.steps.iter_mut().zip(of_steps) {
        (step.constant, step.host, step.launches) = (constant, host, launches);
        step.lines.floors = floors;
    }
    let mut out = RuleResults::default();
    for step in &scene.steps {
        RULES.iter().for_each(|rule| rule(&scene, step, &mut out));
    }
    if analysis.disturbance().is_some() {
        let of_machine = out.found.iter_mut().filter(|found| may_be_of_the_machine(&scene, &found.advice));
        of_machine.for_each(Candidate::disturb);
    }
    let roadmaps = scene.steps.iter().filter_map(|step| roadmap::of(step, &out.found)).collect();
    let gains = |found: &Candidate| found.advice.gain.mid > 0.0;
    let all = out.found.iter().filter(|found| gains(found)).count();
    let mut found: Vec<Candidate> = out.found.into_iter().filter(|found| found.advice.gain.mid >= LEAST_GAIN).collect();
    let negligible = (all - found.len()) as u64;
    let order = |found: &Candidate| found.advice.of_run().mid;
    found.sort_by(|a, b| {
        let named = |found: &Candidate| (found.advice.code, found.advice.place.path.clone());
        // After what the program gains stands what the machine may have done, and then what only the figures gain.
        // Single steps that stalled are in its midst only where it is known why they did.
        let unexplained = |found: &Candidate| {
            found.advice.code == AdviceCode::StragglerStep && found.advice.confidence.level == ConfidenceLevel::Low
        };
        let behind =
            |found: &Candidate| (found.advice.code.is_of_figures() || unexplained(found), found.advice.disturbed);
        let by_gain = order(b).total_cmp(&order(a)).then_with(|| named(a).cmp(&named(b)));
        behind(a).cmp(&behind(b)).then(by_gain)
    });
    let together = scene.steps.iter().filter_map(|step| together(step, &found)).collect();
    let finished = |mut found: Candidate| {
        let is_programs = !found.advice.code.is_of_figures() && !found.advice.disturbed;
        let gain = if is_programs { found.advice.of_run().mid } else { 0.0 };
        found.advice.severity = AdviceSeverity::of(gain);
        found.advice
    };
    Diagnosis {
        steps: scene.steps.iter().map(|step| step.time.clone()).collect(),
        abstained: abstentions(out.abstained),
        findings: found.into_iter().map(finished).collect(),
        negligible,
        together,
        roadmaps,
    }
}

/// Whether other programs may have brought it about: findings that can come from them alone; what operations cost whatever
/// their size, unless its cause is known; waiting for threads of a pool, which lose their processors as well; on a CPU
/// operations that take twice as long in most steps as in the quickest.
fn may_be_of_the_machine(scene: &Scene<'_>, advice: &Advice) -> bool {
    use AdviceCode::{BelowRoof, DataMovement, Dequantise, KvBandwidth, Upcast, WeightStreaming};
    let spreads = || {
        let step = scene.steps.iter().find(|step| step.name == advice.place.phase)?;
        let path = scene.paths.get(advice.place.path.as_deref()?)?;
        let (share, least) = path.usual.share(step.usual?)?;
        Some(least < 0.5 * share)
    };
    match advice.code {
        AdviceCode::ConstantCost => !constant_cost::is_known(&scene.analysis.manifest),
        AdviceCode::HotOverhead => advice.place.cause == Some(POOL_SYNC),
        BelowRoof | DataMovement | Dequantise | KvBandwidth | Upcast | WeightStreaming => {
            !scene.on_gpu && spreads().unwrap_or(false)
        }
        code => code.may_be_of_the_machine(),
    }
}

/// What the first findings of a kind of step gain if all of their reliefs are had.
fn together(step: &StepScene<'_>, found: &[Candidate]) -> Option<JointGain> {
    let own = found.iter().filter(|found| found.advice.place.phase == step.name && !found.reliefs[0].is_empty());
    let own: Vec<&Candidate> = own.take(TOGETHER).collect();
    let codes = |list: &[&Candidate]| each_once(list.iter().map(|found| found.advice.code));
    let phase = step.name.to_string();
    // Findings that a replay knows are replayed together.
    let known: Vec<&Candidate> = own.iter().copied().filter(|found| found.replay.is_some()).collect();
    let replay = [0, 1, 2].map(|at| {
        let each = known.iter().filter_map(|found| found.replay.as_ref()).flat_map(|replay| &replay[at]);
        // What several findings ask for is done once.
        each_once(each.cloned())
    });
    if let Some(gain) = Some(()).filter(|()| known.len() > 1).and_then(|()| replayed_gain(step, &replay)) {
        return Some(JointGain { phase, codes: codes(&known), gain });
    }
    let reliefs = [0, 1, 2].map(|at| own.iter().flat_map(|found| found.reliefs[at].clone()).collect::<Vec<Relief>>());
    (own.len() > 1).then(|| JointGain { phase, codes: codes(&own), gain: step.lines.gain(&reliefs) })
}

/// One entry for each code and what it lacks.
fn abstentions(
    list: Vec<(candlescope_figures::advice::AdviceCode, String, candlescope_figures::advice::Missing)>,
) -> Vec<Abstention> {
    let mut all: Vec<Abstention> = Vec::new();
    for (code, phase, missing) in list {
        match all.iter_mut().find(|known| known.code == code && known.missing == missing) {
            Some(known) if known.phases.contains(&phase) => {}
            Some(known) => known.phases.push(phase),
            None => all.push(Abstention { code, phases: vec![phase], missing }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_named_once_among_those_that_gain_together() {
        use AdviceCode::{BelowRoof, HostSampling};
        assert_eq!(each_once([BelowRoof, HostSampling, BelowRoof].into_iter()), [BelowRoof, HostSampling]);
    }
}
