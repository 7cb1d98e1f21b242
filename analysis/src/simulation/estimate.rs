//! A figure with its bounds.

use serde::Serialize;

/// A figure with its bounds: `low` ≤ `mid` ≤ `high`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Estimate {
    /// The lowest that is to be expected.
    pub low: f64,
    /// The value to reckon with.
    pub mid: f64,
    /// The highest that is to be expected.
    pub high: f64,
}

/// Which of an estimate's three values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Low,
    Mid,
    High,
}

impl Case {
    pub(super) const ALL: [Self; 3] = [Self::Low, Self::Mid, Self::High];
}

impl Estimate {
    /// A figure without a spread.
    pub const fn exact(value: f64) -> Self {
        Self { low: value, mid: value, high: value }
    }

    /// The figure `mid` with the smallest and the largest of `others` as its bounds.
    pub(super) fn around(mid: f64, others: impl IntoIterator<Item = f64>) -> Self {
        let widen = |own: Self, value: f64| Self { low: own.low.min(value), high: own.high.max(value), ..own };
        others.into_iter().fold(Self::exact(mid), widen)
    }

    /// The median of each of the three values; `None` without any.
    pub(super) fn median(of: &[Self]) -> Option<Self> {
        let one = |value: fn(&Self) -> f64| median(of.iter().map(value).collect());
        Some(Self { low: one(|e| e.low)?, mid: one(|e| e.mid)?, high: one(|e| e.high)? })
    }

    /// All three values changed alike, by something that keeps their order.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), mid: change(self.mid), high: change(self.high) }
    }

    pub(super) fn at(&self, case: Case) -> f64 {
        match case {
            Case::Low => self.low,
            Case::Mid => self.mid,
            Case::High => self.high,
        }
    }
}

/// The median of finite values; `None` without any.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n.is_multiple_of(2) => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
        _ => Some(values[n / 2]),
    }
}
