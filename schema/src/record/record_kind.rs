//! Which records there are.

use serde::{Deserialize, Serialize};

/// The kinds of record, one table each in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// [`super::SpanRecord`]
    Span,
    /// [`super::StepRecord`]
    Step,
    /// [`super::RequestRecord`]
    Request,
    /// [`super::SampleRecord`]
    Sample,
    /// [`super::KernelRecord`]
    Kernel,
}

impl RecordKind {
    /// All kinds, in table order.
    pub const ALL: [RecordKind; 5] =
        [RecordKind::Span, RecordKind::Step, RecordKind::Request, RecordKind::Sample, RecordKind::Kernel];

    /// Name of the kind's table, which is its folder in a run: `spans`, `steps`, `requests`, `samples`, `kernels`.
    pub const fn table(self) -> &'static str {
        match self {
            RecordKind::Span => "spans",
            RecordKind::Step => "steps",
            RecordKind::Request => "requests",
            RecordKind::Sample => "samples",
            RecordKind::Kernel => "kernels",
        }
    }
}
