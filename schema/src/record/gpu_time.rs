//! Time on the device.

use crate::host_ns::HostNs;
use crate::vocabulary::GpuSource;

/// An interval's time on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuTime {
    /// Start on the host's time line (Unix epoch), after clock correlation.
    pub start: HostNs,
    /// Duration in nanoseconds; what it includes depends on `source`.
    pub dur_ns: u64,
    /// What measured the time.
    pub source: GpuSource,
}
