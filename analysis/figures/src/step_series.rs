//! The measured steps of each kind in order of start: their durations, contexts and tokens.

use super::step_rows::StepRow;
use candlescope_schema::{Phase, Ran};
use std::collections::{BTreeSet, HashMap};

/// All measured steps of one phase, or name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepSeries {
    /// The phase, or the steps' name.
    pub name: String,
    /// The phase, if it is one.
    pub phase: Option<Phase>,
    /// Name of the first one's span, without an ordinal.
    pub span: String,
    /// The steps, in order of start.
    pub points: Vec<StepPoint>,
    /// Tokens computed, padding and ended sequences included; `None` if a step does not say.
    pub computed_tokens: Option<u64>,
    /// Tokens that are new and belong to sequences that go on; `None` if a step does not say.
    pub new_tokens: Option<u64>,
    /// Most sequences in one step; a step that states no batch counts as 1.
    pub batch: u32,
}

/// One measured step, as a point of its series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepPoint {
    /// Number of the step in the run, from 0 in order of start over all threads.
    pub step: u64,
    /// Duration on the host in nanoseconds.
    pub dur_ns: u64,
    /// Context length after it.
    pub context_len: Option<u32>,
    /// Tokens that it processed.
    pub tokens: Option<u32>,
    /// Whether its kernels were recorded, which takes time.
    pub recorded: bool,
    /// How it ran, where the program says it.
    pub ran: Option<Ran>,
    /// Sequences in the batch.
    pub batch: Option<u32>,
}

impl StepSeries {
    /// One for each kind of `steps`, which are in order of start; `recorded` are those with recorded kernels.
    pub fn all(steps: &[StepRow], recorded: &BTreeSet<u64>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for step in steps {
            let at = *places.entry(step.group()).or_insert_with(|| {
                let (name, phase) = (step.group().to_string(), step.phase);
                let (computed_tokens, new_tokens) = (Some(0), Some(0));
                let span = step.span().to_string();
                all.push(Self { name, phase, span, computed_tokens, new_tokens, ..Self::default() });
                all.len() - 1
            });
            let series = &mut all[at];
            let (dur_ns, context_len, tokens) = (step.dur_ns, step.context_len, step.tokens);
            let recorded = recorded.contains(&step.step);
            let (step_number, ran, batch) = (step.step, step.ran, step.batch);
            series.points.push(StepPoint { step: step_number, dur_ns, context_len, tokens, recorded, ran, batch });
            series.batch = series.batch.max(step.batch.unwrap_or(1));
            let plus = |sum: Option<u64>, more: Option<u32>| Some(sum?.saturating_add(u64::from(more?)));
            series.computed_tokens = plus(series.computed_tokens, step.tokens);
            series.new_tokens = plus(series.new_tokens, step.new_tokens);
        }
        all
    }
}
