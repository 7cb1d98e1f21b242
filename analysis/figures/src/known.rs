//! What a run says before its rows of intervals are looked at: its manifest, its steps and its requests. Read once, for all
//! passes.

use super::busy::Clocks;
use super::reading::Rows;
use super::step_rows::StepRow;
use super::warmup::Warmup;
use candlescope_reader::Run;
use candlescope_schema::run::RunManifest;
use candlescope_schema::{HostNs, PerturbationRecord, RecordKind, RequestRecord};

/// A run's manifest, steps and requests.
#[derive(Debug)]
pub struct RunContents<'r> {
    /// The open run that all of this was read from.
    pub run: &'r Run,
    /// `run.json`, or defaults if there is none.
    pub manifest: RunManifest,
    /// All steps in the order in which they began, spans of the application among them.
    pub steps: Vec<StepRow>,
    /// All requests, in the order in which they began, without those that an experiment made slower.
    pub requests: Vec<RequestRecord>,
    /// Stretches of experiments, delayed ones and their controls, in the order of reading.
    pub perturbations: Vec<PerturbationRecord>,
    /// When experiments went on, from and to, as far as it is known: work that has no rows ran then.
    pub experiments: Vec<(i64, i64)>,
}

impl<'r> RunContents<'r> {
    /// Reads them, and gives the rows that are left.
    pub fn read(run: &'r Run) -> (Self, Rows<'r>) {
        let mut batches = run.batches().held();
        let (mut steps, mut requests) = (Vec::<StepRow>::new(), Vec::<RequestRecord>::new());
        let (mut perturbations, mut experiments) = (Vec::new(), Vec::new());
        batches.take_tables(&[RecordKind::Request, RecordKind::Step, RecordKind::Perturbation], |batch| {
            steps.extend(batch.steps.iter().map(StepRow::of));
            let (of_experiments, usual): (Vec<_>, Vec<_>) =
                batch.requests.into_iter().partition(|request| request.perturbed == Some(true));
            let span = |from: HostNs, ns: u64| (from.0, from.plus_ns(ns).0);
            experiments.extend(of_experiments.iter().map(|request| span(request.host_start, request.host_dur_ns)));
            experiments.extend(batch.perturbations.iter().map(|stretch| span(stretch.host_start, stretch.took_ns())));
            requests.extend(usual);
            perturbations.extend(batch.perturbations);
        });
        // Segments are in the order in which records ended; figures need the order in which they began.
        requests.sort_by_key(|request| (request.host_start, request.request));
        steps.sort_by_key(|step| (step.start_ns, step.step));
        let manifest = run.manifest().cloned().unwrap_or_default();
        (Self { run, manifest, steps, requests, perturbations, experiments }, Rows::new(batches))
    }

    /// How far the clocks of host and device may be apart.
    pub fn clocks(&self) -> Clocks {
        Clocks::of(&self.manifest)
    }

    /// The warm-up among all steps.
    pub fn warmup(&self) -> Warmup {
        Warmup::of(&self.manifest, &self.requests, &self.steps)
    }

    /// What ran on a device before the first of these steps loaded the model; `None` if the clocks are too far apart to say
    /// what did.
    pub fn loaded_until(&self, steps: &[StepRow]) -> Option<i64> {
        steps.first().map(|step| step.start_ns).filter(|_| !self.clocks().apart())
    }
}
