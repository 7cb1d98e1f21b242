//! GPU time of intervals: CUDA timing events in the stream that a thread launches into.
//!
//! A mark is a pooled event, recorded by the thread itself and read back on the drain thread. Nothing ever waits for
//! the device, and nothing changes for the application: no marks are made while a stream captures a graph, the thread's
//! context, capture mode and errors stay as they were, and no stream is created. A primary context in which marks were
//! made is kept from ending until the clock and its lanes are gone, because events must not outlive their context. If a
//! context is destroyed or reset all the same, the next poll notices it before its events are queried, and no more
//! marks are made in it. A reset *and* a new context between two polls go unnoticed, so do not reset a device while it
//! is being profiled.
//!
//! | file | what |
//! |---|---|
//! | `lane.rs` | the hot path |
//! | `mark_pools.rs` | what lanes and the poller share: contexts, pools of events |
//! | `poll.rs`, `backlog.rs` | reading back: taking from the lanes, reporting in order |
//! | `context.rs`, `stream_marks.rs`, `anchor.rs` | one context, one stream of one thread, the anchors |
//! | `driver_calls.rs`, `sys.rs` | the driver as a trait, and its implementation in C calls |
//!
//! [`PoolMemory`] samples the memory pools that candle allocates from, [`probe`] says what CUDA finds on this machine.
//!
//! ```no_run
//! use candlescope_collectors::cuda::{CudaClock, CudaClockOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = CudaClock::new(CudaClockOptions::default())?;
//! // For a candle device made with `Device::new_cuda_with_stream(0)`:
//! // clock.streams().use_stream(0, device.as_cuda_device()?.cuda_stream());
//! # drop(clock);
//! # Ok(())
//! # }
//! ```

mod anchor;
mod backlog;
mod call_costs;
mod context;
mod cuda_device;
mod cuda_probe;
mod driver_calls;
mod error;
mod lane;
mod mark_pools;
mod poll;
mod pool_memory;
mod stream;
mod stream_marks;
mod sys;
#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use call_costs::{CallCosts, call_costs, capture_mode};
#[doc(hidden)]
pub use cuda_device::{CudaDevice, DriverVersion};
#[doc(hidden)]
pub use cuda_probe::{Probe, probe};
#[doc(hidden)]
pub use error::CudaError;
#[doc(hidden)]
pub use pool_memory::{PoolMemory, PoolPeak};
pub use stream::{Stream, with_stream};

use candlescope_core::HostNs;
use candlescope_core::gpu::{DeviceInfo, GpuClock, GpuLanes, GpuReport};
use lane::Lanes;
use mark_pools::MarkPools;
use poll::Poller;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sys::Cuda;

/// How marks are put into streams.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CudaClockOptions {
    in_flight: usize,
    age_out: Duration,
    streams: Vec<(usize, Stream)>,
}

impl Default for CudaClockOptions {
    fn default() -> Self {
        Self { in_flight: 16_384, age_out: Duration::from_secs(30), streams: Vec::new() }
    }
}

impl CudaClockOptions {
    /// Marks that may be under way per thread, and therefore events made per thread and device; 16384 by default, at
    /// least 2 and at most 2²⁰.
    ///
    /// Overload policy: a thread with that many marks that the device has not passed gets no more, and the missing ones
    /// are counted (`full` in `run.json`): waiting would hold up the application, and more events would take more of the
    /// driver's memory. The default takes 0.5 MB of host memory per thread that uses a GPU.
    #[must_use]
    pub fn in_flight(mut self, marks: usize) -> Self {
        self.in_flight = marks;
        self
    }

    /// How long the device may take to pass a mark before the mark is given up; 30 s by default.
    #[must_use]
    pub fn age_out(mut self, age: Duration) -> Self {
        self.age_out = age;
        self
    }

    /// Marks on the device with this CUDA ordinal go into `stream` instead of the per-thread default stream, on threads for
    /// which [`with_stream`] names no other.
    #[must_use]
    pub fn stream(mut self, ordinal: usize, stream: impl Into<Stream>) -> Self {
        self.streams.push((ordinal, stream.into()));
        self
    }
}

/// Marks streams with CUDA timing events.
///
/// Which stream a mark goes into: the one named with [`with_stream`] on the thread, else the one named for the device
/// ([`Streams::use_stream`]), else the per-thread default stream, which candle uses.
#[doc(hidden)]
pub struct CudaClock {
    shared: Arc<MarkPools<Cuda>>,
    poller: Poller<Cuda>,
    cuda: Cuda,
    probe: Probe,
}

impl std::fmt::Debug for CudaClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaClock").field("probe", &self.probe).finish_non_exhaustive()
    }
}

impl CudaClock {
    /// A clock over all devices that CUDA sees. Starts the driver, but makes no context: until the application has
    /// made one, no memory of a device is used.
    ///
    /// # Errors
    /// There is no driver or no device, or they do not work; the message says what to do about it.
    pub fn new(options: CudaClockOptions) -> Result<Self, CudaError> {
        let cuda = Cuda::load()?;
        let probe = Probe { driver: cuda.version()?, devices: cuda.devices()? };
        let info = |d: &CudaDevice| DeviceInfo { uuid: d.uuid.as_str().into(), name: d.name.as_str().into() };
        let shared = Arc::new(MarkPools::new(cuda, options.in_flight.clamp(2, 1 << 20), options.streams));
        let poller = Poller::new(shared.clone(), probe.devices.iter().map(info).collect(), options.age_out);
        Ok(Self { shared, poller, cuda, probe })
    }

    /// Names streams for devices. It can still be used after the clock has been given to a session.
    pub fn streams(&self) -> Streams {
        Streams { shared: self.shared.clone() }
    }
}

/// Tells a [`CudaClock`] which streams devices are used through.
#[doc(hidden)]
#[derive(Clone)]
pub struct Streams {
    shared: Arc<MarkPools<Cuda>>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl Streams {
    /// Marks on the device with this CUDA ordinal go into `stream` from now on, on all threads, instead of the
    /// per-thread default stream: for candle devices made with `new_cuda_with_stream`. The stream is kept alive as
    /// long as the clock and its lanes.
    pub fn use_stream(&self, ordinal: usize, stream: impl Into<Stream>) {
        self.shared.use_stream(ordinal, stream.into());
    }
}

impl GpuClock for CudaClock {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn lanes(&self) -> Arc<dyn GpuLanes> {
        Arc::new(Lanes(self.shared.clone()))
    }

    fn describe(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::from([("gpu_clock".to_string(), self.probe.to_json())])
    }

    fn poll(&mut self, host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport)) {
        self.poller.poll(host, report);
    }

    fn statistics(&self) -> BTreeMap<String, Value> {
        let mut statistics = self.poller.statistics();
        if let Some(fault) = self.poller.last_fault() {
            statistics.insert("last_driver_error".to_string(), self.cuda.fault_name(fault).into());
        }
        statistics
    }
}
