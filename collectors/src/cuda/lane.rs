//! The hot path: one thread's end of the clock.

use super::driver_calls::{Context, Driver, Event, Fault, StreamId, relaxed};
use super::mark_pools::{ContextCell, Counters, Entry, MarkPools, Pool, Start};
use super::stream;
use candlescope_core::gpu::{GpuLane, GpuLanes, MarkId, NoMark};
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::Arc;

/// Events made at once. They are the cost of a thread's first mark in a context: half a millisecond or so (150 ns per
/// event, measured on an H200). The poller makes more before these run out. A small model with 500 spans a step marks
/// that often in some 20 ms.
pub(super) const CHUNK: usize = 4096;

/// Gives threads their lanes.
pub(super) struct Lanes<D: Driver>(pub(super) Arc<MarkPools<D>>);

impl<D: Driver> GpuLanes for Lanes<D> {
    fn lane(&self, thread: u32) -> Box<dyn GpuLane> {
        Box::new(Lane::new(self.0.clone(), thread, MarkId::FIRST))
    }
}

/// One thread's events in one context.
struct Events<D: Driver> {
    /// Which of the lane's pools, in the order in which the poller learns about them.
    number: u16,
    /// Events the device is done with, or fresh ones.
    free: Consumer<Event>,
    /// Taken from `free`, but the driver did not record it.
    spare: Option<Event>,
    /// Keeps the events from being ended while this lane may record them.
    _pool: Arc<Pool<D>>,
}

/// One context that the thread met.
struct Slot<D: Driver> {
    context: Context,
    /// `None` if no marks can be made in this context.
    cell: Option<Arc<ContextCell<D>>>,
    events: Option<Events<D>>,
}

/// One thread's end of the clock. Holds only a few words of memory until the thread's first mark in a context.
pub(super) struct Lane<D: Driver> {
    shared: Arc<MarkPools<D>>,
    counters: Arc<Counters>,
    number: u64,
    thread: u32,
    next: MarkId,
    marks: Option<Producer<Entry>>,
    pools: u16,
    slots: Vec<Slot<D>>,
    /// The slot of the last mark, because a thread seldom changes its context.
    last: usize,
}

impl<D: Driver> Lane<D> {
    /// `first` is the number of its first mark.
    pub(super) fn new(shared: Arc<MarkPools<D>>, thread: u32, first: MarkId) -> Self {
        let (number, counters) = shared.enlist();
        Self { shared, counters, number, thread, next: first, marks: None, pools: 0, slots: Vec::new(), last: 0 }
    }

    /// Where marks of this thread go now: the slot of its context, which is `last` then, and the stream. The stream captures
    /// no graph.
    #[inline]
    fn stream(&mut self) -> Result<(&Arc<ContextCell<D>>, StreamId), NoMark> {
        let context = self.shared.driver.current().ok_or(NoMark::NoContext)?;
        if self.slots.get(self.last).is_none_or(|s| s.context != context) {
            self.last = self.find_or_meet(context);
        }
        let slot = self.slots.get(self.last).ok_or(NoMark::Failed)?;
        let cell = slot.cell.as_ref().filter(|c| !c.is_dead()).ok_or(NoMark::Failed)?;
        let stream = stream::named().unwrap_or_else(|| cell.stream());
        // The legacy stream answers with an error while another stream captures.
        match self.shared.driver.capturing(stream) {
            Ok(false) => Ok((cell, stream)),
            Ok(true) => Err(NoMark::Capturing),
            Err(fault) => Err(refused(fault)),
        }
    }

    #[inline]
    fn try_mark(&mut self) -> Result<MarkId, NoMark> {
        let (_, stream) = self.stream()?;
        if self.slots.get(self.last).is_some_and(|slot| slot.events.is_none()) {
            self.open();
        }
        let (Some(slot), Some(marks)) = (self.slots.get_mut(self.last), &mut self.marks) else {
            return Err(NoMark::Failed);
        };
        let events = slot.events.as_mut().ok_or(NoMark::Failed)?;
        if marks.is_full() {
            return Err(NoMark::Full);
        }
        let event = events.spare.take().or_else(|| events.free.pop().ok()).ok_or(NoMark::Full)?;
        if let Err(fault) = self.shared.driver.record(event, stream) {
            events.spare = Some(event);
            return Err(refused(fault));
        }
        // There is room, and only this thread pushes. Published after the record: the poller never sees an event
        // without one.
        let _ = marks.push(Entry { event, stream, pool: events.number });
        let id = self.next;
        self.next = id.next();
        Ok(id)
    }

    #[cold]
    fn find_or_meet(&mut self, context: Context) -> usize {
        if let Some(known) = self.slots.iter().position(|s| s.context == context) {
            return known;
        }
        // A program that keeps making contexts gets no marks in the later ones, rather than an endless list.
        let room = self.slots.len() < usize::from(u16::MAX);
        let cell = if room { self.shared.cell(context) } else { None };
        if room {
            self.slots.push(Slot { context, cell, events: None });
            return self.slots.len() - 1;
        }
        usize::MAX
    }

    /// Makes the first events in the current context (the last slot's) and announces them to the poller.
    #[cold]
    fn open(&mut self) {
        let Some(slot) = self.slots.get_mut(self.last) else { return };
        let Some(cell) = &slot.cell else { return };
        let in_flight = self.shared.in_flight;
        let (mut handing, free) = RingBuffer::new(in_flight);
        let pool = Arc::new(Pool::new(cell.clone()));
        // Making events is a call that may break a capture of another thread; relaxed, it does not.
        let made = relaxed(&self.shared.driver, || pool.make(CHUNK.min(in_flight), &mut handing));
        if made.is_err() && pool.len() == 0 {
            // Trying again at each mark would cost more than the marks do.
            slot.cell = None;
            return;
        }
        let lane = self.number;
        if self.marks.is_none() {
            let (producer, consumer) = RingBuffer::new(in_flight);
            self.marks = Some(producer);
            self.shared.announce(Start::Lane { lane, thread: self.thread, first: self.next, marks: consumer });
        }
        self.shared.announce(Start::Pool { lane, pool: pool.clone(), free: handing });
        slot.events = Some(Events { number: self.pools, free, spare: None, _pool: pool });
        self.pools += 1; // There are fewer of them than slots.
    }
}

impl<D: Driver> GpuLane for Lane<D> {
    #[inline]
    fn mark(&mut self) -> Result<MarkId, NoMark> {
        let outcome = self.try_mark();
        self.counters.count(&outcome);
        outcome
    }

    fn wait(&mut self, ns: u64) -> Result<(), NoMark> {
        let (cell, stream) = self.stream()?;
        cell.wait(stream, ns).map_err(refused)
    }
}

fn refused(fault: Fault) -> NoMark {
    if fault.is_capture() { NoMark::Capturing } else { NoMark::Failed }
}
