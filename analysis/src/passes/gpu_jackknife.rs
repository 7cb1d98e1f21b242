//! Quantiles of Student's t, for intervals from a handful of groups.

/// The 97.5 % quantile of Student's t with this many degrees of freedom; beyond the table that of the normal distribution, a little too
/// small for under a hundred.
pub(super) fn t_quantile(degrees: usize) -> f64 {
    const TABLE: [f64; 15] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];
    degrees.checked_sub(1).and_then(|at| TABLE.get(at)).copied().unwrap_or(1.96)
}
