//! Memory in use in the devices' default pools.

use super::cuda_device::CudaDevice;
use super::error::CudaError;
use super::sys::Cuda;
use crate::driver_gate::GATE;
use candlescope_core::metric;
use candlescope_core::{CollectError, Collector, Samples};
use std::sync::Arc;
use std::time::Duration;

/// Metrics in the order of [`Pools::usage`]'s answer.
const METRICS: [&str; 4] =
    [metric::POOL_USED, metric::POOL_USED_HIGH, metric::POOL_RESERVED, metric::POOL_RESERVED_HIGH];

/// What this collector needs from the driver.
trait Pools: Send + 'static {
    /// Whether this process uses the device.
    fn active(&self, ordinal: usize) -> bool;
    /// Bytes used, the most ever used, bytes reserved, the most ever reserved.
    fn usage(&self, ordinal: usize) -> Result<[u64; 4], CudaError>;
}

impl Pools for Cuda {
    fn active(&self, ordinal: usize) -> bool {
        super::driver_calls::Driver::primary_active(self, ordinal)
    }

    fn usage(&self, ordinal: usize) -> Result<[u64; 4], CudaError> {
        self.pool(ordinal)
    }
}

/// Samples the devices' default memory pools, which candle allocates tensors from: NVML sees only what a pool
/// *reserved*.
///
/// | metric | unit | meaning |
/// |---|---|---|
/// | `candlescope_cuda_pool_used_bytes` | bytes | allocated from the pool by this process |
/// | `candlescope_cuda_pool_used_high_bytes` | bytes | its maximum so far |
/// | `candlescope_cuda_pool_reserved_bytes` | bytes | taken from the device for the pool |
/// | `candlescope_cuda_pool_reserved_high_bytes` | bytes | its maximum so far |
///
/// A device whose primary context is not active is left out, and never made active. One round takes microseconds.
pub struct PoolMemory {
    pools: Box<dyn Pools>,
    devices: Vec<(usize, Arc<str>)>,
    period: Duration,
}

impl std::fmt::Debug for PoolMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolMemory")
            .field("devices", &self.devices)
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}

impl PoolMemory {
    /// A collector that samples ten times a second.
    ///
    /// # Errors
    /// There is no driver or no device; the message says what to do about it.
    pub fn new() -> Result<Self, CudaError> {
        Self::with_period(Duration::from_millis(100))
    }

    /// A collector with another period.
    ///
    /// # Errors
    /// As [`new`](PoolMemory::new).
    pub fn with_period(period: Duration) -> Result<Self, CudaError> {
        let cuda = Cuda::load()?;
        Ok(Self::over(Box::new(cuda), &cuda.devices()?, period))
    }

    fn over(pools: Box<dyn Pools>, devices: &[CudaDevice], period: Duration) -> Self {
        Self { pools, devices: devices.iter().map(|d| (d.ordinal, d.uuid.as_str().into())).collect(), period }
    }
}

impl Collector for PoolMemory {
    fn name(&self) -> &'static str {
        "cuda_pool"
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        // While CUPTI is being detached, a round is left out.
        let Some(_inside) = GATE.enter() else { return Ok(()) };
        let mut refused = None;
        let mut told = false;
        for (ordinal, device) in self.devices.iter().filter(|(ordinal, _)| self.pools.active(*ordinal)) {
            match self.pools.usage(*ordinal) {
                Ok(values) => {
                    told = true;
                    for (metric, value) in METRICS.into_iter().zip(values) {
                        out.push(device, metric, value as f64, "bytes");
                    }
                }
                Err(e) => refused = Some(e),
            }
        }
        match refused {
            Some(e) if !told => Err(CollectError(format!("no memory pool could be read: {e}"))),
            _ => Ok(()),
        }
    }
}

/// The most memory that was allocated at once from a device's default pool, since [`begin`](Self::begin), with what was
/// allocated then. Other processes, and what the driver itself holds, are not in it.
#[derive(Debug)]
pub struct PoolPeak {
    ordinal: usize,
}

impl PoolPeak {
    /// Begins to watch the pool of the device with this ordinal, for all in the process that read its maximum;
    /// `None` where there is none.
    pub fn begin(ordinal: usize) -> Option<Self> {
        Cuda::load().ok()?.forget_pool_high(ordinal).ok()?;
        Some(Self { ordinal })
    }

    /// The most bytes since then; `None` where the driver does not tell, or memory does not come from the pool.
    pub fn bytes(&self) -> Option<u64> {
        let [_, most, ..] = Cuda::load().ok()?.pool(self.ordinal).ok()?;
        Some(most).filter(|most| *most > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::HostNs;

    struct Fake(Vec<Option<Result<[u64; 4], CudaError>>>);

    impl Pools for Fake {
        fn active(&self, ordinal: usize) -> bool {
            self.0[ordinal].is_some()
        }
        fn usage(&self, ordinal: usize) -> Result<[u64; 4], CudaError> {
            self.0[ordinal].clone().expect("asked of an active device only")
        }
    }

    fn round(
        devices: Vec<Option<Result<[u64; 4], CudaError>>>,
    ) -> Result<Vec<(String, &'static str, f64)>, CollectError> {
        let facts: Vec<_> = (0..devices.len())
            .map(|ordinal| CudaDevice {
                ordinal,
                uuid: format!("GPU-{ordinal}"),
                name: String::new(),
                pci: String::new(),
                compute_capability: (9, 0),
                memory_bytes: 0,
            })
            .collect();
        let mut collector = PoolMemory::over(Box::new(Fake(devices)), &facts, Duration::from_millis(100));
        let mut out = Vec::new();
        collector.sample(&mut Samples::new(HostNs(1), &mut out))?;
        assert!(out.iter().all(|s| s.unit == "bytes"));
        Ok(out.into_iter().map(|s| (s.device.to_string(), s.metric, s.value)).collect())
    }

    #[test]
    fn only_devices_in_use_are_asked() {
        let samples = round(vec![None, Some(Ok([1, 2, 3, 4]))]).expect("a round");
        let expected = METRICS.iter().zip([1.0, 2.0, 3.0, 4.0]).map(|(m, v)| ("GPU-1".to_string(), *m, v));
        assert_eq!(samples, expected.collect::<Vec<_>>());
        assert!(round(vec![None, None]).expect("a round").is_empty(), "no context, no samples, and no error");
    }

    #[test]
    fn one_refusing_device_hides_no_other() {
        assert_eq!(round(vec![Some(Err(CudaError::NoDevice)), Some(Ok([0; 4]))]).expect("a round").len(), 4);
        let refused = round(vec![Some(Err(CudaError::NoDevice))]).expect_err("nothing could be read");
        assert!(refused.to_string().contains("no memory pool"), "{refused}");
    }
}
