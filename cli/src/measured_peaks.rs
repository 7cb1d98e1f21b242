//! Peaks that `bench peaks` measured on a device, for the runs made on it.

use anyhow::Result;
use serde_json::Value;

/// The peaks of the device called `cpu` or `cuda:N`, in the form in which a run keeps them, if they have been measured.
/// A file of them that is damaged, or of another device, is an error.
#[cfg(feature = "lab")]
pub(crate) fn of(device: &str) -> Result<Option<Value>> {
    use candlescope_lab::peaks::{DeviceIdentity, load};
    // A device that cannot be told from others has no peaks that could be found.
    let Ok(device) = DeviceIdentity::of(device) else { return Ok(None) };
    Ok(load(&device)?.map(|peaks| peaks.environment()))
}

/// Without the lab nothing is measured.
#[cfg(not(feature = "lab"))]
pub(crate) fn of(_: &str) -> Result<Option<Value>> {
    Ok(None)
}
