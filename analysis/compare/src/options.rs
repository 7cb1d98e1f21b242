//! Options of a comparison.

use super::days::Days;

/// How two sides are compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CompareOptions {
    pub(super) margin: f64,
    pub(super) alpha: f64,
    pub(super) false_discoveries: f64,
    pub(super) floor: Option<f64>,
    pub(super) allow: Vec<String>,
    pub(super) days: Option<Days>,
}

impl Default for CompareOptions {
    /// Equivalent within 2 %; wrong about times with a probability of 2 %, about a path with 5 % of those named.
    fn default() -> Self {
        Self { margin: 0.02, alpha: 0.02, false_discoveries: 0.05, floor: None, allow: Vec::new(), days: None }
    }
}

impl CompareOptions {
    /// Changes up to this share are the same: 0.02 by default.
    #[must_use]
    pub fn margin(self, margin: f64) -> Self {
        Self { margin, ..self }
    }

    /// Probability with which an interval of times may miss the truth: 0.02 by default.
    #[must_use]
    pub fn alpha(self, alpha: f64) -> Self {
        Self { alpha, ..self }
    }

    /// Share of the named paths that may be wrong: 0.05 by default.
    #[must_use]
    pub fn false_discoveries(self, share: f64) -> Self {
        Self { false_discoveries: share, ..self }
    }

    /// The change that the same program shows on this machine, if it is known from elsewhere.
    #[must_use]
    pub fn floor(self, floor: Option<f64>) -> Self {
        Self { floor, ..self }
    }

    /// Differences that the user lets pass: [`ALLOWABLE`](super::ALLOWABLE) names, or `all`.
    #[must_use]
    pub fn allow(self, allow: Vec<String>) -> Self {
        Self { allow, ..self }
    }

    /// Days on which the same was measured before: B is then held against them. The first one is that of A.
    #[must_use]
    pub fn days(self, days: Days) -> Self {
        Self { days: Some(days), ..self }
    }
}
