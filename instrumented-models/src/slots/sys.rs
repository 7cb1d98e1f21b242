//! Captures of a stream, as far as cudarc leaves them to its caller.
#![allow(unsafe_code, reason = "what CUDA asks of threads and streams, which candle and cudarc cannot check")]

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{CudaGraph, CudaStream, result, sys};
use candle_core::{Device, Result};
use std::sync::Arc;

/// A CUDA device that can be captured: with a stream of its own, because the default one is another on each thread, and without events that track
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

/// A graph that may go to another thread with its owner.
pub(super) struct Graph(CudaGraph);

// SAFETY: CUDA asks that a graph is used by one thread at a time. It is launched through `&mut` and destroyed by its owner.
unsafe impl Send for Graph {}

impl Graph {
    pub(super) fn launch(&mut self) -> Result<()> {
        self.0.launch().w()
    }
}

/// A stream that captures. However this ends, by an error or a panic too, the stream captures no longer: else the device would
/// be lost.
struct Capture<'a> {
    stream: &'a Arc<CudaStream>,
    ended: bool,
}

impl Capture<'_> {
    fn begin(stream: &Arc<CudaStream>) -> Result<Capture<'_>> {
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
        Ok(Capture { stream, ended: false })
    }

    fn end(mut self) -> Result<Graph> {
        // cudarc keeps what failed where there was nobody to tell, as while a tensor was freed, and would report it in place
        // of ending the capture.
        self.stream.context().check_err().w()?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        self.ended = true;
        match self.stream.end_capture(flags).w()? {
            Some(graph) => Ok(Graph(graph)),
            None => candle_core::bail!("the capture holds nothing"),
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let context = self.stream.context();
        // Errors of a capture that is given up are not the next call's.
        let _ = context.check_err();
        // SAFETY: the stream is alive. A capture that became invalid gives no graph, and a graph is this capture's own.
        unsafe {
            if let Ok(graph) = result::stream::end_capture(self.stream.cu_stream())
                && !graph.is_null()
            {
                let _ = result::graph::destroy(graph);
            }
        }
        let _ = context.check_err();
    }
}

/// What `body` launches, as a graph; none of it runs.
pub(super) fn capture(stream: &Arc<CudaStream>, body: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
    let capture = Capture::begin(stream)?;
    body()?;
    capture.end()
}

/// Whether `stream` is one of the default ones, by their handles.
pub(super) fn is_default(stream: &CudaStream) -> bool {
    (stream.cu_stream() as usize) < 3
}
