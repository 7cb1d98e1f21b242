//! One lane's marks that are under way, on the poller's side.

use super::driver_calls::{Driver, Event, Fault};
use super::mark_pools::{Entry, Pool};
use super::stream_marks::{Bracket, SettledMark, Track, WaitingMark};
use candlescope_core::HostNs;
use candlescope_core::gpu::{DeviceNs, MarkId};
use rtrb::{Consumer, Producer};
use std::collections::VecDeque;
use std::sync::Arc;

/// Streams remembered without a mark in them.
const IDLE_TRACKS: usize = 16;

/// One of the lane's pools: the events it takes from, and gets back through.
pub(super) struct PoolState<D: Driver> {
    pub(super) pool: Arc<Pool<D>>,
    /// Number of its context.
    pub(super) device: u8,
    pub(super) free: Producer<Event>,
    pub(super) total: usize,
    /// Events the lane had left when this round began: the fewest since the round before.
    pub(super) left: usize,
}

impl<D: Driver> PoolState<D> {
    /// Events that should be made: their number doubles once more than a quarter were in use at a time, up to the
    /// ring's capacity. It is a quarter rather than half because the poller runs less often while it knows that there
    /// is room.
    pub(super) fn wanted(&self) -> usize {
        /// Bounds the cost of one round, at about a microsecond per event.
        const MOST: usize = 4096;
        if self.left * 4 >= self.total * 3 {
            return 0;
        }
        self.total.min(MOST).min(self.free.buffer().capacity() - self.total)
    }
}

/// A mark in the lane's order.
#[derive(Debug, Clone, Copy)]
struct QueuedMark {
    device: u8,
    /// Whether it is settled, and when the device passed it.
    settled: Option<Option<DeviceNs>>,
}

/// What a visit to a track found.
pub(super) struct Visit {
    /// Which pool the track's events are of.
    pub(super) pool: u16,
    /// Marks for which the driver gave no time.
    pub(super) refused: u64,
    /// Marks that have waited too long.
    pub(super) aged: u64,
    /// A bracket around one of the times, if there is one; an error if the context is lost.
    pub(super) outcome: Result<Option<Bracket>, Fault>,
}

/// One lane's marks that are under way.
pub(super) struct Backlog<D: Driver> {
    pub(super) lane: u64,
    pub(super) thread: u32,
    marks: Consumer<Entry>,
    pub(super) pools: Vec<PoolState<D>>,
    pub(super) tracks: Vec<Track>,
    places: VecDeque<QueuedMark>,
    /// `seq` of the first place; the lane's marks are counted from 0 here.
    first: u64,
    /// Its id.
    id: MarkId,
}

impl<D: Driver> Backlog<D> {
    pub(super) fn new(lane: u64, thread: u32, first: MarkId, marks: Consumer<Entry>) -> Self {
        Self {
            lane,
            thread,
            marks,
            pools: Vec::new(),
            tracks: Vec::new(),
            places: VecDeque::new(),
            first: 0,
            id: first,
        }
    }

    /// Takes what the lane recorded since the last round.
    ///
    /// Overload policy: with `most` marks not yet reported, because one stream hangs or there is no anchor yet, the
    /// rest stays in the ring, until that is full and new marks are refused and counted.
    pub(super) fn drain(&mut self, now: HostNs, most: usize) {
        for pool in &mut self.pools {
            pool.left = pool.free.buffer().capacity() - pool.free.slots();
        }
        while self.places.len() < most {
            // A pool not announced yet when the announcements were read, a moment ago, is there in the next round.
            let Some(entry) = self.marks.peek().ok().copied() else { break };
            let Some(pool) = self.pools.get(usize::from(entry.pool)) else { break };
            let place = QueuedMark { device: pool.device, settled: None };
            let _ = self.marks.pop();
            let mark = WaitingMark {
                seq: self.first + self.places.len() as u64,
                event: entry.event,
                since: now,
                incomplete: None,
            };
            self.places.push_back(place);
            self.track(entry).waiting.push_back(mark);
        }
    }

    fn track(&mut self, entry: Entry) -> &mut Track {
        let fits = |t: &Track| t.pool == entry.pool && t.stream == entry.stream;
        let at = self.tracks.iter().position(fits).unwrap_or_else(|| {
            if self.tracks.len() >= IDLE_TRACKS {
                self.tracks.retain(|t| !t.waiting.is_empty());
            }
            self.tracks.push(Track::new(entry.pool, entry.stream));
            self.tracks.len() - 1
        });
        &mut self.tracks[at]
    }

    /// Whether a track's marks are in context `device`.
    pub(super) fn is_in(&self, track: usize, device: u8) -> bool {
        let pool = self.tracks.get(track).and_then(|t| self.pools.get(usize::from(t.pool)));
        pool.is_some_and(|p| p.device == device)
    }

    /// Takes out of a track the marks that the device has passed, with times counted from `from`, and those from before
    /// `limit`, which have waited too long.
    pub(super) fn visit(
        &mut self,
        track: usize,
        driver: &D,
        (host, limit): (&dyn Fn() -> HostNs, HostNs),
        from: Option<(Event, DeviceNs)>,
        settled: &mut Vec<SettledMark>,
    ) -> Visit {
        let track = &mut self.tracks[track];
        let outcome = track.settle(driver, host, from, settled);
        let refused = settled.iter().filter(|s| s.at.is_none()).count() as u64;
        let known = settled.len();
        track.age(limit, settled);
        Visit { pool: track.pool, refused, aged: (settled.len() - known) as u64, outcome }
    }

    pub(super) fn settle(&mut self, settled: &SettledMark) {
        let place = settled.seq.checked_sub(self.first).and_then(|at| self.places.get_mut(at as usize));
        if let Some(place) = place {
            place.settled = Some(settled.at);
        }
    }

    /// Gives an event back to the lane.
    pub(super) fn give_back(&mut self, pool: u16, event: Event) {
        if let Some(pool) = self.pools.get_mut(usize::from(pool)) {
            // There is room: the ring holds as many as the pool ever has.
            let _ = pool.free.push(event);
        }
    }

    /// Settles all marks in a context that is lost, and says how many they were.
    pub(super) fn lose(&mut self, device: u8) -> u64 {
        let mut lost = 0;
        for track in 0..self.tracks.len() {
            if self.is_in(track, device) {
                for mark in std::mem::take(&mut self.tracks[track].waiting) {
                    self.settle(&SettledMark { seq: mark.seq, event: mark.event, at: None });
                    lost += 1;
                }
            }
        }
        lost
    }

    /// The next mark in order if it is settled: its id, context and time. It is taken out if `take` says so.
    pub(super) fn next_if<T>(&mut self, take: impl FnOnce(MarkId, u8, Option<DeviceNs>) -> Option<T>) -> Option<T> {
        let place = self.places.front()?;
        let outcome = take(self.id, place.device, place.settled?)?;
        self.places.pop_front();
        self.first += 1;
        self.id = self.id.next();
        Some(outcome)
    }

    /// Marks not yet reported.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the thread has ended and everything it marked is reported.
    pub(super) fn is_over(&self) -> bool {
        // In this order: a lane that was found abandoned has pushed its last mark before.
        self.marks.is_abandoned() && self.marks.is_empty() && self.places.is_empty()
    }
}
