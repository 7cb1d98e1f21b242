//! The memory that CUPTI writes records into, handed back and forth between its callbacks and the thread that reads
//! them.
//!
//! CUPTI asks for a buffer and returns it on threads of the application, in the middle of their launches. So these
//! callbacks run only a few instructions, under a lock that is never held longer; allocating, clearing and reading are
//! done elsewhere.

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Memory for records: zeroed, aligned to eight bytes.
#[derive(Debug)]
pub(super) struct Buffer(Box<[u64]>);

impl Buffer {
    fn zeroed(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8).max(1)].into_boxed_slice())
    }

    pub(super) fn from_words(words: Box<[u64]>) -> Self {
        Self(words)
    }

    pub(super) fn into_words(self) -> Box<[u64]> {
        self.0
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

/// A buffer that CUPTI is done with.
#[derive(Debug)]
pub(super) struct FilledBuffer {
    pub(super) buffer: Buffer,
    /// Bytes of records at its beginning.
    pub(super) valid: usize,
    /// It came while CUPTI left the process: what its records point to is gone with it.
    pub(super) is_late: bool,
}

/// All buffers, whatever their state.
///
/// Overload policy: no more than `most` exist, wherever they are. When all are in use, CUPTI gets none, drops records
/// and counts them: recording must not use up the memory of the program that it records.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: Vec<Buffer>,
    filled: Vec<FilledBuffer>,
    /// Buffers that exist.
    exist: usize,
    /// Of these, the ones that CUPTI has.
    out: usize,
    /// Where those are that it has, or had when it was detached. Beyond twice `most` the oldest are forgotten.
    lent: Vec<usize>,
    most: usize,
    bytes: usize,
}

impl Pool {
    pub(super) const fn new() -> Self {
        let state =
            State { free: Vec::new(), filled: Vec::new(), exist: 0, out: 0, lent: Vec::new(), most: 0, bytes: 0 };
        Self { state: Mutex::new(state) }
    }

    /// Sets the bounds, and makes `ready` buffers whose memory is mapped already: otherwise the first write to each
    /// page would cost the application's threads a page fault.
    pub(super) fn configure(&self, bytes: usize, most: usize, ready: usize) {
        let mut state = self.lock();
        let bytes = bytes.next_multiple_of(8);
        if state.bytes != bytes {
            state.exist -= state.free.len();
            state.free.clear();
        }
        (state.bytes, state.most) = (bytes, most);
        // Returning a buffer must not allocate.
        let missing = |length: usize| most.saturating_sub(length);
        let (free, filled) = (missing(state.free.len()), missing(state.filled.len()));
        let lent = (2 * most + 1).saturating_sub(state.lent.len());
        state.free.reserve(free);
        state.filled.reserve(filled);
        state.lent.reserve(lent);
        while state.free.len() < ready && state.exist < most {
            let mut buffer = Buffer::zeroed(bytes);
            std::hint::black_box(&mut buffer.0[..]).fill(0);
            state.free.push(buffer);
            state.exist += 1;
        }
    }

    /// A zeroed buffer, or none if all are in use.
    pub(super) fn take(&self) -> Option<Buffer> {
        let bytes = {
            let mut state = self.lock();
            if let Some(buffer) = state.free.pop() {
                state.out += 1;
                state.lend(&buffer);
                return Some(buffer);
            }
            if state.exist >= state.most {
                return None;
            }
            state.exist += 1;
            state.out += 1;
            state.bytes
        };
        // Zeroed memory of this size comes from the kernel untouched: a system call, and no clearing here.
        let buffer = Buffer::zeroed(bytes);
        self.lock().lend(&buffer);
        Some(buffer)
    }

    /// Whether CUPTI got the buffer at this address here and has not given it back. Another client of CUPTI, which has
    /// one pair of callbacks for the process, may have buffers of its own under way when ours take the place of its.
    pub(super) fn is_lent(&self, address: usize) -> bool {
        self.lock().lent.contains(&address)
    }

    /// CUPTI is done with a buffer.
    pub(super) fn put(&self, filled: FilledBuffer) {
        let mut state = self.lock();
        match state.out.checked_sub(1) {
            Some(out) => state.out = out,
            // A buffer that was written off.
            None => state.exist += 1,
        }
        let address = filled.buffer.address();
        state.lent.retain(|lent| *lent != address);
        state.filled.push(filled);
    }

    /// CUPTI was detached: buffers that it has not given back by now are lost, and must not count against the bound for
    /// ever. Returns how many these are.
    pub(super) fn write_off(&self) -> usize {
        let mut state = self.lock();
        let lost = std::mem::take(&mut state.out);
        state.exist = state.exist.saturating_sub(lost);
        lost
    }

    /// What CUPTI is done with, in the order it came.
    pub(super) fn drain(&self) -> Vec<FilledBuffer> {
        let mut state = self.lock();
        let room = Vec::with_capacity(state.most);
        std::mem::replace(&mut state.filled, room)
    }

    /// A buffer has been read and can be used again.
    pub(super) fn recycle(&self, filled: FilledBuffer) {
        let FilledBuffer { mut buffer, valid, .. } = filled;
        let written = valid.div_ceil(8).min(buffer.0.len());
        buffer.0[..written].fill(0);
        let mut state = self.lock();
        if buffer.bytes() == state.bytes && state.exist <= state.most {
            state.free.push(buffer);
        } else {
            state.exist = state.exist.saturating_sub(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lend(&mut self, buffer: &Buffer) {
        self.lent.push(buffer.address());
        let excess = self.lent.len().saturating_sub(2 * self.most);
        self.lent.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lent_is_taken_back() {
        let pool = Pool::new();
        pool.configure(64, 2, 1);
        let (ready, made) = (pool.take().expect("ready"), pool.take().expect("made"));
        let (ready_at, made_at) = (ready.address(), made.address());
        assert!(pool.is_lent(ready_at) && pool.is_lent(made_at) && !pool.is_lent(made_at + 8));
        pool.put(FilledBuffer { buffer: ready, valid: 0, is_late: false });
        assert_eq!((pool.is_lent(ready_at), pool.is_lent(made_at)), (false, true));
        pool.write_off();
        assert!(pool.is_lent(made_at), "it may come back after all");
        pool.put(FilledBuffer { buffer: made, valid: 0, is_late: false });
        assert!(!pool.is_lent(made_at));
        // Those that never come back are not remembered for ever.
        let lost: Vec<Buffer> = (0..9)
            .map(|_| {
                pool.write_off();
                pool.drain().into_iter().for_each(|filled| pool.recycle(filled));
                pool.take().expect("written off ones do not count")
            })
            .collect();
        assert_eq!(
            lost.iter().filter(|buffer| pool.is_lent(buffer.address())).count(),
            4,
            "twice as many as may exist"
        );
        assert!(pool.is_lent(lost[8].address()), "the latest");
    }

    #[test]
    fn buffers_go_round_and_come_back_zeroed() {
        let pool = Pool::new();
        pool.configure(100, 2, 1);
        let buffer = pool.take().expect("one is ready");
        assert_eq!((buffer.bytes(), buffer.words().len()), (104, 13));
        let at = buffer.words().as_ptr();
        let mut words = buffer.into_words();
        words[..3].fill(u64::MAX);
        pool.put(FilledBuffer { buffer: Buffer::from_words(words), valid: 17, is_late: false });
        let [filled] = <[FilledBuffer; 1]>::try_from(pool.drain()).expect("one is filled");
        assert_eq!((filled.valid, filled.buffer.words()[2]), (17, u64::MAX));
        assert!(pool.drain().is_empty());
        pool.recycle(filled);
        let again = pool.take().expect("it can be used again");
        assert_eq!(again.words().as_ptr(), at, "no second buffer was made");
        assert!(again.words().iter().all(|word| *word == 0));
    }

    #[test]
    fn there_are_never_more_than_allowed() {
        let pool = Pool::new();
        assert!(pool.take().is_none(), "not configured");
        pool.configure(64, 3, 1);
        let taken: Vec<Buffer> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        for buffer in taken {
            pool.put(FilledBuffer { buffer, valid: 64, is_late: false });
        }
        assert!(pool.take().is_none(), "those waiting to be read count too");
        pool.drain().into_iter().for_each(|filled| pool.recycle(filled));
        assert_eq!(std::iter::from_fn(|| pool.take()).count(), 3);
    }

    #[test]
    fn what_was_detached_with_a_library_is_made_anew() {
        let pool = Pool::new();
        pool.configure(64, 2, 1);
        let (kept, back) = (pool.take().expect("ready"), pool.take().expect("made"));
        pool.put(FilledBuffer { buffer: back, valid: 8, is_late: false });
        assert_eq!((pool.write_off(), pool.write_off()), (1, 0));
        assert!(pool.take().is_some() && pool.take().is_none(), "one is waiting to be read");
        // The buffer comes back after all, and counts again.
        pool.write_off();
        pool.put(FilledBuffer { buffer: kept, valid: 0, is_late: false });
        pool.drain().into_iter().for_each(|filled| pool.recycle(filled));
        assert_eq!(std::iter::from_fn(|| pool.take()).count(), 2);
    }

    #[test]
    fn other_bounds_take_effect() {
        let pool = Pool::new();
        pool.configure(64, 4, 2);
        let old = pool.take().expect("ready");
        pool.configure(128, 2, 0);
        pool.recycle(FilledBuffer { buffer: old, valid: 0, is_late: false });
        let sizes: Vec<usize> = std::iter::from_fn(|| pool.take()).map(|buffer| buffer.bytes()).collect();
        assert_eq!(sizes, [128, 128], "buffers of the old size are gone");
    }

    #[test]
    fn threads_share_a_pool() {
        let pool = Pool::new();
        pool.configure(64, 4, 4);
        let served: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut served = 0;
                        for _ in 0..1000 {
                            if let Some(buffer) = pool.take() {
                                pool.put(FilledBuffer { buffer, valid: 8, is_late: false });
                                served += 1;
                            }
                        }
                        served
                    })
                })
                .collect();
            let mut read = 0;
            while writers.iter().any(|writer| !writer.is_finished()) {
                for filled in pool.drain() {
                    read += 1;
                    pool.recycle(filled);
                }
            }
            let served: usize = writers.into_iter().map(|writer| writer.join().expect("a writer")).sum();
            read += pool.drain().len();
            assert_eq!(read, served);
            served
        });
        assert!(served >= 4);
    }
}
