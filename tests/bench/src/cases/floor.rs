//! The lower bound for any recorder: two clock reads, and storing them.

use super::Case;
use crate::work::PAIRS;
use anyhow::{Result, ensure};
use std::cell::RefCell;
use std::hint::black_box;

/// Two readings of the timestamp counter.
pub(crate) struct Clock(quanta::Clock);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(quanta::Clock::new())
    }
}

impl Case for Clock {
    fn burst(&self) {
        for _ in 0..PAIRS {
            black_box(self.0.raw());
            black_box(self.0.raw());
        }
    }
}

/// Two readings and a record of 64 bytes into a ring.
pub(crate) struct Floor {
    clock: quanta::Clock,
    ring: RefCell<rtrb::Producer<[u64; 8]>>,
    reader: rtrb::Consumer<[u64; 8]>,
}

impl Floor {
    pub(crate) fn new() -> Self {
        let (ring, reader) = rtrb::RingBuffer::new(16_384);
        Self { clock: quanta::Clock::new(), ring: RefCell::new(ring), reader }
    }
}

impl Case for Floor {
    fn burst(&self) {
        let mut ring = self.ring.borrow_mut();
        for n in 0..PAIRS as u64 {
            let start = self.clock.raw();
            black_box(n);
            let end = self.clock.raw();
            let _ = ring.push([start, end, n, n, n, n, n, n]);
        }
    }

    fn settle(&mut self) -> Result<()> {
        ensure!(self.reader.slots() == PAIRS, "the ring dropped records");
        while self.reader.pop().is_ok() {}
        Ok(())
    }
}
