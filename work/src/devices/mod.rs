//! What a device can do: dense peaks by number format, bandwidth and memory, from datasheets or measured.
//!
//! Findings, the simulation of steps and rooflines all read their denominators here, so that one device has one set of
//! figures, each with its origin.

mod attained;
mod classes;
mod device;
mod formats;
mod known_devices;
mod peak;
mod peaks_file;
mod roof;

pub use attained::AttainedRates;
pub use classes::{ByClass, OperationClass};
pub use device::{Device, DeviceKind, Link};
pub use formats::{FORMATS, Format, Multiply, UnknownFormat};
pub use known_devices::{
    DRIVER_LAUNCH_NS, KERNEL_FLOOR_NS, KERNEL_LEAST_NS, LAUNCH_ANYWHERE_NS, LAUNCH_NS, UnknownDevice, datasheet_peaks,
    known_device, known_devices, launch_of_driver,
};
pub use peak::{Origin, Peak, PeakKind, label_in_words};
pub use peaks_file::{FITTED_FORMAT, MEASURED_FORMAT, PeaksError, peaks_device};
pub use roof::{LeastTime, Roof};
