//! Switches recording on and off, and turns CUPTI's records into kernels with their intervals.

mod attaching;
mod collecting;

use super::backend::{Backend, Switch};
use super::clock::{Anchors, bracketed};
use super::contexts::UNDER_WAY;
use super::delivery::Unusable;
use super::join::Join;
use super::names::Names;
use super::numbers::Numbers;
use super::switches::{is_on_memory, meaning, needed};
use super::trial::Trial;
use super::{Correlate, CuptiOptions, errors, lanes, search};
use candlescope_core::HostNs;
use candlescope_core::gpu::ActivityError;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long the last delivery waits for copies that are under way. Those to the host wait for all kernels before them.
const COPYING: Duration = Duration::from_secs(1);
/// The same where a window begins and ends, so that no copy is recorded in part. Where many threads copy, there may be
/// no such moment: their records are turned on or off later.
const COPYING_AT_ENDS: Duration = Duration::from_millis(50);
/// How long a window's begin waits for a call once CUPTI is attached: until then a thread may be inside a copy that
/// began before, which nobody saw.
const FIRST_CALL: Duration = Duration::from_millis(100);

/// Moments without records of copies that are remembered until the calls made in them have come.
const MOST_GAPS: usize = 256;

/// A recorder that is ready for windows.
#[derive(Debug)]
pub(super) struct KernelRecorder<B: Backend> {
    backend: B,
    version: u32,
    correlate: Correlate,
    runtime: bool,
    trial: Trial,
    /// Whether CUPTI leaves the process between windows.
    detaches: bool,
    /// Whether it was this recorder that attached CUPTI last.
    mine: bool,
    /// The calls to follow and the kinds of work to record, once it is known what works. Kinds are turned on in this
    /// order, and off in reverse order.
    calls: Vec<Switch>,
    kinds: Option<Vec<Switch>>,
    /// What has to be on for a launch to detach CUPTI.
    exits: Vec<Switch>,
    /// Calls that make and end contexts, and copies that are not among `calls`. Both are followed for as long as CUPTI
    /// is attached.
    watched: Vec<Switch>,
    recording: bool,
    /// Whether copies are recorded, and memsets, which [belong to them](super::calls::is_on_memory) here. They are
    /// turned on and off between two copies, which may be later than the rest.
    copies_on: bool,
    /// Since when a window goes on without records of copies, by the callbacks' clock, and when that was so before:
    /// copies begun meanwhile have none.
    gap: Option<u64>,
    gaps: VecDeque<(u64, u64)>,
    join: Join,
    /// What was read and has not been told.
    carried: Unusable,
    numbers: Numbers,
    names: Names,
    devices: FxHashMap<u32, Arc<str>>,
    /// CUPTI's clock beside the host's.
    cupti: Anchors,
    /// The callbacks' clock, in nanoseconds since `origin`, beside the host's.
    ticks: Anchors,
    origin: u64,
    /// Readings of both clocks when windows began and ended, and half the bracket. The host's clock is not available at
    /// that point, and is added later.
    noted: Vec<(u64, u64, u64)>,
}

impl<B: Backend> KernelRecorder<B> {
    /// Does what is slow the first time: starts the driver, and, unless that is left to the first window, attaches to
    /// the process and turns everything on and off once.
    pub(super) fn new(backend: B, options: &CuptiOptions) -> Result<Self, ActivityError> {
        let version = backend.version();
        if !search::understood(version) {
            return Err(errors::version(backend.path(), version));
        }
        lanes::configure(options.ring_calls);
        let mut recorder = Self {
            backend,
            version,
            correlate: options.correlate,
            runtime: options.runtime_calls,
            trial: options.trial.clone(),
            detaches: !options.stays() && search::detachable(version),
            mine: false,
            calls: Vec::new(),
            kinds: None,
            exits: Vec::new(),
            watched: Vec::new(),
            recording: false,
            copies_on: false,
            gap: None,
            gaps: VecDeque::new(),
            join: Join::new(options.correlate != Correlate::Nothing),
            carried: Unusable::default(),
            numbers: Numbers::default(),
            names: Names::default(),
            devices: FxHashMap::default(),
            cupti: Anchors::default(),
            ticks: Anchors::default(),
            origin: lanes::clock().raw(),
            noted: Vec::new(),
        };
        recorder.backend.start(options)?;
        if !options.attach_late {
            recorder.attach()?;
            recorder.release();
        }
        Ok(recorder)
    }

    pub(super) fn enable(&mut self) -> Result<(), ActivityError> {
        if self.recording {
            return Ok(());
        }
        let outcome = self.attach().and_then(|()| self.turn_on());
        if outcome.is_err() {
            // The window is given up, and CUPTI must not slow down what comes after it.
            self.release();
        }
        outcome
    }

    fn turn_on(&mut self) -> Result<(), ActivityError> {
        self.note();
        let (copies, others) = self.kinds_by_copies();
        let backend = &self.backend;
        let refused = |switch: &Switch| backend.turn(*switch, true).err().map(|code| (*switch, code));
        let (began, refused) = backend.link().contexts().between(UNDER_WAY, |_| {
            // No sooner: calls that are recorded before what they launch is are waited for in vain.
            let began = lanes::clock().raw();
            if self.correlate == Correlate::Callbacks {
                lanes::begin();
            }
            (began, others.iter().find_map(refused))
        });
        if let Some((switch, code)) = refused {
            lanes::end();
            // Turning off what was not on does nothing. The first refusal is the useful error, not one from turning
            // things off again.
            let _ = self.all_off(&others);
            return Err(errors::refused(&meaning(switch), code));
        }
        self.recording = true;
        self.gap = (!copies.is_empty()).then_some(began);
        if !self.backend.link().contexts().are_held() {
            self.backend.link().wait_for_call(FIRST_CALL);
        }
        self.turn_copies(true, COPYING_AT_ENDS);
        Ok(())
    }

    pub(super) fn disable(&mut self) -> Result<(), ActivityError> {
        if !self.recording {
            return Ok(());
        }
        self.recording = false;
        if self.backend.is_gone() {
            lanes::end();
            return Err(errors::driver_gone());
        }
        let (_, others) = self.kinds_by_copies();
        self.turn_copies(false, COPYING_AT_ENDS);
        let outcome = self.all_off(&others);
        lanes::end();
        self.end_gap(lanes::clock().raw());
        self.note();
        outcome.map_err(|(switch, code)| errors::refused(&format!("stop: {}", meaning(switch)), code))
    }

    /// The kinds of work that are copies or memsets, and the others.
    fn kinds_by_copies(&self) -> (Vec<Switch>, Vec<Switch>) {
        self.kinds.iter().flatten().copied().partition(is_on_memory)
    }

    /// Turns records of copies on or off [between two copies](super::detach::Link::between_copies), and while no
    /// context is being made or ended; whether they are so now. If a kind is refused, that is said, and copies and
    /// memsets count as lost from here on.
    fn turn_copies(&mut self, on: bool, limit: Duration) -> bool {
        if self.copies_on == on {
            return true;
        }
        let (copies, _) = self.kinds_by_copies();
        let backend = &self.backend;
        let turn =
            |kind: &Switch| backend.turn(*kind, on).err().filter(|_| on && needed(*kind)).map(|code| (*kind, code));
        let link = backend.link();
        let turned = link.contexts().between(limit, |is_quiet| {
            if !is_quiet {
                return None;
            }
            // No copy is under way: those before began sooner, and those that wait for this begin later.
            link.between_copies(limit, || {
                let at = lanes::clock().raw();
                // Each of them, whatever became of the ones before.
                (at, copies.iter().fold(None, |refused, kind| refused.or(turn(kind))))
            })
        });
        let Some((at, refused)) = turned else { return false };
        if let Some((kind, code)) = &refused {
            candlescope_core::diagnostics::report("cupti", errors::refused(&meaning(*kind), *code).to_string());
        }
        self.copies_on = on;
        if on && refused.is_none() {
            self.end_gap(at);
        } else if self.recording {
            // Of a kind that was refused none has a record: it is not told which calls are of that kind.
            self.gap.get_or_insert(at);
        }
        true
    }

    /// Copies are recorded again, or need not be, from `now` on.
    fn end_gap(&mut self, now: u64) {
        if let Some(began) = self.gap.take() {
            self.gaps.push_back((began, now));
            self.gaps.drain(..self.gaps.len().saturating_sub(MOST_GAPS));
        }
    }

    /// Has CUPTI hand over its records, with those of copies off, so that no copy is under way that has one. `None` if
    /// there is no such moment.
    fn flush(&mut self, all: bool) -> Option<Result<(), errors::Code>> {
        let limit = if all && !self.recording { COPYING } else { Duration::ZERO };
        if !self.turn_copies(false, limit) {
            return None;
        }
        let flushed = self.flush_now(all);
        if self.recording {
            self.turn_copies(true, COPYING_AT_ENDS);
        }
        Some(flushed)
    }

    /// A forced flush follows also where the plain one fails.
    fn flush_now(&mut self, all: bool) -> Result<(), errors::Code> {
        let plain = self.backend.flush(false);
        if all { plain.and(self.backend.flush(true)) } else { plain }
    }

    fn now(&self) -> u64 {
        let clock = lanes::clock();
        clock.delta_as_nanos(self.origin, clock.raw())
    }

    fn note(&mut self) {
        let host = || HostNs(i64::try_from(self.now()).unwrap_or(i64::MAX));
        if let Some((at, ticks, half)) = bracketed(&host, &|| self.backend.timestamp()) {
            self.noted.push((at, u64::try_from(ticks.0).unwrap_or(0), half));
        }
    }

    /// Reads all clocks together; CUPTI's only while it is attached.
    fn anchor(&mut self, host: &dyn Fn() -> HostNs, attached: bool) {
        if let Some((at, host, half)) = bracketed(host, &|| Some(self.now())) {
            self.ticks.add(at, host, half);
        }
        for (at, ticks, half) in std::mem::take(&mut self.noted) {
            if let Some(host) = self.ticks.host(ticks) {
                self.cupti.add(at, host, half);
            }
        }
        if attached && let Some((at, host, half)) = bracketed(host, &|| self.backend.timestamp()) {
            self.cupti.add(at, host, half);
        }
    }

    /// Whether CUPTI leaves the process between windows.
    pub(super) fn detaches(&self) -> bool {
        self.detaches
    }

    pub(super) fn describe(&self) -> BTreeMap<String, Value> {
        let mut facts = BTreeMap::from([
            ("cupti_version".to_string(), search::toolkit(self.version).into()),
            ("cupti_library".to_string(), self.backend.path().display().to_string().into()),
            ("cupti_strategy".to_string(), self.correlate.name().into()),
            ("cupti_detaches".to_string(), self.detaches.into()),
        ]);
        if !self.trial.text.is_empty() {
            facts.insert("cupti_trial".to_string(), self.trial.text.clone().into());
        }
        if self.kinds.is_some() {
            facts.insert("cupti_calls_followed".to_string(), self.calls.len().into());
        }
        facts
    }
}

impl<B: Backend> Drop for KernelRecorder<B> {
    fn drop(&mut self) {
        // Errors cannot be reported any more. The flush brings CUPTI's buffers back for the next recorder.
        let _ = self.disable();
        if self.backend.link().must_stay().is_some() {
            // A request that no launch will fulfil.
            self.backend.link().settle(Duration::ZERO);
        }
        if self.is_attached() {
            // The program may end while this waits, and its driver with it.
            if self.turn_copies(false, COPYING) && self.is_attached() {
                let _ = self.backend.flush(true);
            }
            self.backend.records(&mut |_, _| {});
            if self.is_attached() {
                self.release();
            }
        }
        // If the next launch detaches CUPTI, that ends the subscription too.
        if self.is_attached() {
            self.backend.stop();
        }
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
