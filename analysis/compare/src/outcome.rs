//! What a comparison comes to.

use super::estimate::{ChangeEstimate, Floor, FloorSource};
use serde::{Deserialize, Serialize};

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// B is better: the change is clear, and larger than the margin.
    Better,
    /// The two are the same, within the margin.
    Equivalent,
    /// Too few or too noisy measurements for any of the others.
    Undecided,
    /// B is worse: the change is clear and larger than the margin, in times, exact counts or a gate's history.
    Worse,
}

impl Outcome {
    /// The exit status of commands: 1 for worse, 2 for undecided, 0 for the others.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Worse => 1,
            Self::Undecided => 2,
            Self::Better | Self::Equivalent => 0,
        }
    }

    /// The word for it in JSON and reports, such as `equivalent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Equivalent => "equivalent",
            Self::Undecided => "undecided",
            Self::Worse => "worse",
        }
    }
}

/// Which evidence an outcome rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The time of the whole step, which comes first.
    Times,
    /// Paths that clearly changed, where the time of the whole step could not decide.
    Paths,
    /// Counts, which are exact, where neither could.
    Counts,
    /// The history of a gate.
    History,
}

/// The outcome of a figure of which less is better.
///
/// Equivalent: the whole interval is within the margin. Worse or better: the interval does not hold 0, and the change
/// itself is beyond the margin and beyond the floor. Where there is doubt about the runs themselves, such as one of
/// each, only the user's own floor decides, and the interval has to be beyond it.
pub(super) fn judge(estimate: &ChangeEstimate, floor: &Floor, margin: f64) -> Outcome {
    let Some((low, high)) = estimate.low.zip(estimate.high) else { return Outcome::Undecided };
    let share = floor.share.unwrap_or(0.0);
    let beyond = margin.max(share);
    let (low, high) = match estimate.doubt {
        None => (low, high),
        Some(_) if floor.source == FloorSource::Given => (low - share, high + share),
        Some(_) => return Outcome::Undecided,
    };
    if low >= -margin && high <= margin {
        Outcome::Equivalent
    } else if low > 0.0 && estimate.change > beyond {
        Outcome::Worse
    } else if high < 0.0 && estimate.change < -beyond {
        Outcome::Better
    } else {
        Outcome::Undecided
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate::{Basis, Doubt};
    use super::*;

    #[test]
    fn outcomes_by_hand() {
        let of = |change: f64, low: f64, high: f64| ChangeEstimate {
            change,
            low: Some(low),
            high: Some(high),
            p: 0.5,
            basis: Basis::Pairs,
            n: (9, 9),
            doubt: None,
            correlation: None,
            drift: None,
        };
        let floor = |share: f64| Floor { share: Some(share), source: FloorSource::RepeatedA, n: 9 };
        let judged = |estimate: ChangeEstimate, at: f64| judge(&estimate, &floor(at), 0.02);
        assert_eq!(judged(of(0.05, 0.01, 0.09), 0.0), Outcome::Worse);
        assert_eq!(judged(of(-0.05, -0.09, -0.01), 0.0), Outcome::Better);
        assert_eq!(judged(of(0.005, 0.001, 0.009), 0.0), Outcome::Equivalent, "real, and too small to matter");
        assert_eq!(judged(of(0.015, 0.001, 0.03), 0.0), Outcome::Undecided);
        assert_eq!(judged(of(0.05, -0.01, 0.11), 0.0), Outcome::Undecided);
        assert_eq!(judged(of(0.05, 0.01, 0.09), 0.06), Outcome::Undecided, "A alone shows as much");
        assert_eq!(judged(ChangeEstimate { low: None, ..of(0.5, 0.4, 0.6) }, 0.0), Outcome::Undecided);
        let alone = ChangeEstimate { doubt: Some(Doubt::OneRunOfEach), ..of(-0.8, -0.85, -0.73) };
        assert_eq!(judged(alone, 0.06), Outcome::Undecided, "whatever the parts of one run of each show");
        let given = |share: f64| Floor { source: FloorSource::Given, ..floor(share) };
        assert_eq!(judge(&alone, &given(0.06), 0.02), Outcome::Better, "the user knows how much process starts differ");
        assert_eq!(judge(&alone, &given(0.75), 0.02), Outcome::Undecided);
        assert_eq!(
            [Outcome::Worse, Outcome::Equivalent, Outcome::Better, Outcome::Undecided].map(Outcome::exit_code),
            [1, 0, 0, 2]
        );
    }
}
