//! Changes that people make: commands that they wrote, and findings that are left to them.

use super::look_again::Expected;
use super::search_state::{Search, blank};
use crate::account::{ByHand, COMMAND, Ended};
use crate::error::OptimiseError;
use crate::program::Recording;
use crate::promise::{Promised, named};
use crate::remedies::{self, Answers, State};
use crate::setting::Change;
use crate::words::told_by;
use candlescope_figures::advice::Advice;
use candlescope_report::advice::remedy_in_words;

/// Findings that gain the run less are not listed for people.
const LEAST_BY_HAND: f64 = 0.01;

impl Search<'_> {
    /// Tries commands that somebody wrote.
    pub(super) fn by_hand(&mut self) -> Result<Ended, OptimiseError> {
        let own = |recording| self.command(&self.account.setting, recording);
        let before = self.options.run.clone().unwrap_or_else(|| own(Recording::Comparison));
        // Promises need more than times of steps.
        let recorded = match &self.options.run {
            None if !self.options.promises.is_empty() => own(Recording::Diagnosis),
            _ => before.clone(),
        };
        // What it is held against has to run, and says how long a run takes.
        let Some((dir, took)) = self.record("as-it-is", &recorded)? else { return Ok(Ended::Interrupted) };
        let state = self.read(&dir, took)?;
        self.account.describe(&state.facts);
        let known = State { facts: &state.facts, goal: &self.options.goal, diagnosis: &state.diagnosis };
        let named = |text: &String| named(&known, state.simulation.as_ref(), text).map_err(OptimiseError::Promise);
        let promises: Vec<Promised> = self.options.promises.iter().map(named).collect::<Result<_, _>>()?;
        for (at, command) in self.options.tries.iter().enumerate() {
            let title = format!("Command {}", at + 1);
            if self.account.phases.iter().any(|phase| phase.title == title) {
                continue;
            }
            if self.left().is_zero() {
                return Ok(Ended::Budget);
            }
            self.say(format!("{title}: in turns with what there was"));
            // Who allows other answers says so.
            let answers = if self.options.goal.most_kl.is_some() { Answers::Rounded } else { Answers::Same };
            let mut phase = blank(COMMAND, &title, &Change::default(), answers);
            let promised = promises.get(at).cloned();
            phase.promised = promised.as_ref().map(|promised| promised.promise.clone());
            phase.told_by = Some(format!("command {}", told_by(command)));
            let name = format!("{}-by-hand", at + 1);
            let tried = self.trial((&before, command), &name, (self.options.pairs, false), state.took);
            if self.settle(phase, tried, Expected { state: &state, promised, commands: None }).is_none() {
                return Ok(Ended::Interrupted);
            }
            self.write()?;
        }
        Ok(Ended::AllTried)
    }
}

/// Findings that nothing obtains which the program can change by itself.
pub(super) fn by_hand(state: &State<'_>) -> Vec<ByHand> {
    let attempts = remedies::ALL.iter().filter_map(|remedy| (remedy.attempts)(state).ok()).flatten();
    let obtained: Vec<_> = attempts.flat_map(|attempt| attempt.obtains).collect();
    let is_left = |advice: &&Advice| {
        let answered = obtained.contains(&&advice.code) || advice.code.is_of_figures() || advice.disturbed;
        advice.of_run().mid >= LEAST_BY_HAND && !answered
    };
    let one = |advice: &Advice| {
        let gain = advice.of_run();
        let place = advice.place.path.clone().unwrap_or_else(|| advice.place.phase.clone());
        let remedy = remedy_in_words(advice);
        ByHand { code: advice.code.to_string(), place, gain: (gain.low, gain.mid, gain.high), remedy }
    };
    state.diagnosis.findings.iter().filter(is_left).map(one).collect()
}
