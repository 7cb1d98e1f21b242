//! Anchors: pairs of a reading of the device's clock and one of the host's.
//!
//! An event is recorded into the poller's own per-thread default stream, which is empty, and watched until the device
//! has passed it. Its time lies after the call that recorded it and before the first query that finds it passed; it
//! also lies after the last query that finds it not passed, apart from the time that a completion needs to become
//! visible. This last bound keeps the bracket narrow on a busy device, where the event waits behind the application's
//! work (streams share hardware queues): the wait then lies before the bracket and not in it, whether it takes one
//! round or many. Several tries are made, and the narrowest bracket is taken.
//!
//! A call that the driver delays, as it does for seconds while modules load, gives a bracket as wide as the wait. Such
//! a reading is not reported at once: it is taken again in the following rounds, a few times, and the narrowest of all
//! is reported. Marks that wait for the first anchor wait a little longer; the application does not.
//!
//! If an anchor event is still not passed half a second after an anchor was due, marks stand in: one that was seen
//! incomplete in one round and complete in the next gives a bracket as wide as the pause between rounds. The calls that
//! recorded the marks give no better bracket, because the host's time is not noted when a mark is recorded: that would
//! cost more than it is worth.

use super::driver_calls::{Driver, Event, Fault, StreamId};
use super::stream_marks::VISIBLE_NS;
use candlescope_core::HostNs;
use candlescope_core::run::GPU_CLOCK_BOUND_NS;

/// Tries in one round.
const TRIES: usize = 5;
/// What one round may spend on watching, nanoseconds.
const WATCH_NS: u64 = 200_000;
/// A wider bracket than this is worth another try: half the bracket is the error bound of times on the host's time
/// line.
const WIDE_NS: u64 = 2 * GPU_CLOCK_BOUND_NS;
/// Rounds in which a wide reading is taken again before the narrowest so far is reported, and the pause before each.
const AGAIN: usize = 5;
const AGAIN_NS: u64 = 20_000_000;
/// The pause after a wide reading was reported.
const SOON_NS: u64 = 250_000_000;
/// Pauses after the first anchors, and from then on: frequent at first, when the rates of the two clocks are not
/// known. The last leaves room for [`OVERDUE_NS`] within the four seconds that are promised.
const PAUSES_NS: [u64; 5] = [500_000_000, 500_000_000, 1_000_000_000, 2_000_000_000, 3_000_000_000];
/// From this long after an anchor was due, marks may stand in.
const OVERDUE_NS: u64 = 500_000_000;

/// An anchor event that the device passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) event: Event,
    pub(super) lower: HostNs,
    pub(super) upper: HostNs,
}

impl Reading {
    fn width(&self) -> u64 {
        self.upper.since(self.lower)
    }
}

/// An event on its way.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    event: Event,
    lower: HostNs,
}

/// When a context's next anchor is due, and what is on its way.
#[derive(Debug)]
pub(super) struct Anchors {
    due: HostNs,
    made: usize,
    pending: Option<Attempt>,
    /// The narrowest of the readings that were too wide to be reported at once, and how many there were.
    wide: Option<Reading>,
    again: usize,
    spare: Vec<Event>,
    /// All that were made, to be ended with the clock.
    all: Vec<Event>,
}

impl Anchors {
    /// The first anchor is due at once.
    pub(super) fn new(now: HostNs) -> Self {
        Self { due: now, made: 0, pending: None, wide: None, again: 0, spare: Vec::new(), all: Vec::new() }
    }

    /// A timing event in the current context, for the poller's own use.
    pub(super) fn event<D: Driver>(&mut self, driver: &D) -> Result<Event, Fault> {
        if let Some(event) = self.spare.pop() {
            return Ok(event);
        }
        let event = driver.create()?;
        self.all.push(event);
        Ok(event)
    }

    /// Gives an event back. It may be one the device has not passed: recording it again is allowed.
    pub(super) fn give_back(&mut self, event: Event) {
        self.spare.push(event);
    }

    /// Whether marks should stand in for an anchor.
    pub(super) fn overdue(&self, now: HostNs) -> bool {
        now.since(self.due) >= OVERDUE_NS
    }

    /// An anchor was made of a mark. The next is due in half a second; an event on its way is watched on.
    pub(super) fn stood_in(&mut self, now: HostNs) {
        self.due = now;
    }

    /// Makes a reading if one is due, in the current context. The reading's event is the caller's until it is given
    /// back.
    pub(super) fn step<D: Driver>(&mut self, driver: &D, host: &dyn Fn() -> HostNs) -> Result<Option<Reading>, Fault> {
        let began = host();
        if self.pending.is_none() && began < self.due {
            return Ok(None);
        }
        let until = began.plus_ns(WATCH_NS);
        let mut best: Option<Reading> = None;
        for _ in 0..TRIES {
            let attempt = match self.pending.take() {
                Some(attempt) => attempt,
                None => self.attempt(driver, host)?,
            };
            match watch(driver, host, attempt, until)? {
                Ok(reading) if best.is_none_or(|b| reading.width() < b.width()) => {
                    if let Some(worse) = best.replace(reading) {
                        self.give_back(worse.event);
                    }
                }
                Ok(worse) => self.give_back(worse.event),
                Err(attempt) => {
                    self.pending = Some(attempt);
                    break;
                }
            }
            if host() >= until {
                break;
            }
        }
        if let Some(reading) = best {
            // An event that is late now would only give a second, wider anchor.
            if let Some(late) = self.pending.take() {
                self.give_back(late.event);
            }
            let reading = self.narrowest(reading);
            if reading.width() > WIDE_NS && self.again < AGAIN {
                self.again += 1;
                self.wide = Some(reading);
                self.due = host().plus_ns(AGAIN_NS);
                return Ok(None);
            }
            self.again = 0;
            best = Some(reading);
            let pause = if reading.width() > WIDE_NS { SOON_NS } else { PAUSES_NS[self.made.min(PAUSES_NS.len() - 1)] };
            self.made += 1;
            self.due = host().plus_ns(pause);
        }
        Ok(best)
    }

    /// The narrower of this reading and the wide one of an earlier round; the other's event is free again.
    fn narrowest(&mut self, reading: Reading) -> Reading {
        match self.wide.take() {
            Some(wide) if wide.width() < reading.width() => {
                self.give_back(reading.event);
                wide
            }
            Some(wide) => {
                self.give_back(wide.event);
                reading
            }
            None => reading,
        }
    }

    fn attempt<D: Driver>(&mut self, driver: &D, host: &dyn Fn() -> HostNs) -> Result<Attempt, Fault> {
        let event = self.event(driver)?;
        let lower = host();
        match driver.record(event, StreamId::PER_THREAD) {
            Ok(()) => Ok(Attempt { event, lower }),
            Err(fault) => {
                self.give_back(event);
                Err(fault)
            }
        }
    }

    /// Ends the events, in the current context.
    pub(super) fn end<D: Driver>(&mut self, driver: &D) {
        self.pending = None;
        self.wide = None;
        self.spare.clear();
        self.all.drain(..).for_each(|event| driver.destroy(event));
    }

    /// Events made so far.
    pub(super) fn events(&self) -> usize {
        self.all.len()
    }
}

/// Queries the event until the device has passed it or the time is `until`; in that case the attempt is returned with
/// what was learnt.
fn watch<D: Driver>(
    driver: &D,
    host: &dyn Fn() -> HostNs,
    mut attempt: Attempt,
    until: HostNs,
) -> Result<Result<Reading, Attempt>, Fault> {
    loop {
        let asked = host();
        if driver.query(attempt.event)? {
            return Ok(Ok(Reading { event: attempt.event, lower: attempt.lower, upper: host() }));
        }
        attempt.lower = attempt.lower.max(HostNs(asked.0 - VISIBLE_NS as i64));
        if asked >= until {
            return Ok(Err(attempt));
        }
        std::hint::spin_loop();
    }
}
