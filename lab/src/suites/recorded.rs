//! The recorded requests of a study's cases.

use crate::method::Sample;
use crate::study::CaseSummary;
use candlescope_figures::Analysis;
use candlescope_figures::{GpuKind, PhaseRow};
use candlescope_reader::Run;
use std::path::Path;

/// Share of time above which a GPU is well used, and below which it is not.
pub(super) const BUSY: (f64, f64) = (0.70, 0.50);

/// A recorded run of a case.
pub(crate) struct RecordedCase<'a> {
    pub(crate) case: &'a CaseSummary,
    pub(crate) analysis: Analysis,
    /// Requests in it.
    pub(crate) requests: usize,
}

impl RecordedCase<'_> {
    /// Nanoseconds for which kernels of a step of this row run on one device, whichever streams they are in: the mean of
    /// the steps whose kernels were recorded. `None` if there are none.
    pub(super) fn kernels_of_step(&self, row: &PhaseRow) -> Option<f64> {
        let same = |kind: &&GpuKind| kind.is_phase == row.is_phase && kind.name == row.name;
        let busy = self.analysis.gpu.kinds.iter().find(same)?.busy.as_ref().filter(|busy| busy.steps > 0)?;
        Some(busy.own_ns as f64 / (busy.devices.max(1) * busy.steps) as f64)
    }

    /// Outermost steps; others are part of these.
    pub(super) fn outermost(&self) -> impl Iterator<Item = &PhaseRow> {
        self.analysis.phases.rows.iter().filter(|row| row.inside.is_none())
    }

    /// Whether kernels of anything were recorded.
    pub(super) fn has_kernels(&self) -> bool {
        self.analysis.gpu.busy.is_some()
    }

    /// Nanoseconds for which kernels of a request run on one device: the steps whose kernels were recorded stand for all
    /// of their kind. `None` if a phase has no such step.
    pub(super) fn kernels_ns(&self) -> Option<f64> {
        let of_row = |row: &PhaseRow| match self.kernels_of_step(row) {
            Some(ns) => Some(ns * row.steps as f64),
            // Steps that are no phase may have nothing to do with the device.
            None => (!row.is_phase).then_some(0.0),
        };
        let all: f64 = self.outermost().map(of_row).sum::<Option<f64>>()?;
        Some(all / self.requests.max(1) as f64)
    }
}

/// The last recorded run of each case that has any.
pub(crate) fn recorded<'a>(study: &Path, summaries: &'a [CaseSummary]) -> Vec<RecordedCase<'a>> {
    let run = |case: &'a CaseSummary| {
        let folder = case.last_run()?;
        let of_run = |sample: &&Sample| sample.measurement.run.as_deref() == Some(folder);
        let requests = case.profiled.iter().filter(of_run).count();
        Some(RecordedCase { case, requests, analysis: Analysis::of(&Run::open(study.join(folder)).ok()?) })
    };
    summaries.iter().filter_map(run).collect()
}
