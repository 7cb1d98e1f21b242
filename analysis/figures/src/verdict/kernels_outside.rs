//! Kernels that belong to no interval, or to a step that is not in the run.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Severity};

/// Up to this share of kernels launched outside every interval, figures by path count as complete.
const UNATTRIBUTED: f64 = 0.01;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let mut found = Vec::new();
    let (n, ns) = run.kernels.unattributed;
    if n > 0 {
        let share = n as f64 / run.kernels.records.max(1) as f64;
        let finding = Finding::new(
            Code::KernelsUnattributed,
            "{launched} of {records} kernels, copies and memsets ({time}) were launched outside every recorded interval",
            "Put a span around the work that launches them; they are in no path's time",
        );
        let finding = finding.count("launched", n).count("records", run.kernels.records).ns("time", ns);
        found.push(if share > UNATTRIBUTED { finding } else { finding.severity(Severity::Info) });
    }
    if run.gpu.without_step > 0 {
        let finding = Finding::new(
            Code::KernelsWithoutStep,
            "{records} kernels, copies and memsets belong to steps that are not in the run",
            "See the findings about lost records and segments",
        );
        found.push(finding.count("records", run.gpu.without_step));
    }
    found
}
