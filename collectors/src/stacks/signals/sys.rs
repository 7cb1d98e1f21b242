//! Timers on threads' CPU clocks, and the handler of their signal.
//!
//! The handler allocates nothing, takes no lock and makes three system calls at most. It stays installed for the life of the
//! process: a signal that comes late would end the program otherwise.
#![allow(unsafe_code, reason = "a signal's handler")]
#![deny(unsafe_op_in_unsafe_fn)]

use super::slot::{CopiedSample, PLACES, SlotIndex, SlotState};
use crate::stacks::stack_walk::Registers;
use crate::stacks::sys as clock;
use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// Threads that may be sampled at a time.
pub(super) const MAX_SLOTS: usize = 1024;
/// Marks our timers' signals among others.
const MARK: u64 = 0xC5A7;

/// A thread's slot: where its handler writes.
pub(super) struct Slot {
    state: SlotState,
    copies: [UnsafeCell<MaybeUninit<CopiedSample>>; PLACES],
    stacks: Box<[UnsafeCell<u8>]>,
    stack_bytes: usize,
    /// Both ends of a pipe, where memory cannot be copied by `process_vm_readv`; else −1.
    pipe: (AtomicI32, AtomicI32),
}

// SAFETY: the cells are written by who has a `SlotIndex` of `SlotState::place`, for which it has entered, as one
// handler at a time does, and read by the one sampler that has one of `SlotState::oldest`. The two never have the same
// index: `place` gives none that waits to be read, and both sides publish with release what the other acquires.
unsafe impl Sync for Slot {}

impl Slot {
    fn new(stack_bytes: usize) -> Self {
        // Pages that no stack has reached yet take no memory.
        let stacks = Box::into_raw(vec![0u8; PLACES * stack_bytes].into_boxed_slice());
        Self {
            state: SlotState::default(),
            copies: [const { UnsafeCell::new(MaybeUninit::uninit()) }; PLACES],
            // SAFETY: the pointer is the box's, which nobody else has, and `UnsafeCell<u8>` is in memory what `u8` is.
            stacks: unsafe { Box::from_raw(stacks as *mut [UnsafeCell<u8>]) },
            stack_bytes,
            pipe: (AtomicI32::new(-1), AtomicI32::new(-1)),
        }
    }

    pub(super) fn state(&self) -> &SlotState {
        &self.state
    }

    fn stack(&self, place: &SlotIndex) -> *mut u8 {
        self.stacks[place.index * self.stack_bytes..].as_ptr().cast_mut().cast()
    }

    /// Calls `take` with the oldest sample that waits and its stack, where they lie. False if there is none.
    pub(super) fn next(&self, take: impl FnOnce(CopiedSample, &[u8])) -> bool {
        let Some(place) = self.state.oldest() else { return false };
        // SAFETY: the place is ours until it is released, and whoever published it had written it.
        let copy = unsafe { (*self.copies[place.index].get()).assume_init() };
        // SAFETY: the bytes are this place's, written up to `copy.stack`, which is no more than a place has.
        let bytes = unsafe { std::slice::from_raw_parts(self.stack(&place), copy.stack.min(self.stack_bytes)) };
        take(copy, bytes);
        self.state.release(place);
        true
    }
}

/// Slots by number; those that were never used are null. Slots live forever.
static SLOTS: [AtomicPtr<Slot>; MAX_SLOTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_SLOTS];
/// Numbers of slots that no thread has, and how many there are at all.
static FREE: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

fn slot(index: usize) -> Option<&'static Slot> {
    let slot = SLOTS.get(index)?.load(Ordering::Acquire);
    // SAFETY: a pointer that is not null was leaked from a box, and is never freed.
    unsafe { slot.as_ref() }
}

/// A thread's timer and slot.
pub(super) struct ThreadTimer {
    timer: libc::timer_t,
    index: usize,
    pub(super) slot: &'static Slot,
}

// SAFETY: a timer's number may be used by any thread of its process.
unsafe impl Send for ThreadTimer {}

impl ThreadTimer {
    /// Begins to send the handler's signal to a thread, each so many nanoseconds of its CPU time.
    pub(super) fn start(tid: u32, period_ns: u64, stack_bytes: usize) -> io::Result<Self> {
        let (index, slot) = take_slot(stack_bytes)?;
        let generation = slot.state.begin();
        let give_back = |error| {
            slot.state.end();
            give_slot_back(index, slot);
            Err(error)
        };
        // SAFETY: zeroes are a valid `sigevent`.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL.load(Ordering::Relaxed);
        event.sigev_notify_thread_id = tid as libc::pid_t;
        event.sigev_value.sival_ptr = (MARK << 48 | u64::from(generation) << 16 | index as u64) as *mut _;
        // The clock of a thread's CPU time, as the kernel numbers them.
        let clock = (!(tid as libc::clockid_t) << 3) | 6;
        let mut timer = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        if unsafe { libc::timer_create(clock, &mut event, &mut timer) } != 0 {
            return give_back(io::Error::last_os_error());
        }
        slot.state.cpu_ns.store(clock::clock(clock), Ordering::Relaxed);
        let period = libc::timespec { tv_sec: (period_ns / 1_000_000_000) as _, tv_nsec: (period_ns % 1_000_000_000) as _ };
        let period = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was made above, and the pointer is valid for the call.
        if unsafe { libc::timer_settime(timer, 0, &period, std::ptr::null_mut()) } != 0 {
            let error = io::Error::last_os_error();
            // SAFETY: the timer was made above, and is not used again.
            unsafe { libc::timer_delete(timer) };
            return give_back(error);
        }
        Ok(Self { timer, index, slot })
    }

    /// Whether the thread whose clock it is lives.
    pub(super) fn is_running(&self) -> bool {
        let mut left: libc::itimerspec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        };
        // SAFETY: the timer is not deleted before `drop`, and the pointer is valid for the call.
        let outcome = unsafe { libc::timer_gettime(self.timer, &mut left) };
        outcome == 0 && (left.it_value.tv_sec, left.it_value.tv_nsec) != (0, 0)
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: made by `start`, and deleted here only.
        unsafe { libc::timer_delete(self.timer) };
        self.slot.state.end();
        give_slot_back(self.index, self.slot);
    }
}

fn take_slot(stack_bytes: usize) -> io::Result<(usize, &'static Slot)> {
    let mut free = FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // One whose last handler has ended. Who samples again with larger stacks gets new ones.
    let fits = |index: &usize| {
        slot(*index).is_some_and(|s| s.stack_bytes == stack_bytes && !s.state.is_busy())
    };
    if let Some(at) = free.0.iter().position(fits) {
        let index = free.0.swap_remove(at);
        if let Some(slot) = slot(index) {
            // What nobody read is not the new thread's.
            while let Some(place) = slot.state.oldest() {
                slot.state.release(place);
            }
            return Ok((index, slot));
        }
    }
    let index = free.1;
    let place = SLOTS.get(index).ok_or_else(|| io::Error::other("too many threads"))?;
    free.1 += 1;
    let slot: &'static Slot = Box::leak(Box::new(Slot::new(stack_bytes)));
    if !COPIES_OWN_MEMORY.load(Ordering::Relaxed) {
        let mut ends = [-1; 2];
        // SAFETY: the pointer is valid for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } == 0 {
            slot.pipe.0.store(ends[0], Ordering::Relaxed);
            slot.pipe.1.store(ends[1], Ordering::Relaxed);
        }
    }
    place.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Release);
    Ok((index, slot))
}

fn give_slot_back(index: usize, _: &'static Slot) {
    FREE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0.push(index);
}

/// The signal that the handler is installed for; 0 before that.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// What handled `SIGPROF` before: its address and flags.
static BEFORE: (AtomicU64, AtomicI32) = (AtomicU64::new(0), AtomicI32::new(0));
/// Our process's number. A child of `fork` has no timers.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Whether `process_vm_readv` may be used; else a pipe copies.
static COPIES_OWN_MEMORY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Installs the handler, once for the process. The answer is its signal.
pub(super) fn install() -> io::Result<i32> {
    static INSTALLED: Mutex<()> = Mutex::new(());
    let _once = INSTALLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // A child of `fork` that samples itself has the handler already, and a number of its own.
    // SAFETY: takes nothing and cannot fail.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    let installed = SIGNAL.load(Ordering::Relaxed);
    if installed != 0 && is_installed() {
        return Ok(installed);
    }
    COPIES_OWN_MEMORY.store(can_copy_own_memory(), Ordering::Relaxed);
    let free = (libc::SIGRTMIN() + 1..=libc::SIGRTMAX()).rev().find(|signal| disposition(*signal).is_some_and(|d| d.0 == libc::SIG_DFL as u64));
    let signal = free.unwrap_or(libc::SIGPROF);
    if let Some((address, flags)) = disposition(signal) {
        BEFORE.0.store(address, Ordering::Relaxed);
        BEFORE.1.store(flags, Ordering::Relaxed);
    }
    // SAFETY: zeroes are a valid `sigaction`: no signal is blocked meanwhile but its own.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and both pointers are valid or null.
    if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    SIGNAL.store(signal, Ordering::Relaxed);
    Ok(signal)
}

/// Whether the program has not put another handler in ours' place.
pub(super) fn is_installed() -> bool {
    disposition(SIGNAL.load(Ordering::Relaxed)).is_some_and(|d| d.0 == handler as *const () as u64)
}

fn disposition(signal: i32) -> Option<(u64, i32)> {
    // SAFETY: zeroes are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: nothing is installed; the pointer is valid for the answer.
    let outcome = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    (outcome == 0).then_some((action.sa_sigaction as u64, action.sa_flags))
}

/// Whether the process may read its own memory by `process_vm_readv`: sandboxes refuse it.
fn can_copy_own_memory() -> bool {
    let (from, mut to) = ([0xA5_u8; 16], [0_u8; 16]);
    let copied = copy_by_call(from.as_ptr() as u64, to.as_mut_ptr(), to.len());
    copied == to.len() && from == to
}

/// Bytes copied from an address, which may be of no memory: as many as there are. Keeps nothing of `errno`.
fn copy_by_call(from: u64, to: *mut u8, length: usize) -> usize {
    const PAGE: u64 = 4096;
    // The call copies whole parts or none of each: a part for each page.
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 17];
    let (mut at, mut left, mut count) = (from, length as u64, 0);
    while left > 0 && count < parts.len() {
        let bytes = left.min(PAGE - at % PAGE);
        parts[count] = libc::iovec { iov_base: at as *mut _, iov_len: bytes as usize };
        (at, left, count) = (at.wrapping_add(bytes), left - bytes, count + 1);
    }
    let into = libc::iovec { iov_base: to.cast(), iov_len: length };
    // SAFETY: `to` has room for `length` bytes; the kernel checks where they come from.
    let copied = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            PROCESS.load(Ordering::Relaxed),
            &raw const into,
            1_usize,
            parts.as_ptr(),
            count,
            0_usize,
        )
    };
    usize::try_from(copied).unwrap_or(0)
}

/// As [`copy_by_call`], through a pipe: writing from memory that is not there is an error, and no crash.
fn copy_by_pipe(slot: &Slot, from: u64, to: *mut u8, length: usize) -> usize {
    let (read_end, write_end) = (slot.pipe.0.load(Ordering::Relaxed), slot.pipe.1.load(Ordering::Relaxed));
    if write_end < 0 {
        return 0;
    }
    // A pipe holds 64 KiB, more than a stack's copy; it is empty between two copies, for what is written is read at once.
    // SAFETY: the kernel checks where bytes come from, and `to` has room for as many as were written.
    unsafe {
        let written = libc::write(write_end, from as *const _, length);
        match usize::try_from(written) {
            Ok(written) if written > 0 => usize::try_from(libc::read(read_end, to.cast(), written)).unwrap_or(0),
            _ => 0,
        }
    }
}

/// Takes a sample of the thread that it interrupts, if the signal is one of our timers'.
unsafe extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the address of the thread's own error number.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel passes a valid description.
    let (code, value) = unsafe { ((*info).si_code, (*info).si_value().sival_ptr as u64) };
    if code == libc::SI_TIMER && value >> 48 == MARK {
        let generation = (value >> 16 & 0xFF_FFFF) as u32;
        if let Some(slot) = slot((value & 0xFFFF) as usize)
            && slot.state.enter(generation)
        {
            // SAFETY: a handler's third argument is the interrupted thread's context.
            let registers = unsafe { registers(&*context.cast::<libc::ucontext_t>()) };
            copy_sample(slot, registers);
            slot.state.leave();
        }
    } else if signal == libc::SIGPROF {
        // SAFETY: the arguments are those that the handler before ours was to get.
        unsafe { call_before(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn copy_sample(slot: &Slot, registers: Registers) {
    let cpu_ns = clock::clock(libc::CLOCK_THREAD_CPUTIME_ID);
    // Without room too: the time of a sample that is lost is not the next one's.
    let before = slot.state.cpu_ns.swap(cpu_ns, Ordering::Relaxed);
    let Some(place) = slot.state.place() else { return };
    let (stack, bytes) = (slot.stack(&place), slot.state.wanted(registers.sp, slot.stack_bytes));
    let stack = match COPIES_OWN_MEMORY.load(Ordering::Relaxed) {
        true => copy_by_call(registers.sp, stack, bytes),
        false => copy_by_pipe(slot, registers.sp, stack, bytes),
    };
    let time = clock::clock(libc::CLOCK_MONOTONIC);
    let sample = CopiedSample { time, weight_ns: cpu_ns.saturating_sub(before), registers, stack };
    // SAFETY: the place is ours until it is published.
    unsafe { (*slot.copies[place.index].get()).write(sample) };
    slot.state.publish(place);
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let of = |register: libc::c_int| context.uc_mcontext.gregs[register as usize] as u64;
    Registers { ip: of(libc::REG_RIP), sp: of(libc::REG_RSP), fp: of(libc::REG_RBP), lr: 0 }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { ip: machine.pc, sp: machine.sp, fp: machine.regs[29], lr: machine.regs[30] }
}

/// # Safety
/// The arguments are a handler's.
unsafe fn call_before(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let address = BEFORE.0.load(Ordering::Relaxed) as usize;
    if address == libc::SIG_DFL || address == libc::SIG_IGN {
        return;
    }
    if BEFORE.1.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 {
        // SAFETY: it was installed as a handler of this signature.
        let before: unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(address) };
        // SAFETY: these are its arguments.
        unsafe { before(signal, info, context) };
    } else {
        // SAFETY: as above, with the older signature.
        let before: unsafe extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(address) };
        // SAFETY: this is its argument.
        unsafe { before(signal) };
    }
}
