//! What can go wrong with peaks.

use std::path::PathBuf;

/// Peaks cannot be measured, kept or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum PeaksError {
    /// The device is not there.
    #[error("peaks of {device} cannot be found: {why}")]
    NoDevice { device: String, why: String },
    /// There is no place for them.
    #[error(
        "there is no directory for measured peaks: set XDG_CACHE_HOME, HOME, or on Windows LOCALAPPDATA, to an absolute path"
    )]
    NoDirectory,
    /// The file is not one of peaks, or is damaged.
    #[error(
        "{} does not hold measured peaks ({why}): delete it, or replace it with `candlescope bench peaks --device {device}`",
        path.display()
    )]
    Corrupt {
        path: PathBuf,
        why: String,
        /// The device whose peaks were looked for.
        device: String,
    },
    /// The file holds peaks of another device.
    #[error(
        "{} holds peaks of {found}, and this is {wanted}: delete it, or replace it with \
         `candlescope bench peaks --device {device}`",
        path.display()
    )]
    OtherDevice {
        path: PathBuf,
        /// Whose peaks it holds.
        found: String,
        /// Whose were looked for.
        wanted: String,
        /// That device on the command line.
        device: String,
    },
    /// The file cannot be read or written.
    #[error("cannot {doing} {}: {cause}; make it accessible, or name another directory with XDG_CACHE_HOME", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
}
