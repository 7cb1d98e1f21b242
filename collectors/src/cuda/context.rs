//! One context on the poller's side: settles the marks in it and keeps its anchors.

use super::anchor::Anchors;
use super::backlog::Backlog;
use super::driver_calls::{Driver, Event, Fault, StreamId, within};
use super::mark_pools::{ContextCell, Pool};
use super::stream_marks::{Bracket, SettledMark, later};
use candlescope_core::HostNs;
use candlescope_core::gpu::{DeviceNs, GpuReport};
use std::sync::Arc;

/// Records in the calibration of a mark's cost.
const CALIBRATION: usize = 64;

/// An event whose time is known and that is not recorded again while it is here.
struct ReservedEvent<D: Driver> {
    event: Event,
    at: DeviceNs,
    /// Lane and pool that it belongs to, and the pool itself, because the lane may end meanwhile; `None` for the
    /// poller's own events.
    owner: Option<(u64, u16, Arc<Pool<D>>)>,
}

/// What a pass over the tracks found.
struct Harvest<D: Driver> {
    /// The latest event whose time is known now.
    newest: Option<ReservedEvent<D>>,
    /// Events that were the latest for a while. They are given back after the pass, because they may belong to a lane
    /// other than the one being visited.
    spent: Vec<ReservedEvent<D>>,
    narrowest: Option<Bracket>,
}

impl<D: Driver> Default for Harvest<D> {
    fn default() -> Self {
        Self { newest: None, spent: Vec::new(), narrowest: None }
    }
}

impl<D: Driver> Harvest<D> {
    /// Settles a mark in its lane's order. Its event goes back to the lane's pool, unless it is the latest.
    fn take(&mut self, settled: &SettledMark, backlog: &mut Backlog<D>, pool: u16) {
        backlog.settle(settled);
        match settled.at {
            Some(at) if self.newest.as_ref().is_none_or(|newest| at > newest.at) => {
                let of_lane = backlog.pools.get(usize::from(pool));
                let owner = of_lane.map(|p| (backlog.lane, pool, p.pool.clone()));
                self.spent.extend(self.newest.replace(ReservedEvent { event: settled.event, at, owner }));
            }
            _ => backlog.give_back(pool, settled.event),
        }
    }

    fn narrow(&mut self, bracket: Option<Bracket>) {
        let known = self.narrowest;
        self.narrowest = [known, bracket].into_iter().flatten().min_by_key(Bracket::width);
    }
}

/// What a round needs from outside.
pub(super) struct Round<'a> {
    pub(super) now: HostNs,
    /// Marks first seen before this have waited long enough.
    pub(super) limit: HostNs,
    pub(super) host: &'a dyn Fn() -> HostNs,
}

/// What became of marks and contexts, counted.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tally {
    /// Reported with a time.
    pub(super) timed: u64,
    /// Waited too long for the device.
    pub(super) aged: u64,
    /// The driver gave no time.
    pub(super) refused: u64,
    /// Their context was destroyed or broken.
    pub(super) lost: u64,
    /// Timed, but no anchor to place them came in time.
    pub(super) unanchored: u64,
    pub(super) contexts_lost: u64,
    pub(super) last_fault: Option<Fault>,
}

/// One context that marks are made in.
pub(super) struct ContextState<D: Driver> {
    pub(super) cell: Arc<ContextCell<D>>,
    device: u8,
    /// When the poller first saw it.
    pub(super) since: HostNs,
    anchors: Anchors,
    /// The newest event with a known time; times are counted from it.
    base: Option<ReservedEvent<D>>,
    pub(super) anchored: bool,
    /// Anchors reported so far, half the width of the last one's bracket, and of the widest.
    pub(super) anchors_made: u64,
    pub(super) bound_ns: u64,
    pub(super) worst_bound_ns: u64,
    /// Median cost of recording an event.
    pub(super) record_ns: Option<u64>,
    settled: Vec<SettledMark>,
}

impl<D: Driver> ContextState<D> {
    pub(super) fn new(cell: Arc<ContextCell<D>>, device: u8, now: HostNs) -> Self {
        Self {
            cell,
            device,
            since: now,
            anchors: Anchors::new(now),
            base: None,
            anchored: false,
            anchors_made: 0,
            bound_ns: 0,
            worst_bound_ns: 0,
            record_ns: None,
            settled: Vec::new(),
        }
    }

    /// One round: settles what the device has passed, makes an anchor if one is due, gives up on what has waited too
    /// long.
    pub(super) fn visit(
        &mut self,
        driver: &D,
        backlogs: &mut [Backlog<D>],
        round: &Round<'_>,
        report: &mut dyn FnMut(GpuReport),
        tally: &mut Tally,
    ) {
        if !self.cell.is_dead() {
            let gone = self.cell.retained && !driver.primary_active(self.cell.ordinal);
            let outcome = if gone {
                Err(Fault(709))
            } else {
                within(driver, self.cell.context, || self.round(driver, backlogs, round, report, tally))
            };
            if let Err(fault) = outcome {
                tally.last_fault = Some(fault);
                if fault.is_lost() {
                    tally.contexts_lost += 1;
                    self.cell.bury();
                    self.base = None;
                }
            }
        }
        if self.cell.is_dead() {
            tally.lost += backlogs.iter_mut().map(|b| b.lose(self.device)).sum::<u64>();
        }
    }

    fn round(
        &mut self,
        driver: &D,
        backlogs: &mut [Backlog<D>],
        round: &Round<'_>,
        report: &mut dyn FnMut(GpuReport),
        tally: &mut Tally,
    ) -> Result<(), Fault> {
        if self.record_ns.is_none() {
            self.record_ns = Some(self.calibrate(driver, round.host)?);
        }
        // Before a possible anchor, so that its event comes after the marks it is timed from.
        let bracket = self.settle(driver, backlogs, round, tally)?;
        if let Some(reading) = self.anchors.step(driver, round.host)? {
            let at = match &self.base {
                None => Some(DeviceNs::default()),
                Some(base) => driver.elapsed_ms(base.event, reading.event)?.and_then(|ms| later(base.at, ms)),
            };
            match at {
                Some(at) => {
                    self.tell(Bracket { at, lower: reading.lower, upper: reading.upper }, report);
                    // A reading of an earlier round can be older than the marks settled since.
                    if self.base.as_ref().is_none_or(|base| at > base.at) {
                        self.rebase(ReservedEvent { event: reading.event, at, owner: None }, backlogs);
                    } else {
                        self.anchors.give_back(reading.event);
                    }
                }
                None => self.anchors.give_back(reading.event),
            }
        } else if self.anchors.overdue(round.now)
            && let Some(bracket) = bracket
        {
            self.tell(bracket, report);
            self.anchors.stood_in(round.now);
        }
        self.grow(backlogs)
    }

    /// Settles marks in all lanes; gives the narrowest bracket around a mark's time that came with it.
    fn settle(
        &mut self,
        driver: &D,
        backlogs: &mut [Backlog<D>],
        round: &Round<'_>,
        tally: &mut Tally,
    ) -> Result<Option<Bracket>, Fault> {
        let mut harvest = Harvest::default();
        let outcome = self.harvest(driver, backlogs, round, tally, &mut harvest);
        // Also if the driver failed half-way: what was settled by then stays settled.
        harvest.spent.into_iter().for_each(|held| self.give_back(held, backlogs));
        if let Some(newest) = harvest.newest {
            if self.base.as_ref().is_none_or(|base| newest.at > base.at) {
                self.rebase(newest, backlogs);
            } else {
                self.give_back(newest, backlogs);
            }
        }
        outcome.map(|()| harvest.narrowest)
    }

    /// Goes over the tracks of all lanes, until the driver says that the context is lost.
    fn harvest(
        &mut self,
        driver: &D,
        backlogs: &mut [Backlog<D>],
        round: &Round<'_>,
        tally: &mut Tally,
        harvest: &mut Harvest<D>,
    ) -> Result<(), Fault> {
        for backlog in backlogs {
            for track in 0..backlog.tracks.len() {
                if !backlog.is_in(track, self.device) {
                    continue;
                }
                let from = self.base.as_ref().or(harvest.newest.as_ref()).map(|held| (held.event, held.at));
                self.settled.clear();
                let visit = backlog.visit(track, driver, (round.host, round.limit), from, &mut self.settled);
                tally.refused += visit.refused;
                tally.aged += visit.aged;
                for settled in &self.settled {
                    harvest.take(settled, backlog, visit.pool);
                }
                harvest.narrow(visit.outcome?);
            }
        }
        Ok(())
    }

    /// Times are counted from `held` from now on; the previous event goes back to its owner.
    fn rebase(&mut self, held: ReservedEvent<D>, backlogs: &mut [Backlog<D>]) {
        if let Some(before) = self.base.replace(held) {
            self.give_back(before, backlogs);
        }
    }

    fn give_back(&mut self, held: ReservedEvent<D>, backlogs: &mut [Backlog<D>]) {
        match held.owner {
            None => self.anchors.give_back(held.event),
            Some((lane, pool, _)) => {
                // Backlogs are in the order of their lanes. A lane that is over takes its events with it.
                if let Ok(at) = backlogs.binary_search_by_key(&lane, |b| b.lane) {
                    backlogs[at].give_back(pool, held.event);
                }
            }
        }
    }

    fn tell(&mut self, bracket: Bracket, report: &mut dyn FnMut(GpuReport)) {
        let half = bracket.width() / 2;
        self.anchored = true;
        self.anchors_made += 1;
        self.bound_ns = half;
        self.worst_bound_ns = self.worst_bound_ns.max(half);
        let host = bracket.lower.plus_ns(half);
        report(GpuReport::Anchor { device: self.device, at: bracket.at, host, bound_ns: half });
    }

    /// More events for the lanes that had more than a quarter of theirs out.
    fn grow(&mut self, backlogs: &mut [Backlog<D>]) -> Result<(), Fault> {
        for state in backlogs.iter_mut().flat_map(|b| &mut b.pools).filter(|p| p.device == self.device) {
            let wanted = state.wanted();
            if wanted > 0 {
                let outcome = state.pool.make(wanted, &mut state.free);
                state.total = state.pool.len();
                outcome?;
            }
        }
        Ok(())
    }

    /// Median cost of recording an event, nanoseconds, in the poller's own stream, which nobody waits for.
    fn calibrate(&mut self, driver: &D, host: &dyn Fn() -> HostNs) -> Result<u64, Fault> {
        let event = self.anchors.event(driver)?;
        let mut costs = [0; CALIBRATION];
        for cost in &mut costs {
            let before = host();
            driver.record(event, StreamId::PER_THREAD)?;
            *cost = host().since(before);
        }
        self.anchors.give_back(event);
        costs.sort_unstable();
        Ok(costs[CALIBRATION / 2])
    }

    /// Events of the poller's own.
    pub(super) fn own_events(&self) -> usize {
        self.anchors.events()
    }

    /// Ends the poller's own events.
    pub(super) fn end(&mut self, driver: &D) {
        self.base = None;
        if !self.cell.is_dead() {
            // If the context cannot be entered any more, its events are gone too.
            let _ = within(driver, self.cell.context, || {
                self.anchors.end(driver);
                Ok(())
            });
        }
    }
}
