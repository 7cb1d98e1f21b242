//! The kernels of `memory_loops.cu`, compiled when they are first needed, and pinned memory.
#![allow(unsafe_code, reason = "kernels are launched, and memory is allocated, by the driver")]

use super::CudaWorkError;
use candlescope_work::devices::PeakKind;
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
use cudarc::driver::{
    CudaFunction, CudaModule, CudaSlice, CudaStream, DriverError, LaunchConfig, PinnedHostSlice, PushKernelArg,
};
use cudarc::nvrtc::compile_ptx;
use std::sync::Arc;

const SOURCE: &str = include_str!("memory_loops.cu");
/// Floats in a `float4`.
const VECTOR: usize = 4;
const BLOCK: u32 = 512;
/// Blocks for each multiprocessor: four fit at once, and more of them even out the end.
const BLOCKS_EACH: u32 = 16;

/// Loops over memory, compiled for a device.
#[derive(Debug)]
pub struct MemoryLoops {
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
    blocks: u32,
}

impl MemoryLoops {
    /// Compiles them for the device of `stream`, into which they will be launched.
    ///
    /// # Errors
    /// NVRTC's, and the driver's.
    pub fn new(stream: Arc<CudaStream>) -> Result<Self, CudaWorkError> {
        let compiled = compile_ptx(SOURCE)?;
        let processors = stream.context().attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let blocks = u32::try_from(processors).unwrap_or(1).max(1) * BLOCKS_EACH;
        let module = stream.context().load_module(compiled)?;
        Ok(Self { stream, module, blocks })
    }

    fn whole_device(&self) -> LaunchConfig {
        LaunchConfig { grid_dim: (self.blocks, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
    }

    /// Launches the loop of `kind` over `arrays`, of this device: as much of each as the shortest has, in whole vectors
    /// of four. What is neither reading, writing nor copying is the triad.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, kind: PeakKind, arrays: &mut [CudaSlice<f32>; 3]) -> Result<(), DriverError> {
        let n = (arrays.iter().map(CudaSlice::len).min().unwrap_or(0) / VECTOR) as u64;
        let [a, b, c] = arrays;
        let (value, factor) = (1.0f32, 3.0f32);
        match kind {
            PeakKind::Read => {
                let function = self.module.load_function("peak_read")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&*a).arg(&n).arg(&mut *b);
                // SAFETY: the kernel reads n float4 of `a` and writes at most one float of `b`, and none if n is 0.
                unsafe { launch.launch(self.whole_device()) }?;
            }
            PeakKind::Write => {
                let function = self.module.load_function("peak_write")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&mut *a).arg(&n).arg(&value);
                // SAFETY: the kernel writes n float4 of `a`.
                unsafe { launch.launch(self.whole_device()) }?;
            }
            PeakKind::Copy => {
                let function = self.module.load_function("peak_copy")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&mut *c).arg(&*a).arg(&n);
                // SAFETY: the kernel reads n float4 of `a` and writes as many of `c`, which has them.
                unsafe { launch.launch(self.whole_device()) }?;
            }
            _ => {
                let function = self.module.load_function("peak_triad")?;
                let mut launch = self.stream.launch_builder(&function);
                launch.arg(&mut *a).arg(&*b).arg(&*c).arg(&n).arg(&factor);
                // SAFETY: the kernel reads n float4 of `b` and `c` and writes as many of `a`; all three have them.
                unsafe { launch.launch(self.whole_device()) }?;
            }
        }
        Ok(())
    }

    /// The kernel that takes time, ready to be launched any number of times.
    ///
    /// # Errors
    /// The driver's.
    pub fn spin(&self) -> Result<Spin, DriverError> {
        Ok(Spin { stream: self.stream.clone(), function: self.module.load_function("peak_spin")? })
    }
}

/// A kernel of one thread that takes a number of cycles.
#[derive(Debug)]
pub struct Spin {
    stream: Arc<CudaStream>,
    function: CudaFunction,
}

impl Spin {
    /// Launches it for so many cycles of the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, cycles: u64) -> Result<(), DriverError> {
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&cycles);
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel touches no memory.
        unsafe { launch.launch(one) }?;
        Ok(())
    }
}

/// `bytes` bytes of the host's memory that the device of `stream` can reach by itself, all of them 1.
///
/// # Errors
/// The driver's: there is no such memory left.
pub fn pinned(stream: &CudaStream, bytes: usize) -> Result<PinnedHostSlice<u8>, DriverError> {
    // SAFETY: any bytes are valid u8, and all are written before they are handed out.
    let mut memory = unsafe { stream.context().alloc_pinned::<u8>(bytes) }?;
    memory.as_mut_slice()?.fill(1);
    Ok(memory)
}
