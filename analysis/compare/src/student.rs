//! Student's t and Welch's comparison of two means, for runs that were not taken in pairs.
//!
//! [Welch, *The generalization of "Student's" problem when several different population variances are involved*,
//! Biometrika 34 (1947)].

use candlescope_figures::stats::{two_sided_p, two_sided_quantile};

/// A mean, the variance of that mean, and the degrees of freedom behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mean {
    pub(super) mean: f64,
    pub(super) variance: f64,
    pub(super) freedom: f64,
}

impl Mean {
    /// Of independent values; `None` below two.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let (mean, spread) = mean_and_variance(values)?;
        Some(Self { mean, variance: spread / values.len() as f64, freedom: (values.len() - 1) as f64 })
    }

    /// Of a single run with value `mean`, of which only the values of its `parts` are known. It is taken to differ from
    /// another run by as much as one of its parts differs from the others, because what makes whole runs differ cannot
    /// be seen in one of them.
    pub(super) fn of_parts(mean: f64, parts: &[f64]) -> Option<Self> {
        let (_, variance) = mean_and_variance(parts)?;
        Some(Self { mean, variance, freedom: (parts.len() - 1) as f64 })
    }
}

fn mean_and_variance(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    Some((mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)))
}

/// Second mean less the first one, its interval, and the probability of a difference at least as large without any.
pub(super) fn welch(a: Mean, b: Mean, alpha: f64) -> (f64, (f64, f64), f64) {
    let difference = b.mean - a.mean;
    let variance = a.variance + b.variance;
    if variance <= 0.0 {
        return (difference, (difference, difference), if difference == 0.0 { 1.0 } else { 0.0 });
    }
    let freedom = variance.powi(2) / (a.variance.powi(2) / a.freedom + b.variance.powi(2) / b.freedom);
    let error = variance.sqrt();
    let half = two_sided_quantile(alpha, freedom) * error;
    (difference, (difference - half, difference + half), two_sided_p(difference / error, freedom))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welch_by_hand() {
        // Means 3 and 6, variances 2.5 and 10 of five each: t = 3/√2.5 = 1.897, freedom 6.25/(0.25/4 + 4/4) = 5.88.
        let a = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let b = Mean::of(&[2.0, 4.0, 6.0, 8.0, 10.0]).unwrap();
        let (difference, (low, high), p) = welch(a, b, 0.05);
        assert_eq!(difference, 3.0);
        assert!((p - 0.1073).abs() < 5e-4, "{p}");
        assert!((low + 0.89).abs() < 0.02 && (high - 6.89).abs() < 0.02, "{low} {high}");
        assert!(Mean::of(&[1.0]).is_none());
    }
}
