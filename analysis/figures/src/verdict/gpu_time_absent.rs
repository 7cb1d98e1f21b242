//! GPU time that was asked for but is not in the tables. If the session itself noticed that none came, its finding
//! stands.

use crate::Analysis;
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let Some(account) = &run.manifest.gpu else { return Vec::new() };
    let asked = account.clock.is_some() && account.timing != "off";
    if !asked || run.intervals.count == 0 || has_gpu_time(run) {
        return Vec::new();
    }
    let finding = Finding::new(
        Code::NoGpuTime,
        "GPU time was asked for (`{timing}`), but no interval and no step has any",
        "Run the model on a CUDA device, and enter its spans on the thread that launches its work",
    );
    vec![finding.text("timing", account.timing.as_str())]
}

/// Whether any interval or step has GPU time, or any kernel was recorded.
fn has_gpu_time(run: &Analysis) -> bool {
    !run.gpu.kinds.is_empty()
        || run.operators.iter().any(|operator| operator.gpu.is_some())
        || run.rows.get(RecordKind::Kernel.table()).is_some_and(|&n| n > 0)
}
