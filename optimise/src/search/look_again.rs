//! A second look at a promise that did not come true.

use super::search_state::{DiagnosedState, Search};
use crate::account::{Difference, Phase};
use crate::promise::PromisedGain;
use crate::second_look::{self, SaidOfPaths, said_of_paths};
use crate::trial::Trial;
use crate::words::gain;
use candlescope_compare::{KernelTime, RunFacts, kernel_times};
use candlescope_core::numbers::duration;
use candlescope_reader::Run;
use std::path::PathBuf;
use std::time::Duration;

/// What a promise is held against if it does not come true.
pub(super) struct Expectation<'a> {
    pub(super) state: &'a DiagnosedState,
    pub(super) promised: Option<PromisedGain>,
    /// The commands of both sides with all that can be recorded; `None` of commands that somebody wrote.
    pub(super) commands: Option<[String; 2]>,
}

impl Search<'_> {
    /// Says of a promise that did not come true where the time went. Takes one more run of each side with all that can be
    /// recorded, where there is time for them.
    pub(super) fn look_again(&mut self, phase: &mut Phase, trial: &Trial, expected: &Expectation<'_>) {
        let Some((obtained, PromisedGain { promise, by_kind, .. })) = phase.obtained.zip(expected.promised.as_ref())
        else {
            return;
        };
        let side = if obtained.gain > promise.high { "more" } else { "less" };
        let bounds = format!("{} ({} to {})", gain(promise.mid), gain(promise.low), gain(promise.high));
        phase.second_look = vec![format!("{side} than promised: {} for {bounds}", gain(obtained.gain))];
        let mut found = second_look::of_steps(&trial.comparison.figures, by_kind);
        let said =
            expected.promised.as_ref().map(|promised| said_of_paths(promised, expected.state.simulation.as_ref()));
        let (of_runs, told) = self.differences_of_runs(phase, trial, expected, &said.unwrap_or_default());
        let words = |difference: &Difference| second_look::words(difference, phase.per_sequence);
        let sentences: Vec<String> = found.iter().map(words).chain(told).chain(of_runs.iter().map(words)).collect();
        phase.second_look.extend(sentences);
        found.extend(of_runs);
        phase.differences = found;
    }

    /// Paths, kernels and functions by a run of each side, and how these runs were come by.
    fn differences_of_runs(
        &mut self,
        phase: &mut Phase,
        trial: &Trial,
        expected: &Expectation<'_>,
        said: &[SaidOfPaths],
    ) -> (Vec<Difference>, Vec<String>) {
        let (sides, mut told) = match &expected.commands {
            Some(commands) => match self.record_both(commands, expected.state.took) {
                Ok(dirs) => {
                    let names = dirs.iter().filter_map(|dir| Some(dir.file_name()?.to_string_lossy().into_owned()));
                    phase.looked_at = names.collect();
                    let words =
                        format!("one more run of each side was recorded in full ({})", phase.looked_at.join(", "));
                    (Some(dirs), vec![words])
                }
                Err(why) => (None, vec![format!("paths, kernels and functions are not looked at: {why}")]),
            },
            // Nobody but its author knows what such a command can record.
            None => {
                let last = [&trial.comparison.a, &trial.comparison.b].map(|side| side.runs.last().map(PathBuf::from));
                let [before, after] = last;
                (before.zip(after).map(|(before, after)| [before, after]), Vec::new())
            }
        };
        if said.is_empty() {
            told.push("what was promised says nothing of single paths: no change was simulated".to_string());
            let changed = trial.comparison.modules.changed.iter().take(3);
            told.extend(changed.map(|path| {
                let (before, after) = (duration(path.a_ns), duration(path.b_ns));
                format!("`{}` took {before} of a step and takes {after}", path.path)
            }));
        }
        let read = |dir: &PathBuf| -> Option<(RunFacts, Vec<KernelTime>)> {
            let run = Run::open_within(dir, self.options.limits.clone()).ok()?;
            Some((RunFacts::of(&run), kernel_times(&run)))
        };
        let Some((before, after)) = sides.and_then(|[before, after]| Some((read(&before)?, read(&after)?))) else {
            return (Vec::new(), told);
        };
        let found = second_look::of_paths(said, &before.0, &after.0)
            .into_iter()
            .chain(second_look::of_kernels(&before.1, &after.1))
            .chain(second_look::of_functions(&before.0, &after.0));
        (found.collect(), told)
    }

    /// One run of each side for a second look, where there is time for both.
    ///
    /// # Errors
    /// Why there is none.
    fn record_both(&mut self, commands: &[String; 2], took: Duration) -> Result<[PathBuf; 2], String> {
        // The side after may take longer, and reading what is recorded in full takes time as well.
        let needed = took.mul_f64(4.0);
        if self.left() < needed {
            let needed = duration(needed.as_nanos() as f64);
            return Err(format!("a run of each side takes about {needed}, and there is no time for them"));
        }
        let trial = self.trial_folder.clone();
        let mut one = |side: &str, command: &str| match self.record(&format!("{trial}-{side}"), command) {
            Ok(Some((dir, _))) => Ok(dir),
            Ok(None) => Err("it was interrupted".to_string()),
            Err(error) => Err(format!("a run of each side could not be recorded: {error}")),
        };
        Ok([one("before", &commands[0])?, one("after", &commands[1])?])
    }
}
