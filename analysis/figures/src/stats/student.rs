//! Student's t, by the regularised incomplete beta function [Abramowitz and Stegun, 26.5.27 and 26.7.1].

use statrs::function::beta::beta_reg;

/// Two-sided probability of a value of Student's t at least as far from 0, with `freedom` degrees of freedom.
pub fn two_sided_p(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() || freedom <= 0.0 {
        return if t.is_finite() { 1.0 } else { 0.0 };
    }
    beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t)).clamp(0.0, 1.0)
}

/// The value that Student's t exceeds on either side with probability `alpha` in all.
pub fn two_sided_quantile(alpha: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    while two_sided_p(high, freedom) > alpha && high < 1e12 {
        high *= 2.0;
    }
    while high - low > 1e-12 * high {
        let middle = (low + high) / 2.0;
        if two_sided_p(middle, freedom) > alpha { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // [Abramowitz and Stegun, table 26.10]
        for (alpha, freedom, t) in [
            (0.05, 1.0, 12.706),
            (0.05, 2.0, 4.303),
            (0.05, 5.0, 2.571),
            (0.01, 5.0, 4.032),
            (0.02, 10.0, 2.764),
            (0.05, 17.0, 2.110),
            (0.01, 120.0, 2.617),
        ] {
            let found = two_sided_quantile(alpha, freedom);
            assert!((found / t - 1.0).abs() < 3e-4, "{alpha} {freedom}: {found}");
        }
        assert_eq!((two_sided_p(0.0, 4.0), two_sided_p(f64::INFINITY, 4.0)), (1.0, 0.0));
    }

    #[test]
    fn probabilities_fall_with_the_distance_for_any_freedom() {
        let freedoms = (1..=240).map(f64::from).chain([1.01, 1.3, 1.5, 2.5, 7.3, 1e4]);
        for freedom in freedoms {
            let mut last = 1.0;
            for t in (0..600).map(|at| f64::from(at) * 0.1) {
                let p = two_sided_p(t, freedom);
                assert!(p <= last && p >= 0.0, "{freedom} {t}: {p} after {last}");
                last = p;
            }
        }
        // One degree of freedom is Cauchy's distribution, two have a closed form, too.
        for t in [0.5, 4.0, 30.0, 1e4_f64] {
            let cauchy = 1.0 - 2.0 / std::f64::consts::PI * t.atan();
            assert!((two_sided_p(t, 1.0) / cauchy - 1.0).abs() < 1e-6, "{t}");
            // 1 − t/√(2 + t²), without the difference of equal numbers.
            let root = (2.0 + t * t).sqrt();
            assert!((two_sided_p(t, 2.0) / (2.0 / (root * (root + t))) - 1.0).abs() < 1e-6, "{t}");
        }
    }
}
