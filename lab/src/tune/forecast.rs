//! What a batch takes, as far as it can be told before it is measured.

use serde::Serialize;
use std::collections::BTreeMap;

/// Times of one request of so many sequences, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Time to first token.
    pub ttft_ns: f64,
    /// Time per output token; `None` where the output is a single token.
    pub tpot_ns: Option<f64>,
    /// From the start to the last token.
    pub e2e_ns: f64,
}

impl Latency {
    /// A request of `output` tokens a sequence.
    pub fn of(ttft_ns: f64, tpot_ns: Option<f64>, output: u64) -> Self {
        let after_first = output.saturating_sub(1) as f64;
        Self { ttft_ns, tpot_ns, e2e_ns: ttft_ns + tpot_ns.unwrap_or(0.0) * after_first }
    }

    /// Output tokens a second of `batch` sequences.
    pub fn output_tokens_per_s(&self, batch: u64, output: u64) -> f64 {
        (batch * output) as f64 / self.e2e_ns * 1e9
    }
}

/// Predicted times by batch, corrected by those that were measured.
///
/// Where there is a prediction, its ratio to what was measured is interpolated over the logarithm of the batch and kept
/// beyond the ends: a prediction that is off by a factor stays right about the shape of the curve. Without one, times
/// are interpolated over the batch, which is exact as long as one limit holds: a step takes a part that all sequences
/// share, and a part for each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Forecast {
    output: u64,
    predicted: BTreeMap<u64, Latency>,
    measured: BTreeMap<u64, Latency>,
}

impl Forecast {
    /// A forecast of requests of `output` tokens a sequence; `predicted` is empty if nothing is known beforehand.
    pub fn new(output: u64, predicted: BTreeMap<u64, Latency>) -> Self {
        Self { output, predicted, measured: BTreeMap::new() }
    }

    /// Whether something was predicted beforehand.
    pub fn is_predicted(&self) -> bool {
        !self.predicted.is_empty()
    }

    /// The prediction as it was beforehand.
    pub fn predicted(&self, batch: u64) -> Option<Latency> {
        self.predicted.get(&batch).copied()
    }

    /// Learns what a batch takes; a batch that was measured again replaces what was known.
    pub fn learn(&mut self, batch: u64, latency: Latency) {
        self.measured.insert(batch, latency);
    }

    /// What a batch will take: what was measured, else the corrected prediction. `None` where neither says anything.
    pub fn expect(&self, batch: u64) -> Option<Latency> {
        if let Some(measured) = self.measured.get(&batch) {
            return Some(*measured);
        }
        let ttft = self.time(batch, |latency| Some(latency.ttft_ns))?;
        let tpot = self.time(batch, |latency| latency.tpot_ns);
        Some(Latency::of(ttft, tpot, self.output))
    }

    fn time(&self, batch: u64, of: fn(&Latency) -> Option<f64>) -> Option<f64> {
        let measured: Vec<(u64, f64)> = self.measured.iter().filter_map(|(b, l)| Some((*b, of(l)?))).collect();
        let Some(predicted) = self.predicted.get(&batch).and_then(of) else {
            return (!self.is_predicted()).then(|| affine(&measured, batch)).flatten();
        };
        let ratios: Vec<(f64, f64)> = measured
            .iter()
            .filter_map(|(b, time)| Some(((*b as f64).ln(), (time / of(self.predicted.get(b)?)?).ln())))
            .collect();
        Some(predicted * between(&ratios, (batch as f64).ln()).unwrap_or(0.0).exp())
    }
}

/// The value at `x` on straight lines through `points`, which are in order; beyond the ends that of the end.
fn between(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let right = points.partition_point(|(at, _)| *at < x);
    match (right.checked_sub(1).map(|left| points[left]), points.get(right)) {
        (Some((x0, y0)), Some(&(x1, y1))) if x1 > x0 => Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0)),
        (Some((_, y)), _) => Some(y),
        (None, end) => end.map(|(_, y)| *y),
    }
}

/// The time of `batch` on straight lines through measured batches; beyond the ends the line goes on, never below the
/// end's own time. A single measured batch says nothing about others.
fn affine(points: &[(u64, f64)], batch: u64) -> Option<f64> {
    if points.len() < 2 {
        return None;
    }
    let right = points.partition_point(|(at, _)| *at < batch).clamp(1, points.len() - 1);
    let ((x0, y0), (x1, y1)) = (points[right - 1], points[right]);
    let slope = ((y1 - y0) / (x1 - x0) as f64).max(if batch > x1 { 0.0 } else { f64::NEG_INFINITY });
    let time = y0 + slope * (batch as f64 - x0 as f64);
    Some(if batch > x1 { time.max(y1) } else { time.max(f64::MIN_POSITIVE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ttft: f64, tpot: f64) -> Latency {
        Latency::of(ttft, Some(tpot), 11)
    }

    #[test]
    fn a_prediction_is_corrected_by_what_was_measured() {
        let predicted = (1..=64).map(|b| (b, at(100.0 * b as f64, 10.0 + b as f64))).collect();
        let mut forecast = Forecast::new(11, predicted);
        assert_eq!(forecast.expect(8), Some(at(800.0, 18.0)), "nothing measured: as predicted");
        forecast.learn(1, at(200.0, 22.0));
        assert_eq!(forecast.expect(8), Some(at(1_600.0, 36.0)), "twice as long everywhere");
        forecast.learn(64, at(6_400.0, 74.0));
        let middle = forecast.expect(8).unwrap();
        assert!((middle.ttft_ns - 800.0 * 2f64.sqrt()).abs() < 1e-6, "halfway between twice and once: {middle:?}");
        assert_eq!(forecast.expect(64), Some(at(6_400.0, 74.0)));
        assert!((middle.e2e_ns - (middle.ttft_ns + 10.0 * middle.tpot_ns.unwrap())).abs() < 1e-6);
    }

    #[test]
    fn without_a_prediction_lines_go_through_what_was_measured() {
        let mut forecast = Forecast::new(11, BTreeMap::new());
        forecast.learn(1, at(11.0, 11.0));
        assert_eq!(forecast.expect(8), None, "one point says nothing");
        forecast.learn(64, at(74.0, 74.0));
        assert_eq!(forecast.expect(8), Some(at(18.0, 18.0)));
        assert_eq!(forecast.expect(100), Some(at(110.0, 110.0)));
    }
}
