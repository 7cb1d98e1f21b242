//! How much a change would gain.

use serde::Serialize;

/// The parts of the attainable rate that a gain is given for: low, mid, high.
pub const RATES: [f64; 3] = [0.75, 0.875, 1.0];

/// Gains below this share of the unobserved step are left out.
pub const LEAST_GAIN: f64 = 0.005;

/// A share of the unobserved step: what is gained at 75, 87.5 and 100 % of the attainable rate.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Gain {
    /// At 75 % of it: the least that can be hoped for.
    pub low: f64,
    /// At 87.5 %.
    pub mid: f64,
    /// At 100 %: never more than this.
    pub high: f64,
}

impl Gain {
    /// The gain at each of [`RATES`], none of them below 0 or above 1.
    pub fn at_rates(gain: impl Fn(f64) -> f64) -> Self {
        let [low, mid, high] = RATES.map(|rate| Some(gain(rate)).filter(|gain| gain.is_finite()).unwrap_or(0.0));
        let (low, mid, high) = (low.clamp(0.0, 1.0), mid.clamp(0.0, 1.0), high.clamp(0.0, 1.0));
        Self { low: low.min(mid), mid, high: high.max(mid) }
    }

    /// All three, but none above `most`.
    #[must_use]
    pub(crate) fn at_most(self, most: f64) -> Self {
        Self { low: self.low.min(most), mid: self.mid.min(most), high: self.high.min(most) }
    }

    /// All three times `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, mid: self.mid * factor, high: self.high * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::Gain;

    #[test]
    fn a_limit_holds_for_all_three() {
        let gain = Gain { low: 0.1, mid: 0.2, high: 0.4 }.at_most(0.15);
        assert_eq!(gain, Gain { low: 0.1, mid: 0.15, high: 0.15 });
    }
}
