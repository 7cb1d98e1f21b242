//! What a device can do: dense peaks by number format, bandwidth and memory, from datasheets or measured.
//!
//! Findings, the simulation of steps and rooflines all read their denominators here, so that one device has one set of
//! figures, each with its origin.

mod attained;
mod classes;
mod device;
mod formats;
mod known_devices;
mod peaks_file;

pub use attained::Attained;
pub use classes::{ByClass, OperationClass};
pub use device::{Cost, Device, DeviceKind, Link, Origin};
pub use formats::{FORMATS, Format, Multiply, UnknownFormat};
pub use known_devices::{
    DRIVER_LAUNCH_NS, KERNEL_FLOOR_NS, KERNEL_LEAST_NS, LAUNCH_ANYWHERE_NS, LAUNCH_NS, UnknownDevice, known_device,
    known_devices,
};
#[cfg(feature = "roofline")]
pub(crate) use peaks_file::FITTED_FORMAT;
pub use peaks_file::{PeaksError, peaks_device};
