//! The off-thread half: takes marks from the lanes, settles them context by context, reports them in order.

use super::backlog::{Backlog, PoolState};
use super::context::{ContextState, Round, Tally};
use super::driver_calls::{Driver, Fault, relaxed};
use super::mark_pools::{MarkPools, Pool, Start};
use crate::driver_gate::{GATE, Gate};
use candlescope_core::HostNs;
use candlescope_core::gpu::{DeviceInfo, GpuReport};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Reads marks back. A state machine whose only inputs are the driver and the host's clock.
pub(super) struct Poller<D: Driver> {
    shared: Arc<MarkPools<D>>,
    /// By ordinal.
    devices: Vec<DeviceInfo>,
    age_out_ns: u64,
    /// By number of the context, which is `device` in reports: each context has a time line of its own, because the
    /// time between events of different contexts cannot be measured.
    contexts: Vec<ContextState<D>>,
    /// In the order of their lanes.
    backlogs: Vec<Backlog<D>>,
    tally: Tally,
    gate: &'static Gate,
}

impl<D: Driver> Poller<D> {
    pub(super) fn new(shared: Arc<MarkPools<D>>, devices: Vec<DeviceInfo>, age_out: Duration) -> Self {
        let age_out_ns = u64::try_from(age_out.as_nanos()).unwrap_or(u64::MAX);
        Self {
            shared,
            devices,
            age_out_ns,
            contexts: Vec::new(),
            backlogs: Vec::new(),
            tally: Tally::default(),
            gate: &GATE,
        }
    }

    /// With a gate of its own, for tests.
    #[cfg(test)]
    pub(super) fn behind(mut self, gate: &'static Gate) -> Self {
        self.gate = gate;
        self
    }

    /// See [`GpuClock::poll`](candlescope_core::gpu::GpuClock::poll).
    pub(super) fn poll(&mut self, host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport)) {
        self.admit(host, report);
        if self.contexts.is_empty() {
            return;
        }
        // While CUPTI is being detached, a round is left out.
        let Some(_inside) = self.gate.enter() else { return };
        let shared = self.shared.clone();
        // Querying events would break a graph capture begun in global mode on any thread; in relaxed mode it does not.
        relaxed(&shared.driver, || {
            let now = host();
            let limit = HostNs(now.0.saturating_sub(i64::try_from(self.age_out_ns).unwrap_or(i64::MAX)));
            for backlog in &mut self.backlogs {
                backlog.drain(now, shared.in_flight.saturating_mul(2));
            }
            let round = Round { now, limit, host };
            for context in &mut self.contexts {
                context.visit(&shared.driver, &mut self.backlogs, &round, report, &mut self.tally);
            }
            self.emit(limit, report);
            self.backlogs.retain(|b| !b.is_over());
        });
    }

    /// Takes in what lanes announced.
    fn admit(&mut self, host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport)) {
        for start in self.shared.announced() {
            match start {
                Start::Lane { lane, thread, first, marks } => {
                    // Lanes may announce themselves in another order than they were numbered.
                    let at = self.backlogs.partition_point(|b| b.lane < lane);
                    self.backlogs.insert(at, Backlog::new(lane, thread, first, marks));
                }
                Start::Pool { lane, pool, free } => {
                    let device = self.device(&pool, host, report);
                    if let Ok(at) = self.backlogs.binary_search_by_key(&lane, |b| b.lane) {
                        let total = pool.len();
                        self.backlogs[at].pools.push(PoolState { pool, device, free, total, left: total });
                    }
                }
            }
        }
    }

    /// Number of a pool's context, reported if it is new.
    fn device(&mut self, pool: &Pool<D>, host: &dyn Fn() -> HostNs, report: &mut dyn FnMut(GpuReport)) -> u8 {
        let known = self.contexts.iter().position(|c| c.cell.context == pool.cell.context);
        let at = known.unwrap_or(self.contexts.len());
        // There are at most 256 cells.
        let device = u8::try_from(at).unwrap_or(u8::MAX);
        if known.is_none() {
            let ordinal = pool.cell.ordinal;
            let info = self.devices.get(ordinal).cloned().unwrap_or_else(|| DeviceInfo {
                uuid: format!("cuda:{ordinal}").into(),
                name: "unknown device".into(),
            });
            report(GpuReport::Device { device, info });
            self.contexts.push(ContextState::new(pool.cell.clone(), device, host()));
        }
        device
    }

    /// Reports what is settled, each lane in its order. Marks wait for their context's first anchor, which places
    /// them in time.
    fn emit(&mut self, limit: HostNs, report: &mut dyn FnMut(GpuReport)) {
        let (contexts, tally) = (&self.contexts, &mut self.tally);
        for backlog in &mut self.backlogs {
            let thread = backlog.thread;
            while let Some(mark) = backlog.next_if(|id, device, at| {
                let context = contexts.get(usize::from(device))?;
                let at = match at {
                    Some(at) if context.anchored => {
                        tally.timed += 1;
                        Some(at)
                    }
                    Some(_) if !context.cell.is_dead() && context.since >= limit => return None,
                    Some(_) => {
                        tally.unanchored += 1;
                        None
                    }
                    None => None,
                };
                Some(GpuReport::Mark { thread, id, device, at })
            }) {
                report(mark);
            }
        }
    }

    /// See [`GpuClock::statistics`](candlescope_core::gpu::GpuClock::statistics).
    pub(super) fn statistics(&self) -> BTreeMap<String, Value> {
        let sums = self.shared.sums();
        let tally = &self.tally;
        let settled = tally.timed + tally.aged + tally.refused + tally.lost + tally.unanchored;
        let pools: usize = self.backlogs.iter().flat_map(|b| &b.pools).map(|p| p.total).sum();
        let own: usize = self.contexts.iter().map(ContextState::own_events).sum();
        let mut statistics: BTreeMap<String, Value> = [
            ("marks_recorded", sums.recorded),
            ("marks_timed", tally.timed),
            ("marks_aged", tally.aged),
            ("marks_refused_by_driver", tally.refused),
            ("marks_lost_with_context", tally.lost),
            ("marks_unanchored", tally.unanchored),
            ("marks_under_way", sums.recorded.saturating_sub(settled)),
            ("no_mark_no_context", sums.no_context),
            ("no_mark_capturing", sums.capturing),
            ("no_mark_full", sums.full),
            ("no_mark_failed", sums.failed),
            ("contexts", self.contexts.len() as u64),
            ("contexts_lost", tally.contexts_lost),
            ("events", (pools + own) as u64),
            ("anchors", self.contexts.iter().map(|c| c.anchors_made).sum()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_string(), value.into()))
        .collect();
        // Known only once there was a context or an anchor: absent before, never zero.
        let mut known = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                statistics.insert(name.to_string(), value.into());
            }
        };
        let anchored = || self.contexts.iter().filter(|c| c.anchored);
        known("mark_cost_ns", self.contexts.iter().filter_map(|c| c.record_ns).max());
        known("anchor_bound_ns", anchored().map(|c| c.bound_ns).max());
        known("anchor_bound_worst_ns", anchored().map(|c| c.worst_bound_ns).max());
        statistics
    }

    /// The driver's last error that was not about a single mark.
    pub(super) fn last_fault(&self) -> Option<Fault> {
        self.tally.last_fault
    }

    /// Marks read back but not yet reported.
    #[cfg(test)]
    pub(super) fn backlog(&self) -> usize {
        self.backlogs.iter().map(Backlog::len).sum()
    }
}

impl<D: Driver> Drop for Poller<D> {
    fn drop(&mut self) {
        // Detaching CUPTI takes milliseconds. If it takes longer, the driver ends the events with their context.
        let mut tries = 0..1_000;
        let inside = loop {
            match self.gate.enter() {
                None if tries.next().is_some() => std::thread::sleep(Duration::from_millis(1)),
                inside => break inside,
            }
        };
        let Some(_inside) = inside else { return };
        let shared = self.shared.clone();
        relaxed(&shared.driver, || self.contexts.iter_mut().for_each(|c| c.end(&shared.driver)));
    }
}
