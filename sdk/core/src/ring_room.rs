//! The memory for all threads' rings. A thread whose first span comes when little is left gets a smaller ring, or in
//! the end none.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

/// Records of the smallest ring that justifies its thread's other state. If a session's rings are smaller than this,
/// its smallest ring has their size.
const LEAST: usize = 256;

/// Bytes of one record in a ring.
const RECORD: u64 = size_of::<crate::raw::Raw>() as u64;

/// The room for a session's rings, and how much of it is used.
#[derive(Debug)]
pub(crate) struct RingRoom {
    limit: u64,
    used: AtomicU64,
}

/// A thread's part of the room, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct RingShare {
    room: Arc<RingRoom>,
    bytes: u64,
}

impl Drop for RingShare {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Relaxed);
    }
}

impl RingRoom {
    /// Room of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Room for one more thread's ring, and for `state` bytes in addition. Returns how many records the ring holds, at
    /// most `capacity`; `None` if there is no room for one.
    ///
    /// Overload policy: while three quarters are free, rings are as large as was asked for. From there on they shrink
    /// with the fourth power of the free share, so that with the defaults a thousand threads have at least a small one:
    /// losing part of many threads' records leaves more information than losing all records of some.
    pub(crate) fn take(self: &Arc<Self>, capacity: usize, state: u64) -> Option<(usize, RingShare)> {
        let mut records = 0;
        let grant = |used: u64| {
            let free = self.limit.saturating_sub(used);
            let share = (free as f64 / (self.limit as f64 * 0.75)).min(1.0);
            records = ((capacity as f64 * share * share * share * share) as usize).max(LEAST).min(capacity);
            let bytes = records as u64 * RECORD + state;
            (bytes <= free).then(|| used + bytes)
        };
        let before = self.used.fetch_update(Relaxed, Relaxed, grant).ok()?;
        let bytes = records as u64 * RECORD + state;
        debug_assert!(before + bytes <= self.limit);
        Some((records, RingShare { room: self.clone(), bytes }))
    }

    /// Whether rings are smaller than was asked for; the rings of threads that have ended should then be freed soon.
    pub(crate) fn is_scarce(&self) -> bool {
        self.used.load(Relaxed) > self.limit / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: u64 = 75 << 10;

    fn rings(room: &Arc<RingRoom>, threads: usize) -> Vec<(usize, RingShare)> {
        std::iter::from_fn(|| room.take(32_768, STATE)).take(threads).collect()
    }

    #[test]
    fn a_thousand_threads_find_room_and_no_number_takes_more_than_there_is() {
        let room = Arc::new(RingRoom::new(256 << 20));
        let mut all = rings(&room, 100_000);
        assert!((1_000..2_000).contains(&all.len()), "{}", all.len());
        assert!(all.iter().take(24).all(|(records, _)| *records == 32_768), "the first are not short of anything");
        assert!(all.windows(2).all(|pair| pair[1].0 <= pair[0].0) && all.iter().all(|(records, _)| *records >= LEAST));
        let bytes: u64 = all.iter().map(|(records, _)| *records as u64 * RECORD + STATE).sum();
        assert!(bytes <= 256 << 20 && room.used.load(Relaxed) == bytes && room.is_scarce());
        // Later threads get what threads that end give back.
        all.truncate(10);
        assert!(!room.is_scarce());
        assert_eq!(room.take(32_768, STATE).map(|(records, _)| records), Some(32_768));
        drop(all);
        assert_eq!(room.used.load(Relaxed), 0);
    }

    #[test]
    fn small_rings_stay_as_they_were_asked_for() {
        let room = Arc::new(RingRoom::new(1 << 20));
        let all: Vec<_> = std::iter::from_fn(|| room.take(128, 0)).collect();
        assert!(all.iter().all(|(records, _)| *records == 128) && all.len() == (1 << 20) / (128 * 64));
        assert!(Arc::new(RingRoom::new(0)).take(128, 0).is_none());
    }
}
