//! Changes that people make: commands that they wrote, and findings that are left to them.

use super::look_again::Expectation;
use super::search_state::{Search, TrialBounds, blank, key};
use crate::account::{ByHand, COMMAND, OptimiseEnd, Phase};
use crate::error::OptimiseError;
use crate::foretold::{CODE as NGRAM_LOOKUP, foretold};
use crate::options::LEAST_PAIRS;
use crate::program::Recording;
use crate::promise::{PromisedGain, named};
use crate::remedies::{self, Answers, Attempt, State};
use crate::request_gain::of_requests;
use crate::setting::Change;
use crate::words::told_by;
use candlescope_core::numbers::duration;
use candlescope_figures::advice::Advice;
use candlescope_report::advice::remedy_in_words;
use std::time::Duration;

/// Findings that gain the run less are not listed for people.
const LEAST_BY_HAND: f64 = 0.01;

impl Search<'_> {
    /// Tries commands that somebody wrote.
    pub(super) fn by_hand(&mut self) -> Result<OptimiseEnd, OptimiseError> {
        let own = |recording| self.command(&self.account.setting, recording);
        let before = self.options.run.clone().unwrap_or_else(|| own(Recording::Comparison));
        // Promises need more than times of steps.
        let recorded = match &self.options.run {
            None if !self.options.promises.is_empty() => own(Recording::Diagnosis),
            _ => before.clone(),
        };
        // What it is held against has to run, and says how long a run takes.
        let Some((dir, took)) = self.record("as-it-is", &recorded)? else { return Ok(OptimiseEnd::Interrupted) };
        let state = self.read(&dir, took)?;
        self.must_be_on(&state.facts.hardware)?;
        self.account.describe(&state.facts);
        let options = self.options;
        let known = State { facts: &state.facts, goal: &options.goal, diagnosis: &state.diagnosis };
        let simulation = state.simulation.as_ref();
        let named = |text: &String| {
            let found = match text.as_str() {
                NGRAM_LOOKUP => foretold(&known, simulation).map_err(|unpromised| unpromised.why),
                text => named(&known, simulation, text),
            };
            found.map_err(OptimiseError::Promise)
        };
        let promises: Vec<PromisedGain> = options.promises.iter().map(named).collect::<Result<_, _>>()?;
        let pair = state.took.mul_f64(2.0);
        // A run before each.
        let needs = pair.mul_f64((LEAST_PAIRS + 1) as f64);
        let to_come = self.those_to_come(pair, needs);
        let mut ended = OptimiseEnd::AllTried;
        for (nth, at) in to_come.iter().copied().enumerate() {
            let command = &options.tries[at];
            let title = title(at);
            // Who allows other answers says so.
            let answers = if options.goal.most_kl.is_some() { Answers::Rounded } else { Answers::Same };
            let mut phase = blank(COMMAND, &title, &Change::default(), answers);
            let mut promised = promises.get(at).cloned();
            phase.promised = promised.as_ref().map(|promised| promised.promise.clone());
            phase.told_by = Some(format!("command {}", told_by(command)));
            let left = self.left();
            let Some(lasts) = share(left, to_come.len() - nth, needs) else {
                let [needs, left] = [needs, left].map(|time| duration(time.as_nanos() as f64));
                phase.why = format!("{LEAST_PAIRS} pairs of runs take about {needs}, and {left} are left of the time");
                self.put(phase);
                ended = OptimiseEnd::Budget;
                continue;
            };
            self.say(format!("{title}: in turns with what there was"));
            let most = options.pairs.min(pairs_in(lasts, pair).max(LEAST_PAIRS));
            if self.pairs_before(&key(&phase)).is_some_and(|before| most <= before) {
                // What it has is as much as it would have.
                self.put(phase);
                continue;
            }
            // What is promised of requests is held against them.
            let other_steps = promised.as_ref().filter(|promised| promised.promise.code == NGRAM_LOOKUP).map(|_| true);
            let bounds = TrialBounds { most, lasts, other_steps };
            let tried = self.trial((&before, command), &format!("{}-by-hand", at + 1), &bounds, state.took);
            if let Ok(Some(trial)) = &tried
                && trial.other_steps
                && other_steps.is_none()
            {
                let attempt = Attempt::new(Change::default()).of_other_steps();
                let of_them = promised.take().map(|promised| of_requests(&known, &attempt, promised)).transpose();
                match of_them {
                    Ok(of_them) => promised = of_them,
                    Err(unpromised) => phase.why = unpromised.why,
                }
                phase.promised = promised.as_ref().map(|promised| promised.promise.clone());
            }
            if self.settle(phase, tried, Expectation { state: &state, promised, commands: None }).is_none() {
                return Ok(OptimiseEnd::Interrupted);
            }
            self.write()?;
        }
        Ok(ended)
    }

    /// Places of the commands that are to be tried: those without a row, and those of which an earlier call left
    /// undecided what they gain, if there is time for more pairs now.
    fn those_to_come(&mut self, pair: Duration, needs: Duration) -> Vec<usize> {
        let all = 0..self.options.tries.len();
        let open = all.clone().filter(|at| self.row_of(*at).is_none_or(|phase| phase.undecided)).count();
        let lasts = share(self.left(), open, needs).unwrap_or_default();
        self.try_again(self.options.pairs.min(pairs_in(lasts, pair)));
        let is_to_come = |at: &usize| self.row_of(*at).is_none_or(|phase| self.again.contains(&key(phase)));
        all.filter(is_to_come).collect()
    }

    /// The row of the command at this place.
    fn row_of(&self, at: usize) -> Option<&Phase> {
        let title = title(at);
        self.account.phases.iter().rfind(|phase| phase.title == title)
    }
}

/// What the command at this place is called.
fn title(at: usize) -> String {
    format!("Command {}", at + 1)
}

/// What one of so many that are still to come may take of the time that is left: as much as the others, and enough for
/// a trial; `None` if there is not so much.
fn share(left: Duration, to_come: usize, needs: Duration) -> Option<Duration> {
    let each = left.div_f64(to_come.max(1) as f64);
    (left >= needs).then(|| each.max(needs))
}

/// How many pairs of runs fit into a time, behind a run of each side.
fn pairs_in(lasts: Duration, pair: Duration) -> usize {
    ((lasts.as_secs_f64() / pair.as_secs_f64().max(1e-3)) as usize).saturating_sub(1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_takes_the_time_of_those_to_come() {
        let s = Duration::from_secs;
        // Two minutes for three commands, of which each needs half a minute.
        assert_eq!(share(s(120), 3, s(30)), Some(s(40)));
        // One that took all of its time left the others theirs, and the last one has what is left.
        assert_eq!(share(s(80), 2, s(30)), Some(s(40)));
        assert_eq!(share(s(75), 1, s(30)), Some(s(75)));
        // Rather some of them than none.
        assert_eq!(share(s(50), 3, s(30)), Some(s(30)));
        assert_eq!(share(s(20), 1, s(30)), None);
        assert_eq!((pairs_in(s(40), s(2)), pairs_in(s(1), s(2))), (19, 0));
    }
}
