//! Which of many tests count, so that among those that do, at most a given share is expected to be false.
//!
//! [Benjamini and Hochberg, *Controlling the false discovery rate*, J. R. Stat. Soc. B 57 (1995)]. Where p-values are
//! one over an e-value, as [`paired_median`](super::paired_median) gives them, the limit holds whatever the dependence
//! between tests and whenever one stops [Wang and Ramdas, *False discovery rate control with e-values*, J. R. Stat.
//! Soc. B 84 (2022)]. Otherwise it holds for tests that are independent or positively dependent, which paths of one run
//! are: what slows the machine slows all of them.

/// Differences that are shown where none can be named.
pub(super) const UNPROVEN: usize = 3;

/// Takes back all names: what was named, the largest change first, is only what differs most.
pub(super) fn name_none<T>(changed: &mut Vec<T>, unproven: &mut Vec<T>) {
    let mut all = std::mem::take(changed);
    all.truncate(UNPROVEN);
    if unproven.is_empty() {
        *unproven = all;
    }
}

/// The smallest share of false discoveries at which each test would count: adjusted p-values, in the order given.
pub fn adjusted(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut least = 1.0f64;
    for (rank, at) in order.into_iter().enumerate().rev() {
        least = least.min(p_values[at] * p_values.len() as f64 / (rank + 1) as f64);
        adjusted[at] = least;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_by_hand() {
        // 0.01·4/1, 0.02·4/2 = 0.04, 0.03·4/3 = 0.04, 0.5.
        let found = adjusted(&[0.03, 0.01, 0.5, 0.02]);
        for (found, wanted) in found.iter().zip([0.04, 0.04, 0.5, 0.04]) {
            assert!((found - wanted).abs() < 1e-12, "{found}");
        }
        assert!(adjusted(&[]).is_empty());
    }
}
