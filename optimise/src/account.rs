//! What was tried, what it brought, and what was kept: everything that an optimisation writes down.

use crate::facts::Facts;
use crate::goal::Aim;
use crate::remedies::Answers;
use crate::setting::{Change, Setting};
use crate::words::GOODPUT;
use candlescope_core::numbers::significant;
use candlescope_figures::advice::came_true;
use candlescope_work::estimate::Estimate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What phases of commands are called that somebody wrote.
pub(crate) const COMMAND: &str = "command";

/// A gain that was predicted: shares of the run's step time, 0.1 for a tenth less; of its requests' time where steps are others
/// than before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// The least that it should gain; below 0 if a step may take longer.
    pub low: f64,
    /// The gain to reckon with, the largest of which is tried first.
    pub mid: f64,
    /// The most that it can be expected to gain.
    pub high: f64,
    /// The finding, `what_if`, `together` for what several findings gain at once, or `ngram_lookup` for what the run's texts
    /// foretell of tokens that are looked up.
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
pub struct MeasuredGain {
    /// Share of the time that is saved: 0.1 for a tenth less, below 0 where it became slower.
    pub gain: f64,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of it; both ends are `None` where there are too few runs for an interval.
    pub high: Option<f64>,
}

/// A figure before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeAfter {
    /// Its name: `step_ns decode`, `tpot_ns`, `peak_memory_bytes`.
    pub name: String,
    /// Before, median of the runs.
    pub before: f64,
    /// After, median of the runs with the change.
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
    /// For people: `kept`, `rejected`, `refused`, `failed` or `not tried`.
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
    /// Standard error of `kl` in nats, positions taken as independent; `None` for a single one.
    pub kl_error: Option<f64>,
    /// Share of positions with the same most likely token.
    pub same_top: f64,
    /// Positions of the text over which `kl` and `same_top` were taken.
    pub positions: u64,
}

/// One remedy that was tried, or why it was not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Name of the remedy: `threads`; several that were tried as one are joined by `+`; `command` for one that somebody
    /// wrote, `whole` from the first state to the last, `compare` or `by_hand` in a journey.
    pub remedy: String,
    /// Names of the remedies that were tried as one; empty for a single one.
    #[serde(default)]
    pub members: Vec<String>,
    /// What it changes, for people.
    pub title: String,
    /// What it may cost, for people.
    pub cost: String,
    /// Of a command that somebody wrote, by which it is told from others, without its words.
    #[serde(default)]
    pub told_by: Option<String>,
    /// Options and variables that it sets or takes out; empty for commands and for what is not possible.
    pub change: Change,
    /// What may become of answers.
    pub answers: Answers,
    /// What was promised, if anything.
    pub promised: Option<Promise>,
    /// What was measured; `None` where nothing ran, a run failed, or the times could not be compared.
    pub obtained: Option<MeasuredGain>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it has this verdict, for people: the interval of the change, a limit that it breaks, an error.
    pub why: String,
    /// Whether it was rejected because its pairs did not tell what it gains. A later call that can take more of them
    /// tries it again.
    #[serde(default)]
    pub undecided: bool,
    /// Quality, where it was measured.
    pub quality: Option<QualityMeasured>,
    /// Whether the tokens were the same as before.
    pub same_tokens: Option<bool>,
    /// Figures before and after.
    pub figures: Vec<BeforeAfter>,
    /// Where the promise and the result differ, a sentence each.
    pub second_look: Vec<String>,
    /// What took another time than was said, the largest difference first: kinds of steps, then paths, kernels, functions.
    /// Empty unless the promise did not come true.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// Runs for this second look, one of each side, below `recorded`; empty where none was taken.
    #[serde(default)]
    pub looked_at: Vec<String>,
    /// Time of a typical step in each pair of runs, before and after, in nanoseconds.
    pub samples_ns: Vec<[f64; 2]>,
    /// Whether the times of figures are those of one sequence, because the number of sequences changed.
    pub per_sequence: bool,
    /// Whether the work is cut into other steps than before, so that the time of a step says nothing: `obtained` is then of the time
    /// of requests, and absent where they are counted.
    #[serde(default)]
    pub other_steps: bool,
    /// The folder of its runs, in that of the study.
    pub runs: Option<String>,
}

impl Phase {
    /// The figure of this name before and after, if both sides have it.
    pub fn figure(&self, name: &str) -> Option<&BeforeAfter> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// What requests gained, by the figure of this aim; `None` where they are counted, or it was not measured.
    fn gain_of_requests(&self, aim: Aim) -> Option<f64> {
        if self.other_steps {
            return self.obtained.map(|obtained| obtained.gain);
        }
        let BeforeAfter { before, after, .. } = *self.figure(aim.of_requests()?)?;
        // Of tokens a second, more is better.
        let left = if aim == Aim::Throughput { before / after } else { after / before };
        left.is_finite().then_some(1.0 - left)
    }

    /// Whether it is a command that somebody wrote, held against the program as it was at first.
    pub(crate) fn is_command(&self) -> bool {
        self.remedy == COMMAND
    }

    /// Whether its promise came true, that is whether its bounds and the interval of the result have a value in common: `None`
    /// without a promise, or without a result that is certain enough to tell.
    pub fn came_true(&self) -> Option<bool> {
        let (promised, obtained) = (self.promised.as_ref()?, self.obtained?);
        let promised = Estimate { low: promised.low, mid: promised.mid, high: promised.high };
        came_true(promised, Estimate { low: obtained.low?, mid: obtained.gain, high: obtained.high? })
    }
}

/// What gains are shares of, for people.
const STEP_TIME: &str = "step time";
const REQUEST_TIME: &str = "time of requests";
const EITHER_TIME: &str = "time";

/// What the gains of these phases are shares of, for people: the time of steps, that of requests, or the time where there are both.
pub(crate) fn time_of<'a>(phases: impl Iterator<Item = &'a Phase>) -> &'static str {
    let other_steps: Vec<bool> = phases.map(|phase| phase.other_steps).collect();
    match (other_steps.contains(&true), other_steps.contains(&false)) {
        (true, false) => REQUEST_TIME,
        (true, true) => EITHER_TIME,
        (false, _) => STEP_TIME,
    }
}

/// What these gains come to, one after the other; `None` without any. Commands are held against the same program: of several, the
/// best one counts.
fn come_to<'a>(phases: impl Iterator<Item = &'a Phase> + Clone, gain: impl Fn(&Phase) -> Option<f64>) -> Option<f64> {
    let commands = phases.clone().filter(|phase| phase.is_command()).filter_map(&gain).reduce(f64::max);
    let gains: Vec<f64> = phases.filter(|phase| !phase.is_command()).filter_map(&gain).chain(commands).collect();
    (!gains.is_empty()).then(|| 1.0 - gains.iter().map(|gain| 1.0 - gain).product::<f64>())
}

/// What a difference between a promise and the result is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceScope {
    /// A kind of step.
    Step,
    /// What a path of the model takes itself.
    Path,
    /// A kernel, by its name.
    Kernel,
    /// A function of the program, by samples of its stacks.
    Function,
}

/// The time of something before and after a remedy, and what was said that it would be. Nanoseconds of one step of its kind; of one
/// sequence's share where the number of sequences changed and it is a kind of step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// What it is.
    pub within: DifferenceScope,
    /// The kind of step that the time is a part of; of a function all kinds, each by its share.
    pub step: Option<String>,
    /// Name of the kind of step, path, kernel or function.
    pub name: String,
    /// Its time before the remedy.
    pub before_ns: f64,
    /// The time that was said to be left of it; `None` where nothing was said.
    pub said_ns: Option<f64>,
    /// Its time with the remedy.
    pub after_ns: f64,
}

impl Difference {
    /// By how much it took longer than was said, in nanoseconds; where nothing was said, than before.
    pub fn longer_ns(&self) -> f64 {
        self.after_ns - self.said_ns.unwrap_or(self.before_ns)
    }
}

/// Remedies that do not gain together what they gain by themselves. Gains are shares of the run's step time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interaction {
    /// Names of the remedies.
    pub members: Vec<String>,
    /// The changes of all of them.
    pub change: Change,
    /// What each of them gains by itself, in the same order and of the same source as `together`: by the findings that it
    /// obtains, or by a replay. 0 for one of which nothing is known.
    pub alone: Vec<f64>,
    /// What findings or a replay say that they gain at once: low, mid, high.
    pub together: (f64, f64, f64),
    /// Whether that is more than their sum, so that they are a candidate for one trial; else it is no more than the larger one's own.
    pub tried_as_one: bool,
}

/// A finding that no remedy here answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByHand {
    /// Code of the finding, as `docs/findings.md` lists it.
    pub code: String,
    /// Path in the model that it is about, or the kind of step where it names no path.
    pub place: String,
    /// What it would gain the run: low, mid, high.
    pub gain: (f64, f64, f64),
    /// What to do, in the words that reports have for this finding.
    pub remedy: String,
}

/// Why an optimisation ended; the state in its `study.json` follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimiseEnd {
    /// It has not: so it stands in the files that are written after each step.
    #[default]
    Running,
    /// No remedy, or no command that somebody wrote, is left to be tried.
    AllTried,
    /// The time was used up.
    Budget,
    /// The caller cancelled it; a later call can go on from what is known.
    Interrupted,
    /// A state could not be recorded.
    Failed,
}

/// Everything that was tried.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Account {
    /// Name of the model, as the first run or station says it; empty until then.
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
    /// Remedies that findings or the replay of a state said to interact.
    pub together: Vec<Interaction>,
    /// Findings of the last state that are for people to mend.
    pub by_hand: Vec<ByHand>,
    /// From the beginning to the end, both run in turns, where more than one remedy was kept.
    pub whole: Option<Box<Phase>>,
    /// What the last state is run with, as a shell reads it, without texts of prompts.
    pub last_command: String,
    /// By which a call with other options is told.
    pub begun_with: String,
    /// What else every gain rests on: by which another candlescope, model, file of prompts or group's file is told.
    pub rests_on: BTreeMap<String, String>,
    /// Why the latest call ended; [`OptimiseEnd::Running`] while it goes on.
    pub ended: OptimiseEnd,
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

    /// Notes which remedies interact; what an earlier state said of the same changes is replaced.
    pub(crate) fn interact(&mut self, found: Vec<Interaction>) {
        for one in found {
            self.together.retain(|known| (&known.members, &known.change) != (&one.members, &one.change));
            self.together.push(one);
        }
    }

    /// Whether remedies that interact were put to the test at once.
    pub fn tried_as_one(&self, one: &Interaction) -> bool {
        let is_it = |phase: &Phase| phase.members == one.members && phase.change == one.change;
        self.phases.iter().any(|phase| is_it(phase) && phase.verdict != Verdict::NotTried)
    }

    /// Requests a second that kept all limits in the first state, and in the last: as measured from one to the other, or else
    /// before the first step that was kept and after the last. `None` where the aim is another one, nothing was kept, or no
    /// request kept the limits in either.
    pub fn goodput(&self) -> Option<(f64, f64)> {
        let of = |phase: &Phase| phase.figure(GOODPUT).map(|figure| (figure.before, figure.after));
        let kept = |is_command: bool| {
            let kept = self.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
            kept.filter(move |phase| phase.is_command() == is_command).filter_map(of)
        };
        let steps = || kept(false).next().zip(kept(false).next_back()).map(|(first, last)| (first.0, last.1));
        // Commands are held against the same program: of several, the best one counts.
        let commands = || kept(true).max_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
        let all = self.whole.as_deref().and_then(of).or_else(steps).or_else(commands);
        all.filter(|(before, after)| self.aim == Aim::Goodput && (*before > 0.0 || *after > 0.0))
    }

    /// The same for people, as a part of a sentence.
    pub fn goodput_in_words(&self) -> Option<String> {
        let (before, after) = self.goodput()?;
        let factor = if before > 0.0 { format!(" ({:.2} times as many)", after / before) } else { String::new() };
        Some(format!(
            "{} requests a second kept all limits, and {} do{factor}",
            significant(before),
            significant(after)
        ))
    }

    /// Whether any step that was kept has times of steps: load tests have none.
    pub fn has_step_times(&self) -> bool {
        let kept = self.phases.iter().filter(|phase| phase.verdict == Verdict::Kept);
        kept.chain(self.whole.as_deref()).any(|phase| phase.figure("step_ns").is_some())
    }

    /// The gain from the first state to the last, whatever the aim is, where anything was kept: measured as a whole, or else what the
    /// steps' own gains come to. [`total_of`](Self::total_of) says what it is a share of.
    pub fn total(&self) -> Option<f64> {
        self.total_and_of().map(|(total, _)| total)
    }

    /// What [`total`](Self::total) is a share of, for people: the time of steps; that of requests where steps are others than
    /// before; or just the time, where remedies of both kinds were kept, nothing was measured as a whole, and what requests gained by
    /// each is not known.
    pub fn total_of(&self) -> &'static str {
        self.total_and_of().map_or(STEP_TIME, |(_, of)| of)
    }

    fn total_and_of(&self) -> Option<(f64, &'static str)> {
        if let Some(whole) = self.whole.as_deref()
            && let Some(obtained) = whole.obtained
        {
            return Some((obtained.gain, if whole.other_steps { REQUEST_TIME } else { STEP_TIME }));
        }
        let kept = || self.phases.iter().filter(|phase| phase.verdict == Verdict::Kept && phase.obtained.is_some());
        let of = time_of(kept());
        // Shares of two times make no product. What requests gained is measured by each trial.
        let of_requests = |phase: &Phase| phase.gain_of_requests(self.aim);
        if of == EITHER_TIME && kept().all(|phase| of_requests(phase).is_some()) {
            return come_to(kept(), of_requests).map(|total| (total, REQUEST_TIME));
        }
        come_to(kept(), |phase| phase.obtained.map(|obtained| obtained.gain)).map(|total| (total, of))
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
