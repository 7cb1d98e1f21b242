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
    /// Stretches of experiments, delayed ones and their controls.
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

    /// Moves every time in it by so many nanoseconds: to the clock of another machine.
    pub fn move_by(&mut self, ns: i64) {
        let later = |time: &mut crate::HostNs| time.0 = time.0.saturating_add(ns);
        let gpu = |time: &mut Option<super::GpuTime>| {
            if let Some(time) = time {
                later(&mut time.start);
            }
        };
        for span in &mut self.spans {
            later(&mut span.host_start);
            gpu(&mut span.gpu);
        }
        for step in &mut self.steps {
            later(&mut step.host_start);
            gpu(&mut step.gpu);
            step.unrecorded.iter_mut().flatten().for_each(|of| later(&mut of.host_start));
        }
        for kernel in &mut self.kernels {
            later(&mut kernel.gpu_start);
            kernel.launch_start.iter_mut().for_each(later);
        }
        self.requests.iter_mut().for_each(|request| later(&mut request.host_start));
        self.samples.iter_mut().for_each(|sample| later(&mut sample.time));
        self.stack_samples.iter_mut().for_each(|sample| later(&mut sample.time));
        self.perturbations.iter_mut().for_each(|stretch| later(&mut stretch.host_start));
    }

    /// Whether it holds no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
