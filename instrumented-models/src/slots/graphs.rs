//! Steps captured as CUDA graphs.
#![allow(unsafe_code, reason = "what CUDA asks of threads and streams, which candle cannot check")]

use super::options::EagerCause;
use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{CudaGraph, CudaStream, sys};
use candle_core::{CudaDevice, Device, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

/// Steps of a shape that run call by call before it is captured: the first loads kernels and lets cuBLAS allocate, the
/// second finds all that it uploads in candle's cache of constants.
const WARM_UP: u32 = 2;

/// A CUDA device that can be captured: with a stream of its own, because the default one cannot, and without events that track
/// tensors, because a capture must not wait for what was outside of it.
///
/// # Errors
/// If there is no such device.
pub fn capturable_device(ordinal: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(ordinal)?;
    // SAFETY: the events order uses of a tensor in several streams, and this device, whose context is its own, has one.
    unsafe { device.as_cuda_device()?.disable_event_tracking() };
    Ok(device)
}

/// A step that can be captured: slots, positions.
pub(super) type Shape = (usize, usize);

/// The graphs of a decoder.
pub(super) struct Graphs {
    device: CudaDevice,
    stream: Arc<CudaStream>,
    by_shape: HashMap<Shape, Captured>,
    /// The thread that captured them. candle keeps what kernels read beside their tensors (dimensions and strides) in
    /// memory of the capturing thread, which is freed when that ends.
    thread: Option<ThreadId>,
    failures: Vec<String>,
}

enum Captured {
    WarmingUp(u32),
    Graph(CudaGraph),
    Failed,
}

// SAFETY: a graph is launched and destroyed by whoever holds the decoder mutably, one thread at a time, which is what CUDA
// asks for; `CudaGraph` is not `Send` because of its raw handles alone.
unsafe impl Send for Graphs {}

impl std::fmt::Debug for Graphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graphs").field("shapes", &self.by_shape.keys()).finish_non_exhaustive()
    }
}

impl Graphs {
    /// Graphs on the device's stream, if that can be captured.
    pub(super) fn new(device: &Device) -> std::result::Result<Self, EagerCause> {
        let Device::Cuda(device) = device else { return Err(EagerCause::NoDevice) };
        let stream = device.cuda_stream();
        // Handles of the legacy and the per-thread default stream; a capture must not wait for events from outside of it.
        if (stream.cu_stream() as usize) < 3 || device.is_event_tracking() {
            return Err(EagerCause::Stream);
        }
        let device = device.clone();
        Ok(Self { device, stream, by_shape: HashMap::new(), thread: None, failures: Vec::new() })
    }

    /// Runs a step of this shape: `body` for the first ones, whose calls are then captured and replayed. The answer says
    /// why, if it was not a replay.
    ///
    /// # Errors
    /// If `body` or a launch fails. A capture that fails is no error: the step then runs call by call, now and later.
    pub(super) fn run(
        &mut self,
        shape: Shape,
        body: &mut dyn FnMut() -> Result<()>,
    ) -> Result<std::result::Result<(), EagerCause>> {
        let thread = std::thread::current().id();
        if self.thread != Some(thread) {
            self.by_shape.clear();
            self.thread = Some(thread);
        }
        let captured = self.by_shape.entry(shape).or_insert(Captured::WarmingUp(0));
        let cause = match captured {
            Captured::Graph(graph) => return graph.launch().w().map(Ok),
            Captured::Failed => EagerCause::CaptureFailed,
            Captured::WarmingUp(steps) if *steps < WARM_UP => {
                *steps += 1;
                EagerCause::WarmUp
            }
            Captured::WarmingUp(_) => match capture(&self.device, &self.stream, body) {
                Ok(graph) => {
                    let launched = graph.launch().w();
                    *captured = Captured::Graph(graph);
                    return launched.map(Ok);
                }
                Err(error) => {
                    self.failures.push(format!("{} slots, {} positions: {error}", shape.0, shape.1));
                    *captured = Captured::Failed;
                    EagerCause::CaptureFailed
                }
            },
        };
        let _constants = self.device.enable_cuda_graph_htod_cache();
        body().map(|()| Err(cause))
    }

    /// Why captures failed.
    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }
}

/// What `body` launches, as a graph; none of it runs. However this ends, the stream captures no longer.
fn capture(
    device: &CudaDevice,
    stream: &Arc<CudaStream>,
    body: &mut dyn FnMut() -> Result<()>,
) -> Result<CudaGraph> {
    let _constants = device.enable_cuda_graph_htod_cache();
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
    let recorded = body();
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).w();
    recorded?;
    match graph? {
        Some(graph) => Ok(graph),
        None => candle_core::bail!("the capture holds nothing"),
    }
}
