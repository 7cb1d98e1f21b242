//! The search: a run, its findings, remedies in order of what they promise, each in turns with what there was before.

mod by_hand;
mod candidates;
mod look_again;
mod search_state;
mod settled;

use crate::account::{Account, OptimiseEnd, Phase, Verdict};
use crate::error::OptimiseError;
use crate::facts::Facts;
use crate::options::{LEAST_PAIRS, OptimiseOptions};
use crate::program::Recording;
use crate::remedies::{Answers, Attempt, State};
use crate::setting::{Change, Setting};
use crate::starts::Starts;
use crate::trial::{Trial, TrialFailed, TrialOptions, trial};
use crate::{quality, write};
use by_hand::by_hand;
use candidates::Candidate;
use candlescope_core::numbers::{duration, percent};
use candlescope_core::run::RunManifest;
use candlescope_core::study_files::MANIFEST_FILE;
use candlescope_figures::advice::LEAST_GAIN;
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_lab::compare::{CompareFailed, started_as, take_run};
use candlescope_lab::method::Cancel;
use candlescope_reader::Run;
use look_again::Expectation;
pub use search_state::Course;
pub(crate) use search_state::blank;
use search_state::{DiagnosedState, Search, TrialBounds, fill, key};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A run may take this long at the least.
const LEAST_LIMIT: Duration = Duration::from_secs(60);
/// What a run is called of which nobody knows on what it ran.
const UNKNOWN_HARDWARE: [&str; 2] = ["a CPU", "a GPU"];

/// What was recorded, or how it ended before.
type OrEnd<T> = Result<T, OptimiseEnd>;

/// Optimises, and writes what is known into the directory after each step. `done` is what an earlier call with the same
/// options got to, if there was one.
///
/// # Errors
/// When the program cannot be run at all, the directory cannot be written, or another machine measured what was done.
/// What fails of a single remedy is a row.
pub fn optimise(
    options: &OptimiseOptions,
    done: Option<Account>,
    cancel: &Cancel,
    observe: &mut dyn FnMut(Course),
) -> Result<Account, OptimiseError> {
    let before = done.as_ref().map_or(0.0, |account| account.seconds);
    let mut account = done.unwrap_or_else(|| Account {
        aim: options.goal.aim,
        baseline: options.baseline.clone(),
        setting: options.baseline.clone(),
        command: options.program.to_use(&options.baseline),
        begun_with: options.told_by(),
        rests_on: options.rests_on.clone(),
        ..Account::default()
    });
    account.error = None;
    account.ended = OptimiseEnd::Running;
    // What was not tried may be possible now, or there is more time.
    account.phases.retain(|phase| phase.verdict != Verdict::NotTried);
    let mut search = Search {
        options,
        cancel,
        observe,
        began: Instant::now(),
        before: Duration::try_from_secs_f64(before).unwrap_or_default(),
        account,
        on_gpu: None,
        trial_took: Duration::ZERO,
        trial_folder: String::new(),
        starts: Starts::default(),
        again: Vec::new(),
        lacked_time: false,
        least_limit: LEAST_LIMIT,
    };
    let ended = if options.tries.is_empty() { search.remedies() } else { search.by_hand() };
    let ended = match ended {
        // Something is left for whoever has more time.
        Ok(OptimiseEnd::AllTried) if search.lacked_time => OptimiseEnd::Budget,
        Ok(ended) => ended,
        // What another machine measured stays as it stands there.
        Err(error @ OptimiseError::OtherMachine { .. }) => return Err(error),
        Err(error) => {
            (search.account.ended, search.account.error) = (OptimiseEnd::Failed, Some(error.to_string()));
            search.write()?;
            return Err(error);
        }
    };
    search.account.ended = ended;
    search.write()?;
    Ok(search.account)
}

impl Search<'_> {
    fn left(&self) -> Duration {
        self.options.budget.saturating_sub(self.began.elapsed())
    }

    fn say(&mut self, doing: String) {
        let left = self.left();
        (self.observe)(Course { doing, left, starts: Vec::new() });
    }

    /// Names programs before they are started, what for, and how often or for how long.
    fn announce(&mut self, what: &str, commands: &[&str], how_often: &str) {
        let shown: Vec<String> =
            commands.iter().map(|command| self.options.program.shown(&started_as(command))).collect();
        let starts = self.starts.lines(what, &shown, how_often);
        let left = self.left();
        (self.observe)(Course { doing: what.to_string(), left, starts });
    }

    fn write(&mut self) -> Result<(), OptimiseError> {
        self.account.seconds = (self.before + self.began.elapsed()).as_secs_f64();
        self.account.last_command = self.options.program.to_use(&self.account.setting);
        write::all(&self.account, &self.options.out)
    }

    /// Starts the program once: the first start reads files from the disk and fills caches. How long the next one takes is
    /// then what runs of a comparison take.
    fn warm_up(&mut self) -> Result<OrEnd<Duration>, OptimiseError> {
        let command = self.command(&self.account.setting, Recording::Comparison);
        let Some((dir, _)) = self.record("first-start", &command)? else { return Ok(Err(OptimiseEnd::Interrupted)) };
        let run = Run::open_within(&dir, self.options.limits.clone())?;
        let facts = run.manifest().map(Facts::of);
        if let Some(facts) = &facts {
            self.must_be_on(&facts.hardware)?;
        }
        // A group's file may have chosen the device.
        self.on_gpu = facts.map(|facts| facts.on_gpu());
        let command = self.command(&self.account.setting, Recording::Comparison);
        Ok(self.record_again("second-start", &command)?.map(|(_, took)| took))
    }

    /// Gains of two machines do not go together: what an earlier call measured has to be of this hardware.
    fn must_be_on(&self, hardware: &str) -> Result<(), OptimiseError> {
        let then = self.account.hardware.as_str();
        let is_known = |name: &str| !name.is_empty() && !UNKNOWN_HARDWARE.contains(&name);
        if then == hardware || !is_known(then) || !is_known(hardware) {
            return Ok(());
        }
        let (path, then) = (self.options.out.join(MANIFEST_FILE), then.to_string());
        Err(OptimiseError::OtherMachine { path, then, now: hardware.to_string() })
    }

    /// The command with a setting.
    fn command(&self, setting: &Setting, recording: Recording) -> String {
        self.options.program.command(setting, recording, self.asks_for_gpu())
    }

    /// Takes one run of a command, within the time that is left; its folder, and what it took. `None` if it was
    /// interrupted.
    fn record(&mut self, name: &str, command: &str) -> Result<Option<(PathBuf, Duration)>, OptimiseError> {
        self.say(format!("recording {name}"));
        let limit = self.left().max(self.least_limit);
        self.announce(name, &[command], &format!("once, for {} at most", duration(limit.as_nanos() as f64)));
        let (out, began) = (self.fresh("recorded", name), Instant::now());
        let dir = take_run(command, &out, Some(limit), self.cancel)?;
        Ok(dir.map(|dir| (dir, began.elapsed())))
    }

    /// The same of a program that ran before. One that does not end in time is no mistake of whoever named it then: the
    /// time is used up, and the account says by what.
    fn record_again(&mut self, name: &str, command: &str) -> Result<OrEnd<(PathBuf, Duration)>, OptimiseError> {
        match self.record(name, command) {
            Ok(recorded) => Ok(recorded.ok_or(OptimiseEnd::Interrupted)),
            Err(OptimiseError::Run(error @ CompareFailed::TooLong { .. })) => {
                self.account.error = Some(error.to_string());
                Ok(Err(OptimiseEnd::Budget))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the device that was asked for is a GPU.
    fn asks_for_gpu(&self) -> bool {
        let asked = || self.account.setting.options.get("device").is_some_and(|device| device.starts_with("cuda"));
        self.on_gpu.unwrap_or_else(asked)
    }

    /// Applies remedies until none is left.
    fn remedies(&mut self) -> Result<OptimiseEnd, OptimiseError> {
        let mut took = match self.warm_up()? {
            Ok(took) => took,
            Err(ended) => return Ok(ended),
        };
        let mut state = match self.diagnose("baseline", took)? {
            Ok(state) => state,
            Err(ended) => return Ok(ended),
        };
        self.account.describe(&state.facts);
        if let Some(threads) = state.facts.threads.filter(|_| !state.facts.on_gpu()) {
            // Said, so that what follows cannot fall back to something else.
            for setting in [&mut self.account.baseline, &mut self.account.setting] {
                setting.options.entry("threads".into()).or_insert_with(|| threads.to_string());
            }
        }
        let engine = if state.facts.is_ours { "instrumented" } else { "candle" };
        for setting in [&mut self.account.baseline, &mut self.account.setting] {
            setting.options.entry("engine".into()).or_insert_with(|| engine.to_string());
        }
        self.write()?;
        self.try_again(self.most(self.pairs_left(took.mul_f64(2.0))));
        loop {
            let (candidates, impossible, interactions) = self.candidates(&state);
            self.account.interact(interactions);
            let known = State { facts: &state.facts, goal: &self.options.goal, diagnosis: &state.diagnosis };
            self.account.by_hand = by_hand(&known);
            let mut candidates = candidates.into_iter();
            let Some(candidate) = candidates.next() else {
                self.note_impossible(impossible);
                break;
            };
            // A run before each, and one of the diagnosis that follows.
            let pair = took.mul_f64(2.0);
            let fits = self.pairs_left(pair);
            if fits <= LEAST_PAIRS + 1 {
                let seconds = pair.as_secs_f64() * (LEAST_PAIRS + 1) as f64;
                let why = format!("the time is used up: {LEAST_PAIRS} pairs of runs take about {seconds:.0} s");
                self.leave(candidate, &why);
                candidates.for_each(|candidate| self.leave(candidate, &why));
                self.note_impossible(impossible);
                return self.finish(OptimiseEnd::Budget, took);
            }
            let most = self.most(fits);
            let kept = match self.attempt(&state, candidate, most, took)? {
                Some(kept) => kept,
                None => return self.finish(OptimiseEnd::Interrupted, took),
            };
            // What a run takes changes with what is kept. Each side runs once more, before the pairs.
            let runs = self.account.phases.last().map_or(0, |phase| 2 * phase.samples_ns.len() + 2);
            if kept && runs > 2 {
                took = self.trial_took.div_f64(runs as f64);
            }
            self.write()?;
            if kept {
                let name = format!("after-{}", self.account.phases.len());
                // What was measured from the beginning to the end is of another end now.
                self.account.whole = None;
                state = match self.diagnose(&name, took) {
                    Ok(Ok(state)) => state,
                    Ok(Err(ended)) => return self.finish(ended, took),
                    // What is kept is known all the same.
                    Err(error) => {
                        self.account.error = Some(format!("the state after it cannot be recorded: {error}"));
                        return Ok(OptimiseEnd::Failed);
                    }
                };
            }
        }
        self.finish(OptimiseEnd::AllTried, took)
    }

    /// Compares the beginning with the end, where more than one remedy was kept and there is time.
    fn finish(&mut self, ended: OptimiseEnd, took: Duration) -> Result<OptimiseEnd, OptimiseError> {
        let kept = self.account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept).count();
        let pair = took.mul_f64(3.0);
        if kept < 2 || ended == OptimiseEnd::Interrupted || self.left() < pair.mul_f64((LEAST_PAIRS + 1) as f64) {
            return Ok(ended);
        }
        self.say("the first state and the last, in turns".into());
        let ends = [&self.account.baseline, &self.account.setting];
        let commands = ends.map(|setting| self.command(setting, Recording::Comparison));
        let most = self.pairs_left(pair).min(self.options.pairs);
        let kept = self.account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
        let other_steps = kept.into_iter().any(|phase| phase.other_steps);
        let bounds = TrialBounds { most, lasts: self.left(), other_steps: Some(other_steps) };
        match self.trial((&commands[0], &commands[1]), "whole", &bounds, took) {
            Ok(None) => return Ok(OptimiseEnd::Interrupted),
            Ok(Some(trial)) => {
                let mut phase =
                    blank("whole", "From the first state to the last", &Change::default(), Answers::Rounded);
                phase.other_steps = other_steps;
                fill(&mut phase, &trial, &self.options.goal);
                phase.runs = Some(self.trial_folder.clone());
                phase.verdict = Verdict::Kept;
                self.account.whole = Some(Box::new(phase));
            }
            Err(error) => self.account.error = Some(format!("the first state and the last were not compared: {error}")),
        }
        Ok(ended)
    }

    /// Records the present setting, and finds out what holds it back. A run takes about `took`: one that would not end
    /// within the time that is left is not begun.
    fn diagnose(&mut self, name: &str, took: Duration) -> Result<OrEnd<DiagnosedState>, OptimiseError> {
        let left = self.left();
        if took > left.max(self.least_limit) {
            let [took, left] = [took, left].map(|time| duration(time.as_nanos() as f64));
            let why = format!("{name} was not recorded: a run takes about {took}, and {left} are left of the time");
            self.account.error = Some(why);
            return Ok(Err(OptimiseEnd::Budget));
        }
        let command = self.command(&self.account.setting, Recording::Diagnosis);
        match self.record_again(name, &command)? {
            Ok((dir, took)) => self.read(&dir, took).map(Ok),
            Err(ended) => Ok(Err(ended)),
        }
    }

    /// What follows from a run that took so long.
    fn read(&self, dir: &Path, took: Duration) -> Result<DiagnosedState, OptimiseError> {
        let mut run = Run::open_within(dir, self.options.limits.clone())?;
        (self.options.prepare)(&mut run);
        let facts = Facts::of(run.manifest().unwrap_or(&RunManifest::default()));
        let analyzed = analyze(&run, &AnalyzeOptions::default().ledger(self.options.ledger.clone()));
        let facts = facts.seen(&analyzed.analysis);
        let diagnosis = analyzed.analysis.diagnosis.unwrap_or_default();
        Ok(DiagnosedState { facts, diagnosis, simulation: analyzed.simulation.ok(), took })
    }

    /// A folder of the study that is not there yet.
    fn fresh(&self, folder: &str, name: &str) -> PathBuf {
        let base = self.options.out.join(folder);
        let free = |n: usize| base.join(if n == 1 { name.to_string() } else { format!("{name}-{n}") });
        (1..).map(free).find(|path| !path.exists()).unwrap_or_else(|| base.join(name))
    }

    /// Tries a remedy; whether it was kept, or `None` if it was interrupted.
    fn attempt(
        &mut self,
        state: &DiagnosedState,
        candidate: Candidate,
        most: usize,
        took: Duration,
    ) -> Result<Option<bool>, OptimiseError> {
        let (name, mut phase) = (candidate.name(), candidate.phase());
        if self.pairs_before(&key(&phase)).is_some_and(|before| most <= before) {
            // What it has is as much as it would have.
            self.put(phase);
            return Ok(Some(false));
        }
        let Candidate { attempt, promised, .. } = candidate;
        let too_little = phase.promised.as_ref().filter(|promised| promised.mid < LEAST_GAIN);
        let too_little =
            too_little.map(|promised| format!("it promises {}, which cannot be told", percent(promised.mid)));
        let is_loss = attempt.unpromised.as_ref().filter(|unpromised| unpromised.is_loss).map(|loss| loss.why.clone());
        let why = too_little.or(is_loss).or_else(|| self.forbidden(state, &attempt, &mut phase, took));
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        if let Some(why) = why {
            phase.why = why;
            self.put(phase);
            return Ok(Some(false));
        }
        // Its quality may have taken of the same time.
        let most = most.min(self.pairs_left(took.mul_f64(2.0)).max(LEAST_PAIRS));
        let next = self.account.setting.with(&attempt.change);
        let commands = [&self.account.setting, &next].map(|setting| self.command(setting, Recording::Comparison));
        self.say(format!("{name} {}: in turns with what there was", attempt.change.words()));
        let name = format!("{}-{name}", self.account.phases.len() + 1);
        let bounds = TrialBounds { most, lasts: self.left(), other_steps: Some(attempt.other_steps) };
        let tried = self.trial((&commands[0], &commands[1]), &name, &bounds, took);
        let recorded = [&self.account.setting, &next].map(|setting| self.command(setting, Recording::Diagnosis));
        let verdict = self.settle(phase, tried, Expectation { state, promised, commands: Some(recorded) });
        if verdict == Some(Verdict::Kept) {
            self.account.setting = next;
        }
        Ok(verdict.map(|verdict| verdict == Verdict::Kept))
    }

    /// Why an attempt must not be made, for its quality. Measures it, where there is a limit; pairs of runs, each of
    /// which takes
    /// `took`, are to have time after it.
    fn forbidden(
        &mut self,
        state: &DiagnosedState,
        attempt: &Attempt,
        phase: &mut Phase,
        took: Duration,
    ) -> Option<String> {
        let Answers::Variant(variant) = &attempt.answers else { return None };
        phase.verdict = Verdict::NotTried;
        let Some(limit) = self.options.goal.most_kl else {
            return Some("it changes answers: say by how much it may, as in --quality kl=0.05".into());
        };
        if state.facts.is_random {
            let said = std::mem::take(&mut phase.why);
            let said = if said.is_empty() { said } else { format!("; {said}") };
            phase.why = format!("the weights are random: nothing can be said about quality{said}");
            return None;
        }
        let of_cache = |change: &Change| change.options.contains_key("kv-cache-dtype");
        let kept = self.account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
        let mut others = kept.filter(|phase| of_cache(&phase.change) != of_cache(&attempt.change));
        let other = others.find_map(|phase| match &phase.answers {
            Answers::Variant(other) => Some(other),
            _ => None,
        });
        if let Some(other) = other {
            return Some(format!(
                "{other} is kept, and the quality of {variant} is measured without it: nobody knows that of both"
            ));
        }
        let same = self.account.phases.iter().filter(|phase| phase.answers == attempt.answers);
        let known = same.filter_map(|phase| phase.quality.clone()).next();
        let measured = match known {
            Some(known) => Ok(known),
            None => {
                self.say(format!("quality of {variant}"));
                let out = self.fresh("quality", variant);
                let of = (state.facts.source.as_str(), state.facts.device.as_str());
                let program = &self.options.program.program;
                let most = self.left().saturating_sub(took.mul_f64(2.0 * LEAST_PAIRS as f64));
                let how_often = format!("once, for {} at most", duration(most.as_nanos() as f64));
                let command = quality::command(program, of, variant);
                self.announce(&format!("quality of {variant}"), &[&command], &how_often);
                quality::measure(program, of, variant, (&out, most), self.cancel)
            }
        };
        let found = match measured {
            Ok(found) => phase.quality.insert(found),
            Err(why) => return Some(why),
        };
        let kl = found.kl;
        (kl > limit).then(|| {
            phase.verdict = Verdict::Refused;
            format!("the mean KL divergence is {kl:.4}, above the limit of {limit}")
        })
    }

    /// Most pairs of a trial where there is time for so many: half of them, because others come after it.
    fn most(&self, fits: usize) -> usize {
        self.options.pairs.min((fits / 2).max(LEAST_PAIRS))
    }

    /// Runs both commands in turns; where steps are others than before, until requests are decided. A run takes about
    /// `took`.
    fn trial(
        &mut self,
        commands: (&str, &str),
        name: &str,
        bounds: &TrialBounds,
        took: Duration,
    ) -> Result<Option<Trial>, TrialFailed> {
        let out = self.fresh("trials", name);
        let TrialBounds { most, lasts, other_steps } = *bounds;
        let lasts = lasts.max(took.mul_f64(2.0 * LEAST_PAIRS as f64));
        let options = TrialOptions {
            out: &out,
            most,
            seed: self.options.seed,
            time_limit: took.mul_f64(10.0).max(LEAST_LIMIT),
            deadline: Instant::now() + lasts,
            limits: &self.options.limits,
            goodput: self.options.goal.of_each_request(),
            other_steps,
            figure: self.options.goal.aim.of_requests().filter(|_| other_steps != Some(false)),
            slo: self.options.goal.slo,
        };
        let [lasts, limit] = [lasts, options.time_limit].map(|time| duration(time.as_nanos() as f64));
        let how_often = format!(
            "each once, and then in turns up to {most} times (and again where a run lost records); none begins after {lasts}, \
             and none takes more than {limit}"
        );
        self.announce(name, &[commands.0, commands.1], &how_often);
        let (budget, began) = (self.options.budget, self.began);
        let observe = &mut *self.observe;
        self.trial_folder =
            out.file_name().map_or_else(|| name.to_string(), |name| name.to_string_lossy().into_owned());
        let started = Instant::now();
        let tried = trial(commands, &options, self.cancel, |taken| {
            let doing = format!("{name}: {} of at most {} pairs", taken.pairs, taken.most);
            observe(Course { doing, left: budget.saturating_sub(began.elapsed()), starts: Vec::new() });
        });
        self.trial_took = started.elapsed();
        tried
    }
}

#[cfg(all(test, unix))]
mod tests;
