//! The contract of what records kernels, and ties each to the interval that launched it.

use crate::host_ns::HostNs;
use crate::record::SpanId;
use crate::vocabulary::KernelKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Kernels cannot be recorded. The message says what is in the way and the remedy; the run goes on without them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ActivityError(pub String);

/// Given to [`Correlator::push`] by a step that is in no window: what it launches is told apart from what is launched
/// outside of all steps. No interval's number.
pub const OUTSIDE_WINDOW: SpanId = SpanId(u64::MAX);

/// Tells the recorder on the application's own thread which interval is the innermost. Hot path, called for every
/// interval of a step in a window, and once, with [`OUTSIDE_WINDOW`], for any other step: must not allocate once warm,
/// lock, wait or panic. Calls balance on each thread.
pub trait Correlator: Send + Sync + 'static {
    /// An interval begins: what is launched from here on belongs to it.
    fn push(&self, span: SpanId);
    /// The innermost interval ends.
    fn pop(&self);
}

/// A kernel, copy or memset as the recorder saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct RawKernel {
    /// What it is.
    pub kind: KernelKind,
    /// Name: of a kernel demangled, of a copy its direction (`htod`, `dtoh`, `dtod`, …), of a memset `memset`.
    pub name: Arc<str>,
    /// Innermost interval open on the launching thread at the launch, as given to [`Correlator::push`]: an interval, or
    /// [`OUTSIDE_WINDOW`].
    pub span: Option<SpanId>,
    /// UUID of the device.
    pub device: Arc<str>,
    /// Number of the stream, as the driver counts them.
    pub stream: u32,
    /// Start on the host's time line.
    pub start: HostNs,
    /// Duration on the device in nanoseconds.
    pub dur_ns: u64,
    /// Blocks in x, y, z; of kernels only.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z; of kernels only.
    pub block: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block in bytes.
    pub shared_static: Option<u32>,
    /// Dynamic shared memory of a block in bytes.
    pub shared_dynamic: Option<u32>,
    /// Bytes copied or set.
    pub bytes: Option<u64>,
    /// Name of the call that launched it, for example `cuLaunchKernel`.
    pub launch: Option<&'static str>,
    /// Start of that call on the host's time line.
    pub launch_start: Option<HostNs>,
    /// Duration of that call on the host in nanoseconds.
    pub launch_dur_ns: Option<u64>,
    /// Number that ties the call to what it launched, unique in the process.
    pub correlation: u32,
    /// The CUDA graph it was launched by, if any.
    pub graph: Option<u32>,
}

/// Takes what a recorder delivers.
#[derive(Debug, Default)]
pub struct ActivitySink {
    /// Kernels, copies and memsets, in any order.
    pub kernels: Vec<RawKernel>,
    /// Records the recorder itself lost since the last delivery.
    pub dropped: u64,
    /// How far the recorder's clock may be off from the host's in nanoseconds, as its readings of both say; `None`
    /// before the first.
    pub clock_bound_ns: Option<u64>,
}

/// A recorder of kernels. Lives on a thread of its own, because switching one on can take seconds.
///
/// Calls come in this order: `prepare` once, then any number of windows of `enable`, `collect`…, `disable`, `collect`,
/// `release`.
pub trait Activity: Send + 'static {
    /// Short stable name: `cupti`.
    fn name(&self) -> &'static str;

    /// What application threads call inside windows.
    fn correlator(&self) -> Arc<dyn Correlator>;

    /// Does what is slow the first time, outside any window.
    ///
    /// # Errors
    /// When kernels cannot be recorded on this machine at all; nothing else is called then.
    fn prepare(&mut self) -> Result<(), ActivityError> {
        Ok(())
    }

    /// Facts for `run.json`'s `environment`; called after `prepare`.
    fn describe(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// How long the next window has to wait; the one that is wanted begins later then.
    fn wait(&self) -> Duration {
        Duration::ZERO
    }

    /// Begins recording.
    ///
    /// # Errors
    /// When the driver refuses; the window is given up.
    fn enable(&mut self) -> Result<(), ActivityError>;

    /// Ends recording. What was launched before still arrives through [`collect`](Activity::collect).
    ///
    /// # Errors
    /// When the driver refuses.
    fn disable(&mut self) -> Result<(), ActivityError>;

    /// Delivers what is known of finished kernels. `all`: their work is done on the device, so nothing is held back.
    /// `host` reads the host's clock, to correlate the recorder's.
    ///
    /// # Errors
    /// When the driver refuses; what was delivered stays.
    fn collect(&mut self, all: bool, host: &dyn Fn() -> HostNs, into: &mut ActivitySink) -> Result<(), ActivityError>;

    /// A window is over and its kernels are delivered: lets go of what would slow the program down until the next
    /// `enable`.
    ///
    /// # Errors
    /// When the driver refuses.
    fn release(&mut self) -> Result<(), ActivityError> {
        Ok(())
    }
}
