//! What was tried, what it brought, and what was kept: everything that an optimisation writes down.

use crate::facts::Facts;
use crate::goal::Aim;
use crate::remedies::Answers;
use crate::setting::{Change, Setting};
use candlescope_figures::advice::came_true;
use candlescope_work::estimate::Estimate;
use serde::{Deserialize, Serialize};

/// What phases of commands are called that somebody wrote.
pub(crate) const COMMAND: &str = "command";

/// A gain that was predicted: shares of the run's step time, 0.1 for a tenth less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// At least.
    pub low: f64,
    /// Probably.
    pub mid: f64,
    /// At most.
    pub high: f64,
    /// The finding, or `what_if`.
    pub code: String,
    /// The changes that were simulated, as `--what-if` takes them; absent for a finding's own gain.
    pub simulated: Option<String>,
}

impl Promise {
    pub(crate) fn of(gain: Estimate, code: &str, simulated: Option<String>) -> Self {
        Self { low: gain.low, mid: gain.mid, high: gain.high, code: code.to_string(), simulated }
    }
}

/// A gain that was measured, on the same scale, with its interval where there are runs enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Obtained {
    /// The gain.
    pub gain: f64,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// A figure before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter {
    /// Its name: `step_ns decode`, `tpot_ns`, `peak_memory_bytes`.
    pub name: String,
    /// Before, median of the runs.
    pub before: f64,
    /// After.
    pub after: f64,
    /// The change as a share, with its interval, where it can be told.
    pub change: Option<(f64, Option<f64>, Option<f64>)>,
}

/// What became of a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is part of what follows.
    Kept,
    /// It gains nothing that can be told, or less than it costs.
    Rejected,
    /// It is not allowed: other tokens, quality, a limit.
    Refused,
    /// It could not be run.
    Failed,
    /// It was not tried.
    NotTried,
}

impl Verdict {
    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::NotTried => "not tried",
        }
    }
}

/// How far answers moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QualityMeasured {
    /// Mean KL divergence of the next token from that of f32 weights, in nats.
    pub kl: f64,
    /// Its standard error.
    pub kl_error: Option<f64>,
    /// Share of positions with the same most likely token.
    pub same_top: f64,
    /// Positions.
    pub positions: u64,
}

/// One remedy that was tried, or why it was not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The remedy.
    pub remedy: String,
    /// What it changes, for people.
    pub title: String,
    /// What it may cost, for people.
    pub cost: String,
    /// Of a command that somebody wrote, by which it is told from others, without its words.
    #[serde(default)]
    pub told_by: Option<String>,
    /// The change.
    pub change: Change,
    /// What may become of answers.
    pub answers: Answers,
    /// What was promised, if anything.
    pub promised: Option<Promise>,
    /// What was measured.
    pub obtained: Option<Obtained>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Quality, where it was measured.
    pub quality: Option<QualityMeasured>,
    /// Whether the tokens were the same as before.
    pub same_tokens: Option<bool>,
    /// Figures before and after.
    pub figures: Vec<BeforeAfter>,
    /// Where the promise and the result differ, a sentence each.
    pub second_look: Vec<String>,
    /// Time of a typical step in each pair of runs, before and after, in nanoseconds.
    pub samples_ns: Vec<[f64; 2]>,
    /// Whether the times of figures are those of one sequence, because the number of sequences changed.
    pub per_sequence: bool,
    /// The folder of its runs, in that of the study.
    pub runs: Option<String>,
}

impl Phase {
    /// A figure.
    pub fn figure(&self, name: &str) -> Option<&BeforeAfter> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Whether it is a command that somebody wrote, held against the program as it was at first.
    pub(crate) fn is_command(&self) -> bool {
        self.remedy == COMMAND
    }

    /// Whether its promise came true: `None` without a promise, or without a result that is certain enough to tell.
    pub fn came_true(&self) -> Option<bool> {
        let (promised, obtained) = (self.promised.as_ref()?, self.obtained?);
        let promised = Estimate { low: promised.low, mid: promised.mid, high: promised.high };
        came_true(promised, Estimate { low: obtained.low?, mid: obtained.gain, high: obtained.high? })
    }
}

/// A finding that no remedy here answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByHand {
    /// The finding.
    pub code: String,
    /// Where, for people.
    pub place: String,
    /// What it would gain the run: low, mid, high.
    pub gain: (f64, f64, f64),
    /// What to do.
    pub remedy: String,
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It has not.
    #[default]
    Running,
    /// Everything was tried.
    AllTried,
    /// The time was used up.
    Budget,
    /// It was interrupted.
    Interrupted,
    /// A state could not be recorded.
    Failed,
}

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Account {
    /// The model.
    pub model: String,
    /// The device, as it was asked for.
    pub device: String,
    /// The processor or the GPU.
    pub hardware: String,
    /// What was to become better.
    pub aim: Aim,
    /// The command before any change, without directories.
    pub command: String,
    /// What it began with.
    pub baseline: Setting,
    /// What it came to.
    pub setting: Setting,
    /// What was tried, in order.
    pub phases: Vec<Phase>,
    /// Findings of the last state that are for people to mend.
    pub by_hand: Vec<ByHand>,
    /// From the beginning to the end, both run in turns, where more than one remedy was kept.
    pub whole: Option<Box<Phase>>,
    /// What the last state is run with, as a shell reads it, without texts of prompts.
    pub last_command: String,
    /// By which a call with other options is told.
    pub begun_with: String,
    /// Why it ended.
    pub ended: Ended,
    /// What stopped it, where that is an error.
    pub error: Option<String>,
    /// Time that it took, in seconds.
    pub seconds: f64,
}

impl Account {
    /// Says what is made faster.
    pub(crate) fn describe(&mut self, facts: &Facts) {
        self.model.clone_from(&facts.model);
        self.device.clone_from(&facts.device);
        self.hardware.clone_from(&facts.hardware);
    }

    /// The gain from the first state to the last, where anything was kept: measured as a whole, or else what the steps' own
    /// gains come to.
    pub fn total(&self) -> Option<f64> {
        if let Some(obtained) = self.whole.as_ref().and_then(|whole| whole.obtained) {
            return Some(obtained.gain);
        }
        let kept = || self.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
        let gain = |phase: &Phase| phase.obtained.map(|obtained| obtained.gain);
        // Commands are held against the same program: of several, the best one counts.
        let commands = kept().filter(|phase| phase.is_command()).filter_map(gain).reduce(f64::max);
        let gains: Vec<f64> = kept().filter(|phase| !phase.is_command()).filter_map(gain).chain(commands).collect();
        (!gains.is_empty()).then(|| 1.0 - gains.iter().map(|gain| 1.0 - gain).product::<f64>())
    }

    /// How many times as fast it is, where anything was kept.
    pub fn times_as_fast(&self) -> Option<f64> {
        self.total().map(|total| 1.0 / (1.0 - total).max(1e-9))
    }

    /// Promises that were put to the test, and how many came true.
    pub fn promises(&self) -> (usize, usize) {
        let tested: Vec<bool> = self.phases.iter().filter_map(Phase::came_true).collect();
        (tested.len(), tested.iter().filter(|came| **came).count())
    }
}
