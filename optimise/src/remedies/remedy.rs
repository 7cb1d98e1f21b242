//! What a remedy is, what it is asked with, and what it answers.

use crate::facts::Facts;
use crate::goal::Goal;
use crate::setting::Change;
use candlescope_figures::advice::{Advice, AdviceCode, Diagnosis};
use candlescope_predict::simulation::Change as Simulated;
use serde::{Deserialize, Serialize};

/// A remedy.
#[derive(Debug)]
pub(crate) struct Remedy {
    /// Its name: `weight_bits`.
    pub(crate) name: &'static str,
    /// What it changes, for people.
    pub(crate) title: &'static str,
    /// What it may cost.
    pub(crate) cost: &'static str,
    /// What can be tried of it, the most promising first; or why nothing can.
    pub(crate) attempts: fn(&State<'_>) -> Result<Vec<Attempt>, &'static str>,
}

/// What is known when a remedy is asked.
#[derive(Debug)]
pub(crate) struct State<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) goal: &'a Goal,
    pub(crate) diagnosis: &'a Diagnosis,
}

impl<'a> State<'a> {
    /// What may become of answers where sums are made in another order. Floats of 32 bits leave the tokens as they are.
    /// With 16 bits two tokens may be equally likely but for rounding; and what is multiplied with weights in blocks,
    /// or is kept in a cache of 8 bits, is rounded to 8 bits, which makes a small difference a large one.
    pub(crate) fn of_another_order(&self) -> Answers {
        let facts = self.facts;
        let rounds = facts.dtype.as_deref() != Some("f32") || facts.in_blocks() || facts.caches_in_8_bits;
        if rounds { Answers::Rounded } else { Answers::Same }
    }

    /// The findings of these kinds, without those of a disturbed machine.
    pub(crate) fn findings(&self, codes: &[AdviceCode]) -> impl Iterator<Item = &'a Advice> {
        self.diagnosis.findings.iter().filter(|advice| codes.contains(&advice.code) && !advice.disturbed)
    }
}

/// What the tokens that a program writes may do when a remedy is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// They stay the same; other tokens are an error.
    Same,
    /// They may change where two tokens are equally likely but for rounding.
    Rounded,
    /// They change, by as much as the quality of this variant of `bench variants` says.
    Variant(String),
}

/// One thing to try.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) change: Change,
    pub(crate) answers: Answers,
    /// The findings whose gain this attempt obtains; without any it is tried, but nothing is promised.
    pub(crate) obtains: &'static [AdviceCode],
    /// The same change for a simulation of the step, which is asked before the findings.
    pub(crate) simulated: Option<Simulated>,
    /// Whether the work is cut into other steps, so that their times before and after do not compare: requests decide alone.
    pub(crate) other_steps: bool,
    /// Whether tokens are looked up: what that gains follows from the run's texts, and neither from findings nor from a replay.
    pub(crate) looks_up: bool,
    /// Why nothing is promised, where that is known.
    pub(crate) unpromised: Option<NoPromise>,
}

/// Why an attempt promises nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoPromise {
    /// The reason, with its figures.
    pub(crate) why: String,
    /// Whether nothing can be gained by what is known, so that it is not tried.
    pub(crate) is_loss: bool,
}

impl NoPromise {
    /// Nothing is promised because it is a loss, or may be one, by these figures.
    pub(crate) fn for_a_loss(is_loss: bool, figures: &str) -> Self {
        let so = if is_loss {
            "it is a loss by what the run says"
        } else {
            "nothing was promised, because it may be a loss"
        };
        Self { why: format!("{so}: {figures}"), is_loss }
    }
}

impl Attempt {
    /// An attempt that changes no answer and promises nothing.
    pub(crate) fn new(change: Change) -> Self {
        Self {
            change,
            answers: Answers::Same,
            obtains: &[],
            simulated: None,
            other_steps: false,
            looks_up: false,
            unpromised: None,
        }
    }

    pub(crate) fn answers(self, answers: Answers) -> Self {
        Self { answers, ..self }
    }

    pub(crate) fn obtains(self, obtains: &'static [AdviceCode]) -> Self {
        Self { obtains, ..self }
    }

    pub(crate) fn looks_up(self) -> Self {
        Self { looks_up: true, ..self }
    }

    pub(crate) fn of_other_steps(self) -> Self {
        Self { other_steps: true, ..self }
    }

    pub(crate) fn simulated(self, simulated: Simulated) -> Self {
        Self { simulated: Some(simulated), ..self }
    }
}
