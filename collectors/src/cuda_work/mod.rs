//! Work for a CUDA device whose amount is known, as benchmarks measure a device with it: loops over memory, a kernel
//! that only takes time, memory for copies. It takes streams of cudarc, such as candle's `CudaDevice::cuda_stream`.
//!
//! NVRTC compiles the kernels when they are first needed; its library is loaded then, so that it builds anywhere.

mod sys;

pub use sys::{MemoryLoops, Spin, pinned};

/// The kernels cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaWorkError {
    /// They cannot be compiled.
    #[error("NVRTC: {0}")]
    Compile(#[from] cudarc::nvrtc::CompileError),
    /// They cannot be loaded.
    #[error(transparent)]
    Driver(#[from] cudarc::driver::DriverError),
}
