//! What a device reaches at best: arithmetic, bandwidth, launches.
//!
//! Peaks are measured once for a device and driver ([`measure`]) and kept in the user's cache directory ([`load`],
//! [`store`]). Runs and tables copy them, with where and when they were measured, as denominators beside those of the
//! datasheet.

mod cache;
mod cases;
mod error;
#[cfg(feature = "cuda")]
mod gpu;
mod identity;
mod matmul;
mod measure;
mod options;
mod record;
mod stream_host;
mod table;

pub use cache::{directory, keep, load, path, read, store, write as write_file};
pub use error::PeaksError;
pub use identity::{DeviceIdentity, DeviceKind};
pub use measure::{Driver, measure, method, planned};
pub use options::PeakOptions;
pub use record::{Absent, Condition, FORMAT, FORMAT_VERSION, PeakFigure, Peaks};
pub use table::{TABLE_NAME, shown, table, to_json, write};
