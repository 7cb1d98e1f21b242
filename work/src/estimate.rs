//! A figure with its bounds.

use serde::Serialize;

/// A figure with its bounds: `low` ≤ `mid` ≤ `high`. Its unit is that of the field that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Estimate {
    /// The lowest seen, or that is to be expected.
    pub low: f64,
    /// The value to reckon with.
    pub mid: f64,
    /// The highest seen, or that is to be expected.
    pub high: f64,
}

/// Which of an estimate's three values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// The lower end: [`Estimate::low`].
    Low,
    /// What is expected: [`Estimate::mid`].
    Mid,
    /// The upper end: [`Estimate::high`].
    High,
}

impl Case {
    /// All of them, the lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Mid, Self::High];
}

impl Estimate {
    /// A figure without a spread.
    pub const fn exact(value: f64) -> Self {
        Self { low: value, mid: value, high: value }
    }

    /// The figure `mid` with the smallest and the largest of `others` as its bounds.
    pub fn around(mid: f64, others: impl IntoIterator<Item = f64>) -> Self {
        let widen = |own: Self, value: f64| Self { low: own.low.min(value), high: own.high.max(value), ..own };
        others.into_iter().fold(Self::exact(mid), widen)
    }

    /// The median of each of the three values; `None` without any.
    pub fn median(of: &[Self]) -> Option<Self> {
        let one = |value: fn(&Self) -> f64| median(of.iter().map(value).collect());
        Some(Self { low: one(|e| e.low)?, mid: one(|e| e.mid)?, high: one(|e| e.high)? })
    }

    /// All three values changed alike, by something that keeps their order.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), mid: change(self.mid), high: change(self.high) }
    }

    /// All three times `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        self.map(|value| value * factor)
    }

    /// All three, but none above `most`.
    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        self.map(|value| value.min(most))
    }

    /// One of the three.
    pub fn at(&self, case: Case) -> f64 {
        match case {
            Case::Low => self.low,
            Case::Mid => self.mid,
            Case::High => self.high,
        }
    }
}

/// The median of finite values, of an even number the mean of the middle two; `None` without any. It is the same as the
/// 50th percentile of distributions in reports.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => None,
        _ if n.is_multiple_of(2) => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
        _ => Some(values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_all_three() {
        let gain = Estimate { low: 0.1, mid: 0.2, high: 0.4 }.at_most(0.15);
        assert_eq!(gain, Estimate { low: 0.1, mid: 0.15, high: 0.15 });
    }

    #[test]
    fn each_of_the_three_has_its_own_median() {
        let of = |low, mid, high| Estimate { low, mid, high };
        assert_eq!(Estimate::median(&[of(1., 5., 6.), of(3., 4., 9.), of(2., 6., 7.)]), Some(of(2., 5., 7.)));
        assert_eq!(Estimate::median(&[]), None);
        assert_eq!(Estimate::around(2.0, [3.0, 1.0]), of(1., 2., 3.));
    }
}
