//! Rooflines: what a model can reach on a device, predicted from dimensions and peaks, and held against what runs
//! measured.
//!
//! ```text
//! shape (known_models, hf_config) ─┐
//! scenario, formats ───────────────┼─► work (operations) ─► predict (times) ─► outlook (latency, memory, batches)
//! device (known_devices, peaks) ───┘
//! ```

mod device;
mod formats;
mod hf_config;
mod known_devices;
mod known_models;
mod memory;
mod nearest;
mod outlook;
mod peaks_file;
mod predict;
mod scenario;
mod shape;
pub mod work;

pub use device::{Cost, Device, DeviceKind, Link, Origin};
pub use formats::{FORMATS, Format, Multiply, UnknownFormat};
pub use hf_config::{ConfigError, config_shape};
pub use known_devices::{KERNEL_FLOOR_NS, LAUNCH_NS, UnknownDevice, known_device, known_devices};
pub use known_models::{KnownModel, UnknownModel, known_model, known_models};
pub use memory::MemoryNeed;
pub use outlook::{BatchRow, Outlook, Recommendation, USABLE_MEMORY, Variant};
pub use peaks_file::{PeaksError, peaks_device};
pub use predict::{Bound, OperationTime, StepPrediction, predict};
pub use scenario::{Goal, GoalError, Scenario};
pub use shape::{ARCHITECTURES, Biases, FeedForward, ModelShape, Window};
