//! The line of products' time over their FLOPs, and what is left of it at none. Pure.

/// Sizes have to differ by this factor at least.
const APART: f64 = 2.0;

/// The constant cost of one kind of step's products.
#[derive(Debug, Clone)]
pub(super) struct ConstantCost {
    /// Of one call, in nanoseconds, as it was recorded.
    pub(super) each_ns: f64,
    /// The same by the product that has least left.
    pub(super) least_ns: f64,
    /// Calls in a step.
    pub(super) calls: f64,
    /// Further calls that have no span, where the cause is known, and the time of a step that theirs is part of.
    pub(super) unseen: Option<(f64, f64)>,
    /// Paths of the products.
    pub(super) paths: Vec<String>,
}

impl ConstantCost {
    /// What the calls without a span take of a step, in nanoseconds, if each costs this much.
    pub(super) fn unseen_ns(&self, each_ns: f64) -> f64 {
        self.unseen.map_or(0.0, |(calls, room_ns)| (each_ns * calls).min(room_ns))
    }

    /// Whether a product mostly waits for this cost.
    pub(super) fn explains(&self, rollup: &str) -> bool {
        self.paths.iter().any(|path| path == rollup)
    }
}

/// A product: calls in a step, FLOPs and nanoseconds of one.
pub(super) struct Point {
    pub(super) calls: f64,
    pub(super) flops: f64,
    pub(super) ns: f64,
}

/// Where the line of time over FLOPs meets the axis: by the median of the slopes between products of different sizes
/// (Theil and Sen), and for the product that then has least left.
pub(super) fn intercept(points: &[Point]) -> Option<(f64, f64)> {
    let pairs = points.iter().enumerate().flat_map(|(at, a)| points[at + 1..].iter().map(move |b| (a, b)));
    let mut slopes: Vec<(f64, f64)> = pairs
        .filter(|(a, b)| a.flops.max(b.flops) >= APART * a.flops.min(b.flops))
        .map(|(a, b)| ((b.ns - a.ns) / (b.flops - a.flops), a.calls.min(b.calls)))
        .collect();
    let slope = weighted_median(&mut slopes)?.max(0.0);
    let mut rest: Vec<(f64, f64)> =
        points.iter().map(|point| ((point.ns - slope * point.flops).max(0.0), point.calls)).collect();
    let shortest = points.iter().map(|point| point.ns).fold(f64::INFINITY, f64::min);
    let least = rest.iter().map(|(ns, _)| *ns).fold(f64::INFINITY, f64::min);
    Some((weighted_median(&mut rest)?.min(shortest), least.min(shortest)))
}

/// The value below and above which lies half of the weight.
fn weighted_median(values: &mut [(f64, f64)]) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
    let mut below = 0.0;
    values.iter().find_map(|(value, weight)| {
        below += weight;
        (below >= half).then_some(*value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(calls: f64, flops: f64, ns: f64) -> Point {
        Point { calls, flops, ns }
    }

    #[test]
    fn the_line_of_equal_times_meets_the_axis_at_them() {
        let equal = [point(8.0, 1e4, 38e3), point(8.0, 2e4, 38.5e3), point(12.0, 8e4, 40e3), point(1.0, 1e5, 41e3)];
        let (each, least) = intercept(&equal).unwrap();
        assert!((each - 38e3).abs() < 1e3 && least <= each && least > 36e3, "{each} {least}");
        let work = [point(8.0, 1e4, 10e3), point(8.0, 2e4, 20e3), point(12.0, 8e4, 80e3)];
        assert!(intercept(&work).unwrap().0 < 1.0);
        assert!(intercept(&equal[..2]).is_some() && intercept(&[point(8.0, 1e4, 38e3)]).is_none());
        assert_eq!(intercept(&[point(8.0, 1e4, 38e3), point(8.0, 1.5e4, 38e3)]), None, "of one size");
    }
}
