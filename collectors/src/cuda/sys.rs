//! The driver's functions, looked up in its library when it is first needed. All of this module's `unsafe` is here.
//!
//! The functions are looked up here and not called through cudarc's bindings, for three reasons. With candle, cudarc is
//! linked against the driver and then has no function that tells whether the driver is there. Without candle it loads
//! the functions of the newest CUDA and panics where an older driver lacks one (`cuEventElapsedTime_v2` before 12.8).
//! And its `CUresult` is a Rust enum, so an unknown error code from a newer driver would be undefined behaviour. The
//! library is the same one either way, so handles of cudarc and of the CUDA runtime can be used here.
#![allow(unsafe_code, reason = "calls into the CUDA driver")]

use super::cuda_device::{CudaDevice, DriverVersion, uuid_text};
use super::driver_calls::{CaptureMode, Context, Driver, Event, Fault, Kernel, StreamId};
use super::error::CudaError;
use super::stream::Stream;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::num::NonZeroUsize;
use std::sync::OnceLock;

type Handle = *mut c_void;

/// `CU_MEMPOOL_ATTR_USED_MEM_HIGH`.
const USED_AT_MOST: c_uint = 8;

/// The library's names, as the system's loader knows them.
#[cfg(windows)]
const LIBRARIES: &[&str] = &["nvcuda.dll"];
#[cfg(not(windows))]
const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];

macro_rules! api {
    ($($function:ident: ($($argument:ty),*) = $($symbol:literal)|+;)*) => {
        /// The driver's functions that are used; each under the first of its names that the driver has.
        struct Api {
            $($function: unsafe extern "system" fn($($argument),*) -> c_uint,)*
            /// Functions stay valid as long as this lives.
            _library: Library,
        }

        impl Api {
            fn of(library: Library) -> Result<Self, CudaError> {
                Ok(Self {
                    $($function: {
                        type Function = unsafe extern "system" fn($($argument),*) -> c_uint;
                        let names: &[&'static str] = &[$($symbol),+];
                        // SAFETY: the type is the one that NVIDIA's header gives the function under each of these
                        // names.
                        let found = names.iter().find_map(|name| unsafe { library.get::<Function>(*name) }.ok());
                        *found.ok_or(CudaError::OldDriver(names[0]))?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

api! {
    init: (c_uint) = "cuInit";
    driver_version: (*mut c_int) = "cuDriverGetVersion";
    error_name: (c_uint, *mut *const c_char) = "cuGetErrorName";
    device_count: (*mut c_int) = "cuDeviceGetCount";
    device_get: (*mut c_int, c_int) = "cuDeviceGet";
    device_name: (*mut c_char, c_int, c_int) = "cuDeviceGetName";
    // The first form of the call, which gives the UUID of the whole GPU for a MIG slice: the one that samples carry.
    device_uuid: (*mut [u8; 16], c_int) = "cuDeviceGetUuid" | "cuDeviceGetUuid_v2";
    device_pci: (*mut c_char, c_int, c_int) = "cuDeviceGetPCIBusId";
    device_attribute: (*mut c_int, c_uint, c_int) = "cuDeviceGetAttribute";
    device_memory: (*mut usize, c_int) = "cuDeviceTotalMem_v2";
    device_pool: (*mut Handle, c_int) = "cuDeviceGetDefaultMemPool";
    pool_attribute: (Handle, c_uint, *mut c_void) = "cuMemPoolGetAttribute";
    pool_set_attribute: (Handle, c_uint, *mut c_void) = "cuMemPoolSetAttribute";
    primary_state: (c_int, *mut c_uint, *mut c_int) = "cuDevicePrimaryCtxGetState";
    primary_retain: (*mut Handle, c_int) = "cuDevicePrimaryCtxRetain";
    primary_release: (c_int) = "cuDevicePrimaryCtxRelease_v2";
    context_current: (*mut Handle) = "cuCtxGetCurrent";
    context_device: (*mut c_int) = "cuCtxGetDevice";
    context_push: (Handle) = "cuCtxPushCurrent_v2";
    context_pop: (*mut Handle) = "cuCtxPopCurrent_v2";
    stream_capturing: (Handle, *mut c_uint) = "cuStreamIsCapturing";
    capture_mode: (*mut c_uint) = "cuThreadExchangeStreamCaptureMode";
    module_load: (*mut Handle, *const c_void) = "cuModuleLoadData";
    module_function: (*mut Handle, Handle, *const c_char) = "cuModuleGetFunction";
    launch: (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void) =
        "cuLaunchKernel";
    event_create: (*mut Handle, c_uint) = "cuEventCreate";
    event_destroy: (Handle) = "cuEventDestroy_v2";
    event_record: (Handle, Handle) = "cuEventRecord";
    event_query: (Handle) = "cuEventQuery";
    event_elapsed: (*mut f32, Handle, Handle) = "cuEventElapsedTime_v2" | "cuEventElapsedTime";
}

/// The driver, loaded and started. Never unloaded: other code of the process uses it too.
#[derive(Clone, Copy)]
pub(super) struct Cuda(&'static Api);

static CUDA: OnceLock<Api> = OnceLock::new();

impl Cuda {
    /// Loads and starts the driver; a success is remembered.
    pub(super) fn load() -> Result<Self, CudaError> {
        if let Some(api) = CUDA.get() {
            return Ok(Self(api));
        }
        // SAFETY: NVIDIA's driver is made to be loaded into any process; its initialisers ask nothing of the caller.
        let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let api = Api::of(library.ok_or_else(|| CudaError::NoDriver(LIBRARIES.join(" or ")))?)?;
        // SAFETY: the call takes no pointers, and 0 is the one value it takes.
        let outcome = unsafe { (api.init)(0) };
        if outcome != 0 {
            return Err(CudaError::of("cuInit", outcome, error_name(&api, outcome)));
        }
        Ok(Self(CUDA.get_or_init(|| api)))
    }

    /// The driver's version of CUDA.
    pub(super) fn version(self) -> Result<DriverVersion, CudaError> {
        let mut version = 0;
        // SAFETY: the pointer is valid for the integer that the call writes.
        self.check("cuDriverGetVersion", unsafe { (self.0.driver_version)(&mut version) })?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok(DriverVersion { major: version / 1000, minor: version % 1000 / 10 })
    }

    /// What is known of each device, by ordinal.
    pub(super) fn devices(self) -> Result<Vec<CudaDevice>, CudaError> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the integer that the call writes.
        self.check("cuDeviceGetCount", unsafe { (self.0.device_count)(&mut count) })?;
        if count <= 0 {
            return Err(CudaError::NoDevice);
        }
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(self, ordinal: c_int) -> Result<CudaDevice, CudaError> {
        const MAJOR: c_uint = 75;
        const MINOR: c_uint = 76;
        let device = self.handle(ordinal)?;
        let mut uuid = [0u8; 16];
        // SAFETY: the pointer is valid for the 16 bytes that the call writes, and the device came from the driver.
        self.check("cuDeviceGetUuid", unsafe { (self.0.device_uuid)(&mut uuid, device) })?;
        let mut memory_bytes = 0usize;
        // SAFETY: the pointer is valid for the integer that the call writes.
        self.check("cuDeviceTotalMem", unsafe { (self.0.device_memory)(&mut memory_bytes, device) })?;
        let attribute = |which: c_uint| {
            let mut value = 0;
            // SAFETY: the pointer is valid for the integer that the call writes.
            self.check("cuDeviceGetAttribute", unsafe { (self.0.device_attribute)(&mut value, which, device) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        Ok(CudaDevice {
            ordinal: usize::try_from(ordinal).unwrap_or(0),
            uuid: uuid_text(uuid),
            name: self.text("cuDeviceGetName", self.0.device_name, device)?,
            pci: self.text("cuDeviceGetPCIBusId", self.0.device_pci, device)?.to_lowercase(),
            compute_capability: (attribute(MAJOR)?, attribute(MINOR)?),
            memory_bytes: memory_bytes as u64,
        })
    }

    fn handle(self, ordinal: c_int) -> Result<c_int, CudaError> {
        let mut device = 0;
        // SAFETY: the pointer is valid for the integer that the call writes.
        self.check("cuDeviceGet", unsafe { (self.0.device_get)(&mut device, ordinal) })?;
        Ok(device)
    }

    fn text(
        self,
        call: &'static str,
        function: unsafe extern "system" fn(*mut c_char, c_int, c_int) -> c_uint,
        device: c_int,
    ) -> Result<String, CudaError> {
        let mut text = [0u8; 256];
        // SAFETY: the pointer is valid for 256 bytes, and the call is told of one less, so that the last stays 0.
        self.check(call, unsafe { function(text.as_mut_ptr().cast(), 255, device) })?;
        Ok(CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Bytes in the device's default memory pool: used now, used at most, reserved now, reserved at most.
    pub(super) fn pool(self, ordinal: usize) -> Result<[u64; 4], CudaError> {
        // Used now, used at most, reserved now, reserved at most: `CU_MEMPOOL_ATTR_*`.
        const ATTRIBUTES: [c_uint; 4] = [7, USED_AT_MOST, 5, 6];
        let pool = self.default_pool(ordinal)?;
        let mut values = [0u64; 4];
        for (value, attribute) in values.iter_mut().zip(ATTRIBUTES) {
            let into: *mut u64 = value;
            // SAFETY: these attributes are 64-bit integers, which the pointer is valid for, and the pool is the
            // device's own.
            self.check("cuMemPoolGetAttribute", unsafe { (self.0.pool_attribute)(pool, attribute, into.cast()) })?;
        }
        Ok(values)
    }

    /// Begins anew what [`pool`](Self::pool) tells as used at most: with what is used now.
    pub(super) fn forget_pool_high(self, ordinal: usize) -> Result<(), CudaError> {
        let pool = self.default_pool(ordinal)?;
        let into: *mut u64 = &mut 0;
        // SAFETY: the attribute is a 64-bit integer, of which 0 alone is allowed, and the pool is the device's own.
        self.check("cuMemPoolSetAttribute", unsafe { (self.0.pool_set_attribute)(pool, USED_AT_MOST, into.cast()) })
    }

    fn default_pool(self, ordinal: usize) -> Result<Handle, CudaError> {
        let device = self.handle(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
        let mut pool: Handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the handle that the call writes.
        self.check("cuDeviceGetDefaultMemPool", unsafe { (self.0.device_pool)(&mut pool, device) })?;
        Ok(pool)
    }

    fn check(self, call: &'static str, outcome: c_uint) -> Result<(), CudaError> {
        if outcome == 0 { Ok(()) } else { Err(CudaError::of(call, outcome, error_name(self.0, outcome))) }
    }

    /// `CUDA_ERROR_…` of a fault.
    pub(super) fn fault_name(self, fault: Fault) -> String {
        error_name(self.0, fault.0)
    }
}

fn error_name(api: &Api, code: c_uint) -> String {
    let mut name: *const c_char = std::ptr::null();
    // SAFETY: the pointer is valid for the pointer that the call writes.
    let outcome = unsafe { (api.error_name)(code, &mut name) };
    if outcome != 0 || name.is_null() {
        return format!("CUDA_ERROR_{code}");
    }
    // SAFETY: the call succeeded, so `name` is a string with an end, which the driver never frees.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

fn ok(outcome: c_uint) -> Result<(), Fault> {
    if outcome == 0 { Ok(()) } else { Err(Fault(outcome)) }
}

const NOT_READY: c_uint = 600;

/// Handles reach these functions from three places only, which makes the calls sound. Contexts are those that the
/// driver said are current; [`Driver::retain`] keeps them alive if they are primary. Events came from
/// [`Driver::create`] and are destroyed once, by the pool that made them, and not used afterwards. Streams are special
/// values, are kept alive by an `Arc`, or were promised to live by the caller of [`Stream::from_raw`].
impl Driver for Cuda {
    #[inline]
    fn current(&self) -> Option<Context> {
        let mut context: Handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the handle that the call writes.
        let outcome = unsafe { (self.0.context_current)(&mut context) };
        if outcome != 0 {
            return None;
        }
        NonZeroUsize::new(context.expose_provenance()).map(Context)
    }

    #[inline]
    fn capturing(&self, stream: StreamId) -> Result<bool, Fault> {
        let mut status = 0;
        // SAFETY: the pointer is valid for the integer that the call writes; the stream is alive, see above.
        ok(unsafe { (self.0.stream_capturing)(handle(stream.0), &mut status) })?;
        Ok(status != 0)
    }

    #[inline]
    fn record(&self, event: Event, stream: StreamId) -> Result<(), Fault> {
        // SAFETY: event and stream are alive, see above.
        ok(unsafe { (self.0.event_record)(handle(event.0.get()), handle(stream.0)) })
    }

    fn query(&self, event: Event) -> Result<bool, Fault> {
        // SAFETY: the event is alive, see above.
        match unsafe { (self.0.event_query)(handle(event.0.get())) } {
            NOT_READY => Ok(false),
            outcome => ok(outcome).map(|()| true),
        }
    }

    fn elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>, Fault> {
        let mut ms = 0.0;
        // SAFETY: both events are alive, see above, and the pointer is valid for the number that the call writes.
        match unsafe { (self.0.event_elapsed)(&mut ms, handle(from.0.get()), handle(to.0.get())) } {
            NOT_READY => Ok(None),
            outcome => ok(outcome).map(|()| Some(ms)),
        }
    }

    fn create(&self) -> Result<Event, Fault> {
        const WITH_TIMING: c_uint = 0;
        let mut event: Handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the handle that the call writes.
        ok(unsafe { (self.0.event_create)(&mut event, WITH_TIMING) })?;
        NonZeroUsize::new(event.expose_provenance()).map(Event).ok_or(Fault(999))
    }

    fn destroy(&self, event: Event) {
        // SAFETY: the event is alive, see above. An error, such as of a driver that is shutting down, changes nothing
        // for us.
        let _ = unsafe { (self.0.event_destroy)(handle(event.0.get())) };
    }

    fn load_wait(&self) -> Result<Kernel, Fault> {
        const TEXT: &CStr = c_text(concat!(include_str!("wait.ptx"), "\0"));
        let (mut module, mut kernel): (Handle, Handle) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the text ends with a zero, and the pointer is valid for the handle that the call writes.
        ok(unsafe { (self.0.module_load)(&mut module, TEXT.as_ptr().cast()) })?;
        // SAFETY: the module was just loaded, the name ends with a zero, and the pointer is valid for the handle.
        ok(unsafe { (self.0.module_function)(&mut kernel, module, c"candlescope_wait".as_ptr()) })?;
        NonZeroUsize::new(kernel.expose_provenance()).map(Kernel).ok_or(Fault(999))
    }

    fn launch_wait(&self, kernel: Kernel, stream: StreamId, ns: u64) -> Result<(), Fault> {
        let mut ns = ns;
        let mut arguments: [*mut c_void; 1] = [std::ptr::from_mut(&mut ns).cast()];
        let (kernel, stream) = (handle(kernel.0.get()), handle(stream.0));
        // SAFETY: kernel and stream are alive, see above. The kernel has one argument of 64 bits, which the call copies
        // before it returns.
        ok(unsafe {
            (self.0.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_mut_ptr(), std::ptr::null_mut())
        })
    }

    fn enter(&self, context: Context) -> Result<(), Fault> {
        // SAFETY: the context is one that was current, see above; the driver refuses one that was destroyed.
        ok(unsafe { (self.0.context_push)(handle(context.0.get())) })
    }

    fn leave(&self) {
        let mut context: Handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the handle that the call writes; `enter` pushed what is popped here.
        let _ = unsafe { (self.0.context_pop)(&mut context) };
    }

    fn capture_mode(&self, mode: CaptureMode) -> CaptureMode {
        let mut value: c_uint = match mode {
            CaptureMode::Global => 0,
            CaptureMode::ThreadLocal => 1,
            CaptureMode::Relaxed => 2,
        };
        // SAFETY: the pointer is valid for the mode, which the call reads and writes.
        let outcome = unsafe { (self.0.capture_mode)(&mut value) };
        match (outcome, value) {
            (0, 1) => CaptureMode::ThreadLocal,
            (0, 2) => CaptureMode::Relaxed,
            // The mode that threads start with, also if the call failed and so changed nothing.
            _ => CaptureMode::Global,
        }
    }

    fn ordinal(&self) -> Result<usize, Fault> {
        let mut device = 0;
        // SAFETY: the pointer is valid for the integer that the call writes.
        ok(unsafe { (self.0.context_device)(&mut device) })?;
        // A device's handle is its ordinal, by the driver's own documentation of `cuDeviceGet`.
        usize::try_from(device).map_err(|_| Fault(101))
    }

    fn retain(&self, ordinal: usize, context: Context) -> bool {
        let Ok(device) = c_int::try_from(ordinal) else { return false };
        // Retaining a primary context that does not exist would create it.
        if !self.primary_active(ordinal) {
            return false;
        }
        let mut primary: Handle = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the handle that the call writes.
        if unsafe { (self.0.primary_retain)(&mut primary, device) } != 0 {
            return false;
        }
        let same = primary.addr() == context.0.get();
        if !same {
            self.release(ordinal);
        }
        same
    }

    fn release(&self, ordinal: usize) {
        if let Ok(device) = c_int::try_from(ordinal) {
            // SAFETY: the call takes no pointers; it undoes one `primary_retain`, whose caller calls this once.
            let _ = unsafe { (self.0.primary_release)(device) };
        }
    }

    fn primary_active(&self, ordinal: usize) -> bool {
        let Ok(device) = c_int::try_from(ordinal) else { return false };
        let (mut flags, mut active) = (0, 0);
        // SAFETY: both pointers are valid for the integers that the call writes.
        let outcome = unsafe { (self.0.primary_state)(device, &mut flags, &mut active) };
        outcome == 0 && active != 0
    }
}

/// A text that ends with its only zero.
const fn c_text(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("it has one zero, at its end"),
    }
}

fn handle(value: usize) -> Handle {
    std::ptr::with_exposed_provenance_mut(value)
}

impl Stream {
    /// A stream by its raw handle; null is the legacy default stream.
    ///
    /// # Safety
    /// The handle must be a stream of the driver, or one of its special values, for as long as marks are made with it:
    /// during [`with_stream`](super::with_stream), or, if the stream was given to the clock, until the clock and all
    /// its lanes are gone.
    pub unsafe fn from_raw(stream: cudarc::driver::sys::CUstream) -> Self {
        Self::unowned(StreamId(stream.expose_provenance()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_is_told_so() {
        // If there is a driver, the rest of the API must answer.
        match Cuda::load() {
            Ok(cuda) => assert!(cuda.version().is_ok_and(|v| v.major >= 11)),
            Err(e) => {
                let text = e.to_string();
                assert!(text.contains("driver") || text.contains("device"), "{text}");
            }
        }
    }
}
