//! The account of errors: what was predicted from which runs, and how far repetitions differ from each other.

use super::calibration_run::CalibrationRun;
use super::fit::{Candidate, ObservedRun};
use crate::roofline::latency_figures::Figure;
use candlescope_figures::Distribution;
use serde::Serialize;
use std::collections::BTreeMap;

/// Which runs a prediction did not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOut {
    /// None: it was fitted to the run itself.
    Nothing,
    /// The run, and its repetitions.
    Case,
    /// All runs of the model.
    Model,
}

impl LeftOut {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Case => "the case",
            Self::Model => "the model",
        }
    }
}

/// A figure of a run beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOut {
    /// Name of the run: [`CalibrationRun::name`].
    pub run: String,
    /// Name of its model, as `run.json` has it.
    pub model: String,
    /// Sequences at once, the median over its measured requests.
    pub batch: u64,
    /// Tokens of each prompt.
    pub prompt: u64,
    /// What was left out of the fit.
    pub left_out: LeftOut,
    /// Which time of the run is held against its prediction.
    pub figure: Figure,
    /// Nanoseconds measured: of the run a median or a mean, as [`Figure`] says.
    pub measured_ns: f64,
    /// Nanoseconds predicted by a fit without what `left_out` names.
    pub predicted_ns: f64,
    /// Predicted ÷ measured − 1.
    pub error: f64,
}

/// The errors of one figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorSummary {
    /// What was left out of the fits.
    pub left_out: LeftOut,
    /// The time that was predicted, in all runs that have it.
    pub figure: Figure,
    /// Of one model; of all if `None`.
    pub model: Option<String>,
    /// Predictions that the errors are of, one for each run that has the figure.
    pub n: usize,
    /// Median of the signed errors.
    pub median: f64,
    /// Median of the errors without their signs.
    pub median_absolute: f64,
    /// The lowest and the highest.
    pub range: (f64, f64),
}

/// How far repetitions of a case differ: no prediction can be told to be better.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RepeatSummary {
    /// The time that both runs of each pair have.
    pub figure: Figure,
    /// Pairs of runs of the same case, one after the other.
    pub n: usize,
    /// Median of later ÷ earlier − 1.
    pub median: f64,
    /// The same without signs.
    pub median_absolute: f64,
}

/// Numbers of the runs of each case: the same model, asked the same.
pub(super) fn cases(runs: &[CalibrationRun]) -> Vec<Vec<usize>> {
    let mut cases: Vec<Vec<usize>> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let same = |case: &&mut Vec<usize>| {
            let first = &runs[case[0]];
            first.shape == run.shape && first.scenario == run.scenario
        };
        match cases.iter_mut().find(same) {
            Some(case) => case.push(at),
            None => cases.push(vec![at]),
        }
    }
    cases
}

/// Numbers of the runs of each model.
pub(super) fn models(runs: &[CalibrationRun]) -> Vec<Vec<usize>> {
    let mut models: Vec<Vec<usize>> = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        match models.iter_mut().find(|model| runs[model[0]].shape == run.shape) {
            Some(model) => model.push(at),
            None => models.push(vec![at]),
        }
    }
    models
}

/// The figures of a run as a device predicts them.
pub(super) fn errors(
    run: &CalibrationRun,
    observed: &ObservedRun,
    candidate: &Candidate,
    left_out: LeftOut,
) -> Vec<HeldOut> {
    let one = |(predicted_ns, (figure, measured_ns, _)): (f64, &(Figure, f64, f64))| HeldOut {
        run: run.name.clone(),
        model: run.shape.name.clone(),
        batch: run.scenario.batch,
        prompt: run.scenario.prompt,
        left_out,
        figure: *figure,
        measured_ns: *measured_ns,
        predicted_ns,
        error: predicted_ns / measured_ns - 1.0,
    };
    observed.predicted(candidate).into_iter().zip(&observed.figures).map(one).collect()
}

/// Errors by figure, of all models and of each.
pub(super) fn summaries(all: &[HeldOut]) -> Vec<ErrorSummary> {
    let mut groups: BTreeMap<(LeftOut, Figure, Option<&str>), Vec<f64>> = BTreeMap::new();
    for held in all {
        for model in [None, Some(held.model.as_str())] {
            groups.entry((held.left_out, held.figure, model)).or_default().push(held.error);
        }
    }
    let summary = |((left_out, figure, model), errors): ((LeftOut, Figure, Option<&str>), Vec<f64>)| {
        let absolute = Distribution::of(errors.iter().map(|error| error.abs()).collect())?;
        let signed = Distribution::of(errors)?;
        Some(ErrorSummary {
            left_out,
            figure,
            model: model.map(str::to_string),
            n: signed.n,
            median: signed.median,
            median_absolute: absolute.median,
            range: (signed.min, signed.max),
        })
    };
    groups.into_iter().filter_map(summary).collect()
}

/// Repetitions of each case, each beside the one before.
pub(super) fn repeats(runs: &[CalibrationRun], cases: &[Vec<usize>]) -> Vec<RepeatSummary> {
    let mut found: BTreeMap<Figure, Vec<f64>> = BTreeMap::new();
    for pair in cases.iter().flat_map(|case| case.windows(2)) {
        for (figure, earlier) in &runs[pair[0]].measured {
            let later = runs[pair[1]].measured.iter().find(|(other, _)| other == figure);
            if let Some((_, later)) = later {
                found.entry(*figure).or_default().push(later / earlier - 1.0);
            }
        }
    }
    let summary = |(figure, errors): (Figure, Vec<f64>)| {
        let absolute = Distribution::of(errors.iter().map(|error| error.abs()).collect())?;
        let signed = Distribution::of(errors)?;
        Some(RepeatSummary { figure, n: signed.n, median: signed.median, median_absolute: absolute.median })
    };
    found.into_iter().filter_map(summary).collect()
}
