//! Steps of a kind, and what holds for the typical one.

use super::abstain::Abstain;
use super::change::Change;
use super::replay::{Outcome, Replay, UnobservedTime};
use super::step_model::StepModel;
use candlescope_work::estimate::{Estimate, median};
use serde::Serialize;

/// The steps of a phase, or of one name, that can be replayed.
#[derive(Debug, Clone)]
pub struct StepGroup {
    pub(super) name: String,
    pub(super) models: Vec<StepModel>,
    pub(super) outside: Option<UnrecordedSteps>,
}

/// Steps of the same kind whose kernels were not recorded; on a host alone, the steps themselves, if others of their
/// kind were left plain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UnrecordedSteps {
    /// How many the median is over: those with a context near that of the replayed steps.
    pub steps: u64,
    /// Median time in seconds.
    pub seconds: f64,
    /// By how much recorded steps take longer than plain ones, in which no interval is recorded; `None` if the run left
    /// none plain.
    pub in_place: Option<f64>,
    /// Median time of a plain step, in seconds: derived from the two.
    pub plain_seconds: Option<f64>,
}

/// The typical step of a group: medians over its steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypicalStep {
    /// Steps that are replayed.
    pub steps: u64,
    /// Kernels of a step, median.
    pub kernels: f64,
    /// Sum of their times in seconds, median.
    pub kernel_seconds: f64,
    /// As measured, in seconds.
    pub measured_seconds: f64,
    /// As replayed without a change, in seconds.
    pub replayed_seconds: f64,
    /// The largest distance of a replay from its step, as a share of the step.
    pub largest_error: f64,
    /// As it runs unobserved.
    pub unobserved: UnobservedTime,
    /// Waits of the host that were found by when it went on, of all steps.
    pub inferred_waits: u64,
    /// Steps of the same kind outside the windows of kernels, to check against.
    pub outside: Option<UnrecordedSteps>,
    /// Unobserved ÷ plain − 1, or ÷ outside − 1 if no step was left plain.
    pub check: Option<f64>,
}

impl StepGroup {
    /// The phase, or the steps' name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The steps to replay, at most 64 spread over the run; some of them may turn out not to be reproduced.
    pub fn models(&self) -> &[StepModel] {
        &self.models
    }

    /// The step whose measured time is the median's, or the next above it, for what one step has to show.
    pub fn median_step(&self) -> Option<&StepModel> {
        let mut order: Vec<&StepModel> = self.models.iter().collect();
        order.sort_by(|a, b| a.measured_ns.total_cmp(&b.measured_ns));
        order.get(order.len() / 2).copied()
    }

    /// Replays of the steps. Half of them at least have to be possible.
    fn replays(&self) -> Result<Vec<Replay<'_>>, Abstain> {
        let (mut replays, mut error) = (Vec::new(), None);
        for model in &self.models {
            match Replay::of(model) {
                Ok(replay) => replays.push(replay),
                Err(abstain) => error = error.or(Some(abstain)),
            }
        }
        match error {
            Some(error) if replays.is_empty() || replays.len() * 2 < self.models.len() => Err(error),
            _ if replays.len() < 2 => Err(Abstain::OneStep { group: self.name.clone() }),
            _ => Ok(replays),
        }
    }

    /// The typical step.
    ///
    /// # Errors
    /// If there is only one step, or most cannot be replayed.
    pub fn typical(&self) -> Result<TypicalStep, Abstain> {
        let replays = self.replays()?;
        let all: Vec<UnobservedTime> = replays.iter().map(Replay::unobserved).collect();
        let of = |value: fn(&UnobservedTime) -> Estimate| {
            let values: Vec<Estimate> = all.iter().map(value).collect();
            Estimate::median(&values).unwrap_or_default()
        };
        let unobserved = UnobservedTime {
            seconds: of(|one| one.seconds),
            host_seconds: of(|one| one.host_seconds),
            intervals_seconds: of(|one| one.intervals_seconds),
            calls_seconds: of(|one| one.calls_seconds),
            idle_seconds: Estimate::median(&all.iter().filter_map(|one| one.idle_seconds).collect::<Vec<_>>()),
            recorded_idle_seconds: median(all.iter().filter_map(|one| one.recorded_idle_seconds).collect()),
        };
        // Of the steps that are replayed, as all the other figures are.
        let models = || replays.iter().map(Replay::model);
        let middle = |value: fn(&StepModel) -> f64| median(models().map(value).collect()).unwrap_or(0.0);
        let compared = self.outside.map(|outside| outside.plain_seconds.unwrap_or(outside.seconds));
        Ok(TypicalStep {
            steps: replays.len() as u64,
            kernels: middle(|model| model.kernels() as f64),
            kernel_seconds: middle(StepModel::kernel_ns) / 1e9,
            measured_seconds: middle(StepModel::measured_ns) / 1e9,
            replayed_seconds: median(replays.iter().map(Replay::seconds).collect()).unwrap_or(0.0),
            largest_error: replays.iter().map(|replay| replay.error().abs()).fold(0.0, f64::max),
            unobserved,
            inferred_waits: models().map(StepModel::inferred_waits).sum(),
            outside: self.outside,
            check: compared.filter(|seconds| *seconds > 0.0).map(|seconds| unobserved.seconds.mid / seconds - 1.0),
        })
    }

    /// What the host does in a typical step as it runs unobserved, in nanoseconds: its work and its calls, without
    /// waiting for the device. `None` if the steps cannot be replayed.
    pub fn host_ns(&self) -> Option<f64> {
        let replays = self.replays().ok()?;
        median(replays.iter().map(Replay::host_ns).collect())
    }

    /// Simulates the typical step with changes, all at once: the median over the steps of each figure.
    ///
    /// A step in which one of them finds nothing is without that one.
    ///
    /// # Errors
    /// Those of [`typical`](Self::typical), and if a change needs what the run does not have, or finds nothing in any
    /// step.
    pub fn simulate(&self, changes: &[Change]) -> Result<Outcome, Abstain> {
        let replays = self.replays()?;
        let mut outcomes = Vec::with_capacity(replays.len());
        // By change: in how many steps it found nothing, and why.
        let mut missed: Vec<(usize, Option<Abstain>)> = vec![(0, None); changes.len()];
        for replay in &replays {
            let mut kept: Vec<usize> = (0..changes.len()).collect();
            outcomes.push(loop {
                let list: Vec<Change> = kept.iter().map(|at| changes[*at].clone()).collect();
                let abstain = match replay.with(&list) {
                    Ok(outcome) => break outcome,
                    Err(abstain) => abstain,
                };
                let Abstain::NothingToChange { change, .. } = &abstain else { return Err(abstain) };
                let Some(nth) = list.iter().position(|one| one.to_string() == *change) else { return Err(abstain) };
                let at = kept.remove(nth);
                missed[at] = (missed[at].0 + 1, Some(abstain));
            });
        }
        let nowhere = missed.into_iter().find(|(steps, _)| *steps == replays.len());
        if let Some((_, Some(abstain))) = nowhere {
            return Err(abstain);
        }
        let of = |value: fn(&Outcome) -> Estimate| {
            Estimate::median(&outcomes.iter().map(value).collect::<Vec<_>>()).unwrap_or_default()
        };
        let each: Vec<Estimate> = outcomes.iter().filter_map(|outcome| outcome.seconds_per_sequence).collect();
        Ok(Outcome {
            seconds: of(|outcome| outcome.seconds),
            share_of_step: of(|outcome| outcome.share_of_step),
            seconds_per_sequence: Estimate::median(&each),
        })
    }
}
