//! Numbers at the axes of charts: round, few enough to be read, and more than one on any axis.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

/// Numbers wanted on an axis.
const WANTED: f64 = 7.0;
/// Up to this ratio of its ends, a logarithmic axis has evenly spaced numbers, as a linear one.
const NARROW: f64 = 8.0;

/// An axis with numbers that can be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis {
    /// The value at its lower end. An axis has numbers only if it is below `high`, and both are finite.
    pub low: f64,
    /// The value at its upper end, in the same unit.
    pub high: f64,
    /// Whether equal distances are equal ratios.
    pub log: bool,
    /// Whether only whole numbers have a place in between.
    pub whole: bool,
}

impl Axis {
    /// Round numbers between its ends, in order.
    fn ticks(&self) -> Vec<f64> {
        if !(self.low.is_finite() && self.high.is_finite() && self.low < self.high) {
            return Vec::new();
        }
        if !self.log || self.low <= 0.0 || self.high / self.low < NARROW { self.even() } else { self.decades() }
    }

    fn even(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / WANTED;
        let size = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * size).find(|step| *step >= rough).unwrap_or(size * 10.0);
        let step = if self.whole { step.max(1.0) } else { step };
        let first = (self.low / step).ceil();
        let count = ((self.high / step).floor() - first).clamp(0.0, 4.0 * WANTED);
        (0..=count as u32).map(|n| (first + f64::from(n)) * step).collect()
    }

    /// 1, 2 and 5 times powers of ten; only the powers where these are many, and not all of them where they are, too.
    fn decades(&self) -> Vec<f64> {
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let stride = (decades / WANTED).ceil().max(1.0) as usize;
        let all = (from..=to).step_by(stride).flat_map(|power| factors.iter().map(move |n| n * 10f64.powi(power)));
        let inside = all.filter(|tick| (self.low..=self.high).contains(tick));
        inside.filter(|tick| !self.whole || tick.fract() == 0.0).collect()
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let at = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (at(self.low), at(self.high));
        let share = if high > low { (at(*value) - low) / (high - low) } else { 0.5 };
        // Far outside is outside.
        from + (f64::from(to - from) * share.clamp(-9.0, 9.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // There are no lines between the numbers.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        label(*value)
    }
}

/// A number at an axis, as short as its neighbours need.
pub fn label(value: f64) -> String {
    let short = |value: f64, unit: &str| format!("{}{unit}", (value * 1000.0).round() / 1000.0);
    match value.abs() {
        v if v >= 1e6 => short(value / 1e6, "M"),
        v if v >= 0.01 || v == 0.0 => short(value, ""),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(low: f64, high: f64, log: bool, whole: bool) -> Vec<f64> {
        Axis { low, high, log, whole }.ticks()
    }

    #[test]
    fn a_logarithmic_axis_has_several_numbers_apart_from_each_other() {
        assert_eq!(ticks(0.8, 20.0, true, true), [1.0, 2.0, 5.0, 10.0, 20.0]);
        // Throughput of one batch to the next: less than a decade.
        assert_eq!(ticks(800.0, 5_000.0, true, false), [1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
        assert_eq!(ticks(7_000.0, 12_500.0, true, false), [7000.0, 8000.0, 9000.0, 10000.0, 11000.0, 12000.0]);
        let wide = ticks(1e-3, 1e9, true, false);
        assert!(wide.len() >= 5 && wide.len() <= 8, "{wide:?}");
        for (low, high) in [(0.8, 7.0), (3.0, 4.0), (1.0, 90.0), (0.02, 400.0), (900.0, 1e6), (1.0, 1e12)] {
            let all = ticks(low, high, true, false);
            assert!((3..=11).contains(&all.len()), "{low} {high}: {all:?}");
            // No two nearer than a number is wide.
            let apart = all.windows(2).map(|w| (w[1] / w[0]).ln() / (high / low).ln());
            assert!(apart.fold(1.0, f64::min) > 0.04, "{low} {high}: {all:?}");
        }
    }

    #[test]
    fn no_half_requests() {
        assert_eq!(ticks(0.5, 3.5, false, true), [1.0, 2.0, 3.0]);
        assert_eq!(ticks(0.5, 8.5, false, true), [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(ticks(0.8, 2.5, true, true), [1.0, 2.0]);
        assert_eq!(ticks(f64::NAN, 1.0, false, false), Vec::<f64>::new());
    }

    #[test]
    fn labels_are_short() {
        let all: Vec<String> = [0.0, 0.2, 1.5, 10_000.0, 2_500_000.0, 0.000_5].map(label).into();
        assert_eq!(all, ["0", "0.2", "1.5", "10000", "2.5M", "5e-4"]);
    }
}
