//! How much of a GPU's memory was in use at most.

use candle_core::Device;

/// The most memory that was allocated at once in the pool that candle allocates from, weights included, since
/// [`begin`](Self::begin). Other processes, and what the driver itself holds, are not in it.
pub struct PeakAllocated {
    #[cfg(feature = "cuda")]
    pool: cuda::Pool,
    #[cfg(not(feature = "cuda"))]
    never: std::convert::Infallible,
}

impl PeakAllocated {
    /// Begins to watch; `None` for a CPU, and for a device without pools.
    pub fn begin(device: &Device) -> Option<Self> {
        match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Some(Self { pool: cuda::Pool::begin(device)? }),
            _ => None,
        }
    }

    /// The most bytes since then; `None` where the driver does not tell.
    pub fn bytes(&self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        return self.pool.most();
        #[cfg(not(feature = "cuda"))]
        match self.never {}
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    #![allow(unsafe_code, reason = "the driver's attributes of a pool are read through a pointer")]
    use candle_core::CudaDevice;
    use candle_core::cuda_backend::cudarc::driver::result::{device, mem_pool};
    use candle_core::cuda_backend::cudarc::driver::sys::{CUmemPool_attribute, CUmemoryPool};

    const MOST_USED: CUmemPool_attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;

    /// The device's own pool, which `cuMemAllocAsync` takes from.
    pub(super) struct Pool(CUmemoryPool);

    impl Pool {
        pub(super) fn begin(device: &CudaDevice) -> Option<Self> {
            let stream = device.cuda_stream();
            let context = stream.context();
            context.has_async_alloc().then_some(())?;
            let device = device::get(i32::try_from(context.ordinal()).ok()?).ok()?;
            // SAFETY: the driver has just named this device.
            let pool = unsafe { device::get_mem_pool(device) }.ok()?;
            let mut reset = 0u64;
            // SAFETY: the pool lives as long as its device, and the attribute is a `cuuint64_t`, of which 0 alone is allowed.
            unsafe { mem_pool::set_attribute(pool, MOST_USED, std::ptr::from_mut(&mut reset).cast()) }.ok()?;
            Some(Self(pool))
        }

        pub(super) fn most(&self) -> Option<u64> {
            let mut most = 0u64;
            // SAFETY: the pool lives as long as its device, and the attribute is a `cuuint64_t`.
            unsafe { mem_pool::get_attribute(self.0, MOST_USED, std::ptr::from_mut(&mut most).cast()) }.ok()?;
            Some(most)
        }
    }
}
