//! A thread that is sampled, by one source or two.

use super::mode::Mode;
use super::perf::{PerfThread, Reading};
use super::signals::SignalThread;
use super::stack_books::StackBooks;
use super::stack_options::StackOptions;
use super::stack_tree::NodeIndex;
use super::sys;
use super::thread_list;
use candlescope_core::stacks::{MonotonicNs, StackSink, ThreadChange, ThreadEvent};
use std::sync::Arc;

/// See the module's text.
pub(super) struct SampledThread {
    tid: u32,
    name: Arc<str>,
    pub(super) since: MonotonicNs,
    perf: Option<PerfThread>,
    signals: Option<SignalThread>,
    /// Whether the reading before brought samples by signals.
    was_sampled: bool,
    ended: bool,
    new_name: Option<String>,
}

impl SampledThread {
    /// Begins to sample a thread. `None` if no source may.
    pub(super) fn attach(tid: u32, name: &str, mode: Mode, options: &StackOptions, into: &mut StackSink) -> Option<Self> {
        let since = sys::monotonic();
        let mut perf = mode.perf.and_then(|mode| PerfThread::attach(tid, mode).ok());
        let signals = mode.signals.then(|| SignalThread::attach(tid, options.hz, options.stack_bytes).ok()).flatten();
        if perf.is_none() && signals.is_none() {
            return None;
        }
        if let Some(perf) = &mut perf {
            // Waiting before and after the kernel began to tell of switches, of which there was none: waiting all the time.
            if thread_list::is_waiting(tid) && perf.is_untouched() {
                perf.was_waiting(since);
            }
        }
        let thread =
            Self { tid, name: name.into(), since, perf, signals, was_sampled: false, ended: false, new_name: None };
        thread.tell_attached(since, into);
        Some(thread)
    }

    fn tell_attached(&self, time: MonotonicNs, into: &mut StackSink) {
        let switches = self.perf.as_ref().is_some_and(PerfThread::tells_switches);
        let change = ThreadChange::Attached {
            name: Arc::clone(&self.name),
            switches,
            page_faults: self.perf.as_ref().is_some_and(PerfThread::counts_faults),
            running: self.perf.as_ref().and_then(PerfThread::is_on),
        };
        into.events.push(ThreadEvent { tid: self.tid.into(), time, change });
    }

    /// Whether it ended; its number may be a new thread's already.
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.signals.as_ref().is_some_and(|timer| !timer.is_running())
    }

    /// Reads its name again.
    pub(super) fn read_name(&mut self) {
        if let Some(name) = thread_list::name(self.tid) {
            self.new_name = Some(name);
        }
    }

    /// Reads what was recorded, delivers it, and answers how many samples were lost. Page faults for which no record
    /// was due are read of a thread that ran, or if `faults`: a reading interrupts the processor that the thread is on,
    /// for some microseconds.
    pub(super) fn read(&mut self, books: &mut StackBooks, copied: &mut Vec<u8>, faults: bool, into: &mut StackSink) -> u64 {
        let mut lost = 0;
        // Signals are read below: that it ran is seen once more then.
        let mut ran = std::mem::take(&mut self.was_sampled);
        if let Some(perf) = &mut self.perf {
            let mut take = |reading: Reading<'_>| -> Option<NodeIndex> {
                ran = true;
                match reading {
                    Reading::Sample(sample, stack) => {
                        let node = stack.and_then(|(registers, stack)| books.node(registers, stack).0);
                        books.sample(node, sample, into);
                    }
                    Reading::OffCpu(sample, node) => books.sample(node, sample, into),
                    Reading::Event(event) => into.events.push(event),
                    Reading::Leaves(registers, stack) => return books.node(registers, stack).0,
                    Reading::Lost(count) => lost += count,
                    Reading::Name(name) => self.new_name = Some(name),
                    Reading::Ended => self.ended = true,
                }
                None
            };
            perf.read(copied, &mut take);
            // Right after: what signals brought takes a while to be unwound.
            if faults || ran {
                perf.read_faults(ran, &mut |reading| {
                    if let Reading::Event(event) = reading {
                        into.events.push(event);
                    }
                    None
                });
            }
        }
        if let Some(signals) = &mut self.signals {
            lost += signals.read(|mut sample, registers, stack| {
                self.was_sampled = true;
                sample.kernel = books.is_in_kernel(registers);
                let (node, end) = books.node(registers, stack);
                books.sample(node, sample, into);
                end
            });
        }
        lost
    }

    /// The share in use of the fuller one of its buffers.
    pub(super) fn fullness(&self) -> f32 {
        let perf = self.perf.as_ref().map_or(0.0, PerfThread::fullness);
        self.signals.as_ref().map_or(0.0, SignalThread::fullness).max(perf)
    }

    /// Tells of a new name. False if it is one of the profiler's own threads'.
    pub(super) fn follow_name(&mut self, into: &mut StackSink) -> bool {
        let Some(name) = self.new_name.take().filter(|name| **name != *self.name) else { return true };
        if thread_list::is_our_own(&name) {
            return false;
        }
        self.name = name.into();
        let time = self.read_until();
        into.events.push(ThreadEvent { tid: self.tid.into(), time, change: ThreadChange::Detached });
        self.tell_attached(time, into);
        true
    }

    /// Ends sampling it, and delivers the rest. The answer is how many samples were lost.
    pub(super) fn detach(mut self, books: &mut StackBooks, copied: &mut Vec<u8>, into: &mut StackSink) -> u64 {
        let lost = self.read(books, copied, true, into);
        let time = self.read_until();
        if let Some((node, sample)) = self.perf.as_mut().and_then(|perf| perf.finish(time)) {
            books.sample(node, sample, into);
        }
        into.events.push(ThreadEvent { tid: self.tid.into(), time, change: ThreadChange::Detached });
        lost
    }

    /// Events up to then were delivered, and later ones were not.
    fn read_until(&self) -> MonotonicNs {
        self.perf.as_ref().map_or_else(sys::monotonic, PerfThread::read_until)
    }
}
