//! Passes turn records into figures, one kind of figure per file.
//!
//! One [`reading`] of a run serves all that want its rows: the figures ([`figures`]), the account of the devices'
//! time ([`account`]), the steps to replay. What an [`Analysis`] consists of is public here.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod account;
pub mod advice;
mod analyse;
mod analysis;
mod application;
pub mod busy;
pub mod cache_reads;
mod chosen_device;
pub mod covered;
pub mod definitions;
pub mod device_work;
pub mod devices;
pub mod energy;
pub mod figures;
pub mod flame;
pub mod gaps;
pub mod gpu_of_steps;
pub mod gpu_time;
pub mod int_map;
pub mod intervals;
pub mod kernel_family;
pub mod kernel_sums;
pub mod kernels_by_path;
pub mod known;
pub mod latency;
mod launch_pace;
pub mod layers;
mod machine;
pub mod memory;
mod module_groups;
#[cfg(feature = "ncu")]
pub mod ncu;
pub mod nsys;
pub mod numbered;
pub mod operators;
pub mod overhead;
pub mod overlap;
pub mod path_totals;
pub mod peaks;
pub mod phases;
pub mod price;
pub mod rates;
pub mod reading;
mod request_parts;
pub mod sampling;
pub mod sensor;
mod shared_steps;
pub mod stats;
pub mod step_rows;
pub mod step_series;
mod timeline;
mod token_price;
pub mod tokens;
pub mod tree;
pub mod usual_steps;
mod verdict;
pub mod warmup;

pub use analysis::Analysis;
pub use busy::{Busy, Clocks};
pub use chosen_device::ChosenDevice;
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
pub use price::{PRICE_PER_HOUR, Price};
pub use rates::RateErrors;
pub use request_parts::{RequestParts, SlowStep};
pub use sampling::Sampling;
pub use sensor::{Idle, IdleFrom, Joules, Sensor, SensorCheck};
pub use stats::{Distribution, Range};
pub use step_rows::StepRow;
pub use step_series::{StepPoint, StepSeries};
pub use token_price::usd_per_million_output_tokens;
pub use tokens::{TokenPoint, Tokens, Trend};
pub use tree::{Tree, TreeRow};
pub use usual_steps::{UsualSteps, UsualTime};
pub use warmup::{Warmup, WarmupRow};
