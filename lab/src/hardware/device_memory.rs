//! How much of a GPU's memory was in use at most.

use candle_core::Device;

/// The most memory that was allocated at once in the pool that candle allocates from, weights included, since
/// [`begin`](Self::begin). Other processes, and what the driver itself holds, are not in it.
pub struct PeakAllocated {
    #[cfg(feature = "gpu")]
    pool: candlescope_collectors::cuda::PoolPeak,
    #[cfg(not(feature = "gpu"))]
    never: std::convert::Infallible,
}

impl PeakAllocated {
    /// Begins to watch; `None` for a CPU, and for a device without pools.
    pub fn begin(device: &Device) -> Option<Self> {
        match device.location() {
            #[cfg(feature = "gpu")]
            candle_core::DeviceLocation::Cuda { gpu_id } => {
                Some(Self { pool: candlescope_collectors::cuda::PoolPeak::begin(gpu_id)? })
            }
            _ => None,
        }
    }

    /// The most bytes since then; `None` where the driver does not tell.
    pub fn bytes(&self) -> Option<u64> {
        #[cfg(feature = "gpu")]
        return self.pool.bytes();
        #[cfg(not(feature = "gpu"))]
        match self.never {}
    }
}
