//! One thread's events and their buffer.

use super::event_kinds::EventKind;
use super::off_cpu::{EndedWait, OffCpu};
use super::ring_records::{self, RingRecord};
use super::switch_budget::{SwitchBudget, Turn};
use super::sys::{PerfEvent, RecordRing};
use crate::stacks::stack_tree::NodeIndex;
use crate::stacks::stack_walk::Registers;
use crate::stacks::sys as clock;
use candlescope_core::ThreadState;
use candlescope_core::stacks::{MonotonicNs, RawStackSample, ThreadChange, ThreadEvent};
use std::io;
use std::time::Duration;

/// Bytes of a buffer that holds no stacks: a thousand switches.
const SMALL_RING: usize = 64 << 10;

/// What is recorded of each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stacks) struct PerfMode {
    /// Samples; without them, switches and page faults alone.
    pub(in crate::stacks) samples: bool,
    /// What happens in the kernel is sampled too.
    pub(in crate::stacks) kernel: bool,
    /// Times off the CPU and page faults.
    pub(in crate::stacks) off_cpu: bool,
    pub(in crate::stacks) hz: u32,
    pub(in crate::stacks) stack_bytes: usize,
}

impl PerfMode {
    fn first(self) -> EventKind {
        match self.samples {
            true => EventKind::CpuClock { period_ns: self.period_ns(), stack_bytes: self.stack_bytes },
            false => EventKind::Carrier,
        }
    }

    fn period_ns(self) -> u64 {
        1_000_000_000 / u64::from(self.hz.max(1))
    }

    /// Whether stacks are copied into the buffer.
    fn copies_stacks(self) -> bool {
        self.samples || self.kernel && self.off_cpu
    }

    /// Longest time between two readings: what is recorded meanwhile has room, unless it is much more than usual.
    pub(in crate::stacks) fn longest_pause(self) -> Duration {
        Duration::from_millis(if self.copies_stacks() { 20 } else { 50 })
    }

    /// Room for what comes in 30 ms, should we be kept from a CPU for so long. Many threads only wait, and theirs is as
    /// large.
    fn ring_bytes(self) -> usize {
        if !self.copies_stacks() {
            return SMALL_RING;
        }
        let most = if self.samples { 256 } else { 8 };
        let samples = (self.hz as usize / 32).clamp(8, most) * if self.samples && self.off_cpu && self.kernel { 2 } else { 1 };
        (samples * (self.stack_bytes + 256)).next_power_of_two().max(SMALL_RING)
    }
}

/// Whether the kernel allows this mode for a thread of ours.
pub(in crate::stacks) fn is_allowed(mode: PerfMode) -> io::Result<()> {
    PerfEvent::open(&mode.first().attributes(mode.kernel), clock::thread_id()).map(drop)
}

/// What was read from a thread's buffer.
#[derive(Debug)]
pub(in crate::stacks) enum Reading<'a> {
    /// A sample, and what its stack is to be unwound from.
    Sample(RawStackSample, Option<(Registers, &'a [u8])>),
    /// A time off the CPU, whose stack was known before.
    OffCpu(RawStackSample, Option<NodeIndex>),
    Event(ThreadEvent),
    /// The thread is about to leave the CPU: the answer is the node of this stack.
    Leaves(Registers, &'a [u8]),
    Lost(u64),
    /// The thread has a new name.
    Name(String),
    Ended,
}

/// A thread's events while they are open.
#[derive(Debug)]
struct Events {
    // The buffer goes before the events whose it is.
    ring: RecordRing,
    first: PerfEvent,
    switches: Option<PerfEvent>,
    faults: Option<PerfEvent>,
}

impl Events {
    fn open(tid: u32, mode: PerfMode) -> io::Result<Self> {
        let first = PerfEvent::open(&mode.first().attributes(mode.kernel), tid)?;
        let mut bytes = mode.ring_bytes();
        let ring = loop {
            match RecordRing::map(&first, bytes) {
                Ok(ring) => break ring,
                // More than may be locked in memory.
                Err(_) if bytes > SMALL_RING => bytes /= 2,
                Err(error) => return Err(error),
            }
        };
        // What is missing of these is missing from the records, and no reason to record nothing.
        let also = |wanted: bool, kind: EventKind| {
            let event = wanted.then(|| PerfEvent::open(&kind.attributes(mode.kernel), tid).ok()).flatten()?;
            event.write_into(&first).ok()?;
            event.enable().ok()?;
            Some(event)
        };
        let switches = EventKind::Switches { hz: mode.hz, stack_bytes: mode.stack_bytes };
        let switches = also(mode.off_cpu && mode.kernel, switches);
        let faults = also(mode.off_cpu, EventKind::PageFaults);
        first.enable()?;
        Ok(Self { ring, first, switches, faults })
    }
}

/// See the module's text.
#[derive(Debug)]
pub(in crate::stacks) struct PerfThread {
    tid: u32,
    mode: PerfMode,
    /// `None` between two turns: an event that is there, though off, has the kernel look at it at each switch, which costs a
    /// thread that switches often more than what is recorded of it.
    events: Option<Events>,
    /// Whether page faults could be counted when it was attached.
    counts_faults: bool,
    off_cpu: OffCpu,
    budget: SwitchBudget,
    /// CPU time and page faults at the last sample of each.
    cpu_ns: u64,
    fault_count: u64,
    /// Everything that happened before was read.
    read_until: u64,
    /// Samples were lost since the last one: the CPU time between is not all of the next one's.
    gap: bool,
}

impl PerfThread {
    /// Begins to record a thread.
    pub(in crate::stacks) fn attach(tid: u32, mode: PerfMode) -> io::Result<Self> {
        let events = Events::open(tid, mode)?;
        let counts_faults = events.faults.is_some();
        let off_cpu = OffCpu::new(tid.into());
        let budget = SwitchBudget::new(clock::monotonic().0);
        let events = Some(events);
        Ok(Self { tid, mode, events, counts_faults, off_cpu, budget, cpu_ns: 0, fault_count: 0, read_until: 0, gap: false })
    }

    /// Whether page faults are reported.
    pub(in crate::stacks) fn counts_faults(&self) -> bool {
        self.counts_faults
    }

    /// Whether switches are reported.
    pub(in crate::stacks) fn tells_switches(&self) -> bool {
        self.mode.off_cpu
    }

    /// Whether the thread is on a CPU.
    pub(in crate::stacks) fn is_on(&self) -> Option<bool> {
        self.off_cpu.is_on()
    }

    /// Whether nothing was recorded so far: a thread that waited when it was attached still does.
    pub(in crate::stacks) fn is_untouched(&self) -> bool {
        !self.ring().is_some_and(RecordRing::was_written)
    }

    /// Share of its buffer that is in use.
    pub(in crate::stacks) fn fullness(&self) -> f32 {
        self.ring().map_or(0.0, RecordRing::fullness)
    }

    fn ring(&self) -> Option<&RecordRing> {
        self.events.as_ref().map(|events| &events.ring)
    }

    /// The thread waited when it was attached.
    pub(in crate::stacks) fn was_waiting(&mut self, since: MonotonicNs) {
        if self.mode.off_cpu {
            self.off_cpu.was_waiting(since.0);
        }
    }

    /// Reads what was recorded. `take` gets each reading, and answers with the node of a stack if it was given one.
    pub(in crate::stacks) fn read(
        &mut self,
        copied: &mut Vec<u8>,
        take: &mut impl FnMut(Reading<'_>) -> Option<NodeIndex>,
    ) {
        self.read_until = clock::monotonic().0;
        // Out of the way of what their records change.
        if let Some(mut events) = self.events.take() {
            let ids = (events.first.id, events.switches.as_ref().map(|event| event.id));
            while events.ring.next(copied, |record| self.record(ids, record, take)) {}
            self.events = Some(events);
        }
        // Perf's own samples stop with its switches: who asked for them gets both.
        if !self.mode.samples && self.mode.off_cpu {
            self.keep_budget(take);
        }
    }

    /// `first` and `switches` are the numbers of these events.
    fn record(
        &mut self,
        (first, switches): (u64, Option<u64>),
        record: &[u8],
        take: &mut impl FnMut(Reading<'_>) -> Option<NodeIndex>,
    ) {
        let copies = |id| id == first && self.mode.first().copies() || Some(id) == switches;
        match ring_records::read(record, copies) {
            Some(RingRecord::Sample { id, time, count, kernel, copied }) => {
                if id == first {
                    let sample = self.sample(time, count, kernel);
                    take(Reading::Sample(sample, copied));
                } else if Some(id) == switches {
                    let node = copied.and_then(|(registers, stack)| take(Reading::Leaves(registers, stack)));
                    self.off_cpu.leaves_with(node);
                } else {
                    self.faults_until(time, count, take);
                }
            }
            Some(RingRecord::Switch { time, out, preempted }) if self.mode.off_cpu => {
                self.budget.count();
                if out {
                    self.off_cpu.off(time, preempted);
                    self.event(time, ThreadChange::Off { preempted }, take);
                } else {
                    self.event(time, ThreadChange::On, take);
                    if let Some((node, sample)) = self.off_cpu.on(time) {
                        take(Reading::OffCpu(sample, node));
                    }
                }
            }
            Some(RingRecord::Lost { time, count }) => {
                self.off_cpu.forget();
                self.gap = true;
                take(Reading::Lost(count));
                self.event(time, ThreadChange::Lost, take);
            }
            Some(RingRecord::Name { name }) => {
                take(Reading::Name(name));
            }
            Some(RingRecord::Exit { tid, .. }) if tid == self.tid => {
                take(Reading::Ended);
            }
            _ => {}
        }
    }

    /// Switches are recorded for as long as they cost little.
    fn keep_budget(&mut self, take: &mut impl FnMut(Reading<'_>) -> Option<NodeIndex>) {
        match self.budget.turn(self.read_until) {
            Some(Turn::Off) => {
                self.read_faults(false, take);
                self.events = None;
                self.off_cpu.forget();
                self.event(self.read_until, ThreadChange::Paused, take);
            }
            Some(Turn::On) => {
                // It may have ended, and whoever watches over threads finds out; or too many files are open.
                let Ok(events) = Events::open(self.tid, self.mode) else { return self.budget.postpone(self.read_until) };
                self.events = Some(events);
                self.fault_count = 0;
                self.event(clock::monotonic().0, ThreadChange::Resumed, take);
            }
            None => {}
        }
    }

    /// Reports page faults for which no record was due yet, as of the last reading: what is read next is later than that.
    /// If there were none, that is reported too if it `tells_none`: a later record's do not reach back to before then.
    pub(in crate::stacks) fn read_faults(
        &mut self,
        tells_none: bool,
        take: &mut impl FnMut(Reading<'_>) -> Option<NodeIndex>,
    ) {
        let faults = self.events.as_ref().and_then(|events| events.faults.as_ref());
        if let Some(count) = faults.and_then(PerfEvent::count) {
            if count == self.fault_count && tells_none {
                self.event(self.read_until, ThreadChange::PageFaults(0), take);
            }
            self.faults_until(self.read_until, count, take);
        }
    }

    /// Events up to then were read, and later ones were not.
    pub(in crate::stacks) fn read_until(&self) -> MonotonicNs {
        MonotonicNs(self.read_until)
    }

    /// Recording ends. The answer is a time off the CPU that had not ended.
    pub(in crate::stacks) fn finish(&mut self, time: MonotonicNs) -> Option<EndedWait> {
        self.off_cpu.finish(time.0)
    }

    /// A sample stands for the CPU time since the one before. Where the kernel is not seen, or samples are missing, for a
    /// period: the time between is not all its own.
    fn sample(&mut self, time: u64, cpu_ns: u64, kernel: bool) -> RawStackSample {
        let since = cpu_ns.saturating_sub(self.cpu_ns);
        let weight_ns = if self.gap || !self.mode.kernel { self.mode.period_ns() } else { since };
        (self.cpu_ns, self.gap) = (cpu_ns, false);
        RawStackSample {
            tid: self.tid.into(),
            time: MonotonicNs(time),
            state: ThreadState::Running,
            weight_ns,
            stack: None,
            kernel: Some(kernel),
        }
    }

    fn faults_until(&mut self, time: u64, count: u64, take: &mut impl FnMut(Reading<'_>) -> Option<NodeIndex>) {
        let more = count.saturating_sub(self.fault_count);
        if more > 0 {
            self.fault_count = count;
            self.event(time, ThreadChange::PageFaults(u32::try_from(more).unwrap_or(u32::MAX)), take);
        }
    }

    fn event(&mut self, time: u64, change: ThreadChange, take: &mut impl FnMut(Reading<'_>) -> Option<NodeIndex>) {
        self.read_until = self.read_until.max(time);
        take(Reading::Event(ThreadEvent { tid: self.tid.into(), time: MonotonicNs(time), change }));
    }
}
