//! A thread's times off the CPU, from its switches. No system call.

use crate::stacks::stack_tree::NodeIndex;
use candlescope_core::ThreadState;
use candlescope_core::stacks::{MonotonicNs, RawStackSample};

/// Shorter times off the CPU are in the events only.
const LEAST_NS: u64 = 20_000;
/// Times off the CPU of a thread in a second that become samples; the others are in the events only.
const MOST_PER_SECOND: u32 = 2_000;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuState {
    Unknown,
    On,
    Off { since: u64, preempted: bool, stack: Option<NodeIndex> },
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct OffCpu {
    tid: u64,
    at: CpuState,
    /// The stack with which the thread is about to leave the CPU.
    leaving: Option<NodeIndex>,
    second: u64,
    in_second: u32,
}

/// A time off the CPU that has ended, and the stack that it began with.
pub(super) type EndedWait = (Option<NodeIndex>, RawStackSample);

impl OffCpu {
    pub(super) fn new(tid: u64) -> Self {
        Self { tid, at: CpuState::Unknown, leaving: None, second: 0, in_second: 0 }
    }

    /// The thread was seen waiting.
    pub(super) fn was_waiting(&mut self, time: u64) {
        self.at = CpuState::Off { since: time, preempted: false, stack: None };
    }

    pub(super) fn is_on(&self) -> Option<bool> {
        match self.at {
            CpuState::Unknown => None,
            CpuState::On => Some(true),
            CpuState::Off { .. } => Some(false),
        }
    }

    /// A sample that was taken on the way off the CPU.
    pub(super) fn leaves_with(&mut self, stack: Option<NodeIndex>) {
        self.leaving = stack;
    }

    pub(super) fn off(&mut self, time: u64, preempted: bool) {
        let stack = self.leaving.take();
        self.at = CpuState::Off { since: time, preempted, stack };
    }

    pub(super) fn on(&mut self, time: u64) -> Option<EndedWait> {
        let before = std::mem::replace(&mut self.at, CpuState::On);
        self.ended(before, time)
    }

    /// Events are missing.
    pub(super) fn forget(&mut self) {
        (self.at, self.leaving) = (CpuState::Unknown, None);
    }

    /// Sampling ends: a time off the CPU does too, as far as it counts.
    pub(super) fn finish(&mut self, time: u64) -> Option<EndedWait> {
        let before = std::mem::replace(&mut self.at, CpuState::Unknown);
        self.ended(before, time)
    }

    fn ended(&mut self, before: CpuState, time: u64) -> Option<EndedWait> {
        let CpuState::Off { since, preempted, stack } = before else { return None };
        let weight_ns = time.saturating_sub(since);
        if weight_ns < LEAST_NS {
            return None;
        }
        if self.second != time / 1_000_000_000 {
            (self.second, self.in_second) = (time / 1_000_000_000, 0);
        }
        if self.in_second >= MOST_PER_SECOND {
            return None;
        }
        self.in_second += 1;
        let state = if preempted { ThreadState::Preempted } else { ThreadState::Blocked };
        // Who waits does so in the kernel; so is who was preempted, from wherever it came.
        let kernel = (!preempted).then_some(true);
        Some((stack, RawStackSample { tid: self.tid, time: MonotonicNs(since), state, weight_ns, stack: None, kernel }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_becomes_a_sample_when_it_ends_and_a_short_one_does_not() {
        let mut thread = OffCpu::new(7);
        assert_eq!(thread.on(100), None, "where it was before is not known");
        thread.off(1_000, false);
        let (_, sample) = thread.on(51_000).unwrap();
        assert_eq!((sample.time, sample.weight_ns, sample.state), (MonotonicNs(1_000), 50_000, ThreadState::Blocked));
        thread.off(60_000, true);
        assert_eq!(thread.on(70_000), None);
        thread.off(80_000, true);
        thread.forget();
        assert_eq!(thread.on(900_000), None, "whether it was on meanwhile is not known");
        thread.off(1_000_000, true);
        let (_, sample) = thread.finish(1_100_000).unwrap();
        assert_eq!((sample.weight_ns, sample.state), (100_000, ThreadState::Preempted));
        assert_eq!(thread.finish(2_000_000), None);
    }

    #[test]
    fn more_waits_than_are_kept_are_in_the_events_alone() {
        let mut thread = OffCpu::new(7);
        let mut kept = 0;
        for i in 0..u64::from(MOST_PER_SECOND) + 5 {
            thread.off(i * 100_000, false);
            kept += u32::from(thread.on(i * 100_000 + 30_000).is_some());
        }
        assert_eq!(kept, MOST_PER_SECOND);
    }
}
