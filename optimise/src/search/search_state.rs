//! What a search knows, and what its parts share.

use crate::account::{Account, Phase, Verdict};
use crate::facts::Facts;
use crate::goal::Goal;
use crate::options::OptimiseOptions;
use crate::remedies::{Answers, Remedy};
use crate::setting::Change;
use crate::starts::Starts;
use crate::trial::Trial;
use candlescope_figures::advice::Diagnosis;
use candlescope_lab::method::Cancel;
use candlescope_predict::simulation::Simulation;
use std::time::{Duration, Instant};

/// The smallest change that an undecided trial is held against.
pub(super) const SMALLEST: f64 = 0.02;

/// What is being done, for people who wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// What is done now.
    pub doing: String,
    /// What is left of the budget.
    pub left: Duration,
    /// Programs that are started next, lines to be shown whatever else is: the whole command of each before its first start,
    /// without words that nobody is to read, and how often they are started, or for how long.
    pub starts: Vec<String>,
}

/// A state of the program: its run, and what follows from it.
pub(super) struct DiagnosedState {
    pub(super) facts: Facts,
    pub(super) diagnosis: Diagnosis,
    pub(super) simulation: Option<Simulation>,
    /// What a run takes from its start to its end.
    pub(super) took: Duration,
}

/// How much a trial may take, and by what it is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialBounds {
    /// Most pairs of runs.
    pub(super) most: usize,
    /// No pair begins after this time.
    pub(super) lasts: Duration,
    /// Whether steps are others than before; `None` where the runs have to tell.
    pub(super) other_steps: Option<bool>,
}

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) options: &'a OptimiseOptions,
    pub(super) cancel: &'a Cancel,
    pub(super) observe: &'a mut dyn FnMut(Course),
    pub(super) began: Instant,
    /// What an earlier call took.
    pub(super) before: Duration,
    pub(super) account: Account,
    /// Whether the model runs on a GPU, once a run has said it.
    pub(super) on_gpu: Option<bool>,
    /// What the latest trial took, without what was measured before it.
    pub(super) trial_took: Duration,
    /// The folder of its runs, below `trials`.
    pub(super) trial_folder: String,
    /// Programs that were named before they were started.
    pub(super) starts: Starts,
    /// Rows that an earlier call left undecided, and that are tried again.
    pub(super) again: Vec<RowKey>,
    /// Whether the time of a trial was over before its first pair of runs.
    pub(super) lacked_time: bool,
    /// A run may take this long, however little time is left.
    pub(super) least_limit: Duration,
}

/// By which rows of the same trial are told: the name of the remedy, or the title of a command, and the change.
pub(super) type RowKey = (String, Change);

pub(super) fn key(phase: &Phase) -> RowKey {
    let name = if phase.is_command() { &phase.title } else { &phase.remedy };
    (name.clone(), phase.change.clone())
}

impl Search<'_> {
    /// How many pairs of runs there is time for, of which one takes so long.
    pub(super) fn pairs_left(&self, pair: Duration) -> usize {
        (self.left().as_secs_f64() / pair.as_secs_f64().max(1e-3)) as usize
    }

    /// Rows that an earlier call left undecided are tried again where `most` pairs are more than they had.
    pub(super) fn try_again(&mut self, most: usize) {
        let more = |phase: &&Phase| phase.undecided && phase.samples_ns.len() < most;
        self.again = self.account.phases.iter().filter(more).map(key).collect();
    }

    /// The pairs of the row that an earlier call left undecided, if it is tried again.
    pub(super) fn pairs_before(&self, row: &RowKey) -> Option<usize> {
        let of_it = |phase: &&Phase| phase.undecided && key(phase) == *row;
        let found = self.account.phases.iter().rfind(of_it).filter(|_| self.again.contains(row))?;
        Some(found.samples_ns.len())
    }

    /// Adds a row. One that an earlier call left undecided gives way to it if it is of runs, and else stands.
    pub(super) fn put(&mut self, phase: Phase) {
        let row = key(&phase);
        if self.again.contains(&row) {
            self.again.retain(|again| *again != row);
            if phase.verdict == Verdict::NotTried {
                return;
            }
            let before = self.account.phases.iter().rposition(|phase| phase.undecided && key(phase) == row);
            if let Some(at) = before {
                self.account.phases.remove(at);
            }
        }
        self.account.phases.push(phase);
    }
}

/// A phase of a remedy, about which nothing is known yet.
pub(super) fn of_remedy(remedy: &Remedy, change: &Change, answers: Answers) -> Phase {
    Phase { cost: remedy.cost.to_string(), ..blank(remedy.name, remedy.title, change, answers) }
}

pub(crate) fn blank(remedy: &str, title: &str, change: &Change, answers: Answers) -> Phase {
    Phase {
        remedy: remedy.to_string(),
        members: Vec::new(),
        title: title.to_string(),
        cost: String::new(),
        told_by: None,
        change: change.clone(),
        answers,
        promised: None,
        obtained: None,
        verdict: Verdict::NotTried,
        why: String::new(),
        undecided: false,
        quality: None,
        same_tokens: None,
        figures: Vec::new(),
        second_look: Vec::new(),
        differences: Vec::new(),
        looked_at: Vec::new(),
        samples_ns: Vec::new(),
        per_sequence: false,
        other_steps: false,
        runs: None,
    }
}

pub(super) fn fill(phase: &mut Phase, trial: &Trial, goal: &Goal) {
    phase.obtained = match phase.other_steps {
        false => trial.obtained(),
        true => goal.aim.of_requests().and_then(|figure| trial.obtained_of(figure)),
    };
    phase.same_tokens = trial.same_tokens;
    phase.figures = trial.figures();
    phase.samples_ns.clone_from(&trial.samples_ns);
    phase.per_sequence = trial.comparison.per_sequence;
}

/// What comparisons of the program before with itself would show (95 % of them stay below that), where a change has an
/// interval without zero and does not exceed it.
pub(super) fn within_floor(trial: &Trial) -> Option<f64> {
    let step = trial.comparison.step.as_ref()?;
    let (estimate, floor) = (step.estimate?, step.floor.share?);
    let is_told = estimate.low? > 0.0 || estimate.high? < 0.0;
    (is_told && estimate.change.abs() <= floor).then_some(floor)
}

/// How many pairs would show the change that was measured, or the smallest that is looked for, and how large that is. An
/// interval shrinks with the square root of their number.
pub(super) fn needed(trial: &Trial, pairs: usize) -> Option<(u64, f64)> {
    let estimate = trial.comparison.step.as_ref()?.estimate?;
    let half = (estimate.high? - estimate.low?) / 2.0;
    let share = estimate.change.abs().max(SMALLEST);
    let needed = (pairs as f64 * (half / share).powi(2)).ceil();
    (needed > pairs as f64 && needed < 1e6).then_some((needed as u64, share))
}
