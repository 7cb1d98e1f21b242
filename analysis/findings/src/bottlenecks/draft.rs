//! A finding in the making, and where rules put what they find.

use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{
    Advice, AdviceCode, AdviceFigure, AdvicePlace, AdviceSeverity, Confidence, ConfidenceLevel, Coverage, Missing,
    RATES, gain_at_rates,
};
use candlescope_predict::simulation::Change;
use candlescope_work::devices::Origin;
use candlescope_work::estimate::Estimate;

/// Figures of fewer steps have no interval, and are no more than an indication.
const FEW_STEPS: u64 = 6;

/// A finding, and the reliefs that it stands for at each part of the attainable rate.
pub(super) struct Candidate {
    pub(super) advice: Advice,
    pub(super) reliefs: [Vec<Relief>; 3],
    /// The same for a replay of the step, if it knows such changes.
    pub(super) replay: Option<[Vec<Change>; 3]>,
}

impl Candidate {
    /// Says that what disturbed the machine can explain all of it. What else the program gains is not added to it.
    pub(super) fn disturb(&mut self) {
        self.advice.disturbed = true;
        self.advice.confidence = Confidence {
            level: ConfidenceLevel::Low,
            reason: "the machine was disturbed while this was recorded, which can explain all of it",
        };
        (self.reliefs, self.replay) = (RATES.map(|_| Vec::new()), None);
    }
}

/// What rules found, and what they could not judge.
#[derive(Default)]
pub(super) struct RuleResults {
    pub(super) found: Vec<Candidate>,
    pub(super) abstained: Vec<(AdviceCode, String, Missing)>,
}

impl RuleResults {
    /// A rule could not judge these steps.
    pub(super) fn abstain(&mut self, code: AdviceCode, step: &StepScene<'_>, missing: Missing) {
        self.abstained.push((code, step.name.to_string(), missing));
    }
}

/// Begins a finding about these steps.
pub(super) struct Draft<'a> {
    step: &'a StepScene<'a>,
    advice: Advice,
    /// Whether it is held against peaks that were measured beside others.
    low_peaks: bool,
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
            gain: Estimate::default(),
            confidence: Confidence { level: ConfidenceLevel::Low, reason: "" },
            disturbed: false,
            record: None,
        };
        Self { step, advice, low_peaks: false }
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

    /// The same, where it is known.
    pub(super) fn measured_if(self, name: &'static str, unit: &'static str, value: Option<f64>, n: u64) -> Self {
        match value {
            Some(value) => self.measured(name, unit, value, n),
            None => self,
        }
    }

    pub(super) fn derived(mut self, name: &'static str, unit: &'static str, value: f64, n: u64) -> Self {
        self.advice.evidence.push(AdviceFigure::derived(name, unit, value, n));
        self
    }

    /// The same, where it is known.
    pub(super) fn derived_if(self, name: &'static str, unit: &'static str, value: Option<f64>, n: u64) -> Self {
        match value {
            Some(value) => self.derived(name, unit, value, n),
            None => self,
        }
    }

    /// A figure that was measured, or one that is derived, as what it was measured of is.
    pub(super) fn measured_unless(
        self,
        is_derived: bool,
        name: &'static str,
        unit: &'static str,
        value: f64,
        n: u64,
    ) -> Self {
        if is_derived { self.derived(name, unit, value, n) } else { self.measured(name, unit, value, n) }
    }

    /// The bandwidth that figures were compared with.
    pub(super) fn bandwidth(mut self, scene: &Scene<'_>) -> Self {
        if let Some(peak) = scene.roof.bandwidth() {
            let is_measured = peak.origin() == Origin::Measured;
            self.low_peaks |= scene.roof.is_disturbed();
            self.advice.evidence.push(AdviceFigure::peak("bandwidth", "B/s", peak.value, is_measured));
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

    /// The gain of a relief, by the step's two lines with it.
    pub(super) fn relief(self, relief: impl Fn(f64) -> Relief) -> Candidate {
        self.reliefs(|rate| vec![relief(rate)])
    }

    /// The gain of several reliefs that are one.
    pub(super) fn reliefs(mut self, reliefs: impl Fn(f64) -> Vec<Relief>) -> Candidate {
        let reliefs = RATES.map(reliefs);
        self.advice.gain = self.step.lines.gain(&reliefs);
        self.doubt();
        Candidate { advice: self.advice, reliefs, replay: None }
    }

    /// What rests on a few steps may be an accident of these, and what is held against too low a peak is further off.
    fn doubt(&mut self) {
        if self.low_peaks && self.advice.confidence.level > ConfidenceLevel::Low {
            self.advice.confidence = Confidence {
                level: ConfidenceLevel::Low,
                reason: "held against peaks that were measured while others were at work: the device may reach more",
            };
        }
        if self.advice.coverage.steps < FEW_STEPS {
            self.advice.confidence =
                Confidence { level: ConfidenceLevel::Low, reason: "so few steps do not show how much they differ" };
        }
    }

    /// The gain of a relief by replaying the steps with `replay`; if they cannot be, by their two lines.
    pub(super) fn replayed(
        self,
        relief: impl Fn(f64) -> Relief,
        replay: impl Fn(f64) -> Option<Vec<Change>>,
    ) -> Candidate {
        let step = self.step;
        let mut found = self.relief(relief);
        let [Some(low), Some(mid), Some(high)] = RATES.map(replay) else { return found };
        let replay = [low, mid, high];
        if let Some(gain) = replayed_gain(step, &replay) {
            found.advice.gain = gain;
            found.replay = Some(replay);
        }
        found
    }

    /// A gain that no relief of the step's own lines brings.
    pub(super) fn gain(mut self, gain: impl Fn(f64) -> f64) -> Candidate {
        self.advice.gain = gain_at_rates(gain);
        self.doubt();
        Candidate { advice: self.advice, reliefs: RATES.map(|_| Vec::new()), replay: None }
    }
}

/// What a step gains with these changes, given for each part of the attainable rate: the step is replayed with all of
/// them at once. `None` if it cannot be.
pub(super) fn replayed_gain(step: &StepScene<'_>, replay: &[Vec<Change>; 3]) -> Option<Estimate> {
    let group = step.replays?;
    let mut gains = [0.0; 3];
    for (at, changes) in replay.iter().enumerate() {
        let share = group.simulate(changes).ok()?.share_of_step;
        gains[at] = if changes.contains(&Change::Graph) {
            // As a graph, the step is what the device can do: it reaches this part of it.
            1.0 - (1.0 - share.mid) / RATES[at]
        } else {
            [share.low, share.mid, share.high][at]
        };
    }
    Some(gain_at_rates(|rate| RATES.iter().position(|known| *known == rate).map_or(0.0, |at| gains[at])))
}

/// Each value once, where it comes first.
pub(super) fn each_once<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut once, one| {
        if !once.contains(&one) {
            once.push(one);
        }
        once
    })
}
