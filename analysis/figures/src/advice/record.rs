//! What became of promises.

use candlescope_work::estimate::Estimate;
use serde::Serialize;

/// A result is a test of a promise if it is known to within this share of a step, ...
const RESOLVED: f64 = 0.05;
/// ... or to within this part of the promise.
const RESOLVED_PART: f64 = 0.3;

/// Whether what was obtained, with its interval, may be within a promise's bounds: the two have a value in common.
/// `None` where they do, but the interval is so wide that it would meet almost anything. That what was obtained is
/// within the bounds itself is stricter, and not asked for: `scripts/advice.py` counts both.
pub fn came_true(promised: Estimate, obtained: Estimate) -> Option<bool> {
    let half = (obtained.high - obtained.low) / 2.0;
    let resolved = half <= RESOLVED.max(RESOLVED_PART * promised.mid.abs());
    let meet = obtained.low <= promised.high && obtained.high >= promised.low;
    // However wide it is, an interval that does not meet them says that they are wrong.
    (resolved || !meet).then_some(meet)
}

/// How promises of one kind came out on this device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TrackRecord {
    /// Promises that were put to the test.
    pub promises: u64,
    /// Those whose bounds and the interval of the result had a value in common.
    pub came_true: u64,
}

impl TrackRecord {
    /// From this many promises on, failures count.
    const ENOUGH: u64 = 3;

    /// Whether most of its promises failed.
    pub fn fails(&self) -> bool {
        self.promises >= Self::ENOUGH && 2 * self.came_true < self.promises
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_meets_anything_tests_nothing() {
        let promised = Estimate { low: 0.30, mid: 0.36, high: 0.43 };
        let near = |mid: f64, half: f64| Estimate { low: mid - half, mid, high: mid + half };
        assert_eq!(came_true(promised, near(0.40, 0.02)), Some(true));
        assert_eq!(came_true(promised, near(0.27, 0.04)), Some(true), "its interval meets the bounds");
        assert_eq!(came_true(promised, near(0.20, 0.05)), Some(false));
        assert_eq!(came_true(promised, near(0.60, 0.10)), Some(false), "within 0.3 of what was promised");
        assert_eq!(came_true(promised, near(0.30, 0.40)), None);
        let small = Estimate { low: 0.01, mid: 0.02, high: 0.03 };
        assert_eq!(came_true(small, near(-0.02, 0.06)), None);
        assert_eq!(came_true(small, near(-0.06, 0.04)), Some(false), "a loss");
        assert_eq!(came_true(small, near(-0.59, 0.23)), Some(false), "a loss, however large it is");
    }

    #[test]
    fn a_kind_fails_where_most_of_three_or_more_did() {
        let of = |promises, came_true| TrackRecord { promises, came_true }.fails();
        assert!(!of(2, 0) && of(3, 1) && !of(4, 2) && of(5, 2));
    }
}
