//! The calls that put work on a device, and how long the work then waited.

use super::spread::Spread;
use super::works::{DeviceWorks, NONE, Work};
use crate::busy::Clocks;
use serde::Serialize;

/// Launch calls and what they launched: one sample for each kernel, copy and memset whose call was recorded [HTA
/// `get_cuda_kernel_launch_stats`]. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Launches {
    /// Duration of the calls on the host. A graph launch counts once for each of its kernels.
    pub call: Spread,
    /// Duration of what they launched, on the device.
    pub device: Spread,
    /// From the end of the call to the start on the device, 0 where the device was quicker. `None` if the clocks of host
    /// and device cannot be compared.
    pub delay: Option<Spread>,
    /// Calls that took longer than what they launched.
    pub shorter_than_their_call: u64,
}

/// The launches of a device; `None` if no calls were recorded.
pub(super) fn launches(device: &DeviceWorks, clocks: Clocks) -> Option<Launches> {
    let known = || device.work.iter().filter(|work| work.counts && work.launch != NONE);
    let call = |work: &Work| work.launch_end.abs_diff(work.launch);
    let delay = |work: &Work| work.start.saturating_sub(work.launch_end).max(0).unsigned_abs();
    Some(Launches {
        call: Spread::of(known().map(call).collect())?,
        device: Spread::of(known().map(Work::ns).collect())?,
        delay: clocks.within().and_then(|_| Spread::of(known().map(delay).collect())),
        shorter_than_their_call: known().filter(|work| work.ns() < call(work)).count() as u64,
    })
}
