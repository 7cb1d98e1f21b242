//! What the order of samples says: percentiles, and the interval of a median.

/// Independent units, samples or clusters of them, from which the 95 % interval of a median exists.
pub const INTERVAL_FROM: usize = 6;

/// The `p`-quantile of sorted samples, interpolated linearly between neighbours (type 7, the default of NumPy and R).
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    let position = p * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// 95 % interval of the median of independent, sorted samples, from order statistics; `None` below [`INTERVAL_FROM`] of
/// them.
pub(super) fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let rank = interval_rank(sorted.len())?;
    Some((sorted[rank - 1], sorted[sorted.len() - rank]))
}

/// The largest `k` for which at most 2.5 % of binomial(n, 1/2) lies below `k`: the interval goes from the `k`-th
/// smallest sample to the `k`-th largest.
pub(super) fn interval_rank(n: usize) -> Option<usize> {
    const TAIL: f64 = 0.025;
    // Probabilities relative to that of the middle, from there down until they vanish: exact for any n, because 1/2ⁿ
    // itself, which underflows from n = 1075 on, is not needed.
    let mut lowest = n / 2;
    let mut relative = vec![1.0f64];
    while lowest > 0 && relative[relative.len() - 1] > 1e-18 {
        relative.push(relative[relative.len() - 1] * lowest as f64 / (n - lowest + 1) as f64);
        lowest -= 1;
    }
    let below: f64 = relative.iter().sum();
    // The upper half mirrors the lower one; for an even n the middle belongs to both.
    let whole = if n.is_multiple_of(2) { 2.0 * below - 1.0 } else { 2.0 * below };
    let mut tail = 0.0;
    let fits = relative.iter().rev().take_while(|p| {
        tail += *p;
        tail <= TAIL * whole
    });
    Some(lowest + fits.count()).filter(|&rank| rank > 0)
}
