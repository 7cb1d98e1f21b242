//! Steps captured as CUDA graphs.

pub use super::sys::capturable_device;
use super::sys::{Graph, capture, is_default};
use crate::free_memory::free_memory;
use crate::layers::layer_span;
use crate::slot_model::EagerCause;
use candle_core::cuda_backend::cudarc::driver::CudaStream;
use candle_core::{CudaDevice, Device, Result};
use candlescope_core::vocabulary::CUDA_GRAPH;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;
use tracing::Span;

/// Steps of a shape that run call by call before it is captured: the first loads kernels and lets cuBLAS allocate, the
/// second finds all that it uploads in candle's caches of constants.
const WARM_UP: u32 = 2;

/// A step that can be captured: slots, positions.
pub(super) type Shape = (usize, usize);

/// The graphs of a decoder.
pub(super) struct Graphs {
    device: CudaDevice,
    stream: Arc<CudaStream>,
    by_shape: HashMap<Shape, ShapeCapture>,
    /// The thread that captured them. Some of what kernels read beside their tensors candle keeps in memory of the capturing
    /// thread, which is freed when that ends.
    thread: Option<ThreadId>,
    failures: Vec<String>,
    /// What the last capture took of the device's memory, and what was free after it, until somebody asks.
    took: Option<(u64, u64)>,
    /// Stands in each replay for the layers, which are not entered.
    span: Span,
}

enum ShapeCapture {
    WarmingUp(u32),
    Graph(Graph),
    Failed,
}

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
        if is_default(&stream) || device.is_event_tracking() {
            return Err(EagerCause::Stream);
        }
        let (device, span) = (device.clone(), layer_span!(CUDA_GRAPH, CUDA_GRAPH));
        let (by_shape, failures) = (HashMap::new(), Vec::new());
        Ok(Self { device, stream, by_shape, thread: None, failures, took: None, span })
    }

    /// Runs a step of this shape: `body` for the first ones, whose calls are then captured and replayed. The answer says
    /// why, if it was not a replay. `annotate` is called within a replay's interval, with whether its layers were entered,
    /// which have stated their work then.
    ///
    /// # Errors
    /// If `body` fails. A capture that fails is no error, nor is a graph that cannot be launched: the step then runs call by
    /// call, now and later.
    pub(super) fn run(
        &mut self,
        shape: Shape,
        body: &mut dyn FnMut() -> Result<()>,
        annotate: &dyn Fn(bool),
    ) -> Result<std::result::Result<(), EagerCause>> {
        let thread = std::thread::current().id();
        if self.thread != Some(thread) {
            self.by_shape.clear();
            self.thread = Some(thread);
        }
        let _constants = self.device.enable_cuda_graph_htod_cache();
        let captured = self.by_shape.entry(shape).or_insert(ShapeCapture::WarmingUp(0));
        let captures = matches!(captured, ShapeCapture::WarmingUp(_));
        let mut free_before = None;
        if let ShapeCapture::WarmingUp(steps) = captured {
            if *steps < WARM_UP {
                *steps += 1;
                return body().map(|()| Err(EagerCause::WarmUp));
            }
            free_before = free_memory(&Device::Cuda(self.device.clone()));
            *captured = match capture(&self.stream, body) {
                Ok(graph) => ShapeCapture::Graph(graph),
                Err(error) => self.failures.fail(shape, &error),
            };
        }
        if let ShapeCapture::Graph(graph) = captured {
            let entered = self.span.enter();
            match graph.launch() {
                Ok(()) => {
                    // Only now: what a graph uses besides is mapped when it is launched first.
                    if let Some(before) = free_before {
                        let after = free_memory(&Device::Cuda(self.device.clone())).unwrap_or(before);
                        self.took = Some((before.saturating_sub(after), after));
                    }
                    annotate(captures);
                    return Ok(Ok(()));
                }
                Err(error) => *captured = self.failures.fail(shape, &error),
            }
            drop(entered);
        }
        body().map(|()| Err(EagerCause::CaptureFailed))
    }

    /// What the last capture took of the device's memory, and what was free after it; each is told once. Of several
    /// programs on a device it is what all of them took meanwhile.
    pub(super) fn took(&mut self) -> Option<(u64, u64)> {
        self.took.take()
    }

    /// Why captures failed.
    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }
}

trait Failures {
    fn fail(&mut self, shape: Shape, error: &candle_core::Error) -> ShapeCapture;
}

impl Failures for Vec<String> {
    /// Keeps why, and says it.
    fn fail(&mut self, (slots, positions): Shape, error: &candle_core::Error) -> ShapeCapture {
        let cause = crate::candle_message(error);
        let text =
            format!("no CUDA graph for {slots} slots and {positions} positions, which go on call by call: {cause}");
        candlescope_core::diagnostics::print(&format!("candlescope: {text}\n"));
        self.push(text);
        ShapeCapture::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Tensor};

    /// A device, and a tensor that a step adds one to.
    fn counting() -> (Device, Graphs, Tensor) {
        let device = capturable_device(0).expect("a CUDA device");
        let count = Tensor::zeros(4, DType::F32, &device).unwrap();
        let graphs = Graphs::new(&device).expect("its stream can be captured");
        (device, graphs, count)
    }

    fn add(count: &Tensor) -> Result<()> {
        count.slice_set(&(count + 1.0)?, 0, 0)
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn steps_are_warmed_up_captured_and_replayed() {
        let (_device, mut graphs, count) = counting();
        let ran: Vec<_> = (0..6).map(|_| graphs.run((1, 256), &mut || add(&count), &|_| ()).unwrap()).collect();
        let eager = Err(EagerCause::WarmUp);
        assert_eq!(ran, [eager, eager, Ok(()), Ok(()), Ok(()), Ok(())]);
        assert_eq!(count.to_vec1::<f32>().unwrap(), [6.0; 4], "each step counts once, the captured one too");
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_capture_that_fails_leaves_the_device_alive() {
        let (_device, mut graphs, count) = counting();
        // Reading a result is not possible within a capture.
        let mut reading = || add(&count).and_then(|()| count.to_vec1::<f32>().map(drop));
        let ran: Vec<_> = (0..5).map(|_| graphs.run((1, 256), &mut reading, &|_| ()).unwrap()).collect();
        assert_eq!(ran[2..], [Err(EagerCause::CaptureFailed); 3]);
        assert!(graphs.failures()[0].contains("1 slots and 256 positions"), "{:?}", graphs.failures());
        assert_eq!(count.to_vec1::<f32>().unwrap(), [5.0; 4]);
        // Another shape is captured all the same.
        let ran: Vec<_> = (0..4).map(|_| graphs.run((2, 256), &mut || add(&count), &|_| ()).unwrap()).collect();
        assert_eq!(ran[3], Ok(()));
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_panic_within_a_capture_ends_it() {
        let (_device, mut graphs, count) = counting();
        let mut calls = 0;
        for _ in 0..2 {
            graphs.run((1, 256), &mut || add(&count), &|_| ()).unwrap().unwrap_err();
        }
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = graphs.run(
                (1, 256),
                &mut || {
                    calls += 1;
                    panic!("on purpose")
                },
                &|_| (),
            );
        }));
        assert!(panics.is_err() && calls == 1);
        assert_eq!(graphs.run((1, 256), &mut || add(&count), &|_| ()).unwrap(), Ok(()), "it is captured now");
        assert_eq!(count.to_vec1::<f32>().unwrap(), [3.0; 4]);
    }
}
