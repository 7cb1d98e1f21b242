//! Profiles that Nsight Systems recorded of a program whose intervals were NVTX ranges.
//!
//! [`Profile`] is plain data; with the feature `nsys` it is read from the SQLite file that `nsys export --type sqlite`
//! makes. [`KernelsByPath`](crate::KernelsByPath) joins it with a run.

#[cfg(feature = "nsys")]
mod sqlite_export;

#[cfg(feature = "nsys")]
pub use sqlite_export::ProfileError;

use std::path::PathBuf;

/// The NVTX domain that holds our ranges.
pub const DOMAIN: &str = candlescope_schema::run::NVTX_DOMAIN;

/// The part of a profile that is used here. Times are nanoseconds on the profile's own time line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// SQLite export that it was read from, as the caller named it.
    pub file: PathBuf,
    /// Version of Nsight Systems that exported it.
    pub version: Option<String>,
    /// Ranges of the domain [`DOMAIN`], in order of their starts.
    pub ranges: Vec<Range>,
    /// Kernels, in order of their starts; a CUDA graph that was traced as a whole has one entry per launch.
    pub kernels: Vec<Kernel>,
    /// Names of kernels; [`Kernel::name`] is an index into it.
    pub names: Vec<String>,
}

/// One interval, as an NVTX range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The thread, as the profile numbers it.
    pub thread: i64,
    /// When it was entered.
    pub start: i64,
    /// When it was left; `None` if recording stopped before.
    pub end: Option<i64>,
    /// Id of the interval's span, the range's payload: it joins a run's `span_id`.
    pub span: u64,
}

/// One kernel on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Its name, as an index into [`Profile::names`].
    pub name: u32,
    /// How long it ran.
    pub dur_ns: u64,
    /// The call that launched it, if it was recorded.
    pub launch: Option<Launch>,
}

/// A call that launched a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The thread it came from.
    pub thread: i64,
    /// When the call began, in nanoseconds on the profile's time line.
    pub at: i64,
}
