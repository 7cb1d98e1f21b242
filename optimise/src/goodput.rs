//! What a change of goodput comes to, where that is the goal.

use crate::account::Verdict;
use candlescope_compare::{GoodputChange, Outcome};
use candlescope_core::numbers::significant;

/// What becomes of a change of goodput, and why. `None` where no request keeps the limits on either side: nothing follows
/// from that.
pub(crate) fn judge(change: &GoodputChange) -> Option<(Verdict, String)> {
    if change.before <= 0.0 && change.after <= 0.0 {
        return None;
    }
    let by = change.interval.map_or_else(String::new, |(low, high)| {
        let sign = |value: f64| if value < 0.0 { "−" } else { "+" };
        format!(" ({}{} to {}{})", sign(low), significant(low.abs()), sign(high), significant(high.abs()))
    });
    let (before, after) = (significant(change.before), significant(change.after));
    let words = format!("{before} requests a second kept all limits, and {after} do{by}");
    Some(match change.outcome {
        Outcome::Better => (Verdict::Kept, words),
        Outcome::Worse => (Verdict::Rejected, format!("goodput is lower: {words}")),
        Outcome::Equivalent => (Verdict::Rejected, format!("goodput stays: {words}")),
        Outcome::Undecided => (Verdict::Rejected, format!("undecided after {} pairs: {words}", change.pairs)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: f64, after: f64, outcome: Outcome) -> GoodputChange {
        GoodputChange { before, after, interval: Some((-0.5, 2.0)), outcome, pairs: 9 }
    }

    #[test]
    fn what_lets_more_requests_keep_the_limits_is_kept() {
        let (verdict, why) = judge(&change(2.0, 3.0, Outcome::Better)).unwrap();
        assert_eq!(verdict, Verdict::Kept);
        assert_eq!(why, "2.00 requests a second kept all limits, and 3.00 do (−0.50 to +2.00)");
        for (outcome, words) in [
            (Outcome::Worse, "goodput is lower"),
            (Outcome::Equivalent, "goodput stays"),
            (Outcome::Undecided, "undecided after 9 pairs"),
        ] {
            let (verdict, why) = judge(&change(2.0, 3.0, outcome)).unwrap();
            assert!(verdict == Verdict::Rejected && why.starts_with(words), "{why}");
        }
    }

    #[test]
    fn limits_that_no_request_keeps_decide_nothing() {
        assert_eq!(judge(&change(0.0, 0.0, Outcome::Equivalent)), None);
        assert!(judge(&change(0.0, 1.0, Outcome::Better)).is_some());
    }
}
