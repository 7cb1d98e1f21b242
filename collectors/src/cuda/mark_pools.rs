//! What lanes and the poller share. Locks are taken when a thread first uses a context, not for marks.

use super::driver_calls::{Context, Driver, Event, Fault, Kernel, StreamId, relaxed, within};
use super::stream::Stream;
use candlescope_core::gpu::{MarkId, NoMark};
use rtrb::{Consumer, Producer};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Contexts that can be distinguished: device numbers are a byte.
const MAX_CONTEXTS: usize = 256;

/// One mark under way, from its lane to the poller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) event: Event,
    pub(super) stream: StreamId,
    /// Which of the lane's pools, in the order they were announced.
    pub(super) pool: u16,
}

/// What lanes announce to the poller, in order.
pub(super) enum Start<D: Driver> {
    /// A thread made its first mark.
    Lane { lane: u64, thread: u32, first: MarkId, marks: Consumer<Entry> },
    /// A lane made its first mark in a context.
    Pool { lane: u64, pool: Arc<Pool<D>>, free: Producer<Event> },
}

/// A context that marks were made in.
pub(super) struct ContextCell<D: Driver> {
    driver: D,
    pub(super) context: Context,
    pub(super) ordinal: usize,
    /// Whether it is the device's primary context and is kept from ending until this is dropped. Events must not
    /// outlive their context: querying one afterwards would read freed memory.
    pub(super) retained: bool,
    stream: AtomicUsize,
    dead: AtomicBool,
    /// The kernel that only waits, once it was asked for; `None` if it cannot be had.
    waiter: OnceLock<Option<Kernel>>,
}

impl<D: Driver> ContextCell<D> {
    /// The stream for marks in this context.
    #[inline]
    pub(super) fn stream(&self) -> StreamId {
        StreamId(self.stream.load(Relaxed))
    }

    /// Whether the context was destroyed or broken.
    #[inline]
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// Launches the kernel that only waits into `stream`. The context is current.
    pub(super) fn wait(&self, stream: StreamId, ns: u64) -> Result<(), Fault> {
        let load = || relaxed(&self.driver, || self.driver.load_wait()).ok();
        let kernel = self.waiter.get_or_init(load).ok_or(Fault(500))?;
        self.driver.launch_wait(kernel, stream, ns)
    }

    /// From here on, no marks are made in this context and its events are not queried.
    pub(super) fn bury(&self) {
        self.dead.store(true, Relaxed);
    }
}

impl<D: Driver> Drop for ContextCell<D> {
    fn drop(&mut self) {
        if self.retained {
            relaxed(&self.driver, || self.driver.release(self.ordinal));
        }
    }
}

/// All events that were made for one thread in one context. Kept alive by the lane, the poller and whoever holds one of
/// the events.
pub(super) struct Pool<D: Driver> {
    pub(super) cell: Arc<ContextCell<D>>,
    events: Mutex<Vec<Event>>,
}

impl<D: Driver> Pool<D> {
    pub(super) fn new(cell: Arc<ContextCell<D>>) -> Self {
        Self { cell, events: Mutex::new(Vec::new()) }
    }

    /// Makes up to `wanted` events in the current context, which must be the pool's, and hands them to the lane.
    ///
    /// # Errors
    /// The driver refused; what was made until then is there.
    pub(super) fn make(&self, wanted: usize, free: &mut Producer<Event>) -> Result<(), Fault> {
        let mut events = lock(&self.events);
        for _ in 0..wanted.min(free.slots()) {
            let event = self.cell.driver.create()?;
            events.push(event);
            // There is room: this is the ring's only producer.
            let _ = free.push(event);
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.events).len()
    }
}

impl<D: Driver> Drop for Pool<D> {
    fn drop(&mut self) {
        if self.cell.is_dead() {
            return; // The events went with their context.
        }
        let driver = &self.cell.driver;
        let events = std::mem::take(&mut *lock(&self.events));
        // If the context cannot be entered any more, its events are gone too.
        let _ = relaxed(driver, || {
            within(driver, self.cell.context, || {
                events.into_iter().for_each(|event| driver.destroy(event));
                Ok(())
            })
        });
    }
}

/// What one lane counts. Written by its thread only, so plain stores are enough.
#[derive(Debug, Default)]
pub(super) struct Counters {
    recorded: AtomicU64,
    no_context: AtomicU64,
    capturing: AtomicU64,
    full: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    #[inline]
    pub(super) fn count(&self, outcome: &Result<MarkId, NoMark>) {
        let counter = match outcome {
            Ok(_) => &self.recorded,
            Err(NoMark::NoContext) => &self.no_context,
            Err(NoMark::Capturing) => &self.capturing,
            Err(NoMark::Full) => &self.full,
            Err(NoMark::Failed) => &self.failed,
        };
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }

    fn add_to(&self, sums: &mut Sums) {
        sums.recorded += self.recorded.load(Relaxed);
        sums.no_context += self.no_context.load(Relaxed);
        sums.capturing += self.capturing.load(Relaxed);
        sums.full += self.full.load(Relaxed);
        sums.failed += self.failed.load(Relaxed);
    }
}

/// Sums over lanes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) recorded: u64,
    pub(super) no_context: u64,
    pub(super) capturing: u64,
    pub(super) full: u64,
    pub(super) failed: u64,
}

/// The counters of the lanes that exist, and the sums of those that ended.
#[derive(Debug, Default)]
struct Book {
    live: Vec<Arc<Counters>>,
    gone: Sums,
}

/// What lanes and the poller share.
pub(super) struct MarkPools<D: Driver> {
    pub(super) driver: D,
    pub(super) in_flight: usize,
    cells: Mutex<Vec<Arc<ContextCell<D>>>>,
    /// Streams by ordinal; the last that fits counts. None is ever removed, because a lane may be about to use it.
    streams: Mutex<Vec<(usize, Stream)>>,
    starts: Mutex<Vec<Start<D>>>,
    book: Mutex<Book>,
    lanes: AtomicU64,
}

impl<D: Driver> MarkPools<D> {
    pub(super) fn new(driver: D, in_flight: usize, streams: Vec<(usize, Stream)>) -> Self {
        Self {
            driver,
            in_flight,
            cells: Mutex::default(),
            streams: Mutex::new(streams),
            starts: Mutex::new(Vec::new()),
            book: Mutex::default(),
            lanes: AtomicU64::new(0),
        }
    }

    /// The cell of the calling thread's current context, made if it is new; `None` if the driver does not tell its
    /// device, or if there are more contexts than can be numbered.
    pub(super) fn cell(&self, context: Context) -> Option<Arc<ContextCell<D>>> {
        let mut cells = lock(&self.cells);
        if let Some(known) = cells.iter().find(|c| c.context == context) {
            return Some(known.clone());
        }
        if cells.len() >= MAX_CONTEXTS {
            return None;
        }
        let (ordinal, retained) = relaxed(&self.driver, || {
            let ordinal = self.driver.ordinal().ok()?;
            Some((ordinal, self.driver.retain(ordinal, context)))
        })?;
        let stream = chosen(&lock(&self.streams), ordinal, context);
        let cell = Arc::new(ContextCell {
            driver: self.driver.clone(),
            context,
            ordinal,
            retained,
            stream: AtomicUsize::new(stream.0),
            dead: AtomicBool::new(false),
            waiter: OnceLock::new(),
        });
        cells.push(cell.clone());
        Some(cell)
    }

    /// Marks on a device go into `stream` from now on.
    pub(super) fn use_stream(&self, ordinal: usize, stream: Stream) {
        let cells = lock(&self.cells);
        let mut streams = lock(&self.streams);
        streams.push((ordinal, stream));
        for cell in cells.iter().filter(|c| c.ordinal == ordinal) {
            cell.stream.store(chosen(&streams, ordinal, cell.context).0, Relaxed);
        }
    }

    /// A number and counters for a new lane.
    pub(super) fn enlist(&self) -> (u64, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        let mut book = lock(&self.book);
        let Book { live, gone } = &mut *book;
        live.retain(|c| {
            let ended = Arc::strong_count(c) == 1;
            if ended {
                c.add_to(gone);
            }
            !ended
        });
        live.push(counters.clone());
        (self.lanes.fetch_add(1, Relaxed), counters)
    }

    /// Sums over all lanes so far.
    pub(super) fn sums(&self) -> Sums {
        let book = lock(&self.book);
        let mut sums = book.gone;
        book.live.iter().for_each(|c| c.add_to(&mut sums));
        sums
    }

    pub(super) fn announce(&self, start: Start<D>) {
        lock(&self.starts).push(start);
    }

    pub(super) fn announced(&self) -> Vec<Start<D>> {
        std::mem::take(&mut *lock(&self.starts))
    }
}

fn chosen(streams: &[(usize, Stream)], ordinal: usize, context: Context) -> StreamId {
    let fitting = streams.iter().rev().find(|(of, stream)| *of == ordinal && stream.fits(context));
    fitting.map_or(StreamId::PER_THREAD, |(_, stream)| stream.id())
}

/// A poisoned lock can be used: every change to these lists is one push or one take, so a panic leaves them consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
