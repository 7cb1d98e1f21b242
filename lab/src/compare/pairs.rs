//! Two programs run in turns, until it is clear which one is better.
//!
//! Each block of two pairs is A B B A or B A A B, drawn by lot: whatever drifts over time, or follows from being the
//! second of two, falls on both. After each pair the comparison is made again. Its intervals hold at every number of
//! pairs ([`candlescope_compare::paired_median`]), so it may end when the answer is there, when the user has
//! enough, or when a program fails.

use super::command::{RunCommand, is_text};
use super::error::CompareFailed;
use crate::method::Cancel;
use candlescope_compare::{
    CompareOptions, Comparison, GoodputChange, Outcome, RunFacts, Side, compare, goodput_change, takes_other_steps,
};
use candlescope_reader::{ReadLimits, Run};
use candlescope_work::slo::Slo;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How pairs are taken.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PairOptions {
    out: PathBuf,
    most: usize,
    least: usize,
    seed: u64,
    warm_up: bool,
    retakes: usize,
    keep_commands: bool,
    time_limit: Option<Duration>,
    deadline: Option<Instant>,
    step_decides: bool,
    figure_decides: Option<&'static str>,
    goodput: Option<Slo>,
    other_steps: Option<WithOtherSteps>,
    compare: CompareOptions,
    limits: ReadLimits,
}

/// What holds where one side takes another number of steps for a request.
#[derive(Debug, Clone)]
struct WithOtherSteps {
    figure_decides: Option<&'static str>,
    compare: CompareOptions,
}

/// Changes of goodput up to this share are the same, as those of a step's time.
const MARGIN: f64 = 0.02;
/// Probability with which its interval may miss the truth.
const ALPHA: f64 = 0.02;

impl PairOptions {
    /// Runs go to `out`, which must be empty or absent: up to 40 pairs, after one run of each that does not count.
    pub fn new(out: impl Into<PathBuf>) -> Self {
        Self {
            out: out.into(),
            most: 40,
            least: 8,
            seed: 42,
            warm_up: true,
            retakes: 10,
            keep_commands: false,
            time_limit: None,
            deadline: None,
            step_decides: false,
            figure_decides: None,
            goodput: None,
            other_steps: None,
            compare: CompareOptions::default(),
            limits: ReadLimits::default(),
        }
    }

    /// Most pairs that are taken: 40 by default.
    #[must_use]
    pub fn most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Fewest pairs, even if fewer decide: 8 by default.
    #[must_use]
    pub fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    /// Seed of the order.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Whether each program runs once before, which does not count: it does by default.
    #[must_use]
    pub fn warm_up(self, warm_up: bool) -> Self {
        Self { warm_up, ..self }
    }

    /// How many pairs are taken again because a run lost records, as on a machine that is too busy: 10 by default.
    #[must_use]
    pub fn retakes(self, retakes: usize) -> Self {
        Self { retakes, ..self }
    }

    /// Whether results and messages have the words of the commands: not by default, because they may hold keys. Sides
    /// are called by their programs then.
    #[must_use]
    pub fn keep_commands(self, keep_commands: bool) -> Self {
        Self { keep_commands, ..self }
    }

    /// Longest time that a run may take; without it, a command may take as long as it does. Commands are started in groups
    /// of their own then, and end with their whole group.
    #[must_use]
    pub fn time_limit(self, limit: Option<Duration>) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// No pair is begun after this.
    #[must_use]
    pub fn deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Whether it is over as soon as the time of a step is decided, whatever else was to be said of paths and counts.
    #[must_use]
    pub fn step_decides(self, alone: bool) -> Self {
        Self { step_decides: alone, ..self }
    }

    /// A figure, such as `e2e_ns`: it is over as soon as its change is decided, whatever else was to be said.
    #[must_use]
    pub fn figure_decides(self, name: Option<&'static str>) -> Self {
        Self { figure_decides: name, ..self }
    }

    /// Limits of requests: those that keep all of them are counted, and it is over as soon as it is decided how many more or
    /// fewer of them there are a second.
    #[must_use]
    pub fn goodput(self, limits: Option<Slo>) -> Self {
        Self { goodput: limits, ..self }
    }

    /// Looks whether one side takes another number of steps for a request than the other. If so, this figure of
    /// requests decides in place of the time of a step, and sides are compared in this way.
    #[must_use]
    pub fn where_steps_are_others(self, figure_decides: Option<&'static str>, compare: CompareOptions) -> Self {
        Self { other_steps: Some(WithOtherSteps { figure_decides, compare }), ..self }
    }

    /// How sides are compared.
    #[must_use]
    pub fn compare(self, compare: CompareOptions) -> Self {
        Self { compare, ..self }
    }

    /// Limits on reading runs.
    #[must_use]
    pub fn limits(self, limits: ReadLimits) -> Self {
        Self { limits, ..self }
    }
}

/// A run that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenRun {
    /// Complete pairs so far.
    pub pairs: usize,
    /// Most pairs that will be taken.
    pub most: usize,
    /// Whether it was a run of B.
    pub is_b: bool,
}

/// Why no more pairs were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairsEnded {
    /// It is clear what the comparison comes to.
    Decided,
    /// As many pairs were taken as asked for, or the deadline had passed.
    AllTaken,
    /// [`Cancel`] was set; a run whose partner is missing is left out.
    Cancelled,
}

/// What the complete pairs come to, and how many there were.
#[derive(Debug)]
pub struct PairsResult {
    /// The comparison; absent if it was stopped before the first pair.
    pub comparison: Option<Comparison>,
    /// Complete pairs that count; neither warm-up nor those taken again are among them.
    pub pairs: usize,
    /// Pairs that were taken again, because one of their runs lost records.
    pub spoiled: usize,
    /// Why no more pairs were taken.
    pub ended: PairsEnded,
    /// Time of a typical step in each pair's two runs, A's and B's, in nanoseconds.
    pub samples: Vec<[f64; 2]>,
    /// How goodput changed; `None` unless limits were given and both sides have measured requests.
    pub goodput: Option<GoodputChange>,
    /// Whether one side takes another number of steps for a request, if that was
    /// [looked for](PairOptions::where_steps_are_others).
    pub other_steps: bool,
}

/// Takes pairs of runs of the commands `a` and `b` until the comparison is decided.
///
/// # Errors
/// When a command fails or writes no run, and when what they write must not be compared. Runs so far are kept.
pub fn take_pairs(
    (a, b): (&str, &str),
    options: &PairOptions,
    cancel: &Cancel,
    mut observe: impl FnMut(TakenRun),
) -> Result<PairsResult, CompareFailed> {
    let out = &options.out;
    prepare(out)?;
    let keep = options.keep_commands;
    let commands = [RunCommand::new(a, 'A', keep), RunCommand::new(b, 'B', keep)];
    let mut taking = PairsUnderWay {
        sides: [commands[0].name(), commands[1].name()].map(|name| Side { name: name.to_string(), runs: Vec::new() }),
        commands,
        started: [0; 2],
        options,
        cancel,
    };
    let mut comparison = None;
    if options.warm_up {
        for is_b in [false, true] {
            if !taking.warm_up(is_b)? {
                return Ok(taking.result(comparison, 0, PairsEnded::Cancelled));
            }
        }
    }
    let mut lot = StdRng::seed_from_u64(options.seed);
    let (mut pairs, mut spoiled) = (0, 0);
    let mut b_first = false;
    let is_late = || options.deadline.is_some_and(|deadline| Instant::now() >= deadline);
    while pairs < options.most && !is_late() {
        // The second pair of a block is the first one turned round.
        b_first = if pairs % 2 == 0 { lot.random() } else { !b_first };
        for is_b in [b_first, !b_first] {
            if cancel.is_cancelled() || !taking.take(is_b)? {
                taking.even(pairs);
                return Ok(taking.result(comparison, spoiled, PairsEnded::Cancelled));
            }
            observe(TakenRun { pairs, most: options.most, is_b });
        }
        if spoiled < options.retakes && taking.spoiled(pairs) {
            // Both, so that which pairs count does not depend on which side was hit.
            taking.set_aside(pairs)?;
            b_first = !b_first;
            spoiled += 1;
            continue;
        }
        pairs += 1;
        let other = taking.other_steps();
        let figure_decides = other.map_or(options.figure_decides, |other| other.figure_decides);
        let how = other.map_or(&options.compare, |other| &other.compare);
        let made = compare(&taking.sides[0], &taking.sides[1], how)?;
        let step = made.step.as_ref().and_then(|step| step.outcome).unwrap_or(Outcome::Undecided);
        let figure = |name: &str| made.figures.iter().find(|figure| figure.name == name)?.outcome;
        // Where no request keeps the limits on either side, the time of a step says which is nearer to them.
        let is_open = match taking.goodput().filter(|goodput| goodput.before > 0.0 || goodput.after > 0.0) {
            Some(goodput) => goodput.outcome == Outcome::Undecided,
            None if figure_decides.is_some() => {
                figure_decides.and_then(figure).is_none_or(|outcome| outcome == Outcome::Undecided)
            }
            None if options.step_decides => step == Outcome::Undecided,
            None => made.wants_more_pairs(),
        };
        let decided = pairs >= options.least && !is_open;
        comparison = Some(made);
        if decided {
            return Ok(taking.result(comparison, spoiled, PairsEnded::Decided));
        }
    }
    Ok(taking.result(comparison, spoiled, PairsEnded::AllTaken))
}

/// Takes one run of a command into the directory `out`, of which what it prints stands beside. `None` if it was
/// interrupted.
///
/// # Errors
/// When the command fails, takes longer than `limit`, or writes no run.
pub fn take_run(
    command: &str,
    out: &Path,
    limit: Option<Duration>,
    cancel: &Cancel,
) -> Result<Option<PathBuf>, CompareFailed> {
    let failed = |cause| CompareFailed::Write { path: out.to_path_buf(), cause };
    if let Some(parent) = out.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let printed = out.with_extension("txt");
    RunCommand::new(command, 'A', false).run(out, &printed, || cancel.is_cancelled(), "Nothing was compared", limit)
}

fn prepare(out: &Path) -> Result<(), CompareFailed> {
    is_text(out)?;
    let failed = |cause| CompareFailed::Write { path: out.to_path_buf(), cause };
    std::fs::create_dir_all(out).map_err(failed)?;
    match std::fs::read_dir(out).map_err(failed)?.next() {
        Some(_) => Err(CompareFailed::NotEmpty { path: out.to_path_buf() }),
        None => Ok(()),
    }
}

struct PairsUnderWay<'a> {
    commands: [RunCommand; 2],
    sides: [Side; 2],
    /// Runs that were started.
    started: [usize; 2],
    options: &'a PairOptions,
    cancel: &'a Cancel,
}

impl PairsUnderWay<'_> {
    /// One more run of a side; `false` if it was interrupted.
    fn take(&mut self, is_b: bool) -> Result<bool, CompareFailed> {
        let n = self.started[usize::from(is_b)];
        self.started[usize::from(is_b)] += 1;
        let dir = self.options.out.join(if is_b { "b" } else { "a" }).join(format!("{n:03}"));
        let Some(run) = self.start(is_b, &dir)? else { return Ok(false) };
        let facts =
            RunFacts::within(&Run::open_within(run, self.options.limits.clone())?, self.options.goodput.as_ref());
        self.sides[usize::from(is_b)].runs.push(facts);
        Ok(true)
    }

    /// A run that does not count: the first start of a program reads its files from the disk.
    fn warm_up(&mut self, is_b: bool) -> Result<bool, CompareFailed> {
        let dir = self.options.out.join("warm-up").join(if is_b { "b" } else { "a" });
        Ok(self.start(is_b, &dir)?.is_some())
    }

    fn start(&self, is_b: bool, dir: &Path) -> Result<Option<PathBuf>, CompareFailed> {
        if let Some(parent) = dir.parent() {
            let failed = |cause| CompareFailed::Write { path: parent.to_path_buf(), cause };
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        let printed = self.options.out.join("printed.txt");
        let out = self.options.out.display();
        let kept = match self.sides.iter().map(|side| side.runs.len()).min() {
            Some(pairs) if pairs > 0 => {
                format!("The {pairs} pairs so far are kept: candlescope compare {out}/a {out}/b")
            }
            _ => "Nothing had been compared before".to_string(),
        };
        let limit = self.options.time_limit;
        self.commands[usize::from(is_b)].run(dir, &printed, || self.cancel.is_cancelled(), &kept, limit)
    }

    /// Whether a run of the last pair has figures that are doubtful.
    fn spoiled(&self, pairs: usize) -> bool {
        self.sides.iter().any(|side| side.runs.get(pairs).is_some_and(|run| !run.damage.is_empty()))
    }

    /// Takes the last pair out of the comparison, and its runs out of the folders of A and B.
    fn set_aside(&mut self, pairs: usize) -> Result<(), CompareFailed> {
        self.even(pairs);
        let aside = self.options.out.join("spoiled");
        for (letter, started) in ["a", "b"].into_iter().zip(self.started) {
            let name = format!("{:03}", started - 1);
            let failed = |cause| CompareFailed::Write { path: aside.clone(), cause };
            std::fs::create_dir_all(&aside).map_err(failed)?;
            let from = self.options.out.join(letter).join(&name);
            std::fs::rename(from, aside.join(format!("{letter}-{name}"))).map_err(failed)?;
        }
        Ok(())
    }

    /// What came out of the complete pairs.
    fn result(&self, comparison: Option<Comparison>, spoiled: usize, ended: PairsEnded) -> PairsResult {
        let ns = |run: &RunFacts| run.step_ns.as_ref().map_or(f64::NAN, |step| step.value);
        let [a, b] = &self.sides;
        let samples: Vec<[f64; 2]> = a.runs.iter().zip(&b.runs).map(|(a, b)| [ns(a), ns(b)]).collect();
        let (goodput, other_steps) = (self.goodput(), self.other_steps().is_some());
        PairsResult { comparison, pairs: samples.len(), spoiled, ended, samples, goodput, other_steps }
    }

    /// What holds if one side takes another number of steps for a request, and somebody wants to know.
    fn other_steps(&self) -> Option<&WithOtherSteps> {
        let [a, b] = &self.sides;
        self.options.other_steps.as_ref().filter(|_| takes_other_steps(&a.runs, &b.runs))
    }

    /// How goodput changed over the pairs so far.
    fn goodput(&self) -> Option<GoodputChange> {
        let [a, b] = &self.sides;
        let pairs: Vec<[f64; 2]> =
            a.runs.iter().zip(&b.runs).filter_map(|(a, b)| Some([a.goodput?, b.goodput?])).collect();
        goodput_change(&pairs, MARGIN, ALPHA)
    }

    /// Forgets a run whose partner was not taken any more.
    fn even(&mut self, pairs: usize) {
        self.sides.iter_mut().for_each(|side| side.runs.truncate(pairs));
    }
}
