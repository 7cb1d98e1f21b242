//! What came out of a trial, and what becomes of it.

use super::look_again::Expectation;
use super::search_state::{Search, fill, needed, within_floor};
use crate::account::{Phase, Verdict};
use crate::remedies::Answers;
use crate::trial::{Trial, TrialFailed};
use crate::words::{of_requests, signed};
use crate::{goodput, ledger, out_of_memory, percentiles};
use candlescope_compare::{FigureChange, Outcome};
use candlescope_core::numbers::percent;
use candlescope_lab::compare::CompareFailed;

/// What is said of a row that is undecided.
const MORE_TIME: &str = "; there was no time for more pairs: `--resume` with a larger `--budget` takes them";
const MORE_PAIRS: &str = "; `--resume` with more `--pairs` takes more of them";
/// What is said where tokens were to stay the same, and are others each time.
const TOKENS_VARY: &str = "; runs without the change write other tokens each time, so that tokens tell nothing";

impl Search<'_> {
    /// Notes what came out of a trial; `None` if it was interrupted.
    pub(super) fn settle(
        &mut self,
        mut phase: Phase,
        tried: Result<Option<Trial>, TrialFailed>,
        expected: Expectation<'_>,
    ) -> Option<Verdict> {
        let facts = &expected.state.facts;
        phase.runs = Some(self.trial_folder.clone());
        // What was said of it before.
        let said = std::mem::take(&mut phase.why);
        match tried {
            Ok(None) => return None,
            Ok(Some(trial)) => {
                phase.other_steps |= trial.other_steps;
                fill(&mut phase, &trial, &self.options.goal);
                (phase.verdict, phase.why) = self.judge(&trial, &phase.answers, phase.other_steps);
                if phase.verdict == Verdict::Rejected && self.is_undecided(&trial, phase.other_steps) {
                    phase.undecided = true;
                    let had_time = phase.samples_ns.len() >= self.options.pairs;
                    phase.why += if had_time { MORE_PAIRS } else { MORE_TIME };
                }
                if trial.tokens_vary && phase.answers == Answers::Same {
                    phase.why += TOKENS_VARY;
                }
                if phase.came_true() == Some(false) {
                    self.look_again(&mut phase, &trial, &expected);
                }
            }
            // No run counts, and a later call may have more time.
            Err(TrialFailed::NoPair(why)) => {
                (phase.verdict, phase.why, phase.runs) = (Verdict::NotTried, why, None);
                self.lacked_time = true;
            }
            Err(error) if self.ran_out_of_memory(&error) => {
                (phase.verdict, phase.why) = (Verdict::Failed, self.out_of_memory(&phase));
            }
            // What a command of others printed may hold keys: it stands in a file beside its runs.
            Err(TrialFailed::Runs(CompareFailed::Command { status, .. })) if phase.is_command() => {
                (phase.verdict, phase.why) = (Verdict::Failed, format!("it ended with {status}"));
            }
            Err(error) => (phase.verdict, phase.why) = (Verdict::Failed, error.to_string()),
        }
        if !said.is_empty() {
            phase.why = format!("{}; {said}", phase.why);
        }
        if let Some(path) = &self.options.ledger {
            ledger::keep(path, &phase, facts);
        }
        let verdict = phase.verdict;
        self.put(phase);
        Some(verdict)
    }

    /// Whether what decides could not be told, and more pairs might.
    fn is_undecided(&self, trial: &Trial, other_steps: bool) -> bool {
        let undecided = match &trial.goodput {
            Some(change) if goodput::judge(change).is_some() => change.outcome == Outcome::Undecided,
            // Requests that keep no limit are no matter of how many runs there are.
            Some(_) if other_steps => false,
            None if other_steps => self.of_requests(trial).is_some_and(|found| !is_told(found.outcome)),
            _ => trial.outcome() == Outcome::Undecided,
        };
        undecided && (trial.goodput.is_some() || self.broken(trial).is_none())
    }

    /// The limit that the side with the change breaks, in words.
    fn broken(&self, trial: &Trial) -> Option<String> {
        let figures = &trial.comparison.figures;
        let figure = |name: &str| figures.iter().find(|figure| figure.name == name).map(|figure| figure.b);
        self.options.goal.broken_by(figure).or_else(|| trial.percentiles[1].above.clone())
    }

    /// The figure of requests that decides where steps are others than before.
    fn of_requests<'a>(&self, trial: &'a Trial) -> Option<&'a FigureChange> {
        let name = self.options.goal.aim.of_requests()?;
        trial.comparison.figures.iter().find(|figure| figure.name == name)
    }

    /// Whether what came out is kept. `other_steps` says that steps are others than before, so that their times tell nothing.
    pub(super) fn judge(&self, trial: &Trial, answers: &Answers, other_steps: bool) -> (Verdict, String) {
        if trial.same_tokens == Some(false) && *answers == Answers::Same {
            return (Verdict::Refused, "it writes other tokens, which it must not".into());
        }
        let with_percentiles = |(verdict, why): (Verdict, String)| {
            let is_worse = percentiles::is_newly_above(&trial.percentiles) && verdict == Verdict::Kept;
            let verdict = if is_worse { Verdict::Rejected } else { verdict };
            (verdict, why + &percentiles::in_words(&trial.percentiles))
        };
        match trial.goodput.as_ref().map(goodput::judge) {
            Some(Some(judged)) => return with_percentiles(judged),
            Some(None) if other_steps => {
                let why = "no request keeps all limits, neither before nor after, and steps are others than before";
                return with_percentiles((Verdict::Rejected, why.to_string()));
            }
            // Shorter steps are nearer to the limits.
            Some(None) => {
                let (verdict, why) = self.judge_step(trial);
                let why = format!("{why}; no request keeps all limits, neither before nor after");
                return with_percentiles((verdict, why));
            }
            None => {}
        }
        let unread = percentiles::unread(&trial.percentiles);
        // With another remedy it may be within the limit.
        if let Some(why) = self.broken(trial) {
            return (Verdict::Rejected, why + &unread);
        }
        let (verdict, why) = if other_steps { self.judge_requests(trial) } else { self.judge_step(trial) };
        (verdict, why + &unread)
    }

    /// Whether it is kept for what requests take, where steps are others than before.
    fn judge_requests(&self, trial: &Trial) -> (Verdict, String) {
        let Some(found) = self.of_requests(trial) else {
            return (Verdict::Rejected, "requests tell nothing".into());
        };
        let name = of_requests(&found.name);
        let by = match found.estimate.map(|estimate| (estimate.change, estimate.low.zip(estimate.high))) {
            Some((_, Some((low, high)))) => format!("{name} changes by {} to {}", signed(low), signed(high)),
            Some((change, None)) => format!("{name} changes by {}", signed(change)),
            None => format!("nothing can be told of {name}"),
        };
        match found.outcome {
            Some(Outcome::Better) => (Verdict::Kept, by),
            Some(Outcome::Worse) => (Verdict::Rejected, format!("it is slower: {by}")),
            Some(Outcome::Equivalent) => (Verdict::Rejected, format!("it changes nothing: {by}")),
            _ => (Verdict::Rejected, format!("undecided after {} pairs: {by}", trial.samples_ns.len())),
        }
    }

    /// Whether it is kept for the time of a step.
    fn judge_step(&self, trial: &Trial) -> (Verdict, String) {
        let comparison = &trial.comparison;
        let interval = || match comparison.step.as_ref().and_then(|step| step.estimate) {
            Some(estimate) => match estimate.low.zip(estimate.high) {
                Some((low, high)) => format!("a step changes by {} to {}", signed(low), signed(high)),
                None => format!("a step changes by {}", signed(estimate.change)),
            },
            None => "nothing can be told".to_string(),
        };
        match trial.outcome() {
            Outcome::Better => {
                // What only moved out of steps is no gain.
                let whole = if self.options.goal.is_latency() { &["e2e_ns"][..] } else { &["output_tps"][..] };
                match trial.worse(whole) {
                    Some(why) => (Verdict::Rejected, format!("steps are shorter, but {why}")),
                    None => (Verdict::Kept, interval()),
                }
            }
            Outcome::Worse => (Verdict::Rejected, format!("it is slower: {}", interval())),
            Outcome::Equivalent => (Verdict::Rejected, format!("it changes nothing: {}", interval())),
            Outcome::Undecided => {
                let pairs = trial.samples_ns.len();
                let needed = needed(trial, pairs).map_or_else(String::new, |(needed, share)| {
                    format!("; to tell {} takes about {needed} pairs as uneven as these", percent(share))
                });
                let floor = within_floor(trial).map_or_else(String::new, |floor| {
                    format!(
                        "; but the program before, compared with itself in as many pairs, would differ by up to {}, and a \
                         change has to exceed that",
                        percent(floor)
                    )
                });
                (Verdict::Rejected, format!("undecided after {pairs} pairs: {}{needed}{floor}", interval()))
            }
        }
    }

    /// Whether a program of the latest trial ended because it had no memory left.
    fn ran_out_of_memory(&self, error: &TrialFailed) -> bool {
        matches!(error, TrialFailed::Runs(CompareFailed::Command { .. })) && self.memory_ended().is_some()
    }

    /// What the program of the latest trial said of it.
    fn memory_ended(&self) -> Option<String> {
        let printed = self.options.out.join("trials").join(&self.trial_folder).join("printed.txt");
        out_of_memory::line_in(&printed)
    }

    /// The row of a setting that takes more memory than there is.
    fn out_of_memory(&self, phase: &Phase) -> String {
        // What a command of others printed may hold keys.
        if phase.is_command() {
            return "out of memory: what it printed stands beside its runs".to_string();
        }
        let said = self.memory_ended().map_or_else(String::new, |line| format!(": {line}"));
        format!("out of memory with {}{said}", phase.change.words())
    }
}

/// Whether it is clear what a change comes to.
fn is_told(outcome: Option<Outcome>) -> bool {
    outcome.is_some_and(|outcome| outcome != Outcome::Undecided)
}

#[cfg(test)]
mod tests {
    use super::super::DiagnosedState;
    use super::*;
    use crate::account::Account;
    use crate::facts::Facts;
    use crate::options::OptimiseOptions;
    use crate::program::Program;
    use crate::search::{Course, blank};
    use crate::setting::{Change, Setting};
    use crate::starts::Starts;
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;
    use candlescope_lab::method::Cancel;
    use std::time::{Duration, Instant};

    /// The row of a setting whose program ended after it had printed this.
    fn row(printed: &str, remedy: &str) -> Phase {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("trials/3-batch");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("printed.txt"), printed).unwrap();
        let program = Program { program: "candlescope".into(), words: Vec::new(), private: Vec::new() };
        let options = OptimiseOptions::new(program, Setting::default(), dir.path());
        let (cancel, mut observe) = (Cancel::new(), |_: Course| ());
        let mut search = Search {
            options: &options,
            cancel: &cancel,
            observe: &mut observe,
            began: Instant::now(),
            before: Duration::ZERO,
            account: Account::default(),
            on_gpu: None,
            trial_took: Duration::ZERO,
            trial_folder: "3-batch".into(),
            starts: Starts::default(),
            again: Vec::new(),
            lacked_time: false,
            least_limit: Duration::from_secs(60),
        };
        let state = DiagnosedState {
            facts: Facts::of(&RunManifest::default()),
            diagnosis: Diagnosis::default(),
            simulation: None,
            took: Duration::ZERO,
        };
        let error = CompareFailed::Command {
            command: "candlescope (command B)".into(),
            status: "exit status: 1".into(),
            said: ", after it printed: key sk-1".into(),
            kept: "Nothing had been compared before".into(),
        };
        let phase = blank(remedy, "A title", &Change::default().option("batch", 16), Answers::Rounded);
        let expected = Expectation { state: &state, promised: None, commands: None };
        assert_eq!(search.settle(phase, Err(error.into()), expected), Some(Verdict::Failed));
        search.account.phases.remove(0)
    }

    #[test]
    fn a_setting_that_takes_more_memory_than_there_is_is_a_row_that_says_so() {
        let said = "loading\nerror: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n";
        let why = row(said, "batch").why;
        assert!(why.starts_with("out of memory with --batch=16: error: DriverError(CUDA_ERROR"), "{why}");
        let why = row("error: the model has 3 heads", "batch").why;
        assert!(why.contains("exit status: 1") && !why.contains("out of memory"), "{why}");
    }

    #[test]
    fn what_a_command_of_others_printed_is_in_no_row() {
        let why = row("key sk-1\nCUDA out of memory", crate::account::COMMAND).why;
        assert!(why.starts_with("out of memory") && !why.contains("sk-1") && !why.contains("CUDA"), "{why}");
        assert_eq!(row("key sk-1", crate::account::COMMAND).why, "it ended with exit status: 1");
    }
}
