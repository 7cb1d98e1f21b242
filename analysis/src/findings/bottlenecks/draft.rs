//! A finding in the making, and where rules put what they find.

use super::gains::Change;
use super::scene::{Scene, StepScene};
use crate::advice::{
    Advice, AdviceCode, AdviceFigure, AdvicePlace, AdviceSeverity, Confidence, ConfidenceLevel, Coverage, Gain, Missing,
    RATES,
};

/// A finding, and the changes that it stands for at each part of the attainable rate.
pub(super) struct Found {
    pub(super) advice: Advice,
    pub(super) changes: [Vec<Change>; 3],
}

/// What rules found, and what they could not judge.
#[derive(Default)]
pub(super) struct Out {
    pub(super) found: Vec<Found>,
    pub(super) abstained: Vec<(AdviceCode, String, Missing)>,
}

impl Out {
    /// A rule could not judge these steps.
    pub(super) fn abstain(&mut self, code: AdviceCode, step: &StepScene<'_>, missing: Missing) {
        self.abstained.push((code, step.name.to_string(), missing));
    }
}

/// Begins a finding about these steps.
pub(super) struct Draft<'a> {
    step: &'a StepScene<'a>,
    advice: Advice,
}

impl<'a> Draft<'a> {
    pub(super) fn new(code: AdviceCode, step: &'a StepScene<'a>) -> Self {
        let steps = step.work.map_or(step.row.steps, |work| work.steps);
        let advice = Advice {
            code,
            severity: AdviceSeverity::Low,
            place: step.place(),
            evidence: Vec::new(),
            query: String::new(),
            coverage: Coverage { steps, share_of_time: step.time.share_of_time },
            gain: Gain::default(),
            confidence: Confidence { level: ConfidenceLevel::Low, reason: "" },
        };
        Self { step, advice }
    }

    pub(super) fn at(mut self, place: impl FnOnce(AdvicePlace) -> AdvicePlace) -> Self {
        self.advice.place = place(self.advice.place);
        self
    }

    /// The steps that the figures rest on, where these are not the ones with recorded kernels.
    pub(super) fn steps(mut self, n: u64) -> Self {
        self.advice.coverage.steps = n;
        self
    }

    pub(super) fn measured(mut self, name: &'static str, unit: &'static str, value: f64, n: u64) -> Self {
        self.advice.evidence.push(AdviceFigure::measured(name, unit, value, n));
        self
    }

    pub(super) fn derived(mut self, name: &'static str, unit: &'static str, value: f64, n: u64) -> Self {
        self.advice.evidence.push(AdviceFigure::derived(name, unit, value, n));
        self
    }

    /// The bandwidth that figures were compared with.
    pub(super) fn bandwidth(mut self, scene: &Scene<'_>) -> Self {
        if let Some((value, is_measured)) = scene.roof.bandwidth {
            self.advice.evidence.push(AdviceFigure::peak("bandwidth", "B/s", value, is_measured));
        }
        self
    }

    pub(super) fn query(mut self, sql: String) -> Self {
        self.advice.query = sql;
        self
    }

    pub(super) fn sure(mut self, level: ConfidenceLevel, reason: &'static str) -> Self {
        self.advice.confidence = Confidence { level, reason };
        self
    }

    /// The gain of a change, by simulating the step with it.
    pub(super) fn change(mut self, change: impl Fn(f64) -> Change) -> Found {
        let changes = RATES.map(|rate| vec![change(rate)]);
        self.advice.gain = self.step.model.gain(&changes);
        Found { advice: self.advice, changes }
    }

    /// A gain that no change of the step's own lines brings.
    pub(super) fn gain(mut self, gain: impl Fn(f64) -> f64) -> Found {
        self.advice.gain = Gain::at_rates(gain);
        Found { advice: self.advice, changes: RATES.map(|_| Vec::new()) }
    }
}
