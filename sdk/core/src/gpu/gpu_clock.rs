//! The contract of a GPU clock: marks in a stream, and the times when the device reached them.

use crate::HostNs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Nanoseconds on one device's own time line; the clock chooses the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceNs(pub i64);

/// Number of a mark within its lane: ascending and consecutive, from 1; `u32::MAX` is followed by 1.
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

/// Why no mark was made. None of these is an error of the application, and none changes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoMark {
    /// The thread has no device context: it does not use a GPU, or not yet.
    NoContext,
    /// The stream is capturing a CUDA graph, and a mark would become part of it.
    Capturing,
    /// The limit of marks under way is reached.
    Full,
    /// The driver refused; the clock's statistics say why.
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

    /// Puts a kernel into that stream that waits for `ns` nanoseconds and does nothing else; 0 for one that ends at
    /// once. For [experiments](crate::Perturb), not for the hot path: the first call in a context may load the kernel.
    ///
    /// # Errors
    /// See [`NoMark`]; nothing was put into the stream.
    fn wait(&mut self, ns: u64) -> Result<(), NoMark> {
        let _ = ns;
        Err(NoMark::Failed)
    }
}

/// Gives each thread its lane.
pub trait GpuLanes: Send + Sync + 'static {
    /// The lane of thread `thread` (its [`ThreadInfo::index`](crate::ThreadInfo::index)); called once per thread, on
    /// that thread.
    fn lane(&self, thread: u32) -> Box<dyn GpuLane>;
}

/// A device, which a clock reports before anything else about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its UUID, the same that samples and kernels carry.
    pub uuid: Arc<str>,
    /// The maker's name of it, such as `NVIDIA H200`.
    pub name: Arc<str>,
}

/// What a clock reports when it is polled. The marks of each lane are reported in the order in which they were made.
#[derive(Debug, Clone, PartialEq)]
pub enum GpuReport {
    /// A device whose marks will be reported; `device` numbers are consecutive from 0.
    Device {
        /// Number of the device within this clock.
        device: u8,
        /// Its UUID and name.
        info: DeviceInfo,
    },
    /// The device's clock read `at` when the host's read `host`, to within `bound_ns`.
    Anchor {
        /// Number of the device.
        device: u8,
        /// What the device's clock read.
        at: DeviceNs,
        /// What the host's clock read at that moment, to within `bound_ns`.
        host: HostNs,
        /// Half the width of the bracket around the reading.
        bound_ns: u64,
    },
    /// A device reached a mark, or it is certain that this will never be known.
    Mark {
        /// Lane: the thread's index.
        thread: u32,
        /// Number within the lane.
        id: MarkId,
        /// Number of the device.
        device: u8,
        /// When; `None` if the mark aged out or the driver gave no time.
        at: Option<DeviceNs>,
    },
}

/// The part of a source of GPU marks that runs off the application's threads. It lives on the drain thread.
pub trait GpuClock: Send + 'static {
    /// Short stable name: `cuda`.
    fn name(&self) -> &'static str;

    /// What application threads make marks with.
    fn lanes(&self) -> Arc<dyn GpuLanes>;

    /// Facts for `run.json`'s `environment`.
    fn describe(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Reports what has become known since the last call, without waiting for the device. `host` reads the host's
    /// clock.
    ///
    /// A clock anchors each device before the first of its marks, and then at least every four seconds while marks
    /// come.
    fn poll(&mut self, host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport));

    /// Numbers for the run's account of GPU time, such as the measured cost of a mark: name and value.
    fn statistics(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }
}
