//! NVTX's C functions, as the official crate binds them.
//!
//! The safe part of that crate looks up strings and categories in locked maps and ties them to a borrow of their
//! domain; on the hot path neither is acceptable.
#![allow(unsafe_code, reason = "calls into NVTX, which is a C library")]

use nvtx::sys::{self, ColorType, EventAttributes, MessageType, MessageValue, PayloadType, PayloadValue, ffi};
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A domain that a tool listens to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Domain(ffi::nvtxDomainHandle_t);

// SAFETY: the handle is an opaque number to us, never read through and never freed, and NVTX takes it on any thread.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

/// Place for the handle of a registered string; empty until [`Domain::register`] fills it.
#[derive(Debug, Default)]
pub(super) struct StringSlot(AtomicPtr<Registration>);

/// What a string's handle points to; opaque, owned by NVTX.
type Registration = ffi::nvtxStringRegistration;

/// The attributes of a range besides its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeLook {
    pub(super) category: u32,
    /// Alpha, red, green, blue from the highest byte down.
    pub(super) argb: u32,
}

impl Domain {
    /// Makes the domain. `None` when no tool is attached: NVTX looks for one at its first call in a process, and from
    /// then on all its functions do nothing, this one by returning null.
    pub(super) fn attach(name: &CStr) -> Option<Self> {
        // SAFETY: `name` ends in a NUL and outlives the call.
        let handle = unsafe { ffi::nvtxDomainCreateA(name.as_ptr()) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// Names a category.
    pub(super) fn name_category(self, category: u32, name: &CStr) {
        // SAFETY: the handle came from `nvtxDomainCreateA`; `name` ends in a NUL and outlives the call.
        unsafe { ffi::nvtxDomainNameCategoryA(self.0, category, name.as_ptr()) }
    }

    /// Registers a text, so that ranges can name it by a handle.
    pub(super) fn register(self, text: &CStr, slot: &StringSlot) {
        // SAFETY: the handle came from `nvtxDomainCreateA`; the tool copies `text`, which ends in a NUL, during the
        // call.
        let handle = unsafe { ffi::nvtxDomainRegisterStringA(self.0, text.as_ptr()) };
        // Release: whoever sees the handle also sees what the tool wrote behind it.
        slot.0.store(handle, Ordering::Release);
    }

    /// Opens a range on the calling thread.
    #[inline]
    pub(super) fn push(self, text: &StringSlot, look: RangeLook, payload: u64) {
        let registered = text.0.load(Ordering::Acquire);
        let message = if registered.is_null() {
            MessageType::NVTX_MESSAGE_UNKNOWN
        } else {
            MessageType::NVTX_MESSAGE_TYPE_REGISTERED
        };
        let attributes = EventAttributes {
            version: sys::NVTX_VERSION as u16,
            size: sys::NVTX_EVENT_ATTRIBUTES_SIZE as u16,
            category: look.category,
            colorType: ColorType::NVTX_COLOR_ARGB.into(),
            color: look.argb,
            payloadType: PayloadType::NVTX_PAYLOAD_TYPE_UNSIGNED_INT64.into(),
            reserved0: 0,
            payload: PayloadValue { ullValue: payload },
            messageType: message.into(),
            message: MessageValue { registered },
        };
        // SAFETY: the attributes are complete, as version and size say, and outlive the call; a string of this domain
        // or none.
        unsafe { ffi::nvtxDomainRangePushEx(self.0, ptr::from_ref(&attributes)) };
    }

    /// Closes the innermost open range of the calling thread.
    #[inline]
    pub(super) fn pop(self) {
        // SAFETY: the handle came from `nvtxDomainCreateA`; a pop without a push is an error that NVTX reports and
        // ignores.
        unsafe { ffi::nvtxDomainRangePop(self.0) };
    }
}

impl StringSlot {
    /// Whether a string is registered here.
    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        !self.0.load(Ordering::Relaxed).is_null()
    }
}
