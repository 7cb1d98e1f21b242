//! The choice of tokens on a CUDA device.
#![allow(unsafe_code, reason = "a kernel is launched, whose arguments nobody checks")]

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::WrapErr;
use candle_core::cuda_backend::cudarc::driver::{LaunchConfig, PushKernelArg};
use candle_core::cuda_backend::cudarc::nvrtc::compile_ptx;
use candle_core::{CudaDevice, CudaStorage, Result, bail};
use std::sync::OnceLock;

/// Threads of a block, as the kernel has them.
const THREADS: u32 = 1024;

/// The kernel for the driver, compiled once by the toolkit that candle's own kernels were compiled by.
fn ptx() -> Result<&'static str> {
    static PTX: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    let compiled =
        PTX.get_or_init(|| compile_ptx(include_str!("choose.cu")).map(|ptx| ptx.to_src()).map_err(|e| e.to_string()));
    match compiled {
        Ok(ptx) => Ok(ptx),
        Err(error) => bail!("the kernel that chooses tokens does not compile: {error}"),
    }
}

/// The kernel's name, and that of the module it is in.
const KERNEL: (&str, &str) = ("choose", "candlescope-choose");

/// Loads the kernel, unless it is loaded.
pub(super) fn load(device: &CudaDevice) -> Result<()> {
    device.get_or_load_custom_func(KERNEL.0, KERNEL.1, ptx()?).map(drop)
}

/// [`ChooseTokens`](super::choose::ChooseTokens) of contiguous operands, each a storage and the offset of its first element.
pub(super) fn choose(
    logits: (&CudaStorage, usize),
    rules: (&CudaStorage, usize),
    positions: (&CudaStorage, usize),
    rows: usize,
    vocabulary: usize,
) -> Result<CudaStorage> {
    let device = logits.0.device().clone();
    let function = device.get_or_load_custom_func(KERNEL.0, KERNEL.1, ptx()?)?;
    let (of_logits, of_rules, of_positions) =
        (logits.0.as_cuda_slice::<f32>()?, rules.0.as_cuda_slice::<u32>()?, positions.0.as_cuda_slice::<u32>()?);
    let (of_logits, of_rules, of_positions) =
        (of_logits.slice(logits.1..), of_rules.slice(rules.1..), of_positions.slice(positions.1..));
    // SAFETY: the kernel writes all of it.
    let chosen = unsafe { device.alloc::<u32>(2 * rows)? };
    let (blocks, vocabulary) = (rows as u32, vocabulary as u32);
    let mut launch = function.builder();
    launch.arg(&of_logits).arg(&of_rules).arg(&of_positions).arg(&chosen).arg(&vocabulary);
    let shape = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: a block reads its row of each operand, whose shapes were checked, and writes two elements of its own.
    unsafe { launch.launch(shape) }.w()?;
    Ok(CudaStorage::wrap_cuda_slice(chosen, device))
}
