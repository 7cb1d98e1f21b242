//! One thread's marks in one stream: which of them the device has passed, and when.
//!
//! **Times are chained**: each is the one before plus the time between the two by `cuEventElapsedTime`, rounded to a
//! nanosecond. That time is an `f32` in milliseconds. Below 8 ms a float's steps are under half a nanosecond, so
//! rounding gives back the very number of nanoseconds the driver divided, and a chain of such links adds up without
//! error however long it gets. A longer link is off by up to half a step (4 ns at 100 ms, 122 ns at 4 s, the longest
//! that anchors allow). That error shifts all later marks alike, and the next anchor removes it from the mapping to the
//! host's clock.

use super::driver_calls::{Driver, Event, Fault, StreamId};
use candlescope_core::HostNs;
use candlescope_core::gpu::DeviceNs;
use std::collections::VecDeque;

/// What a completion may need to become visible to the host after the device took its time.
///
/// The device writes the time and then the flag over PCI Express, behind whatever else it is writing. An event seen
/// incomplete at some moment may thus carry a slightly earlier time.
pub(super) const VISIBLE_NS: u64 = 5_000;

/// A mark the device has not been seen to pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingMark {
    /// Place in the lane's order.
    pub(super) seq: u64,
    pub(super) event: Event,
    /// When the poller first saw it.
    pub(super) since: HostNs,
    /// When it was last seen incomplete.
    pub(super) incomplete: Option<HostNs>,
}

/// A mark that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SettledMark {
    pub(super) seq: u64,
    pub(super) event: Event,
    /// `None` if the driver gave no time.
    pub(super) at: Option<DeviceNs>,
}

/// A moment of the device's clock between two of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bracket {
    pub(super) at: DeviceNs,
    pub(super) lower: HostNs,
    pub(super) upper: HostNs,
}

impl Bracket {
    /// Nanoseconds between its ends.
    pub(super) fn width(&self) -> u64 {
        self.upper.since(self.lower)
    }
}

/// One thread's marks in one stream, oldest first: the device passes them in this order.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) pool: u16,
    pub(super) stream: StreamId,
    pub(super) waiting: VecDeque<WaitingMark>,
}

impl Track {
    pub(super) fn new(pool: u16, stream: StreamId) -> Self {
        Self { pool, stream, waiting: VecDeque::new() }
    }

    /// Moves the marks that the device has passed to `settled`, with their times counted from `base`, or from the first
    /// of them if there is no base yet. Gives a bracket around one of the times if this round happened to close one.
    ///
    /// # Errors
    /// The context is lost; the marks not yet settled stay.
    pub(super) fn settle<D: Driver>(
        &mut self,
        driver: &D,
        host: &dyn Fn() -> HostNs,
        base: Option<(Event, DeviceNs)>,
        settled: &mut Vec<SettledMark>,
    ) -> Result<Option<Bracket>, Fault> {
        if self.waiting.is_empty() {
            return Ok(None);
        }
        let asked = host();
        let mut passed = loop {
            match passed(driver, &self.waiting) {
                Ok(passed) => break passed,
                Err((_, fault)) if fault.is_lost() => return Err(fault),
                // Only this event is unusable, for example because it became part of a graph after all.
                Err((odd, _)) => match self.waiting.remove(odd) {
                    Some(mark) => settled.push(SettledMark { seq: mark.seq, event: mark.event, at: None }),
                    None => break 0,
                },
            }
        };
        let seen = host();
        let mut reference = base;
        let mut bracket = None;
        while passed > 0
            && let Some(mark) = self.waiting.front().copied()
        {
            passed -= 1;
            let at = match reference {
                None => Some(DeviceNs::default()),
                Some((from, at)) => match driver.elapsed_ms(from, mark.event) {
                    Ok(Some(ms)) => later(at, ms),
                    // Two streams that had the same handle one after the other are not in order. The mark is looked at
                    // again.
                    Ok(None) => break,
                    Err(fault) if fault.is_lost() => return Err(fault),
                    Err(_) => None,
                },
            };
            self.waiting.pop_front();
            settled.push(SettledMark { seq: mark.seq, event: mark.event, at });
            if let Some(at) = at {
                reference = Some((mark.event, at));
                if let Some(incomplete) = mark.incomplete {
                    bracket = Some(Bracket { at, lower: HostNs(incomplete.0 - VISIBLE_NS as i64), upper: seen });
                }
            }
        }
        if let Some(next) = self.waiting.front_mut()
            && passed == 0
        {
            next.incomplete = Some(asked);
        }
        Ok(bracket)
    }

    /// Takes out the marks that have waited since before `limit`.
    pub(super) fn age(&mut self, limit: HostNs, settled: &mut Vec<SettledMark>) {
        while let Some(mark) = self.waiting.front().copied().filter(|m| m.since < limit) {
            self.waiting.pop_front();
            settled.push(SettledMark { seq: mark.seq, event: mark.event, at: None });
        }
    }
}

/// The time `ms` after `at`; `None` if `ms` is not a time.
pub(super) fn later(at: DeviceNs, ms: f32) -> Option<DeviceNs> {
    let ns = f64::from(ms) * 1e6;
    // The comparison is false for NaN too. The bound is a year either way: events of one process are not further apart.
    (ns.abs() < 3.2e16).then(|| DeviceNs(at.0 + ns.round() as i64))
}

/// How many marks the device has passed: one query if it has passed all of them, two if it has passed none, and a
/// binary search otherwise.
fn passed<D: Driver>(driver: &D, waiting: &VecDeque<WaitingMark>) -> Result<usize, (usize, Fault)> {
    let query = |at: usize| waiting.get(at).map_or(Ok(false), |w| driver.query(w.event)).map_err(|fault| (at, fault));
    let Some(newest) = waiting.len().checked_sub(1) else { return Ok(0) };
    if query(newest)? {
        return Ok(waiting.len());
    }
    // Invariant: what is before `low` is passed, `high` is not.
    let (mut low, mut high) = (0, newest);
    if high > 0 && !query(0)? {
        return Ok(0);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if query(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
