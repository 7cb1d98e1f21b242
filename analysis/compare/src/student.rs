//! Student's t and Welch's comparison of two means, for runs that were not taken in pairs.
//!
//! [Welch, *The generalization of "Student's" problem when several different population variances are involved*,
//! Biometrika 34 (1947)]. The distribution comes from the regularised incomplete beta function by Lentz's continued
//! fraction [Abramowitz and Stegun, 26.5.8 and 26.7.1].

/// Two-sided probability of a value of Student's t at least as far from 0, with `freedom` degrees of freedom.
pub(super) fn two_sided_p(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() || freedom <= 0.0 {
        return if t.is_finite() { 1.0 } else { 0.0 };
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5).clamp(0.0, 1.0)
}

/// The value that Student's t exceeds on either side with probability `alpha` in all.
pub(super) fn two_sided_quantile(alpha: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    while two_sided_p(high, freedom) > alpha && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if two_sided_p(middle, freedom) > alpha { low = middle } else { high = middle }
    }
    high
}

/// ln Γ(x) for x > 0 [Lanczos 1964, g = 5, six terms; within 2·10⁻¹⁰].
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let base = x + 5.5;
    let series = TERMS.iter().zip(1..).fold(1.000_000_000_190_015, |sum, (term, i)| sum + term / (x + f64::from(i)));
    (x + 0.5) * base.ln() - base + (2.506_628_274_631_000_5 * series / x).ln()
}

fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * continued_fraction(x, a, b) / a
    } else {
        1.0 - front * continued_fraction(1.0 - x, b, a) / b
    }
}

fn continued_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let kept = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / kept(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for i in 1..500 {
        let m = f64::from(i);
        let mut step = |factor: f64| {
            d = 1.0 / kept(1.0 + factor * d);
            c = kept(1.0 + factor / c);
            fraction *= d * c;
            d * c
        };
        step(m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)));
        let last = step(-(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)));
        if (last - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

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
    fn quantiles_are_those_of_the_tables() {
        // [Abramowitz and Stegun, table 26.10]
        for (alpha, freedom, t) in
            [(0.05, 1.0, 12.706), (0.05, 5.0, 2.571), (0.01, 5.0, 4.032), (0.02, 10.0, 2.764), (0.01, 120.0, 2.617)]
        {
            let found = two_sided_quantile(alpha, freedom);
            assert!((found / t - 1.0).abs() < 3e-4, "{alpha} {freedom}: {found}");
        }
        assert_eq!(two_sided_p(0.0, 4.0), 1.0);
        assert_eq!(two_sided_p(f64::INFINITY, 4.0), 0.0);
    }

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
