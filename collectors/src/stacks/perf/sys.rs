//! The kernel's perf events: opening one, and the buffer that it writes into.
#![allow(unsafe_code, reason = "system calls without a safe binding, and memory shared with the kernel")]
#![deny(unsafe_op_in_unsafe_fn)]

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page};
use perf_event_open_sys::ioctls;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files that the process may have open.
fn max_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for a limit. On failure it stays zero, and nothing is opened.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur
}

/// An event that counts one thread.
#[derive(Debug)]
pub(super) struct PerfEvent {
    file: File,
    /// Its number in records.
    pub(super) id: u64,
}

impl PerfEvent {
    /// Opens an event for a thread of this process.
    pub(super) fn open(attributes: &perf_event_attr, tid: u32) -> io::Result<Self> {
        let mut attributes = *attributes;
        attributes.size = size_of::<perf_event_attr>() as u32;
        // SAFETY: the attributes are whole and the call only reads them (it may write their size on failure).
        let fd = unsafe {
            perf_event_open_sys::perf_event_open(&mut attributes, tid as i32, -1, -1, PERF_FLAG_FD_CLOEXEC.into())
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made this descriptor, and nobody else has it.
        let file = unsafe { File::from_raw_fd(fd) };
        // The program may open so many files and needs them: three a thread are taken from the first three quarters only.
        if u64::from(fd.unsigned_abs()) >= max_files() / 4 * 3 {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let mut id = 0;
        // SAFETY: the pointer is valid for the number that the call writes.
        if unsafe { ioctls::ID(file.as_raw_fd(), &mut id) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { file, id })
    }

    /// Writes its records into another event's buffer.
    pub(super) fn write_into(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both descriptors are open.
        match unsafe { ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Begins to count, an event that was opened disabled.
    pub(super) fn enable(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open; the argument is no pointer.
        match unsafe { ioctls::ENABLE(self.file.as_raw_fd(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its count.
    pub(super) fn count(&self) -> Option<u64> {
        let mut count = [0; 8];
        (&self.file).read_exact(&mut count).ok()?;
        Some(u64::from_ne_bytes(count))
    }
}

/// The buffer of an event. The kernel writes at its head, we read at its tail.
#[derive(Debug)]
pub(super) struct RecordRing {
    map: MmapRaw,
    page: usize,
    /// Bytes for records; a power of two.
    size: usize,
    tail: u64,
}

impl RecordRing {
    /// A buffer of `size` bytes, a power of two of at least a page.
    pub(super) fn map(event: &PerfEvent, size: usize) -> io::Result<Self> {
        // SAFETY: a plain query.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let map = MmapOptions::new().len(page + size).map_raw(&event.file)?;
        Ok(Self { map, page, size, tail: 0 })
    }

    fn head(&self) -> &AtomicU64 {
        let page = self.map.as_mut_ptr().cast::<perf_event_mmap_page>();
        // SAFETY: the mapping begins with this page, aligned, and lives as long as `self`; the kernel writes the number, so
        // it is read as an atomic one.
        unsafe { AtomicU64::from_ptr(&raw mut (*page).data_head) }
    }

    fn set_tail(&self) {
        let page = self.map.as_mut_ptr().cast::<perf_event_mmap_page>();
        // SAFETY: as above; we alone write the tail.
        unsafe { AtomicU64::from_ptr(&raw mut (*page).data_tail) }.store(self.tail, Ordering::Release);
    }

    /// Whether the kernel has written anything so far.
    pub(super) fn was_written(&self) -> bool {
        self.head().load(Ordering::Acquire) != 0
    }

    /// Share of the room that is in use.
    pub(super) fn fullness(&self) -> f32 {
        self.head().load(Ordering::Relaxed).wrapping_sub(self.tail) as f32 / self.size as f32
    }

    /// Calls `take` with the oldest record where it lies, or in `copied` if it wraps, and gives its room back. False if
    /// there is none.
    pub(super) fn next(&mut self, copied: &mut Vec<u8>, take: impl FnOnce(&[u8])) -> bool {
        let waiting = self.head().load(Ordering::Acquire).wrapping_sub(self.tail);
        if waiting < 8 {
            return false;
        }
        // The length is the last two bytes of a record's first eight, which never wrap: records are multiples of eight.
        let length = match self.record(8, copied) {
            &[.., low, high] => u64::from(u16::from_ne_bytes([low, high])),
            _ => 0,
        };
        let is_record = (8..=waiting).contains(&length);
        if is_record {
            take(self.record(length as usize, copied));
        }
        // What is no record the kernel does not write. Whatever it was, what follows is found again at the head.
        self.tail = self.tail.wrapping_add(if is_record { length } else { waiting });
        self.set_tail();
        is_record
    }

    /// Bytes from the tail on, which were written already.
    fn record<'a>(&'a self, bytes: usize, copied: &'a mut Vec<u8>) -> &'a [u8] {
        let start = (self.tail as usize) & (self.size - 1);
        let first = bytes.min(self.size - start);
        // SAFETY: the records lie behind the first page, `size` bytes that wrap; `start + first` is within them, and so is
        // what is left at their beginning, for a record is no longer than the buffer. The kernel does not write between tail
        // and head, and the tail stays while the slices live.
        let (first, rest) = unsafe {
            let data = self.map.as_mut_ptr().add(self.page);
            (std::slice::from_raw_parts(data.add(start), first), std::slice::from_raw_parts(data, bytes - first))
        };
        if rest.is_empty() {
            return first;
        }
        copied.clear();
        copied.extend_from_slice(first);
        copied.extend_from_slice(rest);
        copied
    }
}
