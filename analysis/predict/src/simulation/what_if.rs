//! All that is asked of a run at once: its kinds of steps, unobserved and in each scenario.

use super::abstain::Abstain;
use super::change::Change;
use super::group::{StepGroup, TypicalStep};
use super::read::{Simulation, SimulationOptions};
use super::replay::Outcome;
use super::step_model::Facts;
use candlescope_reader::Run;
use candlescope_schema::run::Finding;
use serde::Serialize;

/// What steps of a run would take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatIf {
    /// Kinds of steps, those that take the most time first.
    pub steps: Vec<StepsWhatIf>,
    /// Kinds of steps about which nothing can be said; without a name it is all of them.
    pub absent: Vec<Refusal>,
}

/// The steps of a phase, or of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepsWhatIf {
    /// The phase or the name.
    pub name: String,
    /// Medians over the steps that can be replayed: as measured, as replayed, and unobserved.
    pub typical: TypicalStep,
    /// What its simulation rests on.
    pub facts: Facts,
    /// What each scenario comes to, in the order in which they were asked for.
    pub scenarios: Vec<Scenario>,
}

/// Changes that are made together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// As they are written: `graph+host×0.5`.
    pub changes: String,
    /// What follows; `None` if nothing can be said.
    pub outcome: Option<Outcome>,
    /// Why nothing can be said; `None` if there is an outcome.
    pub abstains: Option<Refusal>,
}

/// Why nothing is said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    /// The kind of steps, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The reason with its figures.
    pub reason: Abstain,
    /// The same in words, with what would help.
    pub message: String,
}

impl Refusal {
    fn new(name: Option<&str>, reason: Abstain) -> Self {
        Self { name: name.map(str::to_string), message: reason.to_string(), reason }
    }
}

/// Simulates the typical step of each kind in each scenario. Also returns what was noticed while the run was read.
///
/// Never fails: what cannot be said is in the result, with the reason.
pub fn what_if(run: &Run, options: &SimulationOptions, scenarios: &[Vec<Change>]) -> (WhatIf, Vec<Finding>) {
    let simulation = Simulation::of(run, options);
    let findings = simulation.as_ref().map_or(Vec::new(), |simulation| simulation.findings().to_vec());
    (WhatIf::of(simulation.as_ref(), scenarios), findings)
}

impl WhatIf {
    /// The scenarios with these steps, or why there are none.
    pub fn of(simulation: Result<&Simulation, &Abstain>, scenarios: &[Vec<Change>]) -> Self {
        let simulation = match simulation {
            Ok(simulation) => simulation,
            Err(reason) => return Self { steps: Vec::new(), absent: vec![Refusal::new(None, reason.clone())] },
        };
        let mut absent: Vec<Refusal> =
            simulation.absent().iter().map(|(name, reason)| Refusal::new(Some(name), reason.clone())).collect();
        let mut steps = Vec::new();
        for group in simulation.groups() {
            match group.typical() {
                Ok(typical) => {
                    let Some(model) = group.median_step() else { continue };
                    let scenarios = scenarios.iter().map(|changes| scenario(group, changes)).collect();
                    let facts = model.facts().clone();
                    steps.push(StepsWhatIf { name: group.name().to_string(), typical, facts, scenarios });
                }
                Err(reason) => absent.push(Refusal::new(Some(group.name()), reason)),
            }
        }
        Self { steps, absent }
    }
}

fn scenario(group: &StepGroup, changes: &[Change]) -> Scenario {
    let names: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let changes_text = names.join("+");
    match group.simulate(changes) {
        Ok(outcome) => Scenario { changes: changes_text, outcome: Some(outcome), abstains: None },
        Err(reason) => Scenario { changes: changes_text, outcome: None, abstains: Some(Refusal::new(None, reason)) },
    }
}
