//! The search: a run, its findings, remedies in order of what they promise, each in turns with what there was before.

use crate::account::{Account, ByHand, COMMAND, Ended, Phase, Promise, Verdict};
use crate::error::OptimiseError;
use crate::facts::Facts;
use crate::options::OptimiseOptions;
use crate::program::Recording;
use crate::promise::{named, promise};
use crate::remedies::{self, Answers, Attempt, Remedy, State};
use crate::setting::{Change, Setting};
use crate::trial::{LEAST_PAIRS, Trial, TrialOptions, trial};
use crate::words::{signed, told_by};
use crate::{ledger, quality, write};
use candlescope_compare::Outcome;
use candlescope_core::numbers::percent;
use candlescope_core::run::RunManifest;
use candlescope_figures::advice::{Advice, Diagnosis, LEAST_GAIN};
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_lab::compare::{CompareFailed, take_run};
use candlescope_lab::method::Cancel;
use candlescope_predict::simulation::Simulation;
use candlescope_reader::Run;
use candlescope_report::advice::remedy_in_words;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A run may take this long at the least.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// The smallest change that an undecided trial is held against.
const SMALLEST: f64 = 0.02;

/// Findings that gain the run less are not listed for people.
const LEAST_BY_HAND: f64 = 0.01;

/// What is being done, for people who wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// What is done now.
    pub doing: String,
    /// What is left of the budget.
    pub left: Duration,
}

/// A state of the program: its run, and what follows from it.
struct Diagnosed {
    facts: Facts,
    diagnosis: Diagnosis,
    simulation: Option<Simulation>,
    /// What a run takes from its start to its end.
    took: Duration,
}

/// An attempt in the list of those to be tried.
struct Candidate {
    remedy: &'static Remedy,
    attempt: Attempt,
    promised: Option<Promise>,
}

/// Optimises, and writes what is known into the directory after each step. `done` is what an earlier call with the same
/// options got to, if there was one.
///
/// # Errors
/// When the program cannot be run at all, or the directory cannot be written. What fails of a single remedy is a row.
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
        ..Account::default()
    });
    account.error = None;
    account.ended = Ended::Running;
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
    };
    let ended = if options.tries.is_empty() { search.remedies() } else { search.by_hand() };
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            (search.account.ended, search.account.error) = (Ended::Failed, Some(error.to_string()));
            search.write()?;
            return Err(error);
        }
    };
    search.account.ended = ended;
    search.write()?;
    Ok(search.account)
}

struct Search<'a> {
    options: &'a OptimiseOptions,
    cancel: &'a Cancel,
    observe: &'a mut dyn FnMut(Course),
    began: Instant,
    /// What an earlier call took.
    before: Duration,
    account: Account,
    /// Whether the model runs on a GPU, once a run has said it.
    on_gpu: Option<bool>,
    /// What the latest trial took, without what was measured before it.
    trial_took: Duration,
    /// The folder of its runs, below `trials`.
    trial_folder: String,
}

impl Search<'_> {
    fn left(&self) -> Duration {
        self.options.budget.saturating_sub(self.began.elapsed())
    }

    fn say(&mut self, doing: String) {
        let left = self.left();
        (self.observe)(Course { doing, left });
    }

    fn write(&mut self) -> Result<(), OptimiseError> {
        self.account.seconds = (self.before + self.began.elapsed()).as_secs_f64();
        self.account.last_command = self.options.program.to_use(&self.account.setting);
        write::all(&self.account, &self.options.out)
    }

    /// Starts the program once: the first start reads files from the disk and fills caches. How long the next one takes is
    /// then what runs of a comparison take.
    fn warm_up(&mut self) -> Result<Option<Duration>, OptimiseError> {
        let command = self.command(&self.account.setting, Recording::Comparison);
        let Some((dir, _)) = self.record("first-start", &command)? else { return Ok(None) };
        // A group's file may have chosen the device.
        let run = Run::open_within(&dir, self.options.limits.clone())?;
        self.on_gpu = run.manifest().map(|manifest| Facts::of(manifest).on_gpu());
        let command = self.command(&self.account.setting, Recording::Comparison);
        Ok(self.record("second-start", &command)?.map(|(_, took)| took))
    }

    /// The command with a setting.
    fn command(&self, setting: &Setting, recording: Recording) -> String {
        self.options.program.command(setting, recording, self.asks_for_gpu())
    }

    /// Takes one run of a command; its folder, and what it took. `None` if it was interrupted.
    fn record(&mut self, name: &str, command: &str) -> Result<Option<(PathBuf, Duration)>, OptimiseError> {
        self.say(format!("recording {name}"));
        let (out, began) = (self.fresh("recorded", name), Instant::now());
        let limit = self.options.budget.max(LEAST_LIMIT);
        let dir = take_run(command, &out, Some(limit), self.cancel)?;
        Ok(dir.map(|dir| (dir, began.elapsed())))
    }

    /// Whether the device that was asked for is a GPU.
    fn asks_for_gpu(&self) -> bool {
        let asked = || self.account.setting.options.get("device").is_some_and(|device| device.starts_with("cuda"));
        self.on_gpu.unwrap_or_else(asked)
    }

    /// Applies remedies until none is left.
    fn remedies(&mut self) -> Result<Ended, OptimiseError> {
        let Some(mut took) = self.warm_up()? else { return Ok(Ended::Interrupted) };
        let mut state = match self.diagnose("baseline")? {
            Some(state) => state,
            None => return Ok(Ended::Interrupted),
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
        loop {
            let (candidates, impossible) = self.candidates(&state);
            let known = State { facts: &state.facts, goal: &self.options.goal, diagnosis: &state.diagnosis };
            self.account.by_hand = by_hand(&known);
            let mut candidates = candidates.into_iter();
            let Some(candidate) = candidates.next() else {
                self.note_impossible(impossible);
                break;
            };
            // A run before each, and one of the diagnosis that follows.
            let pair = took.mul_f64(2.0);
            let fits = (self.left().as_secs_f64() / pair.as_secs_f64().max(1e-3)) as usize;
            if fits <= LEAST_PAIRS + 1 {
                let seconds = pair.as_secs_f64() * (LEAST_PAIRS + 1) as f64;
                let why = format!("the time is used up: {LEAST_PAIRS} pairs of runs take about {seconds:.0} s");
                self.leave(candidate, &why);
                candidates.for_each(|candidate| self.leave(candidate, &why));
                self.note_impossible(impossible);
                return self.finish(Ended::Budget, took);
            }
            // Half of what is left at most: others come after it.
            let most = self.options.pairs.min((fits / 2).max(LEAST_PAIRS));
            let tried = self.account.phases.len();
            let kept = match self.attempt(&state, candidate, most, took)? {
                Some(kept) => kept,
                None => return self.finish(Ended::Interrupted, took),
            };
            // What a run takes changes with what is kept. Each side runs once more, before the pairs.
            let runs = self.account.phases.get(tried).map_or(0, |phase| 2 * phase.samples_ns.len() + 2);
            if kept && runs > 2 {
                took = self.trial_took.div_f64(runs as f64);
            }
            self.write()?;
            if kept {
                let name = format!("after-{}", self.account.phases.len());
                // What was measured from the beginning to the end is of another end now.
                self.account.whole = None;
                state = match self.diagnose(&name) {
                    Ok(Some(state)) => state,
                    Ok(None) => return self.finish(Ended::Interrupted, took),
                    // What is kept is known all the same.
                    Err(error) => {
                        self.account.error = Some(format!("the state after it cannot be recorded: {error}"));
                        return Ok(Ended::Failed);
                    }
                };
            }
        }
        self.finish(Ended::AllTried, took)
    }

    /// Compares the beginning with the end, where more than one remedy was kept and there is time.
    fn finish(&mut self, ended: Ended, took: Duration) -> Result<Ended, OptimiseError> {
        let kept = self.account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept).count();
        let pair = took.mul_f64(3.0);
        if kept < 2 || ended == Ended::Interrupted || self.left() < pair.mul_f64((LEAST_PAIRS + 1) as f64) {
            return Ok(ended);
        }
        self.say("the first state and the last, in turns".into());
        let ends = [&self.account.baseline, &self.account.setting];
        let commands = ends.map(|setting| self.command(setting, Recording::Comparison));
        let fits = (self.left().as_secs_f64() / pair.as_secs_f64().max(1e-3)) as usize;
        match self.trial((&commands[0], &commands[1]), "whole", fits.min(self.options.pairs), took) {
            Ok(None) => return Ok(Ended::Interrupted),
            Ok(Some(trial)) => {
                let mut phase =
                    blank("whole", "From the first state to the last", &Change::default(), Answers::Rounded);
                fill(&mut phase, &trial);
                phase.runs = Some(self.trial_folder.clone());
                phase.verdict = Verdict::Kept;
                self.account.whole = Some(Box::new(phase));
            }
            Err(error) => self.account.error = Some(format!("the first state and the last were not compared: {error}")),
        }
        Ok(ended)
    }

    /// Records the present setting, and finds out what holds it back.
    fn diagnose(&mut self, name: &str) -> Result<Option<Diagnosed>, OptimiseError> {
        let command = self.command(&self.account.setting, Recording::Diagnosis);
        let Some((dir, took)) = self.record(name, &command)? else { return Ok(None) };
        self.read(&dir, took).map(Some)
    }

    /// What follows from a run that took so long.
    fn read(&self, dir: &Path, took: Duration) -> Result<Diagnosed, OptimiseError> {
        let mut run = Run::open_within(dir, self.options.limits.clone())?;
        (self.options.prepare)(&mut run);
        let facts = Facts::of(run.manifest().unwrap_or(&RunManifest::default()));
        let analyzed = analyze(&run, &AnalyzeOptions::default().ledger(self.options.ledger.clone()));
        let diagnosis = analyzed.analysis.diagnosis.unwrap_or_default();
        Ok(Diagnosed { facts, diagnosis, simulation: analyzed.simulation.ok(), took })
    }

    /// A folder of the study that is not there yet.
    fn fresh(&self, folder: &str, name: &str) -> PathBuf {
        let base = self.options.out.join(folder);
        let free = |n: usize| base.join(if n == 1 { name.to_string() } else { format!("{name}-{n}") });
        (1..).map(free).find(|path| !path.exists()).unwrap_or_else(|| base.join(name))
    }

    /// What is left to be tried, the largest promise first, and what cannot be.
    fn candidates(&self, state: &Diagnosed) -> (Vec<Candidate>, Vec<(&'static Remedy, String)>) {
        let known = State { facts: &state.facts, goal: &self.options.goal, diagnosis: &state.diagnosis };
        let (mut found, mut impossible) = (Vec::new(), Vec::new());
        for remedy in remedies::ALL {
            match (remedy.attempts)(&known) {
                Err(why) => impossible.push((*remedy, why.to_string())),
                Ok(attempts) => {
                    for attempt in attempts {
                        let promised = promise(&known, state.simulation.as_ref(), &attempt);
                        let promises = promised.as_ref().is_some_and(|promised| promised.mid >= LEAST_GAIN);
                        if !self.was_tried(remedy, &attempt, promises) && !self.was_there(&attempt.change) {
                            found.push(Candidate { remedy, attempt, promised });
                        }
                    }
                }
            }
        }
        let gain = |candidate: &Candidate| candidate.promised.as_ref().map_or(0.0, |promised| promised.mid);
        // Those without a promise keep the order of the list, behind those with one.
        found.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        (found, impossible)
    }

    /// A change that was tried is not tried again, unless something was kept since, it had failed for its gain or for a
    /// limit of time alone, and something promises that it gains now.
    fn was_tried(&self, remedy: &Remedy, attempt: &Attempt, promises: bool) -> bool {
        let kept = self.account.phases.iter().rposition(|phase| phase.verdict == Verdict::Kept);
        self.account.phases.iter().enumerate().any(|(at, phase)| {
            let is_old = kept.is_some_and(|kept| at < kept) && promises;
            let promised_little = phase.promised.as_ref().is_some_and(|promised| promised.mid < LEAST_GAIN);
            let is_settled = match phase.verdict {
                Verdict::Kept | Verdict::Failed | Verdict::Refused => true,
                Verdict::Rejected => !is_old,
                Verdict::NotTried => !(is_old && promised_little),
            };
            phase.remedy == remedy.name && phase.change == attempt.change && is_settled
        })
    }

    /// Whether a change leads back to a setting that there was before.
    fn was_there(&self, change: &Change) -> bool {
        let next = self.account.setting.with(change);
        let kept = self.account.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
        let mut setting = self.account.baseline.clone();
        let mut there = setting == next;
        for phase in kept {
            setting = setting.with(&phase.change);
            there |= setting == next;
        }
        there
    }

    /// Tries a remedy; whether it was kept, or `None` if it was interrupted.
    fn attempt(
        &mut self,
        state: &Diagnosed,
        candidate: Candidate,
        most: usize,
        took: Duration,
    ) -> Result<Option<bool>, OptimiseError> {
        let Candidate { remedy, attempt, promised } = candidate;
        let mut phase = of_remedy(remedy, &attempt.change, attempt.answers.clone());
        phase.promised = promised;
        let too_little = phase.promised.as_ref().filter(|promised| promised.mid < LEAST_GAIN);
        let too_little =
            too_little.map(|promised| format!("it promises {}, which cannot be told", percent(promised.mid)));
        if let Some(why) = too_little.or_else(|| self.forbidden(state, &attempt, &mut phase)) {
            phase.why = why;
            self.account.phases.push(phase);
            return Ok(Some(false));
        }
        let next = self.account.setting.with(&attempt.change);
        let commands = [&self.account.setting, &next].map(|setting| self.command(setting, Recording::Comparison));
        self.say(format!("{} {}: in turns with what there was", remedy.name, attempt.change.words()));
        let name = format!("{}-{}", self.account.phases.len() + 1, remedy.name);
        let tried = self.trial((&commands[0], &commands[1]), &name, most, took);
        let verdict = self.settle(phase, tried, &state.facts);
        if verdict == Some(Verdict::Kept) {
            self.account.setting = next;
        }
        Ok(verdict.map(|verdict| verdict == Verdict::Kept))
    }

    /// Notes what came out of a trial; `None` if it was interrupted.
    fn settle(
        &mut self,
        mut phase: Phase,
        tried: Result<Option<Trial>, CompareFailed>,
        facts: &Facts,
    ) -> Option<Verdict> {
        phase.runs = Some(self.trial_folder.clone());
        // What was said of it before.
        let said = std::mem::take(&mut phase.why);
        match tried {
            Ok(None) => return None,
            Ok(Some(trial)) => {
                fill(&mut phase, &trial);
                (phase.verdict, phase.why) = self.judge(&trial, &phase.answers);
                look_again(&mut phase, &trial);
            }
            // What a command of others printed may hold keys: it stands in a file beside its runs.
            Err(CompareFailed::Command { status, .. }) if phase.is_command() => {
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
        self.account.phases.push(phase);
        Some(verdict)
    }

    /// Why an attempt must not be made, for its quality. Measures it, where there is a limit.
    fn forbidden(&mut self, state: &Diagnosed, attempt: &Attempt, phase: &mut Phase) -> Option<String> {
        let Answers::Variant(variant) = &attempt.answers else { return None };
        phase.verdict = Verdict::NotTried;
        let Some(limit) = self.options.goal.most_kl else {
            return Some("it changes answers: say by how much it may, as in --quality kl=0.05".into());
        };
        if state.facts.is_random {
            phase.why = "the weights are random: nothing can be said about quality".into();
            return None;
        }
        let same = self.account.phases.iter().filter(|phase| phase.answers == attempt.answers);
        let known = same.filter_map(|phase| phase.quality.clone()).next();
        let measured = match known {
            Some(known) => Ok(known),
            None => {
                self.say(format!("quality of {variant}"));
                let out = self.fresh("quality", variant);
                let of = (state.facts.source.as_str(), state.facts.device.as_str());
                quality::measure(&self.options.program.program, of, variant, &out)
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

    fn trial(
        &mut self,
        commands: (&str, &str),
        name: &str,
        most: usize,
        took: Duration,
    ) -> Result<Option<Trial>, CompareFailed> {
        let out = self.fresh("trials", name);
        let options = TrialOptions {
            out: &out,
            most,
            seed: self.options.seed,
            time_limit: took.mul_f64(10.0).max(LEAST_LIMIT),
            deadline: Instant::now() + self.left().max(took.mul_f64(2.0 * LEAST_PAIRS as f64)),
            limits: &self.options.limits,
        };
        let (budget, began) = (self.options.budget, self.began);
        let observe = &mut *self.observe;
        self.trial_folder =
            out.file_name().map_or_else(|| name.to_string(), |name| name.to_string_lossy().into_owned());
        let started = Instant::now();
        let tried = trial(commands, &options, self.cancel, |taken| {
            let doing = format!("{name}: {} of at most {} pairs", taken.pairs, taken.most);
            observe(Course { doing, left: budget.saturating_sub(began.elapsed()) });
        });
        self.trial_took = started.elapsed();
        tried
    }

    /// Whether what came out is kept.
    fn judge(&self, trial: &Trial, answers: &Answers) -> (Verdict, String) {
        if trial.same_tokens == Some(false) && *answers == Answers::Same {
            return (Verdict::Refused, "it writes other tokens, which it must not".into());
        }
        let comparison = &trial.comparison;
        let figure = |name: &str| comparison.figures.iter().find(|figure| figure.name == name).map(|figure| figure.b);
        // With another remedy it may be within the limit.
        if let Some(why) = self.options.goal.broken_by(figure) {
            return (Verdict::Rejected, why);
        }
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
                (Verdict::Rejected, format!("undecided after {pairs} pairs: {}{needed}", interval()))
            }
        }
    }

    /// Notes what is not tried for lack of time.
    fn leave(&mut self, candidate: Candidate, why: &str) {
        let mut phase = of_remedy(candidate.remedy, &candidate.attempt.change, candidate.attempt.answers);
        (phase.promised, phase.verdict, phase.why) = (candidate.promised, Verdict::NotTried, why.to_string());
        self.account.phases.push(phase);
    }

    /// Notes what is not possible here, once for each remedy that was never tried.
    fn note_impossible(&mut self, impossible: Vec<(&'static Remedy, String)>) {
        for (remedy, why) in impossible {
            if self.account.phases.iter().any(|phase| phase.remedy == remedy.name) {
                continue;
            }
            let mut phase = of_remedy(remedy, &Change::default(), Answers::Same);
            (phase.verdict, phase.why) = (Verdict::NotTried, format!("not possible here: {why}"));
            self.account.phases.push(phase);
        }
    }

    /// Tries commands that somebody wrote.
    fn by_hand(&mut self) -> Result<Ended, OptimiseError> {
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
        let promises: Vec<Promise> = self.options.promises.iter().map(named).collect::<Result<_, _>>()?;
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
            phase.promised = promises.get(at).cloned();
            phase.told_by = Some(format!("command {}", told_by(command)));
            let name = format!("{}-by-hand", at + 1);
            let tried = self.trial((&before, command), &name, self.options.pairs, state.took);
            if self.settle(phase, tried, &state.facts).is_none() {
                return Ok(Ended::Interrupted);
            }
            self.write()?;
        }
        Ok(Ended::AllTried)
    }
}

/// Findings that nothing obtains which the program can change by itself.
fn by_hand(state: &State<'_>) -> Vec<ByHand> {
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

/// A phase of a remedy, about which nothing is known yet.
fn of_remedy(remedy: &Remedy, change: &Change, answers: Answers) -> Phase {
    Phase { cost: remedy.cost.to_string(), ..blank(remedy.name, remedy.title, change, answers) }
}

pub(crate) fn blank(remedy: &str, title: &str, change: &Change, answers: Answers) -> Phase {
    Phase {
        remedy: remedy.to_string(),
        title: title.to_string(),
        cost: String::new(),
        told_by: None,
        change: change.clone(),
        answers,
        promised: None,
        obtained: None,
        verdict: Verdict::NotTried,
        why: String::new(),
        quality: None,
        same_tokens: None,
        figures: Vec::new(),
        second_look: Vec::new(),
        samples_ns: Vec::new(),
        per_sequence: false,
        runs: None,
    }
}

fn fill(phase: &mut Phase, trial: &Trial) {
    phase.obtained = trial.obtained();
    phase.same_tokens = trial.same_tokens;
    phase.figures = trial.figures();
    phase.samples_ns.clone_from(&trial.samples_ns);
    phase.per_sequence = trial.comparison.per_sequence;
}

/// How many pairs would show the change that was measured, or the smallest that is looked for, and how large that is. An
/// interval shrinks with the square root of their number.
fn needed(trial: &Trial, pairs: usize) -> Option<(u64, f64)> {
    let estimate = trial.comparison.step.as_ref()?.estimate?;
    let half = (estimate.high? - estimate.low?) / 2.0;
    let share = estimate.change.abs().max(SMALLEST);
    let needed = (pairs as f64 * (half / share).powi(2)).ceil();
    (needed > pairs as f64 && needed < 1e6).then_some((needed as u64, share))
}

/// Says of a promise that did not come true where the time went.
fn look_again(phase: &mut Phase, trial: &Trial) {
    if let Some(promised) = phase.promised.as_ref().filter(|_| phase.came_true() == Some(false)) {
        phase.second_look = trial.second_look(promised);
    }
}
