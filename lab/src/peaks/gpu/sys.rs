//! The kernels of `stream.cu`, compiled when they are first needed, and pinned memory.
#![allow(unsafe_code, reason = "kernels are launched, and memory is allocated, by the driver")]

use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::compile_ptx;
use candle_core::{CudaDevice, Error, Result};
use candlescope_work::devices::PeakKind;
use std::sync::Arc;

const SOURCE: &str = include_str!("stream.cu");
const MODULE: &str = "candlescope_peaks";
/// Floats in a `float4`.
const VECTOR: usize = 4;
const BLOCK: u32 = 512;
/// Blocks for each multiprocessor: four fit at once, and more of them even out the end.
const BLOCKS_EACH: u32 = 16;

/// The compiled kernels.
pub(super) struct Kernels {
    device: CudaDevice,
    stream: Arc<CudaStream>,
    ptx: String,
    blocks: u32,
}

impl Kernels {
    pub(super) fn new(device: &CudaDevice) -> Result<Self> {
        let compiled = compile_ptx(SOURCE).map_err(|error| Error::Msg(format!("NVRTC: {error}")).bt())?;
        let stream = device.cuda_stream();
        let processors = stream.context().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).w()?;
        let blocks = u32::try_from(processors).unwrap_or(1).max(1) * BLOCKS_EACH;
        Ok(Self { device: device.clone(), stream, ptx: compiled.to_src(), blocks })
    }

    fn function(&self, name: &str) -> Result<CudaFunction> {
        Ok(self.device.get_or_load_custom_func(name, MODULE, &self.ptx)?.into_cuda_function())
    }

    fn whole_device(&self) -> LaunchConfig {
        LaunchConfig { grid_dim: (self.blocks, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
    }

    /// Launches the loop of `kind` over `arrays`, which are of one length, a multiple of four.
    pub(super) fn stream(&self, kind: PeakKind, arrays: &mut [CudaSlice<f32>; 3]) -> Result<()> {
        let [a, b, c] = arrays;
        let n = (a.len() / VECTOR) as u64;
        let (value, factor) = (1.0f32, 3.0f32);
        match kind {
            PeakKind::Read => {
                let function = self.function("peak_read")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&*a).arg(&n).arg(&mut *b);
                // SAFETY: the kernel reads n float4 of `a` and writes at most one float of `b`.
                unsafe { launch.launch(self.whole_device()) }.w()?;
            }
            PeakKind::Write => {
                let function = self.function("peak_write")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&mut *a).arg(&n).arg(&value);
                // SAFETY: the kernel writes n float4 of `a`.
                unsafe { launch.launch(self.whole_device()) }.w()?;
            }
            PeakKind::Copy => {
                let function = self.function("peak_copy")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&mut *c).arg(&*a).arg(&n);
                // SAFETY: the kernel reads n float4 of `a` and writes as many of `c`, which is as long.
                unsafe { launch.launch(self.whole_device()) }.w()?;
            }
            _ => {
                let function = self.function("peak_triad")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&mut *a).arg(&*b).arg(&*c).arg(&n).arg(&factor);
                // SAFETY: the kernel reads n float4 of `b` and `c` and writes as many of `a`; all are as long.
                unsafe { launch.launch(self.whole_device()) }.w()?;
            }
        }
        Ok(())
    }

    /// The kernel that takes time, ready to be launched any number of times.
    pub(super) fn spin(&self) -> Result<Spin> {
        Ok(Spin { stream: self.stream.clone(), function: self.function("peak_spin")? })
    }
}

/// A kernel of one thread that takes a number of cycles.
pub(super) struct Spin {
    stream: Arc<CudaStream>,
    function: CudaFunction,
}

impl Spin {
    pub(super) fn launch(&self, cycles: u64) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&cycles);
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel touches no memory.
        unsafe { launch.launch(one) }.w()?;
        Ok(())
    }
}

/// `bytes` bytes of the host's memory that the device can reach by itself.
pub(super) fn pinned(device: &CudaDevice, bytes: usize) -> Result<PinnedHostSlice<u8>> {
    let stream = device.cuda_stream();
    // SAFETY: any bytes are valid u8, and the first copy to the device sends whatever they are.
    unsafe { stream.context().alloc_pinned::<u8>(bytes) }.w()
}
