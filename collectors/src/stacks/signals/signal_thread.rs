//! One thread's timer, and the samples that its signals took.

use super::slot::PLACES;
use super::sys::{self, ThreadTimer};
use crate::stacks::stack_walk::Registers;
use candlescope_core::ThreadState;
use candlescope_core::stacks::{MonotonicNs, RawStackSample};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Prepares the process for timers' signals. The answer is the signal.
pub(in crate::stacks) fn install() -> io::Result<i32> {
    sys::install()
}

/// How long a thread's room lasts that is sampled so many times a second, while an eighth of it is kept in reserve.
pub(in crate::stacks) fn room_for(hz: u32) -> Duration {
    Duration::from_secs(1) * (PLACES as u32 / 8 * 7) / hz.max(1)
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

    /// Share of the room for samples that is in use.
    pub(in crate::stacks) fn fullness(&self) -> f32 {
        self.timer.slot.state().waiting() as f32 / PLACES as f32
    }

    /// Reads the samples that were taken. `take` gets each with the registers and bytes of stack to unwind it from, and
    /// answers where the stack ends, if that came out. The answer is how many were lost since the last call.
    pub(in crate::stacks) fn read(
        &mut self,
        mut take: impl FnMut(RawStackSample, Registers, &[u8]) -> Option<u64>,
    ) -> u64 {
        let (tid, slot) = (self.tid.into(), self.timer.slot);
        while slot.next(|copy, stack| {
            let sample = RawStackSample {
                tid,
                time: MonotonicNs(copy.time),
                state: ThreadState::Running,
                weight_ns: copy.weight_ns,
                stack: None,
                kernel: None,
            };
            slot.state().ends_at(take(sample, copy.registers, stack));
        }) {}
        let dropped = slot.state().dropped.load(Ordering::Relaxed);
        dropped - std::mem::replace(&mut self.lost, dropped)
    }
}
