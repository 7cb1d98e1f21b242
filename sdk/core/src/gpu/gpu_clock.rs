//! The GPU clock's contract: marks in a stream, and when the device reached them.

use crate::host_ns::HostNs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Nanoseconds on one device's own time line; the origin is the clock's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceNs(pub i64);

/// Number of a mark within its lane: ascending, consecutive, from 1; after `u32::MAX` comes 1 again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MarkId(pub NonZeroU32);

impl MarkId {
    /// The first mark of a lane.
    pub const FIRST: MarkId = MarkId(NonZeroU32::MIN);

    /// The mark that follows.
    #[must_use]
    pub fn next(self) -> Self {
        MarkId(self.0.checked_add(1).unwrap_or(NonZeroU32::MIN))
    }
}

/// Why there is no mark. None of these is an error of the application's, and none changes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoMark {
    /// The thread has no device context: it does not use a GPU (yet).
    NoContext,
    /// The stream is capturing a CUDA graph, and a mark would become part of it.
    Capturing,
    /// As many marks are under way as may be.
    Full,
    /// The driver refused.
    Failed,
}

/// One application thread's end of a [`GpuClock`].
pub trait GpuLane: Send + 'static {
    /// Puts a mark into the stream that the calling thread launches into. Hot path: must not allocate (once warm),
    /// lock, synchronise or panic, and must leave the driver's state as it found it.
    ///
    /// # Errors
    /// See [`NoMark`]; the interval then has no GPU time.
    fn mark(&mut self) -> Result<MarkId, NoMark>;
}

/// Gives threads their lanes.
pub trait GpuLanes: Send + Sync + 'static {
    /// The lane of thread `thread` (its [`ThreadInfo::index`](crate::ThreadInfo::index)); asked for once a thread, on
    /// that thread.
    fn lane(&self, thread: u32) -> Box<dyn GpuLane>;
}

/// A device, as a clock reports it before anything else about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its UUID, the same that samples and kernels carry.
    pub uuid: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// What a clock has to say when it is polled. For each lane marks come in the order they were made.
#[derive(Debug, Clone, PartialEq)]
pub enum GpuReport {
    /// A device that marks will be reported of; `device` numbers are dense from 0.
    Device {
        /// Number of the device within this clock.
        device: u8,
        /// What it is.
        info: DeviceInfo,
    },
    /// The device's clock read `at` when the host's read `host`, give or take `bound_ns`.
    Anchor {
        /// Number of the device.
        device: u8,
        /// The device's clock.
        at: DeviceNs,
        /// The host's clock.
        host: HostNs,
        /// Half the width of the bracket around the reading.
        bound_ns: u64,
    },
    /// A device reached a mark, or will never be known to.
    Mark {
        /// Lane: the thread's index.
        thread: u32,
        /// Number within the lane.
        id: MarkId,
        /// Number of the device.
        device: u8,
        /// When; `None` where the mark aged out or the driver refused to tell.
        at: Option<DeviceNs>,
    },
}

/// The off-thread half of a source of GPU marks. Lives on the drain thread.
pub trait GpuClock: Send + 'static {
    /// Short stable name: `cuda`.
    fn name(&self) -> &'static str;

    /// What application threads mark with.
    fn lanes(&self) -> Arc<dyn GpuLanes>;

    /// Facts for `run.json`'s `environment`.
    fn describe(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Reports what has become known since the last call, without waiting for the device. `host` reads the host's
    /// clock.
    ///
    /// A clock re-anchors each device at least every four seconds while marks come, and before the first of them.
    fn poll(&mut self, host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport));

    /// Numbers for the run's account of GPU time, such as the measured cost of a mark: name and value.
    fn statistics(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }
}
