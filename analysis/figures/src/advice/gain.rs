//! How much a change would gain.

use candlescope_work::estimate::Estimate;

/// The parts of the attainable rate that a gain is given for: low, mid, high.
pub const RATES: [f64; 3] = [0.75, 0.875, 1.0];

/// Gains below this share of the unobserved step are left out.
pub const LEAST_GAIN: f64 = 0.005;

/// The part of a cost that goes, at each of [`RATES`], where its cause goes whole, and nothing has to be done in its
/// place: all of it is expected, and the lowest rate is for what was measured beside it.
pub fn whole(rate: f64) -> f64 {
    if rate <= RATES[0] { rate } else { 1.0 }
}

/// What is gained at each of [`RATES`], as a share of the unobserved step: none of them below 0 or above 1.
pub fn gain_at_rates(gain: impl Fn(f64) -> f64) -> Estimate {
    let [low, mid, high] = RATES.map(|rate| Some(gain(rate)).filter(|gain| gain.is_finite()).unwrap_or(0.0));
    let (low, mid, high) = (low.clamp(0.0, 1.0), mid.clamp(0.0, 1.0), high.clamp(0.0, 1.0));
    Estimate { low: low.min(mid), mid, high: high.max(mid) }
}
