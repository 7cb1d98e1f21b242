//! Time on a device between two points of its stream.

use candle_core::{Device, Result};

/// Two timing events in the stream that candle launches into. The time between them is *stream elapsed*: gaps in which
/// the device waited for the host are in it.
pub struct DeviceTimer {
    #[cfg(feature = "cuda")]
    events: cuda::Events,
    #[cfg(not(feature = "cuda"))]
    never: std::convert::Infallible,
}

impl std::fmt::Debug for DeviceTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceTimer").finish_non_exhaustive()
    }
}

impl DeviceTimer {
    /// A timer for `device`; `None` for a CPU, which has no clock of its own.
    ///
    /// # Errors
    /// The driver makes no events.
    pub fn new(device: &Device) -> Result<Option<Self>> {
        match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Ok(Some(Self { events: cuda::Events::new(device)? })),
            _ => Ok(None),
        }
    }

    /// Marks the beginning.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        return self.events.begin();
        #[cfg(not(feature = "cuda"))]
        match self.never {}
    }

    /// Marks the end.
    ///
    /// # Errors
    /// The driver's.
    pub fn end(&self) -> Result<()> {
        #[cfg(feature = "cuda")]
        return self.events.end();
        #[cfg(not(feature = "cuda"))]
        match self.never {}
    }

    /// Waits until the device has passed the end, and returns the nanoseconds from the beginning to it.
    ///
    /// # Errors
    /// The driver's, those of the work in between included.
    pub fn elapsed_ns(&self) -> Result<u64> {
        #[cfg(feature = "cuda")]
        return self.events.elapsed_ns();
        #[cfg(not(feature = "cuda"))]
        match self.never {}
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use candle_core::cuda_backend::WrapErr;
    use candle_core::cuda_backend::cudarc::driver::sys::CUevent_flags;
    use candle_core::cuda_backend::cudarc::driver::{CudaEvent, CudaStream};
    use candle_core::{CudaDevice, Result};
    use std::sync::Arc;

    pub(super) struct Events {
        stream: Arc<CudaStream>,
        begin: CudaEvent,
        end: CudaEvent,
    }

    impl Events {
        pub(super) fn new(device: &CudaDevice) -> Result<Self> {
            let stream = device.cuda_stream();
            // Without flags cudarc makes events that do not keep time.
            let event = || stream.context().new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).w();
            let (begin, end) = (event()?, event()?);
            Ok(Self { stream, begin, end })
        }

        pub(super) fn begin(&self) -> Result<()> {
            self.begin.record(&self.stream).w()
        }

        pub(super) fn end(&self) -> Result<()> {
            self.end.record(&self.stream).w()
        }

        pub(super) fn elapsed_ns(&self) -> Result<u64> {
            let milliseconds = self.begin.elapsed_ms(&self.end).w()?;
            Ok((f64::from(milliseconds) * 1e6).round().max(0.0) as u64)
        }
    }
}
