//! Records on their way to the exporters.

use super::{
    KernelRecord, PerturbationRecord, RecordKind, RequestRecord, SampleRecord, SpanRecord, StackRecord,
    StackSampleRecord, StepRecord,
};

/// What the pipeline hands to every exporter: shared, never copied for each exporter.
///
/// Spans of one step follow each other in enter order (ascending `seq`).
#[derive(Debug, Default, Clone, PartialEq)]
#[non_exhaustive]
pub struct Batch {
    /// Intervals, each recorded when it had ended.
    pub spans: Vec<SpanRecord>,
    /// Steps, each recorded when it had ended.
    pub steps: Vec<StepRecord>,
    /// Requests, each recorded when it had ended.
    pub requests: Vec<RequestRecord>,
    /// Samples of metrics, as collectors took them.
    pub samples: Vec<SampleRecord>,
    /// Kernels, copies and memsets.
    pub kernels: Vec<KernelRecord>,
    /// Call stacks, each before the samples and stacks that name it.
    pub stacks: Vec<StackRecord>,
    /// Samples of what threads did.
    pub stack_samples: Vec<StackSampleRecord>,
    /// Stretches of experiments.
    pub perturbations: Vec<PerturbationRecord>,
}

impl Batch {
    /// Number of records of one kind.
    pub fn count(&self, kind: RecordKind) -> u64 {
        (match kind {
            RecordKind::Span => self.spans.len(),
            RecordKind::Step => self.steps.len(),
            RecordKind::Request => self.requests.len(),
            RecordKind::Sample => self.samples.len(),
            RecordKind::Kernel => self.kernels.len(),
            RecordKind::Stack => self.stacks.len(),
            RecordKind::StackSample => self.stack_samples.len(),
            RecordKind::Perturbation => self.perturbations.len(),
        }) as u64
    }

    /// Number of records of all kinds.
    pub fn len(&self) -> usize {
        RecordKind::ALL.iter().map(|kind| self.count(*kind) as usize).sum()
    }

    /// Whether it holds no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
