//! What a device reaches at best: arithmetic, bandwidth, launches.
//!
//! Peaks are measured once for a device and driver ([`measure`]) and kept in the user's cache directory ([`load`],
//! [`store`]). Runs and tables copy them, with where and when they were measured, as denominators beside those of the
//! datasheet.

mod cache;
mod cases;
#[cfg(feature = "cuda")]
mod gpu;
mod identity;
mod matmul;
mod measure;
mod peak_error;
mod peak_options;
mod peak_table;
mod record;
mod stream_host;

pub use cache::{directory, keep, load, path, read, store, write as write_file};
pub use identity::{DeviceIdentity, DeviceKind};
pub use measure::{Driver, measure, method, planned};
pub use peak_error::PeaksError;
pub use peak_options::PeakOptions;
pub use peak_table::{TABLE_NAME, shown, table, to_json, write};
pub use record::{Condition, FORMAT_VERSION, MissingPeak, PeakFigure, Peaks};
