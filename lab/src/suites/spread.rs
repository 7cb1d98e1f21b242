//! How much the requests of a case differ, and whether that is too much to rely on any figure.

use crate::study::CaseSummary;

/// Relative standard deviation of a case above which its figures cannot be relied on. If the middle case is above it,
/// nothing can.
const UNSTEADY: f64 = 0.25;

/// What has to be known before any figure is read: that requests of a case differ too much to rely on the answers, or
/// on what is said of some cases.
pub fn caution(summaries: &[CaseSummary]) -> Option<String> {
    let all = deviations(summaries);
    let middle = middle(&all)?;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if middle > UNSTEADY {
        return Some(format!(
            "Requests of one and the same case deviate by {} of their mean: that is too much to rely on what follows. \
             Repeat it on an idle machine, or with more samples.",
            percent(middle)
        ));
    }
    let mut unsteady: Vec<_> = all.iter().filter(|(_, deviation, _)| *deviation > UNSTEADY).collect();
    unsteady.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (widest, others) = unsteady.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        1 => format!(", those of another case by more than {}", percent(UNSTEADY)),
        n => format!(", those of {n} other cases by more than {}", percent(UNSTEADY)),
    };
    Some(format!(
        "Requests of {} deviate by {} of their mean{others}: that is too much to rely on what is said of them. Repeat \
         it on an idle machine, or with more samples.",
        widest.0.case.key(),
        percent(widest.1)
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
