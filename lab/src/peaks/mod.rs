//! What a device reaches at best: arithmetic, bandwidth, launches.
//!
//! Peaks are measured once for a device and driver and kept in the user's cache directory ([`load`], [`store`]). Runs
//! and tables copy them, with where and when they were measured, as denominators beside those of the datasheet.

mod cache;
mod error;
mod identity;
mod record;

pub use cache::{directory, load, path, read, store};
pub use error::PeaksError;
pub use identity::{DeviceIdentity, DeviceKind};
pub use record::{Absent, Condition, FORMAT, FORMAT_VERSION, PeakFigure, PeakKind, Peaks};
