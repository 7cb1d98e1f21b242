//! What a record *is*: the resolved forms that leave the pipeline and reach exporters.
//!
//! Data is converted once per boundary: the hot path writes a fixed-size raw record, the pipeline resolves it into the
//! types here, and every exporter turns these into its own form. Nothing here depends on the `tracing` registry.
//!
//! Records are made by the pipeline and by readers of runs. Their constructors take what every record of the kind has;
//! the rest is absent until it is set.

mod batch;
mod gpu_time;
mod ids;
mod kernel;
mod path_info;
mod perturbation;
mod record_kind;
mod request;
mod sample;
mod span;
mod stack;
mod step;
mod thread_info;
mod unrecorded;

pub use batch::Batch;
pub use gpu_time::GpuTime;
#[doc(hidden)]
pub use ids::{SEQ_BITS, thread_of};
pub use ids::{SpanId, TraceId};
pub use kernel::KernelRecord;
pub use path_info::PathInfo;
#[doc(hidden)]
pub use path_info::is_of_model;
pub use perturbation::PerturbationRecord;
pub use record_kind::RecordKind;
pub use request::RequestRecord;
pub use sample::SampleRecord;
pub use span::SpanRecord;
pub use stack::{KERNEL_FRAME, StackRecord, StackSampleRecord};
pub use step::StepRecord;
pub use thread_info::ThreadInfo;
pub use unrecorded::UnrecordedStep;
