//! Passes turn records into figures, one kind of figure per file.
//!
//! One [reading](reading) of a run serves all that want its rows: the figures ([`figures`]), the account of the devices'
//! time ([`account`]), the steps to replay. What an [`Analysis`] consists of is public here. Modules that are hidden from
//! the documentation are reachable for this crate's tests and may change at any time.

pub mod account;
mod analysis;
mod application;
#[doc(hidden)]
pub mod busy;
pub(crate) mod cache_reads;
mod chosen_device;
#[doc(hidden)]
pub mod covered;
#[doc(hidden)]
pub mod device_work;
pub(crate) mod devices;
pub(crate) mod energy;
pub(crate) mod figures;
#[doc(hidden)]
pub mod flame;
#[doc(hidden)]
pub mod gaps;
#[doc(hidden)]
pub mod gpu_of_steps;
pub(crate) mod gpu_time;
pub(crate) mod int_map;
#[doc(hidden)]
pub mod intervals;
pub(crate) mod kernel_family;
#[doc(hidden)]
pub mod kernel_sums;
pub(crate) mod kernels_by_path;
pub(crate) mod known;
#[doc(hidden)]
pub mod latency;
mod launch_pace;
pub(crate) mod layers;
mod machine;
pub(crate) mod memory;
mod module_groups;
pub(crate) mod numbered;
#[doc(hidden)]
pub mod operators;
pub(crate) mod overhead;
pub(crate) mod overlap;
pub(crate) mod path_totals;
#[doc(hidden)]
pub mod peaks;
pub(crate) mod phases;
pub(crate) mod price;
pub(crate) mod rates;
pub(crate) mod reading;
mod request_parts;
pub(crate) mod sampling;
#[doc(hidden)]
pub mod sensor;
mod shared_steps;
pub mod stats;
pub(crate) mod step_rows;
pub(crate) mod step_series;
mod timeline;
pub(crate) mod tokens;
pub(crate) mod tree;
pub(crate) mod usual_steps;
pub(crate) mod warmup;

pub use analysis::Analysis;
pub use busy::{Busy, Clocks};
pub(crate) use chosen_device::ChosenDevice;
pub use covered::{Covered, Part};
pub use device_work::DeviceWork;
pub use devices::Device;
pub use energy::{Energy, PhaseEnergy};
pub use gaps::{Activity, GapSum};
pub use gpu_of_steps::{Elapsed, Gpu, GpuKind};
pub use gpu_time::{GpuBySource, GpuSums};
pub use kernel_sums::{CopyRow, KernelPathRow, KernelRow, Kernels};
pub use kernels_by_path::{Comparison, KernelSum, KernelsByPath, PathKernels};
pub use latency::{Latency, RequestFigures};
pub use launch_pace::{LaunchPace, Launched};
pub use layers::Layer;
pub use memory::{InSteps, Memory, PeakResident, Series};
pub use operators::{Operator, OperatorGpu};
pub use overhead::{Background, Whole};
pub use path_totals::{Intervals, PathTotals, RecordedWork};
pub use phases::{PhaseGpu, PhaseRow, Phases};
pub use price::{PRICE_PER_HOUR, Price, usd_per_million_output_tokens};
pub use rates::RateErrors;
pub use request_parts::{RequestParts, SlowStep};
pub use sampling::Sampling;
pub use sensor::{Idle, IdleFrom, Joules, Sensor, SensorCheck};
pub use stats::{Distribution, Range};
pub use step_rows::StepRow;
pub use step_series::{StepPoint, StepSeries};
pub use tokens::{TokenPoint, Tokens, Trend};
pub use tree::{Tree, TreeRow};
pub use usual_steps::{UsualSteps, UsualTime};
pub use warmup::{Warmup, WarmupRow};
