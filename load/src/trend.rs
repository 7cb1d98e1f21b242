//! Whether a server keeps up: does the time to first token grow while the load stays the same, and do requests pile
//! up?

use candlescope_figures::stats::{normal_above, percentile_of};
use serde::Serialize;

/// More points than this are thinned out: the cost grows with their square.
const MOST_POINTS: usize = 400;
/// Fewer say nothing.
const LEAST_POINTS: usize = 8;
/// A trend that chance would give less often than this is one.
const CHANCE: f64 = 0.01;

/// How a figure changed over the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Trend {
    /// Change a second, in the figure's unit: median of the slopes between all pairs of points [Theil–Sen].
    pub per_second: f64,
    /// Slope × length of the window / median of the figure; absent where that is zero.
    pub growth: Option<f64>,
    /// How often a trend this clear comes by chance [Mann–Kendall, two-sided].
    pub by_chance: f64,
}

impl Trend {
    /// The trend of points of nanoseconds and a value, over a window of `window_ns`; `None` for too few of them.
    pub(crate) fn of(points: &[(u64, f64)], window_ns: u64) -> Option<Self> {
        let stride = points.len().div_ceil(MOST_POINTS).max(1);
        let points: Vec<(u64, f64)> = points.iter().step_by(stride).copied().collect();
        let n = points.len();
        if n < LEAST_POINTS {
            return None;
        }
        let (mut slopes, mut balance) = (Vec::with_capacity(n * (n - 1) / 2), 0i64);
        for (i, a) in points.iter().enumerate() {
            for b in &points[i + 1..] {
                if b.0 > a.0 {
                    slopes.push((b.1 - a.1) / ((b.0 - a.0) as f64 / 1e9));
                }
                balance += i64::from(b.1 > a.1) - i64::from(b.1 < a.1);
            }
        }
        let per_second = percentile_of(&slopes, 0.5)?;
        let values: Vec<f64> = points.iter().map(|p| p.1).collect();
        let middle = percentile_of(&values, 0.5).filter(|m| *m > 0.0);
        let size = n as f64;
        let deviation = (size * (size - 1.0) * (2.0 * size + 5.0) / 18.0).sqrt();
        let z = (balance.unsigned_abs().saturating_sub(1)) as f64 / deviation;
        let growth = middle.map(|m| per_second * (window_ns as f64 / 1e9) / m);
        Some(Self { per_second, growth, by_chance: (2.0 * normal_above(z)).min(1.0) })
    }

    fn grows(&self, least: f64) -> bool {
        self.by_chance < CHANCE && self.growth.is_some_and(|g| g >= least)
    }
}

/// Whether the server kept up with the load of a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Saturation {
    /// Whether it did not; absent where there is too little to tell, and where clients wait for their answers, because
    /// then requests cannot pile up.
    pub saturated: Option<bool>,
    /// By which signs: `in_flight_grows`, `ttft_grows`, `e2e_grows`, `refuses`.
    pub signs: Vec<&'static str>,
    /// Of the time to first token, from the planned arrival.
    pub ttft: Option<Trend>,
    /// Of the end-to-end latency, from the planned arrival.
    pub e2e: Option<Trend>,
    /// Of the requests under way, waiting ones included.
    pub in_flight: Option<Trend>,
}

/// What is known about a stage.
pub(crate) struct StageTrend<'a> {
    /// Whether requests arrive at a given rate.
    pub(crate) open_loop: bool,
    pub(crate) window_ns: u64,
    /// Times in nanoseconds, values in nanoseconds.
    pub(crate) ttft: &'a [(u64, f64)],
    pub(crate) e2e: &'a [(u64, f64)],
    /// Mean number of requests under way in slices of the window.
    pub(crate) in_flight: &'a [(u64, f64)],
    /// Share of the measured requests that failed as requests to a server with too much work do.
    pub(crate) refused: f64,
}

/// Growth of a latency that counts, as a share of its median.
const LATENCY_GROWS: f64 = 0.5;
/// Growth of the requests under way that counts, as a share of their median, and in requests.
const IN_FLIGHT_GROWS: (f64, f64) = (0.5, 1.0);
/// Share of refused requests that counts.
const REFUSES: f64 = 0.05;

pub(crate) fn judge(seen: &StageTrend<'_>) -> Saturation {
    let [ttft, e2e, in_flight] = [seen.ttft, seen.e2e, seen.in_flight].map(|points| Trend::of(points, seen.window_ns));
    let grows = |trend: Option<Trend>| trend.is_some_and(|t| t.grows(LATENCY_GROWS));
    let gained = |t: &Trend| t.per_second * (seen.window_ns as f64 / 1e9);
    let piles_up = in_flight.is_some_and(|t| t.grows(IN_FLIGHT_GROWS.0) && gained(&t) >= IN_FLIGHT_GROWS.1);
    let refuses = seen.refused > REFUSES;
    let marks =
        [(piles_up, "in_flight_grows"), (grows(ttft), "ttft_grows"), (grows(e2e), "e2e_grows"), (refuses, "refuses")];
    let signs = marks.into_iter().filter_map(|(on, sign)| on.then_some(sign)).collect();
    let saturated = if refuses {
        Some(true)
    } else if !seen.open_loop || in_flight.is_none() || (ttft.is_none() && e2e.is_none()) {
        None
    } else {
        Some(piles_up && (grows(ttft) || grows(e2e)))
    };
    Saturation { saturated, signs, ttft, e2e, in_flight }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u64, from: f64, to: f64) -> Vec<(u64, f64)> {
        (0..n).map(|i| (i * 1_000_000_000, from + (to - from) * i as f64 / (n - 1) as f64)).collect()
    }

    #[test]
    fn slopes_of_lines_and_of_noise() {
        let trend = Trend::of(&line(11, 1.0, 21.0), 10_000_000_000).unwrap();
        assert!((trend.per_second - 2.0).abs() < 1e-9 && (trend.growth.unwrap() - 20.0 / 11.0).abs() < 1e-9);
        assert!(trend.by_chance < 1e-3, "{trend:?}");
        let noise: Vec<(u64, f64)> =
            (0..40).map(|i| (i * 1_000_000_000, [5.0, 9.0, 2.0, 7.0][i as usize % 4])).collect();
        assert!(Trend::of(&noise, 40_000_000_000).unwrap().by_chance > 0.2);
        // One outlier makes no trend.
        let mut flat = line(20, 5.0, 5.0);
        flat[19].1 = 1e6;
        assert_eq!(Trend::of(&flat, 20_000_000_000).unwrap().per_second, 0.0);
        assert_eq!(Trend::of(&line(7, 1.0, 2.0), 1), None);
    }

    #[test]
    fn the_tail_of_a_normal_distribution() {
        // [R: pnorm(c(0, 1, 1.959964, 3), lower.tail = FALSE)]
        for (x, share) in [(0.0, 0.5), (1.0, 0.158_655_3), (1.959_964, 0.025), (3.0, 0.001_349_898)] {
            assert!((normal_above(x) - share).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn piling_up_is_saturation_and_slow_is_not() {
        let (rising, flat) = (line(20, 1e6, 9e6), line(20, 5e6, 5.1e6));
        let (more, same) = (line(20, 1.0, 12.0), line(20, 6.0, 6.2));
        let seen = |open_loop, ttft, in_flight, refused| {
            judge(&StageTrend { open_loop, window_ns: 20_000_000_000, ttft, e2e: ttft, in_flight, refused })
        };
        assert_eq!(seen(true, &rising, &more, 0.0).saturated, Some(true));
        assert_eq!(seen(true, &rising, &more, 0.0).signs, ["in_flight_grows", "ttft_grows", "e2e_grows"]);
        assert_eq!(seen(true, &flat, &same, 0.0).saturated, Some(false));
        assert_eq!(seen(true, &flat, &more, 0.0).saturated, Some(false));
        assert_eq!(seen(true, &rising, &same, 0.0).saturated, Some(false));
        assert_eq!(seen(true, &flat, &same, 0.2).saturated, Some(true));
        assert_eq!(seen(false, &rising, &same, 0.0).saturated, None);
        assert_eq!(seen(true, &rising[..3], &more, 0.0).saturated, None);
    }
}
