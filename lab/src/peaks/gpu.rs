//! Bandwidth, launches and copies of a GPU.
//!
//! Buffers are allocated before anything is measured: candle allocates the output of each operation, which would be a
//! part of the time.

use super::record::arrays_of;
use crate::hardware::{DeviceTimer, case_error, free_memory};
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use candle_core::cuda_backend::cudarc::driver::{CudaGraph, CudaSlice, PinnedHostSlice};
use candle_core::{CudaDevice, Device, Result};
use candlescope_collectors::cuda_work::{MemoryLoops, Spin, pinned};
use candlescope_work::devices::PeakKind;
use std::time::Instant;

/// Bytes of an array, and of a copy between host and device.
const ARRAY: usize = 2 << 30;
const COPIED: usize = 256 << 20;
const QUICK: usize = 4 << 20;
/// Kernels in a row. The driver queues about a thousand.
const CHAIN: u64 = 200;
/// Cycles of a kernel in it: about 10 µs, so that the host launches faster than the device works.
const CYCLES: u64 = 20_000;

/// One figure of a GPU.
pub(super) struct GpuPeak {
    id: CaseId,
    kind: PeakKind,
    device: Device,
    bytes: usize,
    work: Option<Work>,
}

/// What is ready to be measured.
enum Work {
    Stream(DeviceTimer, MemoryLoops, Box<[CudaSlice<f32>; 3]>),
    Launch(Spin),
    Chain(DeviceTimer, Spin, Option<CudaGraph>, Device),
    Copy(DeviceTimer, PinnedHostSlice<u8>, CudaSlice<u8>),
}

/// Bytes of what `kind` works on; three arrays have to fit into half of what is free.
fn size(kind: PeakKind, device: &Device, quick: bool) -> usize {
    let most = free_memory(device).map_or(usize::MAX, |free| (free / 6) as usize);
    let wanted = match kind {
        _ if quick => QUICK,
        PeakKind::HostToDevice | PeakKind::DeviceToHost => COPIED,
        _ => ARRAY,
    };
    // Whole MiB, so that arrays are made of whole vectors and names are what is measured.
    (wanted.min(most) >> 20).max(1) << 20
}

/// Size that `kind` is measured at, in words.
fn at(kind: PeakKind, bytes: usize) -> String {
    match kind {
        PeakKind::HostToDevice | PeakKind::DeviceToHost => format!("{} MiB, pinned", bytes >> 20),
        PeakKind::Launch | PeakKind::Gap | PeakKind::GraphGap => format!("{CHAIN} kernels"),
        _ => format!("{} MiB", bytes >> 20),
    }
}

impl GpuPeak {
    pub(super) fn new(suite: &str, kind: PeakKind, device: &Device, quick: bool) -> Self {
        let bytes = size(kind, device, quick);
        let id = CaseId::new(suite).param("peak", kind.name()).param("at", at(kind, bytes));
        Self { id, kind, device: device.clone(), bytes, work: None }
    }

    fn timer(device: &Device) -> Result<DeviceTimer> {
        DeviceTimer::new(device)?.ok_or_else(|| candle_core::Error::Msg("the device has no clock".to_string()).bt())
    }

    fn ready(&self) -> Result<Work> {
        let device = &self.device;
        let cuda = device.as_cuda_device()?;
        Ok(match self.kind {
            PeakKind::Launch => Work::Launch(loops(cuda)?.spin().w()?),
            PeakKind::Gap | PeakKind::GraphGap => chain(cuda, self.kind == PeakKind::GraphGap)?,
            PeakKind::HostToDevice | PeakKind::DeviceToHost => {
                let host = pinned(&cuda.cuda_stream(), self.bytes).w()?;
                Work::Copy(Self::timer(device)?, host, cuda.alloc_zeros(self.bytes)?)
            }
            _ => {
                let floats = self.bytes / 4;
                let mut arrays = [cuda.alloc_zeros(floats)?, cuda.alloc_zeros(floats)?, cuda.alloc_zeros(floats)?];
                let loops = loops(cuda)?;
                loops.launch(PeakKind::Write, &mut arrays).w()?;
                Work::Stream(Self::timer(device)?, loops, Box::new(arrays))
            }
        })
    }

    fn sample(&mut self) -> Result<Measurement> {
        let kind = self.kind;
        let began = Instant::now();
        let (device_ns, value) = match &mut self.work {
            None => candle_core::bail!("it was not prepared"),
            Some(Work::Stream(timer, loops, arrays)) => {
                // The device is at work when the first mark comes, so that no launch is waited for between the marks.
                loops.launch(kind, arrays).w()?;
                timer.begin()?;
                loops.launch(kind, arrays).w()?;
                timer.end()?;
                let (ns, bytes) = (timer.elapsed_ns()?, arrays_of(kind) * 4 * arrays[0].len() as u64);
                (Some(ns), bytes as f64 / seconds(ns))
            }
            Some(Work::Launch(spin)) => {
                self.device.synchronize()?;
                let began = Instant::now();
                for _ in 0..CHAIN {
                    spin.launch(0).w()?;
                }
                let launched = began.elapsed();
                self.device.synchronize()?;
                (None, launched.as_secs_f64() / CHAIN as f64)
            }
            Some(Work::Chain(timer, spin, graph, device)) => {
                // As much work in one kernel, then in many: what they take longer is between them.
                let whole = timed(timer, || spin.launch(CHAIN * CYCLES).w())?;
                let parts = match graph {
                    Some(graph) => timed(timer, || graph.launch().w())?,
                    None => {
                        let all = || (0..CHAIN).try_for_each(|_| spin.launch(CYCLES).w());
                        timed(timer, all)?
                    }
                };
                device.synchronize()?;
                (Some(parts), (parts as f64 - whole as f64) / 1e9 / (CHAIN - 1) as f64)
            }
            Some(Work::Copy(timer, host, there)) => {
                let cuda = self.device.as_cuda_device()?;
                let stream = cuda.cuda_stream();
                timer.begin()?;
                match kind {
                    PeakKind::HostToDevice => stream.memcpy_htod(host, there).w()?,
                    _ => stream.memcpy_dtoh(there, host).w()?,
                }
                timer.end()?;
                let ns = timer.elapsed_ns()?;
                (Some(ns), host.num_bytes() as f64 / seconds(ns))
            }
        };
        let host_ns = began.elapsed().as_nanos() as u64;
        // A figure that is not above zero was lost in the noise of what it is a difference of.
        Ok(Measurement::new(host_ns).device_ns(device_ns).figure("value", Some(value).filter(|value| *value > 0.0)))
    }
}

/// The loops, for candle's stream of a device.
fn loops(device: &CudaDevice) -> Result<MemoryLoops> {
    MemoryLoops::new(device.cuda_stream()).map_err(|error| candle_core::Error::Msg(error.to_string()).bt())
}

fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}

fn timed(timer: &DeviceTimer, launch: impl FnOnce() -> Result<()>) -> Result<u64> {
    timer.begin()?;
    launch()?;
    timer.end()?;
    timer.elapsed_ns()
}

/// A row of kernels in a stream of its own, since a graph cannot be captured from the default stream; in a graph, if
/// asked for.
fn chain(cuda: &CudaDevice, in_graph: bool) -> Result<Work> {
    let own = Device::new_cuda_with_stream(cuda.cuda_stream().context().ordinal())?;
    let there = own.as_cuda_device()?;
    let spin = loops(there)?.spin().w()?;
    // Loaded before the capture, in which nothing can be.
    spin.launch(1).w()?;
    own.synchronize()?;
    let graph = match in_graph {
        false => None,
        true => {
            let stream = there.cuda_stream();
            stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
            let launched = (0..CHAIN).try_for_each(|_| spin.launch(CYCLES).w());
            let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = stream.end_capture(flags).w();
            launched?;
            let graph = graph?.ok_or_else(|| candle_core::Error::Msg("the capture gave no graph".to_string()).bt())?;
            graph.upload().w()?;
            Some(graph)
        }
    };
    Ok(Work::Chain(GpuPeak::timer(&own)?, spin, graph, own))
}

impl Case for GpuPeak {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn prepare(&mut self) -> std::result::Result<(), CaseError> {
        let work = self.ready().and_then(|work| self.device.synchronize().map(|()| work));
        self.work = Some(work.map_err(|error| case_error(&error))?);
        Ok(())
    }

    fn run(&mut self, _: Mode) -> std::result::Result<Measurement, CaseError> {
        self.sample().map_err(|error| case_error(&error))
    }

    fn release(&mut self) {
        self.work = None;
    }
}
