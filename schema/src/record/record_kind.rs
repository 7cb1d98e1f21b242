//! Which records there are.

use serde::{Deserialize, Serialize};

/// The kinds of record, one table each in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// An interval, one enter/exit pair of a span: [`super::SpanRecord`].
    Span,
    /// A step, the outermost interval of a thread or a marked phase: [`super::StepRecord`].
    Step,
    /// A request, from the creation of its span to its close: [`super::RequestRecord`].
    Request,
    /// A value of a metric: [`super::SampleRecord`].
    Sample,
    /// A kernel, copy or memset: [`super::KernelRecord`].
    Kernel,
    /// A call stack: [`super::StackRecord`].
    Stack,
    /// What a thread did at a moment: [`super::StackSampleRecord`].
    StackSample,
    /// A stretch of an experiment: [`super::PerturbationRecord`].
    Perturbation,
}

impl RecordKind {
    /// All kinds, in table order.
    pub const ALL: [RecordKind; 8] = [
        RecordKind::Span,
        RecordKind::Step,
        RecordKind::Request,
        RecordKind::Sample,
        RecordKind::Kernel,
        RecordKind::Stack,
        RecordKind::StackSample,
        RecordKind::Perturbation,
    ];

    /// Name of the kind's table, which is its folder in a run: `spans`, `steps`, `requests`, `samples`, `kernels`,
    /// `stacks`, `stack_samples`, `perturbations`.
    pub const fn table(self) -> &'static str {
        match self {
            RecordKind::Span => "spans",
            RecordKind::Step => "steps",
            RecordKind::Request => "requests",
            RecordKind::Sample => "samples",
            RecordKind::Kernel => "kernels",
            RecordKind::Stack => "stacks",
            RecordKind::StackSample => "stack_samples",
            RecordKind::Perturbation => "perturbations",
        }
    }
}
