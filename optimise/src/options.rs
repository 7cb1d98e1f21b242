//! What is made faster, what for, and how long it may take.

use crate::goal::Goal;
use crate::program::Program;
use crate::setting::Setting;
use crate::words::told_by;
use candlescope_reader::{ReadLimits, Run};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Fewest pairs of a trial: fewer have no interval.
pub(crate) const LEAST_PAIRS: usize = 8;

/// What is made faster, what for, and how long it may take.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OptimiseOptions {
    /// What is made faster, with the words that every command of it has.
    pub program: Program,
    /// What it begins with.
    pub baseline: Setting,
    /// What is to become better.
    pub goal: Goal,
    /// The directory of the study.
    pub out: PathBuf,
    /// How long it may take.
    pub budget: Duration,
    /// Most pairs of runs for each remedy.
    pub pairs: usize,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Commands that make a change by hand; where there are any, they are tried in place of remedies.
    pub tries: Vec<String>,
    /// What each of these obtains: a finding of the run as it is, `ngram_lookup`, `together`, or changes as `--what-if`
    /// takes them.
    pub promises: Vec<String>,
    /// A command in place of `candlescope profile`, for `tries`.
    pub run: Option<String>,
    /// Where promises are remembered; `None` for nowhere.
    pub ledger: Option<PathBuf>,
    /// Limits on reading runs.
    pub limits: ReadLimits,
    /// What is done to a run before it is read: measured peaks are put in.
    pub prepare: fn(&mut Run),
    /// What gains rest on besides the options, by the names that people know: this program, the model's file, a group's
    /// file. By each value another one is told; a call that goes on has to have the same.
    pub rests_on: BTreeMap<String, String>,
}

impl OptimiseOptions {
    /// Ten minutes for the latency of a program, up to 40 pairs for each remedy.
    pub fn new(program: Program, baseline: Setting, out: impl Into<PathBuf>) -> Self {
        Self {
            program,
            baseline,
            goal: Goal::default(),
            out: out.into(),
            budget: Duration::from_secs(600),
            pairs: 40,
            seed: 42,
            tries: Vec::new(),
            promises: Vec::new(),
            run: None,
            ledger: None,
            limits: ReadLimits::default(),
            prepare: |_| (),
            rests_on: BTreeMap::new(),
        }
    }

    /// By which a call with other options is told, without saying what they are: texts may be among them.
    pub(crate) fn told_by(&self) -> String {
        let goal = &self.goal;
        let all = (&self.program.words, &self.program.private, &self.tries, &self.promises, &self.run);
        told_by(&format!("{all:?} {:?} {:?} {:?} {:?}", goal.aim, goal.slo, goal.most_kl, self.baseline))
    }
}
