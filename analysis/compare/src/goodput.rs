//! How goodput changes from one side to the other.

use super::outcome::Outcome;
use super::paired_median;
use candlescope_figures::stats::percentile_of;

/// Goodput of pairs of runs that were taken in turns, in requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoodputChange {
    /// Median of the runs before.
    pub before: f64,
    /// Median of the runs after.
    pub after: f64,
    /// Ends of the interval of the change, after less before; `None` with too few pairs for one.
    pub interval: Option<(f64, f64)>,
    /// What it comes to; undecided without an interval, too.
    pub outcome: Outcome,
    /// Pairs of runs that it rests on.
    pub pairs: usize,
}

/// The change of goodput from the first of each pair to the second; `None` without pairs.
///
/// Differences, not ratios: a run in which no request kept the limits has a goodput of 0, and counts. Changes up to
/// `margin` of what there was before are the same, and `alpha` is the probability with which the interval may miss the
/// truth.
pub fn goodput_change(pairs: &[[f64; 2]], margin: f64, alpha: f64) -> Option<GoodputChange> {
    let middle = |at: usize| percentile_of(&pairs.iter().map(|pair| pair[at]).collect::<Vec<_>>(), 0.5);
    let (before, after) = (middle(0)?, middle(1)?);
    let differences: Vec<f64> = pairs.iter().map(|[before, after]| after - before).collect();
    let interval = paired_median::interval(&differences, alpha);
    let (same, change) = (margin * before, percentile_of(&differences, 0.5)?);
    let outcome = match interval {
        Some((low, high)) if low >= -same && high <= same => Outcome::Equivalent,
        Some((low, _)) if low > 0.0 && change > same => Outcome::Better,
        Some((_, high)) if high < 0.0 && change < -same => Outcome::Worse,
        _ => Outcome::Undecided,
    };
    Some(GoodputChange { before, after, interval, outcome, pairs: pairs.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_any_goodput_count_in_its_change() {
        let pairs = |before: f64, after: f64| [[before, after]; 8];
        let outcome = |pairs: &[[f64; 2]]| goodput_change(pairs, 0.02, 0.02).map(|change| change.outcome);
        assert_eq!(outcome(&pairs(0.0, 3.0)), Some(Outcome::Better));
        assert_eq!(outcome(&pairs(3.0, 0.0)), Some(Outcome::Worse));
        assert_eq!(outcome(&pairs(0.0, 0.0)), Some(Outcome::Equivalent));
        assert_eq!(outcome(&pairs(3.0, 3.05)), Some(Outcome::Equivalent), "within 2 %");
        assert_eq!(outcome(&pairs(3.0, 4.0)[..7]), Some(Outcome::Undecided), "seven pairs have no interval");
        assert_eq!(outcome(&[]), None);
        let change = goodput_change(&pairs(3.0, 4.0), 0.02, 0.02).unwrap();
        assert_eq!((change.before, change.after, change.interval, change.pairs), (3.0, 4.0, Some((1.0, 1.0)), 8));
    }
}
