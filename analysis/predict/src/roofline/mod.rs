//! Rooflines: what a model can reach on a device, predicted from dimensions and peaks, and held against what runs
//! measured.
//!
//! ```text
//! a shape of `known_models` ───────┐
//! scenario, formats ───────────────┼─► the crate work (operations) ─► predict (times) ─► outlook (latency, memory, batches)
//! a device of `devices` ───────────┘
//!
//! run, analysis ─► run_facts (roofs, shape, scenario) ─► points, heat, ratings ─► measured
//! runs ─► calibrate, which fits a device to their latencies
//! kernel_study ─► from_kernels, which has measured times in the place of roofs
//! ```

mod calibrate;
mod from_kernels;
mod heat;
mod kernel_study;
mod latency_figures;
mod load_test;
mod measured;
mod memory;
mod outlook;
mod outlook_basis;
mod points;
mod predict;
mod ratings;
mod run_facts;
mod scenario;
mod table;

pub use calibrate::{
    Calibration, CalibrationError, CalibrationRun, ErrorSummary, FittedValue, Form, HeldOut, LeftOut, RepeatSummary,
    calibrate,
};
pub use from_kernels::{FromKernels, KernelShape, KernelTime, StepFromKernels, TimeSource};
pub use heat::{HeatCell, HeatMap};
pub use kernel_study::{KernelStudy, KernelStudyError};
pub use latency_figures::Figure;
pub use load_test::{LoadLatency, LoadPoint, LoadStage, LoadTest, LoadTestError, load_stages};
pub use measured::{Bottleneck, Comparison, FAR_BELOW, RunRoofline, batch_and_context};
pub use memory::MemoryNeed;
pub use outlook::{BatchRow, KNEE, Outlook, Recommendation, Variant, step_times};
pub use points::{Point, PointKind, Status, UnderRoof, phase_points};
pub use predict::{Bound, OperationTime, StepPrediction, predict};
pub use ratings::{Grade, Rating, ThresholdError, Thresholds};
pub use run_facts::{facts_cached, facts_shape};
pub use scenario::{Goal, GoalError, MOST, Scenario, Storage, USABLE_MEMORY};
pub use table::{DeviceRow, device_row};
