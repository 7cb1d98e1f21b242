//! The few functions of the CUDA driver that tell whether there is a GPU, and which.

use super::super::told::{self, told};
use candlescope_core::gpu::ActivityError;
use libloading::Library;
use std::ffi::{CStr, c_char};
use std::ptr::null;
use std::time::Duration;

/// The second exists where only development files were installed.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;
/// `CUDA_ERROR_DEINITIALIZED`.
const DEINITIALISED: u32 = 4;
/// `CUDA_ERROR_NOT_INITIALIZED`.
#[cfg(target_os = "linux")]
const NOT_INITIALISED: u32 = 3;

/// How often a program is asked whether it has started the driver: while it is in `cuInit`, and at last where it never
/// may.
const SOON: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_millis(250);

/// The driver's library, loaded until the process ends.
#[derive(Debug, Clone)]
pub(in super::super) struct Driver {
    init: unsafe extern "C" fn(u32) -> u32,
    version: unsafe extern "C" fn(*mut i32) -> u32,
    device_count: unsafe extern "C" fn(*mut i32) -> u32,
    device: unsafe extern "C" fn(*mut i32, i32) -> u32,
    uuid: unsafe extern "C" fn(*mut [u8; 16], i32) -> u32,
    /// Not in drivers before CUDA 7.
    primary_context: Option<unsafe extern "C" fn(i32, *mut u32, *mut i32) -> u32>,
    error_string: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
}

impl Driver {
    /// Loads the driver, without starting it.
    pub(in super::super) fn load() -> Result<Self, ActivityError> {
        let open = |name: &&str| {
            // SAFETY: loading runs the driver's initialisers, as any CUDA program does.
            unsafe { Library::new(*name) }
        };
        let library = NAMES.iter().map(open).find_map(Result::ok).ok_or_else(|| {
            ActivityError(
                "there is no NVIDIA driver on this machine (libcuda.so.1 was not found), so there are no kernels to record: install \
                 it, or run the container with the GPU (`--gpus all`)"
                    .to_string(),
            )
        })?;
        let lacks = |said: String| ActivityError(format!("libcuda.so.1 is no driver of NVIDIA's: {said}"));
        // SAFETY: the types are those of `cuda.h`. `cuDeviceGetUuid_v2` has the signature of the first, and tells GPU
        // instances apart.
        let driver = unsafe {
            Self {
                init: super::symbol(&library, "cuInit").map_err(lacks)?,
                version: super::symbol(&library, "cuDriverGetVersion").map_err(lacks)?,
                device_count: super::symbol(&library, "cuDeviceGetCount").map_err(lacks)?,
                device: super::symbol(&library, "cuDeviceGet").map_err(lacks)?,
                uuid: super::symbol(&library, "cuDeviceGetUuid_v2")
                    .or_else(|_| super::symbol(&library, "cuDeviceGetUuid"))
                    .map_err(lacks)?,
                primary_context: super::symbol(&library, "cuDevicePrimaryCtxGetState").ok(),
                error_string: super::symbol(&library, "cuGetErrorString").map_err(lacks)?,
            }
        };
        std::mem::forget(library);
        Ok(driver)
    }

    /// The newest CUDA version it supports: 13020 is 13.2.
    pub(in super::super) fn version(&self) -> Option<u32> {
        let mut version = 0;
        // SAFETY: the pointer is valid for one `int`; no initialisation is needed.
        let status = unsafe { (self.version)(&mut version) };
        u32::try_from(version).ok().filter(|version| status == 0 && *version > 0)
    }

    /// Whether it has ended, as it does with the process.
    pub(in super::super) fn is_gone(&self) -> bool {
        let mut count = 0;
        // SAFETY: the pointer is valid for one `int`; a driver that has ended fails without doing anything.
        (unsafe { (self.device_count)(&mut count) }) == DEINITIALISED
    }

    /// Whether more than one device has a primary context in this process.
    pub(in super::super) fn several_devices(&self) -> bool {
        let (Some(state), mut count) = (self.primary_context, 0) else { return false };
        // SAFETY: the pointer is valid for one `int`.
        if unsafe { (self.device_count)(&mut count) } != 0 {
            return false;
        }
        let is_active = |ordinal: &i32| {
            let (mut device, mut flags, mut active) = (0, 0, 0);
            // SAFETY: the pointers are valid for one value each; an unknown number is refused.
            let known =
                unsafe { (self.device)(&mut device, *ordinal) == 0 && state(device, &mut flags, &mut active) == 0 };
            known && active != 0
        };
        (0..count).filter(is_active).nth(1).is_some()
    }

    /// In a program that is recorded from outside: waits until that has started the driver. Loads nothing: a program that
    /// makes ranges alone has no driver, and is not to get one. `is_near`: the program is about to.
    ///
    /// # Errors
    /// If the program ends without it.
    pub(in super::super) fn await_start(is_near: impl Fn() -> bool) -> Result<(), ActivityError> {
        let mut pause = SOON;
        while !is_started() {
            if told::does_end() {
                return Err(ActivityError(
                    "the program has not started the CUDA driver, so there are no kernels to record".to_string(),
                ));
            }
            told::wait(if is_near() { SOON } else { pause });
            pause = (pause * 2).min(LATE);
        }
        Ok(())
    }

    /// Starts the driver, which happens only once however often this is called, and checks that there is a GPU. In a
    /// program that is recorded from outside, that has [started it](Self::await_start): a forked child of a program
    /// with a driver cannot use it.
    pub(in super::super) fn start(&self) -> Result<(), ActivityError> {
        let count = || {
            let mut count = 0;
            // SAFETY: the pointer is valid for one `int`.
            (unsafe { (self.device_count)(&mut count) }, count)
        };
        let (status, count) = if told().is_some() {
            count()
        } else {
            // SAFETY: zero is the only value it takes.
            match unsafe { (self.init)(0) } {
                0 => count(),
                status => (status, 0),
            }
        };
        match status {
            0 if count > 0 => Ok(()),
            0 | NO_DEVICE => Err(ActivityError(
                "the driver sees no GPU, so there are no kernels to record: check `nvidia-smi` and CUDA_VISIBLE_DEVICES".to_string(),
            )),
            DEINITIALISED => Err(ActivityError(
                "the program ended before recording had begun, so kernels were not recorded".to_string(),
            )),
            _ => Err(ActivityError(format!(
                "the NVIDIA driver does not start ({}), so kernels cannot be recorded: check `nvidia-smi`",
                self.text(status)
            ))),
        }
    }

    /// The UUID of a device, as `nvidia-smi -L` writes it, by its number for CUDA in this process.
    pub(in super::super) fn uuid(&self, ordinal: u32) -> Option<String> {
        let (mut device, mut bytes) = (0, [0; 16]);
        let ordinal = i32::try_from(ordinal).ok()?;
        // SAFETY: the pointer is valid for one `CUdevice`; an unknown number is refused.
        let found = unsafe { (self.device)(&mut device, ordinal) } == 0;
        // SAFETY: the pointer is valid for one `CUuuid`, sixteen bytes; the device is the driver's own.
        (found && unsafe { (self.uuid)(&mut bytes, device) } == 0).then(|| uuid_text(bytes))
    }

    fn text(&self, status: u32) -> String {
        let mut text = null();
        // SAFETY: the pointer is valid for one pointer.
        let known = unsafe { (self.error_string)(status, &mut text) } == 0 && !text.is_null();
        // SAFETY: on success it is a string constant of the driver, which stays loaded.
        let text = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        text.map_or(format!("error {status}"), |text| format!("error {status}, {text}"))
    }
}

/// Whether the program has loaded the driver and started it, or that failed for good. Loads nothing.
#[cfg(target_os = "linux")]
fn is_started() -> bool {
    use libloading::os::unix::{Library, RTLD_NOW};
    /// Finds only what is loaded.
    const RTLD_NOLOAD: i32 = 4;
    let open = |name: &&str| {
        // SAFETY: nothing is loaded that is not there, so that nothing of it runs.
        unsafe { Library::open(Some(*name), RTLD_NOW | RTLD_NOLOAD) }.ok()
    };
    let Some(library) = NAMES.iter().find_map(open) else { return false };
    // SAFETY: the type is that of `cuda.h`.
    let count = unsafe { library.get::<unsafe extern "C" fn(*mut i32) -> u32>(b"cuDeviceGetCount\0") };
    let mut devices = 0;
    // SAFETY: the pointer is valid for one `int`. Before `cuInit` has ended it fails without doing anything.
    count.is_ok_and(|count| unsafe { count(&mut devices) } != NOT_INITIALISED)
}

/// Elsewhere programs are not recorded from outside.
#[cfg(not(target_os = "linux"))]
fn is_started() -> bool {
    true
}

/// `GPU-` and lower-case hexadecimal in groups of 8, 4, 4, 4 and 12 digits: the form NVML and `nvidia-smi` use.
fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_nvidia_smi_writes_it() {
        let bytes = [0x89, 0x32, 0xf9, 0x37, 0xd7, 0x2c, 0x41, 0x06, 0xc1, 0x2f, 0x20, 0xbd, 0x9f, 0xae, 0xd9, 0xf6];
        assert_eq!(uuid_text(bytes), "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
    }
}
