//! Replays of a step: unchanged, without the profiler, and changed.

use super::abstain::Abstain;
use super::apply::apply;
use super::change::Change;
use super::play::play;
use super::step_model::{HostPart, Parts, StepModel};
use super::unrecorded::unrecorded;
use candlescope_work::estimate::{Case, Estimate};
use serde::Serialize;

/// A step is replayed if the unchanged replay is within this share of the measured step.
pub const TOLERANCE: f64 = 0.03;
/// The device may be busy with earlier steps for so much of a step.
const MOST_BACKLOG: f64 = 0.1;

/// A step whose unchanged replay takes what was measured.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    model: &'a StepModel,
    simulated_ns: f64,
    idle_ns: f64,
}

/// The step without what recording it cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UnobservedTime {
    /// The step's time in seconds, as it runs unobserved.
    pub seconds: Estimate,
    /// The host's time that recording took, in seconds. The step is shorter by less where the host waits anyway.
    pub host_seconds: Estimate,
    /// The part of it for intervals and marks.
    pub intervals_seconds: Estimate,
    /// The part of it for calls, which CUPTI records.
    pub calls_seconds: Estimate,
    /// Time in which nothing ran on the device, in seconds; `None` without a device.
    pub idle_seconds: Option<Estimate>,
    /// The same as recorded.
    pub recorded_idle_seconds: Option<f64>,
}

/// What a change does to the step as it runs unobserved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The step's time in seconds after the change.
    pub seconds: Estimate,
    /// The share of the unobserved step that the change saves, 1 for all of it; below 0 if the step takes longer.
    pub share_of_step: Estimate,
    /// Where the change is of the sequences: what each takes of a step, in seconds.
    pub seconds_per_sequence: Option<Estimate>,
}

/// Simulates a step with changes, all at once.
///
/// # Errors
/// If the step cannot be replayed, or a change needs what the run does not have.
pub fn simulate(model: &StepModel, changes: &[Change]) -> Result<Outcome, Abstain> {
    Replay::of(model)?.with(changes)
}

impl<'a> Replay<'a> {
    /// Replays a step as it was recorded.
    ///
    /// # Errors
    /// If that takes another time than measured ([`TOLERANCE`]), or too much of the step is another's.
    pub fn of(model: &'a StepModel) -> Result<Self, Abstain> {
        let share = if model.measured_ns > 0.0 { model.backlog_ns / model.measured_ns } else { 0.0 };
        if share > MOST_BACKLOG {
            return Err(Abstain::Backlog { share });
        }
        let played = play(&model.parts);
        let (measured_ns, simulated_ns) = (model.measured_ns, played.step_ns());
        if (simulated_ns - measured_ns).abs() > TOLERANCE * measured_ns {
            return Err(Abstain::NotReproduced { measured_ns, simulated_ns });
        }
        Ok(Self { model, simulated_ns, idle_ns: played.idle_ns() })
    }

    /// The recorded step that is replayed.
    pub(super) fn model(&self) -> &'a StepModel {
        self.model
    }

    /// The unchanged replay, in seconds.
    pub fn seconds(&self) -> f64 {
        self.simulated_ns / 1e9
    }

    /// Replay ÷ measured − 1.
    pub fn error(&self) -> f64 {
        if self.model.measured_ns > 0.0 { self.simulated_ns / self.model.measured_ns - 1.0 } else { 0.0 }
    }

    /// The step as it runs unobserved.
    pub fn unobserved(&self) -> UnobservedTime {
        let all = Case::ALL.map(|case| {
            let (parts, taken) = unrecorded(&self.model.parts, &self.model.facts.recording, case);
            (play(&parts), taken)
        });
        let [low, mid, high] = &all;
        // The least correction leaves the longest step.
        let seconds = |of: fn(&super::play::PlayedStep) -> f64| {
            Estimate { low: of(&high.0), mid: of(&mid.0), high: of(&low.0) }.map(|ns| ns / 1e9)
        };
        let taken = |of: fn(&super::unrecorded::RecordingCost) -> f64| {
            Estimate { low: of(&low.1), mid: of(&mid.1), high: of(&high.1) }.map(|ns| ns / 1e9)
        };
        let has_device = !self.model.parts.works.is_empty();
        UnobservedTime {
            seconds: seconds(super::play::PlayedStep::step_ns),
            host_seconds: taken(|taken| taken.intervals_ns + taken.calls_ns),
            intervals_seconds: taken(|taken| taken.intervals_ns),
            calls_seconds: taken(|taken| taken.calls_ns),
            idle_seconds: has_device.then(|| seconds(super::play::PlayedStep::idle_ns)),
            recorded_idle_seconds: has_device.then_some(self.idle_ns / 1e9),
        }
    }

    /// What the host does in the unobserved step, without waiting, in nanoseconds.
    pub(super) fn host_ns(&self) -> f64 {
        let (_, taken) = unrecorded(&self.model.parts, &self.model.facts.recording, Case::Mid);
        (self.model.host_ns - self.model.waited_ns - taken.intervals_ns - taken.calls_ns).max(0.0)
    }

    /// The unobserved step with changes.
    ///
    /// Its bounds are those of the correction and of the changes together: all nine combinations are played.
    ///
    /// # Errors
    /// If a change needs what the run does not have, or finds nothing to change.
    pub fn with(&self, changes: &[Change]) -> Result<Outcome, Abstain> {
        let (mut times, mut shares) = (Vec::new(), Vec::new());
        let (mut mid, mut mid_share) = (0.0, 0.0);
        for recorded in Case::ALL {
            let (parts, _) = unrecorded(&self.model.parts, &self.model.facts.recording, recorded);
            let before = play(&parts).step_ns();
            for case in Case::ALL {
                let mut changed: Parts = parts.clone();
                apply(self.model, &mut changed, changes, case)?;
                let after = play(&changed).step_ns();
                let share = if before > 0.0 { 1.0 - after / before } else { 0.0 };
                if (recorded, case) == (Case::Mid, Case::Mid) {
                    (mid, mid_share) = (after, share);
                }
                times.push(after);
                shares.push(share);
            }
        }
        let seconds = Estimate::around(mid, times).map(|ns| ns / 1e9);
        let sequences = changes.iter().rev().find_map(|change| match change {
            Change::Batch { sequences } => Some(f64::from(*sequences)),
            _ => None,
        });
        Ok(Outcome {
            seconds,
            share_of_step: Estimate::around(mid_share, shares),
            seconds_per_sequence: sequences.map(|n| seconds.map(|seconds| seconds / n)),
        })
    }

    /// What recording a call costs, in nanoseconds, if the step without that takes `target_ns`: between 0 and `most`.
    pub(super) fn cost_of_a_call(&self, target_ns: f64, most: f64) -> f64 {
        let calls = self.model.parts.host.iter().filter(|part| matches!(part, HostPart::Call { .. })).count();
        if calls == 0 {
            return 0.0;
        }
        let mut recording = self.model.facts.recording.clone();
        (recording.interval_ns, recording.marks_ns) = (Estimate::default(), Estimate::default());
        let (mut low, mut high) = (0.0, most);
        for _ in 0..32 {
            let middle = f64::midpoint(low, high);
            recording.call_ns = Estimate::exact(middle);
            let (parts, _) = unrecorded(&self.model.parts, &recording, Case::Mid);
            *(if play(&parts).step_ns() > target_ns { &mut low } else { &mut high }) = middle;
        }
        f64::midpoint(low, high)
    }
}
