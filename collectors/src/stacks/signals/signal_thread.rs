//! One thread's timer, and the samples that its signals took.

use super::sys::{self, ThreadTimer};
use crate::stacks::stack_walk::Registers;
use candlescope_core::ThreadState;
use candlescope_core::stacks::{MonotonicNs, RawStackSample};
use std::io;
use std::sync::atomic::Ordering;

/// Prepares the process for timers' signals. The answer is the signal.
pub(in crate::stacks) fn install() -> io::Result<i32> {
    sys::install()
}

/// Whether nobody took the signal away.
pub(in crate::stacks) fn is_installed() -> bool {
    sys::is_installed()
}

/// See the module's text.
pub(in crate::stacks) struct SignalThread {
    tid: u32,
    timer: ThreadTimer,
    lost: u64,
}

impl SignalThread {
    /// Begins to sample a thread; [`install`] was called before.
    pub(in crate::stacks) fn attach(tid: u32, hz: u32, stack_bytes: usize) -> io::Result<Self> {
        let timer = ThreadTimer::start(tid, 1_000_000_000 / u64::from(hz.max(1)), stack_bytes)?;
        Ok(Self { tid, timer, lost: 0 })
    }

    /// Whether the thread lives.
    pub(in crate::stacks) fn is_running(&self) -> bool {
        self.timer.is_running()
    }

    /// Reads the samples that were taken. `take` gets each with the registers and bytes of stack to unwind it from. The
    /// answer is how many were lost since the last call.
    pub(in crate::stacks) fn read(&mut self, stack: &mut Vec<u8>, mut take: impl FnMut(RawStackSample, Registers, &[u8])) -> u64 {
        while let Some(copy) = self.timer.slot.next(stack) {
            let sample = RawStackSample {
                tid: self.tid.into(),
                time: MonotonicNs(copy.time),
                state: ThreadState::Running,
                weight_ns: copy.weight_ns,
                stack: None,
                kernel: None,
            };
            take(sample, copy.registers, stack);
        }
        let dropped = self.timer.slot.state().dropped.load(Ordering::Relaxed);
        dropped - std::mem::replace(&mut self.lost, dropped)
    }
}
