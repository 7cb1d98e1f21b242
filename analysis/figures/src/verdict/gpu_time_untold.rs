//! GPU time of paths whose children were not all measured is in no path's self time, so shares do not add up to 1.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Place};

/// From this share of GPU time in no path's self time on, there is a finding.
const UNTOLD: f64 = 0.01;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let told: f64 = run.operators.iter().filter_map(|operator| operator.gpu?.self_share).sum();
    let some = run.operators.iter().any(|operator| operator.gpu.is_some_and(|gpu| gpu.self_share.is_some()));
    if !some || told >= 1.0 - UNTOLD {
        return Vec::new();
    }
    let missing = run.operators.iter().filter_map(|operator| {
        let gpu = operator.gpu.filter(|gpu| gpu.self_ns.is_none())?;
        Some((operator, gpu.total_ns))
    });
    let worst = missing.max_by(|a, b| a.1.total_cmp(&b.1));
    let finding = Finding::new(
        Code::GpuTimeUntold,
        "{share} of GPU time is in no path's self time, because not all children were measured[; most of it below `{path}`]",
        "Time every interval of some steps (tier `adaptive` or `all`), or record kernels",
    );
    let finding = finding.ratio("share", 1.0 - told);
    vec![match worst {
        Some((operator, _)) => finding.at(Place::Path, operator.path.as_str()),
        None => finding,
    }]
}
