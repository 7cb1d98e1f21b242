//! The system's clock: the rule of [`judge`](super::judge) for it.

use super::{ClockAnchor, ClockInfo, Code, Finding};

/// Clocks that are slewed drift by some milliseconds between two anchors, which are at most ten seconds apart.
const CLOCK_SET_NS: i64 = 100_000_000;

/// If the system clock is set, the run's times go on from where they began: steps stay in order and durations right,
/// but times differ from those that other programs log.
pub(super) fn finding(clock: &ClockInfo) -> Option<Finding> {
    let skew = |anchor: &ClockAnchor| anchor.system_ns.saturating_sub(anchor.mapped_ns);
    let jumped = |pair: &&[ClockAnchor]| skew(&pair[1]).saturating_sub(skew(&pair[0])).saturating_abs() > CLOCK_SET_NS;
    let times = clock.anchors.windows(2).filter(jumped).count();
    let last = clock.anchors.last().filter(|_| times > 0)?;
    Some(
        Finding::new(
            Code::ClockSet,
            "the system clock was set {times} times during the run, or the machine slept: it is {skew:+.1} s from the \
             run's times now",
            "durations and order are right; to join the run with logs of other programs, use the clock's anchors in \
             run.json",
        )
        .count("times", times as u64)
        .number("skew", "s", skew(last) as f64 / 1e9),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_clock(skews_ms: &[i64]) -> Option<String> {
        let anchor = |(i, skew): (usize, &i64)| {
            let mapped_ns = i as i64 * 10_000_000_000;
            ClockAnchor { ticks: 0, mapped_ns, system_ns: mapped_ns + skew * 1_000_000 }
        };
        let anchors = skews_ms.iter().enumerate().map(anchor).collect();
        finding(&ClockInfo { anchors, ..ClockInfo::default() }).map(|finding| finding.message())
    }

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_drifts() {
        assert_eq!(of_clock(&[]), None);
        assert_eq!(of_clock(&[0, 5, 12, 40, 90, 160, 240]), None);
        assert!(of_clock(&[0, 1, 3_600_000, 3_600_001]).is_some_and(|text| text.contains("set 1 times")));
        let back = of_clock(&[0, -500, -500, 0]).expect("set twice");
        assert!(back.contains("set 2 times") && back.contains("+0.0 s"), "{back}");
    }
}
