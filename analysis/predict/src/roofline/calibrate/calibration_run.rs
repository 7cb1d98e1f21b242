//! What a run contributes to a calibration.

use super::super::latency_figures::{self, Figure, is_watched, kernels_a_step};
use super::super::outlook::operations;
use super::super::run_facts;
use super::super::scenario::Scenario;
use candlescope_figures::Analysis;
use candlescope_schema::Phase;
use candlescope_work::devices::Device;
use candlescope_work::shape::ModelShape;
use serde::Serialize;

/// Fewest cases of a calibration: with fewer, leaving one out leaves too little, and any fit is perfect.
pub(super) const FEWEST_CASES: usize = 3;
/// A step is recorded whole from this share of the kernels that it launches on.
const WHOLE_STEP: f64 = 0.9;

/// Which parameters are fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Bandwidth, FLOP/s, shortest kernel, launch; on a processor the copies of weights into panels.
    Roof,
    /// Rates by kind of operation, costs by kind of kernel, launches, waiting; the same copies.
    Attained,
}

/// What one run contributes.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationRun {
    /// Name of the run in reports, as the caller gave it: its directory on the command line.
    pub name: String,
    /// Dimensions of its model, from `run.json`; runs with the same ones count as one model.
    pub shape: ModelShape,
    /// What it was asked.
    pub scenario: Scenario,
    /// Nanoseconds of each figure that a fit may use: no latencies of phases in which most steps had their kernels
    /// recorded, no kernels of phases whose steps were recorded in part.
    pub measured: Vec<(Figure, f64)>,
}

/// Runs cannot be calibrated with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum CalibrationError {
    /// A run lacks something.
    #[error("the run `{run}` cannot be used: it lacks {lacks}. Record it with `candlescope profile`")]
    Lacks { run: String, lacks: String },
    /// Some ran on a GPU, some on a CPU.
    #[error("`{0}` did not run on the same kind of device as the runs before it: calibrate a device at a time")]
    Mixed(String),
    /// There is nothing to fit to.
    #[error("no run has a latency: record requests with `candlescope profile`")]
    Nothing,
    /// Too little to tell anything from.
    #[error(
        "{cases} cases (a model with a batch and a prompt; repetitions count once) are too few for a calibration, which \
         would fit them whatever they are: give runs of at least {fewest} that differ, small and large models, short and \
         long prompts, one and many sequences",
        fewest = FEWEST_CASES
    )]
    TooFew {
        /// How many there are.
        cases: usize,
    },
}

impl CalibrationRun {
    /// What a run contributes, and the device it ran on as far as the run knows it.
    ///
    /// # Errors
    /// If the run does not say its model's dimensions or its tokens.
    pub fn of(name: &str, analysis: &Analysis) -> Result<(Self, Device), CalibrationError> {
        let lacks = |lacks: String| CalibrationError::Lacks { run: name.to_string(), lacks };
        let shape = run_facts::shape(&analysis.manifest).map_err(lacks)?;
        let scenario = run_facts::scenario(analysis).map_err(lacks)?;
        let found = latency_figures::measured(analysis, &shape);
        let device = run_facts::bare_device(analysis);
        let (prefill, decode) = operations(&shape, &device, &scenario);
        let usable = |figure: Figure| {
            let phase = figure.phase();
            if figure.is_latency() {
                // Where most steps had their kernels recorded, the host's times are those of a recorded program.
                return !is_watched(analysis, phase);
            }
            // A window that opened or closed within a step has a part of its kernels.
            let step = if figure.is_prefill() { &prefill } else { &decode };
            let launched: f64 = step.iter().map(|operation| operation.calls * operation.kernels).sum();
            kernels_a_step(analysis, phase).is_some_and(|recorded| recorded >= WHOLE_STEP * launched)
        };
        // A request's mean has the recorded steps in it, the median of the gaps between tokens has not.
        let gaps = kernels_a_step(analysis, Phase::Decode).and(analysis.latency.itl.as_ref());
        let unobserved = |(figure, ns, _): (Figure, f64, u64)| match gaps {
            Some(gaps) if figure == Figure::Tpot => (figure, gaps.median),
            _ => (figure, ns),
        };
        let mut measured: Vec<_> = found.into_iter().filter(|(figure, ..)| usable(*figure)).map(unobserved).collect();
        if measured.is_empty() {
            return Err(lacks("a request with a time to first token".to_string()));
        }
        measured.extend(latency_figures::launch_paces(analysis));
        Ok((Self { name: name.to_string(), shape, scenario, measured }, device))
    }
}
