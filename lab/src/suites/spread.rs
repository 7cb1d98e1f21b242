//! How much the requests of a case differ, and whether that is too much to rely on any figure.

use crate::study::CaseSummary;

/// Relative standard deviation of the middle case above which nothing can be relied on.
const UNSTEADY: f64 = 0.25;

/// What has to be known before any figure is read: that requests of a case differ too much to rely on the answers.
pub fn caution(summaries: &[CaseSummary]) -> Option<String> {
    let middle = middle(&deviations(summaries)).filter(|middle| *middle > UNSTEADY)?;
    Some(format!(
        "Requests of one and the same case deviate by {:.0} % of their mean: that is too much to rely on what follows. \
         Repeat it on an idle machine, or with more samples.",
        middle * 100.0
    ))
}

/// Of each case with several requests: their relative standard deviation, and the longest over the median.
pub(super) fn deviations(summaries: &[CaseSummary]) -> Vec<(&CaseSummary, f64, f64)> {
    let of = |case| -> Option<(&CaseSummary, f64, f64)> {
        let e2e = CaseSummary::host_ns(case).filter(|e2e| e2e.n > 1)?;
        Some((case, e2e.stddev? / e2e.mean, e2e.max / e2e.median))
    };
    summaries.iter().filter_map(of).collect()
}

/// The deviation of the middle case.
pub(super) fn middle(all: &[(&CaseSummary, f64, f64)]) -> Option<f64> {
    let mut deviations: Vec<f64> = all.iter().map(|(_, deviation, _)| *deviation).collect();
    deviations.sort_by(f64::total_cmp);
    deviations.get(deviations.len() / 2).copied()
}
