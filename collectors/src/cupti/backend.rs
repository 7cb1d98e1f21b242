//! What the recorder needs from CUPTI, as a trait, and CUPTI itself behind it. The recorder's tests use a scripted
//! library instead.

use super::CuptiOptions;
use super::calls::Domain;
use super::detach::Link;
use super::errors::{self, Code, code};
use super::sys::{self, LINK, POOL, Subscriber};
use candlescope_core::gpu::ActivityError;
use std::path::Path;

/// Receives a record and, for a kernel, its name.
pub(super) type Show<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>);

/// The library's side of a recorder. Everything is called by one thread.
pub(super) trait Backend: Send + 'static {
    /// The API version.
    fn version(&self) -> u32;
    /// The library's file.
    fn path(&self) -> &Path;
    /// Whether the driver has ended, because the process does: CUPTI crashes then, whatever is asked of it.
    fn is_gone(&self) -> bool {
        false
    }

    /// Whether the process has a primary context on more than one device.
    fn several_devices(&self) -> bool {
        false
    }

    /// Starts the driver, and makes buffers ready. CUPTI is not attached by it.
    fn start(&mut self, options: &CuptiOptions) -> Result<(), ActivityError>;
    /// Attaches CUPTI as the process's client, if it is detached or attached for another recorder.
    fn attach(&mut self) -> Result<(), ActivityError>;
    /// Whether CUPTI is attached. Everything below may be called only while it is.
    fn link(&self) -> &Link;
    /// Stops being the client; CUPTI itself stays.
    fn stop(&mut self);
    /// The library's name of a call; `None` if it does not know it.
    fn call_name(&self, domain: Domain, cbid: u32) -> Option<String>;
    /// Turns a switch on or off.
    fn turn(&self, switch: Switch, on: bool) -> Result<(), Code>;
    /// CUPTI's clock.
    fn timestamp(&self) -> Option<u64>;
    /// Makes CUPTI hand over its buffers; with `forced`, also those with records that are not complete.
    fn flush(&mut self, forced: bool) -> Result<(), Code>;
    /// Shows all records handed over so far, with the names of kernels. Returns how much could not be read: records
    /// whose name has gone with CUPTI, and what unreadable ends of buffers held, as one each.
    fn records(&mut self, show: Show<'_>) -> u64;
    /// Buffers with records that came while CUPTI left, and that nobody reads: it walks them, and is gone. At least a
    /// record each is lost.
    fn unread(&mut self) -> u64 {
        0
    }
    /// Records the library dropped since this was last asked.
    fn dropped(&mut self) -> u64;
    /// UUID of a device by its number for CUDA.
    fn uuid(&self, device: u32) -> Option<String>;
}

/// Something whose recording can be switched on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    /// Records of a kind.
    Kind(u32),
    /// Callbacks of one call.
    Callback(Domain, u32),
    /// Callbacks of one event of CUPTI's own, such as a graph's node that is made.
    Resource(u32),
}

/// CUPTI.
#[derive(Debug)]
pub(super) struct LoadedCupti {
    cupti: sys::Cupti,
    driver: sys::Driver,
    subscriber: Option<Subscriber>,
    device_buffer_bytes: Option<usize>,
    is_pinned: bool,
}

impl LoadedCupti {
    pub(super) fn new(cupti: sys::Cupti, driver: sys::Driver) -> Self {
        Self { cupti, driver, subscriber: None, device_buffer_bytes: None, is_pinned: false }
    }

    fn turn_callback(&self, domain: u32, cbid: u32, on: bool) -> Result<(), Code> {
        let subscriber = self.subscriber.ok_or(code::INVALID_PARAMETER)?;
        self.cupti.set_callback(subscriber, domain, cbid, on)
    }
}

/// `CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE`.
const DEVICE_BUFFER_SIZE: u32 = 0;
/// `CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED`.
const HOST_PINNED: u32 = 8;

/// Where CUPTI keeps the times of what runs, for contexts that are made later; of what is not given, as CUPTI has it.
///
/// # Errors
/// If CUPTI refuses.
pub(super) fn set_attributes(cupti: &sys::Cupti, bytes: Option<usize>, is_pinned: bool) -> Result<(), ActivityError> {
    if let Some(bytes) = bytes {
        let set = cupti.set_size(DEVICE_BUFFER_SIZE, bytes);
        set.map_err(|code| errors::refused("set the size of its buffers on the device", code))?;
    }
    if is_pinned {
        let set = cupti.set_flag(HOST_PINNED, true);
        set.map_err(|code| errors::refused("keep times in pinned memory", code))?;
    }
    Ok(())
}

/// Buffers made ready ahead: CUDA 13 gives each launching thread one, and the recorder holds another while it reads.
const READY: usize = 4;

impl Backend for LoadedCupti {
    fn version(&self) -> u32 {
        self.cupti.version()
    }

    fn path(&self) -> &Path {
        self.cupti.path()
    }

    fn is_gone(&self) -> bool {
        self.driver.is_gone()
    }

    fn several_devices(&self) -> bool {
        self.driver.several_devices()
    }

    fn start(&mut self, options: &CuptiOptions) -> Result<(), ActivityError> {
        POOL.configure(options.buffer_bytes, options.max_buffers, READY);
        (self.device_buffer_bytes, self.is_pinned) = (options.device_buffer_bytes, options.trial.is_pinned);
        // The driver first: if there is no GPU, its error message is the better one.
        self.driver.start()
    }

    fn attach(&mut self) -> Result<(), ActivityError> {
        // Also if no callbacks are used: only a subscriber learns about another client, keeps others out, and can
        // detach.
        let subscribe = || {
            // If another recorder left its subscription for a launch to end, and no launch came.
            self.cupti.unsubscribe();
            self.cupti.subscribe().map_err(|code| errors::refused("attach to this process", code))
        };
        let subscriber = self.cupti.take_early().map_or_else(subscribe, Ok)?;
        self.subscriber = Some(subscriber);
        // All of this is CUPTI's own and goes when it is detached.
        set_attributes(&self.cupti, self.device_buffer_bytes, self.is_pinned)?;
        POOL.write_off();
        self.cupti.register_buffers().map_err(|code| errors::refused("take buffers", code))
    }

    fn link(&self) -> &Link {
        &LINK
    }

    fn stop(&mut self) {
        if self.subscriber.take().is_some() {
            self.cupti.unsubscribe();
        }
    }

    fn call_name(&self, domain: Domain, cbid: u32) -> Option<String> {
        self.cupti.call_name(domain, cbid)
    }

    fn turn(&self, switch: Switch, on: bool) -> Result<(), Code> {
        match switch {
            Switch::Kind(kind) => self.cupti.set_kind(kind, on),
            Switch::Callback(domain, cbid) => self.turn_callback(domain as u32, cbid, on),
            Switch::Resource(cbid) => self.turn_callback(sys::RESOURCE, cbid, on),
        }
    }

    fn timestamp(&self) -> Option<u64> {
        self.cupti.timestamp()
    }

    fn flush(&mut self, forced: bool) -> Result<(), Code> {
        self.cupti.flush(forced)
    }

    fn records(&mut self, show: Show<'_>) -> u64 {
        let mut unreadable = 0;
        for filled in POOL.drain() {
            unreadable += self.cupti.each_record(&filled, &mut *show);
            POOL.recycle(filled);
        }
        unreadable
    }

    fn unread(&mut self) -> u64 {
        let filled = POOL.drain();
        let unread = filled.iter().filter(|filled| filled.valid > 0).count() as u64;
        filled.into_iter().for_each(|filled| POOL.recycle(filled));
        unread
    }

    fn dropped(&mut self) -> u64 {
        self.cupti.dropped()
    }

    fn uuid(&self, device: u32) -> Option<String> {
        self.driver.uuid(device)
    }
}
