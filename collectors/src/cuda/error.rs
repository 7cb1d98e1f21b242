//! Why there is no CUDA here.

/// CUDA cannot be used on this machine; the message says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not there.
    #[error(
        "no CUDA driver: {0} could not be loaded; install the NVIDIA driver, or give the container access to the GPU (`--gpus all`)"
    )]
    NoDriver(String),
    /// The driver is older than the calls that are needed.
    #[error("the CUDA driver has no `{0}`: it is older than CUDA 11.4; update the NVIDIA driver")]
    OldDriver(&'static str),
    /// The driver sees no device.
    #[error("the CUDA driver sees no device: is CUDA_VISIBLE_DEVICES empty, or the GPU not given to this container?")]
    NoDevice,
    /// The driver would not start.
    #[error("{call} failed with {name} ({code}); {remedy}")]
    Failed {
        /// The driver's function that failed.
        call: &'static str,
        /// The error's name, `CUDA_ERROR_…`.
        name: String,
        /// The error's number, a `CUresult`.
        code: u32,
        /// What to do about it.
        remedy: &'static str,
    },
}

impl CudaError {
    /// The error for what `call` answered.
    pub(super) fn of(call: &'static str, code: u32, name: String) -> Self {
        let remedy = match code {
            100 => return CudaError::NoDevice,
            34 => "this is the toolkit's stub library: take its `stubs` folder out of LD_LIBRARY_PATH",
            35 | 36 => "update the NVIDIA driver",
            46 | 802 => "another process may hold the device, or the fabric manager is not running yet",
            803 => "kernel module and driver library have different versions: reboot, or reload the module",
            _ => "see whether `nvidia-smi` works",
        };
        CudaError::Failed { call, name, code, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_remedy() {
        assert_eq!(CudaError::of("cuInit", 100, String::new()), CudaError::NoDevice);
        assert!(CudaError::NoDevice.to_string().contains("CUDA_VISIBLE_DEVICES"));
        let mismatch = CudaError::of("cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH".to_string()).to_string();
        assert!(mismatch.starts_with("cuInit failed with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); "), "{mismatch}");
        assert!(mismatch.contains("reboot"));
        assert!(CudaError::of("cuInit", 12345, "?".to_string()).to_string().contains("nvidia-smi"));
    }
}
