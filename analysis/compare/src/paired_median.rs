//! Paired differences: an interval for their median, and evidence against zero, that hold at every number of pairs.
//!
//! Whoever looks after each pair and stops when the answer is there looks many times, and an ordinary 95 % interval
//! misses the truth far more often than 5 % then. Here a mixture of bets on the sign of the next difference is kept
//! [Krichevsky and Trofimov, *The performance of universal encoding*, IEEE Trans. Inf. Theory 27 (1981)]. While the
//! median is the assumed one, its capital is a martingale and exceeds 1/α at any time with a probability of at most α
//! [Ville 1939]. The medians whose bets have not won that much are a confidence sequence [Howard and Ramdas,
//! *Sequential estimation of quantiles with applications to A/B testing and best-arm identification*, Bernoulli 28
//! (2022)].
//!
//! Nothing is assumed of the distribution: a pair in which the machine was busy with something else is one sign like
//! any other, however long it took. What is assumed is that, without a change, the next difference is as likely above
//! zero as below. Pairs are taken in the order ABBA or BAAB, drawn by lot, so a drift of the machine gives as many
//! differences of one sign as of the other.

/// Logarithm of the capital of the mixture after so many differences on either side: the likelihood of the signs under
/// the Jeffreys mixture over that of fair coins.
fn log_capital(below: usize, above: usize) -> f64 {
    let n = below + above;
    let half = |count: usize| (0..count).map(|i| (i as f64 + 0.5).ln()).sum::<f64>();
    let factorial: f64 = (1..=n).map(|i| (i as f64).ln()).sum();
    half(below) + half(above) - factorial + n as f64 * std::f64::consts::LN_2
}

/// An interval that holds the median of differences with probability `1 − alpha`, at all numbers of differences
/// together; `None` while there are too few. With an alpha of 0.02, 8 are needed.
pub fn interval(differences: &[f64], alpha: f64) -> Option<(f64, f64)> {
    let mut sorted = differences.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let most = (1.0 / alpha).ln();
    // A median with fewer differences below it than `rank` has lost its bets.
    let rank = (0..=n / 2).find(|&below| log_capital(below, n - below) < most)?;
    (rank > 0).then(|| (sorted[rank - 1], sorted[n - rank]))
}

/// An upper bound of the probability of signs as uneven as these, at any number of differences so far, if the median
/// is 0: one over the most capital that the bets had. Differences of exactly 0 say nothing and are left out.
pub fn p_value(differences: &[f64]) -> f64 {
    let (mut below, mut above, mut best) = (0, 0, 0.0f64);
    for difference in differences.iter().filter(|d| **d != 0.0) {
        if *difference < 0.0 {
            below += 1
        } else {
            above += 1
        }
        best = best.max(log_capital(below, above));
    }
    (-best).exp().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn capital_by_hand() {
        // Two equal signs: ∫ p² dBeta(½, ½) = 3/8, over 1/4.
        assert!((log_capital(0, 2).exp() - 1.5).abs() < 1e-12);
        assert!((log_capital(1, 1).exp() - 0.5).abs() < 1e-12);
        assert_eq!(p_value(&[0.0, 0.0]), 1.0);
        assert!((p_value(&[1.0, 0.0, 2.0]) - 1.0 / 1.5).abs() < 1e-12);
        // What was won once stays won.
        assert!(p_value(&[1.0; 10]) >= p_value(&[vec![1.0; 10], vec![-1.0; 5]].concat()));
    }

    #[test]
    fn the_interval_begins_with_eight_pairs() {
        assert_eq!(interval(&[1.0; 7], 0.02), None);
        let values: Vec<f64> = (1..=8).map(f64::from).collect();
        assert_eq!(interval(&values, 0.02), Some((1.0, 8.0)));
        let (low, high) = interval(&(1..=100).map(f64::from).collect::<Vec<_>>(), 0.02).unwrap();
        assert!(low > 30.0 && high < 71.0, "{low} {high}");
    }

    /// Looking after every pair up to 100 of them misses the median at some time in at most α of the cases. An ordinary
    /// interval, which is what this would be without the mixture, misses it several times as often.
    #[test]
    fn it_holds_at_all_times_together() {
        let mut random = StdRng::seed_from_u64(7);
        let (mut missed, mut ordinary) = (0, 0);
        const TIMES: usize = 400;
        for _ in 0..TIMES {
            // Cauchy: no mean, no variance.
            let values: Vec<f64> =
                (0..100).map(|_| (std::f64::consts::PI * (random.random::<f64>() - 0.5)).tan()).collect();
            let outside = |n: usize| interval(&values[..n], 0.05).is_some_and(|(low, high)| low > 0.0 || high < 0.0);
            missed += usize::from((1..=100).any(outside));
            let coin = |n: usize| {
                let above = values[..n].iter().filter(|v| **v > 0.0).count() as f64;
                ((above - n as f64 / 2.0) / (n as f64 / 4.0).sqrt()).abs() > 1.96
            };
            ordinary += usize::from((8..=100).any(coin));
        }
        assert!(missed <= TIMES * 5 / 100 + 9, "{missed} of {TIMES}");
        assert!(ordinary > 2 * missed + 20, "{ordinary} with ordinary intervals, {missed} with these");
    }
}
