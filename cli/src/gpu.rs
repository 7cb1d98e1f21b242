//! What a profile observes on the GPU.

use crate::options::Options;
use anyhow::Result;
use candlescope::Builder;

/// Adds what the options ask for. If the machine lacks something, the run's verdict says so; if the build lacks it,
/// that is an error, because only a rebuild helps.
pub(crate) fn observe(builder: Builder, options: &Options) -> Result<Builder> {
    let on_gpu = options.device.starts_with("cuda");
    let builder = timing(builder, options)?;
    let builder = kernels(builder, options)?;
    let builder = samples(builder, on_gpu);
    nvtx(builder, options.nvtx)
}

#[cfg(feature = "gpu")]
fn timing(builder: Builder, options: &Options) -> Result<Builder> {
    Ok(builder.gpu_timing(candlescope::GpuTiming::tier(options.gpu_timing).budget(options.gpu_budget)))
}
#[cfg(not(feature = "gpu"))]
fn timing(builder: Builder, options: &Options) -> Result<Builder> {
    if options.gpu_timing != candlescope::GpuTier::Off {
        return Err(crate::lacking::feature("--gpu-timing", "cuda", "the CUDA toolkit"));
    }
    Ok(builder)
}

#[cfg(feature = "gpu")]
fn kernels(builder: Builder, options: &Options) -> Result<Builder> {
    match options.kernels {
        Some(_) if !options.device.starts_with("cuda") => {
            anyhow::bail!("--cupti needs a GPU: add --device cuda:0")
        }
        Some(windows) => Ok(builder.cupti(windows)),
        None => Ok(builder),
    }
}
#[cfg(not(feature = "gpu"))]
fn kernels(builder: Builder, options: &Options) -> Result<Builder> {
    if options.kernels.is_some() {
        return Err(crate::lacking::feature("--cupti", "cuda", "the CUDA toolkit"));
    }
    Ok(builder)
}

/// For a model on the CPU, GPUs of the machine are not sampled.
#[cfg(feature = "gpu")]
fn samples(builder: Builder, on_gpu: bool) -> Builder {
    builder.nvml(on_gpu)
}
#[cfg(not(feature = "gpu"))]
fn samples(builder: Builder, _: bool) -> Builder {
    builder
}

#[cfg(feature = "nvtx")]
fn nvtx(builder: Builder, on: Option<bool>) -> Result<Builder> {
    Ok(builder.nvtx(on.unwrap_or(true)))
}
#[cfg(not(feature = "nvtx"))]
fn nvtx(builder: Builder, on: Option<bool>) -> Result<Builder> {
    if on == Some(true) {
        return Err(crate::lacking::feature("--nvtx", "nvtx", "libclang"));
    }
    Ok(builder)
}
