//! Where measured peaks are kept: one file for each device in the user's cache directory.

use super::identity::{DeviceIdentity, DeviceKind};
use super::peak_error::PeaksError;
use super::record::{FORMAT_VERSION, Peaks};
use candlescope_core::cache_directory;
use candlescope_core::files::{read_limited, write_whole};
use candlescope_work::devices::MEASURED_FORMAT;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The largest file that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 4 << 20;

/// `$XDG_CACHE_HOME/candlescope/peaks`, else `~/.cache/candlescope/peaks`, else `%LOCALAPPDATA%\candlescope\peaks`.
///
/// # Errors
/// No variable names an absolute path.
pub fn directory() -> Result<PathBuf, PeaksError> {
    Ok(cache_directory().ok_or(PeaksError::NoDirectory)?.join("peaks"))
}

/// The file of a device's peaks.
///
/// # Errors
/// As for [`directory`].
pub fn path(device: &DeviceIdentity) -> Result<PathBuf, PeaksError> {
    Ok(directory()?.join(device.file_name()))
}

/// The peaks of `device`, if they have been measured.
///
/// # Errors
/// The file cannot be read, is damaged, or is of another device.
pub fn load(device: &DeviceIdentity) -> Result<Option<Peaks>, PeaksError> {
    match path(device) {
        Ok(path) => read(&path, device),
        // Where nothing can be kept, nothing has been.
        Err(PeaksError::NoDirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The peaks of `device` in a file of any name; `None` if there is no such file.
///
/// # Errors
/// As for [`load`].
pub fn read(path: &Path, device: &DeviceIdentity) -> Result<Option<Peaks>, PeaksError> {
    let failed = |cause| PeaksError::Io { doing: "read", path: path.to_path_buf(), cause };
    let option = match device.kind {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Cuda => "cuda:N",
    };
    let corrupt = |why: String| PeaksError::Corrupt { path: path.to_path_buf(), why, device: option.to_string() };
    let text = match read_limited(path, MOST_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => return Err(corrupt(error.to_string())),
        Err(error) => return Err(failed(error)),
    };
    let peaks: Peaks = serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
    check(&peaks).map_err(corrupt)?;
    if !device.is_same(&peaks.device) {
        return Err(PeaksError::OtherDevice {
            path: path.to_path_buf(),
            found: peaks.device.to_string(),
            wanted: device.to_string(),
            device: option.to_string(),
        });
    }
    Ok(Some(peaks))
}

fn check(peaks: &Peaks) -> Result<(), String> {
    if peaks.format != MEASURED_FORMAT {
        return Err(format!("its format is `{}`", peaks.format));
    }
    if peaks.format_version != FORMAT_VERSION {
        return Err(format!(
            "its format's version is {}, and this program reads {FORMAT_VERSION}",
            peaks.format_version
        ));
    }
    match peaks.figures.iter().find(|figure| !(figure.value.is_finite() && figure.value > 0.0)) {
        Some(figure) => Err(format!("{} is {}", figure.kind.name(), figure.value)),
        None => Ok(()),
    }
}

/// Keeps `peaks` of their device, as [`keep`] does, and returns the file.
///
/// # Errors
/// The file cannot be written.
pub fn store(peaks: &Peaks) -> Result<PathBuf, PeaksError> {
    let path = path(&peaks.device)?;
    keep(&path, peaks)?;
    Ok(path)
}

/// Keeps `peaks` in a file of any name in place of what it holds, except for
/// [figures that were not measured this time](Peaks::completed_by). A file that is damaged, or of another device, is
/// replaced as a whole.
///
/// # Errors
/// The file cannot be written.
pub fn keep(path: &Path, peaks: &Peaks) -> Result<(), PeaksError> {
    match read(path, &peaks.device) {
        Ok(Some(before)) => write(path, &peaks.clone().completed_by(&before)),
        _ => write(path, peaks),
    }
}

/// Keeps `peaks` in a file of any name; directories on the way are made.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, peaks: &Peaks) -> Result<(), PeaksError> {
    let failed = |cause| PeaksError::Io { doing: "write", path: path.to_path_buf(), cause };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let text = serde_json::to_string_pretty(peaks).map_err(|error| failed(error.into()))?;
    write_whole(path, |file| file.write_all((text + "\n").as_bytes())).map_err(failed)
}
