//! Switches recording on and off, and turns CUPTI's records into kernels with their intervals.

use super::backend::{Backend, Switch};
use super::calls::{self, Domain};
use super::clock::{Anchors, bracketed};
use super::detach::State;
use super::errors;
use super::join::{Call, Join, JoinedActivity, Ran};
use super::names::Names;
use super::numbers::Numbers;
use super::records::{self, ActivityKind, Record, kind};
use super::{Correlate, CuptiOptions, lanes, search};
use candlescope_core::gpu::{ActivityError, ActivitySink, OUTSIDE_WINDOW, RawKernel, Undelivered};
use candlescope_core::{HostNs, SpanId};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What runs on a device. Copies between devices are separate, because some shared devices refuse to record them.
const WORK: [u32; 3] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET];

/// `cuLaunchKernel`, without which nothing is worth following.
const LAUNCH_KERNEL: u32 = 307;

/// How long a window waits for a launch that is detaching CUPTI. It takes milliseconds.
const DETACHING: Duration = Duration::from_secs(5);

/// How long the last delivery waits for copies that are under way. Those to the host wait for all kernels before them.
const COPYING: Duration = Duration::from_secs(1);
/// The same where a window begins and ends, so that no copy is recorded in part. Where many threads copy, there may be
/// no such moment: their records are turned on or off later.
const COPYING_AT_ENDS: Duration = Duration::from_millis(50);
/// How long a window's begin waits for a call once CUPTI is attached: until then a thread may be inside a copy that began
/// before, which nobody saw.
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
    /// Calls that make and end contexts, and copies that are not among `calls`. Both are followed for as long as CUPTI is
    /// attached.
    watched: Vec<Switch>,
    recording: bool,
    /// Whether copies are recorded. They are turned on and off between two copies, which may be later than the rest.
    copies_on: bool,
    /// Since when a window goes on without records of copies, by the callbacks' clock, and when that was so before: copies
    /// begun meanwhile have none.
    gap: Option<u64>,
    gaps: VecDeque<(u64, u64)>,
    join: Join,
    /// What was read and has not been told.
    carried: Read,
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
            detaches: !options.keep_attached && search::detachable(version),
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
            carried: Read::default(),
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

    /// Whether this thread may call CUPTI. If it is detached, any call would attach it again; if a detachment was
    /// requested, a launch may detach it at any time.
    fn is_attached(&self) -> bool {
        self.mine && self.backend.link().state() == State::Attached
    }

    /// Makes sure that CUPTI is in the process, ready to record.
    fn attach(&mut self) -> Result<(), ActivityError> {
        let state = self.backend.link().settle(DETACHING);
        if let Some(status) = self.backend.link().failed() {
            // After a failure this is not tried again, because it happens in the middle of the application's launches.
            self.detaches = false;
            let message = format!("detaching failed with error {status}, so it stays attached from now on");
            candlescope_core::diagnostics::report("cupti", message);
        }
        match state {
            // The request was cancelled, or there was none.
            State::Attached if self.mine => {}
            State::Attached | State::Detached => {
                if let Err(error) = self.backend.attach() {
                    self.backend.stop();
                    return Err(error);
                }
                lanes::attached(lanes::clock().raw());
                self.backend.link().attached();
                self.begin_anew();
            }
            State::Requested | State::Detaching => {
                return Err(ActivityError(
                    "CUPTI is still being detached after 5 s, so kernels cannot be recorded: set the option `keep_attached`, or \
                        CANDLESCOPE_CUPTI_KEEP_ATTACHED=1"
                        .to_string(),
                ));
            }
        }
        if self.kinds.is_none() {
            self.warm_up()?;
        }
        for call in self.watched.iter().chain(&self.calls) {
            // If one is refused, it is not seen: what it launches has no interval, or it is not waited for.
            let _ = self.backend.turn(*call, true);
        }
        Ok(())
    }

    /// CUPTI was attached again: nothing that it reports from now on refers to what it reported before, not even the
    /// numbers of calls.
    fn begin_anew(&mut self) {
        if std::mem::replace(&mut self.mine, true) {
            // Buffers that came while it was being detached can only be read now, because CUPTI itself walks them.
            let read = self.read();
            self.carried.add(read);
            self.join.new_ids();
        } else {
            // Records of another recorder.
            self.backend.records(&mut |_, _| {});
            self.backend.dropped();
        }
        self.numbers.begin_anew();
    }

    /// A window is over and its kernels are delivered: requests that the next launch detach CUPTI.
    pub(super) fn release(&mut self) {
        if self.recording || !self.detaches || !self.is_attached() || !self.turn_copies(false, Duration::ZERO) {
            return;
        }
        if self.backend.link().must_stay() {
            self.detaches = false;
            let message = "this program ends CUDA contexts while kernels are recorded, so CUPTI stays attached from now on: \
                each launch costs up to 0.8 µs more";
            candlescope_core::diagnostics::report("cupti", message.to_string());
            return;
        }
        let mut any = false;
        for exit in &self.exits {
            any |= self.backend.turn(*exit, true).is_ok();
        }
        // If no call can detach it, CUPTI stays.
        if any {
            self.backend.link().request();
        }
    }

    /// Turns everything on, the kinds of work off again, and keeps what works.
    ///
    /// Calls are followed until CUPTI is detached, and recorded in windows only. Were they turned off where a window
    /// ends, a thread could be inside one: a step's last call waits for its result. CUPTI then takes all that the
    /// thread calls later for a part of that call and gives it its id, until it is detached.
    fn warm_up(&mut self) -> Result<(), ActivityError> {
        let exits = calls::FREQUENT.iter().filter(|cbid| self.knows(Domain::Driver, **cbid));
        self.exits = exits.map(|cbid| Switch::Callback(Domain::Driver, *cbid)).collect();
        let on_contexts = calls::MAKE_CONTEXTS.iter().chain(&calls::END_CONTEXTS);
        // Copies have to be followed also where calls are not recorded; where they are, they are followed as calls.
        let apart = self.correlate == Correlate::Nothing;
        let copies = Domain::Driver.calls().iter().filter(|(cbid, _)| apart && calls::copies(Domain::Driver, *cbid));
        self.watched = (on_contexts.chain(copies))
            .filter(|(cbid, name)| self.is_named(Domain::Driver, *cbid, name))
            .map(|(cbid, _)| Switch::Callback(Domain::Driver, *cbid))
            .collect();
        let (mut calls, mut kinds) = (Vec::new(), Vec::new());
        let work = WORK.into_iter().chain([kind::MEMCPY2]).map(Switch::Kind);
        for switch in self.followed().into_iter().chain(work) {
            // Copies are not tried: a thread may be inside one that began before CUPTI was attached. One that is recorded in
            // part crashed programs while they loaded their model.
            let outcome = if is_copy(&switch) { Ok(()) } else { self.backend.turn(switch, true) };
            match outcome {
                Ok(()) => if matches!(switch, Switch::Kind(_)) { &mut kinds } else { &mut calls }.push(switch),
                Err(code) if needed(switch) => {
                    let _ = self.all_off(&kinds);
                    return Err(errors::refused(&meaning(switch), code));
                }
                // A call that this library or driver does not offer is not made by the program either.
                Err(_) => {}
            }
        }
        self.all_off(&kinds).map_err(|(switch, code)| errors::refused(&format!("stop: {}", meaning(switch)), code))?;
        (self.calls, self.kinds) = (calls, Some(kinds));
        self.backend.timestamp();
        Ok(())
    }

    /// Whether the library knows a call by this number. Its own name decides, not its version.
    fn knows(&self, domain: Domain, cbid: u32) -> bool {
        calls::name(domain, cbid).is_some_and(|ours| self.is_named(domain, cbid, ours))
    }

    fn is_named(&self, domain: Domain, cbid: u32, ours: &str) -> bool {
        self.backend.call_name(domain, cbid).is_some_and(|theirs| calls::plain(&theirs) == ours)
    }

    /// What has to be on to follow calls.
    fn followed(&self) -> Vec<Switch> {
        let domains: &[Domain] = match (self.correlate, self.runtime) {
            (Correlate::Nothing, _) => &[],
            (Correlate::Callbacks, false) => &[Domain::Driver],
            (Correlate::Callbacks, true) => &[Domain::Driver, Domain::Runtime],
        };
        let all = domains.iter().flat_map(|domain| domain.calls().iter().map(|(cbid, _)| (*domain, *cbid)));
        all.filter(|(domain, cbid)| self.knows(*domain, *cbid))
            .map(|(domain, cbid)| Switch::Callback(domain, cbid))
            .collect()
    }

    /// Turns all of these off, even if some fail; returns the first error.
    fn all_off(&mut self, switches: &[Switch]) -> Result<(), (Switch, errors::Code)> {
        let mut outcome = Ok(());
        for switch in switches.iter().rev() {
            outcome = outcome.and(self.backend.turn(*switch, false).map_err(|code| (*switch, code)));
        }
        outcome
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
        if self.correlate == Correlate::Callbacks {
            lanes::begin();
        }
        self.note();
        let (copies, others) = self.kinds_by_copies();
        for switch in &others {
            if let Err(code) = self.backend.turn(*switch, true) {
                lanes::end();
                // Turning off what was not on does nothing. The first refusal is the useful error, not one from turning
                // things off again.
                let _ = self.all_off(&others);
                return Err(errors::refused(&meaning(*switch), code));
            }
        }
        self.recording = true;
        self.gap = (!copies.is_empty()).then(|| lanes::clock().raw());
        self.backend.link().wait_for_call(FIRST_CALL);
        self.turn_copies(true, COPYING_AT_ENDS);
        Ok(())
    }

    pub(super) fn disable(&mut self) -> Result<(), ActivityError> {
        if !self.recording {
            return Ok(());
        }
        self.recording = false;
        let (_, others) = self.kinds_by_copies();
        self.turn_copies(false, COPYING_AT_ENDS);
        let outcome = self.all_off(&others);
        lanes::end();
        self.end_gap();
        self.note();
        outcome.map_err(|(switch, code)| errors::refused(&format!("stop: {}", meaning(switch)), code))
    }

    /// The kinds of work that are copies, and the others.
    fn kinds_by_copies(&self) -> (Vec<Switch>, Vec<Switch>) {
        self.kinds.iter().flatten().copied().partition(is_copy)
    }

    /// Turns records of copies on or off [between two copies](super::detach::Link::between_copies); whether they are so
    /// now. If they are refused, that is said, and copies are missing from here on.
    fn turn_copies(&mut self, on: bool, limit: Duration) -> bool {
        if self.copies_on == on {
            return true;
        }
        let (copies, _) = self.kinds_by_copies();
        let backend = &self.backend;
        let turn =
            |kind: &Switch| backend.turn(*kind, on).err().filter(|_| on && needed(*kind)).map(|code| (*kind, code));
        let turned = backend.link().between_copies(limit, || copies.iter().filter_map(turn).next_back());
        if let Some(Some((kind, code))) = turned {
            candlescope_core::diagnostics::report("cupti", errors::refused(&meaning(kind), code).to_string());
        }
        if turned.is_some() {
            self.copies_on = on;
            if on {
                self.end_gap();
            } else if self.recording {
                self.gap = Some(lanes::clock().raw());
            }
        }
        turned.is_some()
    }

    /// Copies are recorded again, or need not be.
    fn end_gap(&mut self) {
        if let Some(began) = self.gap.take() {
            self.gaps.push_back((began, lanes::clock().raw()));
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

    /// Delivers the kernels recorded so far.
    ///
    /// A plain flush hands over the buffers whose records are all complete; a kernel that is still running holds its
    /// buffer back, and no record is lost. With `all`, a forced one follows, which hands over all buffers: the records
    /// of what still runs are lost then, and some of what ran may never become complete because its time stamp was
    /// lost. If CUPTI is detached there is nothing to fetch, and while a copy is under way only what CUPTI handed over by
    /// itself.
    pub(super) fn collect(
        &mut self,
        all: bool,
        host: &dyn Fn() -> HostNs,
        into: &mut ActivitySink,
    ) -> Result<(), ActivityError> {
        let attached = self.is_attached();
        let flushed = if attached { self.flush(all) } else { None };
        // After the flush, so that all times it brought lie between anchors.
        self.anchor(host, attached);
        if attached {
            let read = self.read();
            self.carried.add(read);
            into.dropped += self.backend.dropped();
        }
        let Read { dropped, dropped_of, outside, strays } = std::mem::take(&mut self.carried);
        into.dropped += dropped;
        into.dropped_of.extend(dropped_of);
        into.outside_unfinished += outside;
        into.stray_unfinished.extend(strays.into_iter().filter_map(|end| self.ticks.host(end)));
        into.dropped += lanes::lost();
        if all {
            self.join.give_up();
        }
        into.undelivered = match self.join.earliest_missing() {
            // Without calls, or where each is seen twice, it is not known what was launched.
            _ if self.correlate == Correlate::Nothing || self.runtime => Undelivered::Unknown,
            None => Undelivered::Nothing,
            Some(end) => self.ticks.host(end).map_or(Undelivered::Unknown, Undelivered::Since),
        };
        // The bounds of the clock that times kernels and of the clock that times calls, which kernels are compared
        // with.
        into.clock_bound_ns = self.cupti.bound_ns().map(|bound| bound + self.ticks.bound_ns().unwrap_or(0));
        let Self { join, cupti, ticks, devices, backend, numbers, .. } = self;
        join.deliver(all, |joined| {
            let number = numbers.unique(joined.ran.work.correlation);
            let uuid = || backend.uuid(joined.ran.work.device).unwrap_or_else(|| "unknown".to_string()).into();
            let device = Arc::clone(devices.entry(joined.ran.work.device).or_insert_with(uuid));
            into.kernels.extend(kernel(joined, number, device, cupti, ticks));
        });
        let ambiguous = join.take_ambiguous();
        into.dropped += ambiguous.records;
        into.dropped_of.extend(ambiguous.spans);
        flushed.unwrap_or(Ok(())).map_err(|code| errors::refused("hand over its records", code))
    }

    /// Takes in the records of CUPTI's buffers and of the threads' rings.
    fn read(&mut self) -> Read {
        let Self { backend, join, names, .. } = self;
        let (mut lost, mut unfinished) = (0, Vec::new());
        lost += backend.records(&mut |bytes, name| match records::parse(bytes) {
            // Times are zero if the device had no room for them, or if the record was forced out before its end.
            Some(Record::Work(work)) if work.start == 0 || work.end == 0 => unfinished.push(work.correlation),
            Some(Record::Work(work)) => {
                let name = match &work.what {
                    ActivityKind::Kernel { .. } => name.unwrap_or(b"unknown"),
                    ActivityKind::Copy { direction, .. } => direction.as_bytes(),
                    ActivityKind::Set { .. } => b"memset",
                };
                join.ran(Ran { name: names.readable(name), work });
            }
            Some(Record::Other) => {}
            None => lost += 1,
        });
        // After the buffers: a kernel can end before its call has returned, so the calls are read last.
        let nanoseconds = |raw: u64| lanes::clock().delta_as_nanos(self.origin, raw);
        let mut unrecorded = Vec::new();
        lanes::drain(|launch| {
            let within = |(began, ended): &(u64, u64)| (*began..=*ended).contains(&launch.start);
            let now = self.gap.is_some_and(|began| launch.start >= began);
            if calls::copies(launch.domain, launch.cbid) && (now || self.gaps.iter().any(within)) {
                unrecorded.push(SpanId(launch.span));
            }
            let Some(name) = calls::name(launch.domain, launch.cbid) else { return };
            let start = Some(launch.start).filter(|start| *start != 0).map(nanoseconds);
            let span = Some(SpanId(launch.span)).filter(|span| span.0 != 0);
            join.launched(launch.correlation, span, Call { name, start, end: nanoseconds(launch.end) });
        });
        let mut read = Read { dropped: lost, ..Read::default() };
        for span in unrecorded.into_iter().filter(|span| *span != OUTSIDE_WINDOW) {
            read.dropped += 1;
            read.dropped_of.extend(Some(span).filter(|span| span.0 != 0));
        }
        for correlation in unfinished {
            match join.unfinished(correlation) {
                Some((_, Some(OUTSIDE_WINDOW))) => read.outside += 1,
                Some((call, None)) => read.strays.push(call.end),
                launcher => {
                    read.dropped += 1;
                    read.dropped_of.extend(launcher.and_then(|(_, span)| span));
                }
            }
        }
        read
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

    pub(super) fn describe(&self) -> BTreeMap<String, Value> {
        let mut facts = BTreeMap::from([
            ("cupti_version".to_string(), search::toolkit(self.version).into()),
            ("cupti_library".to_string(), self.backend.path().display().to_string().into()),
            ("cupti_strategy".to_string(), self.correlate.name().into()),
            ("cupti_detaches".to_string(), self.detaches.into()),
        ]);
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
        if self.is_attached() {
            if self.turn_copies(false, COPYING) {
                let _ = self.backend.flush(true);
            }
            self.backend.records(&mut |_, _| {});
            self.release();
        }
        // If the next launch detaches CUPTI, that ends the subscription too.
        if self.is_attached() {
            self.backend.stop();
        }
    }
}

/// What could not be used of what was read.
#[derive(Debug, Default)]
struct Read {
    /// Records that are lost, and (`dropped_of`) the intervals that launched some of them.
    dropped: u64,
    dropped_of: Vec<SpanId>,
    /// Unfinished work of steps outside of windows, and (`strays`) of calls outside all intervals, when these ended.
    outside: u64,
    strays: Vec<u64>,
}

impl Read {
    fn add(&mut self, other: Read) {
        self.dropped += other.dropped;
        self.dropped_of.extend(other.dropped_of);
        self.outside += other.outside;
        self.strays.extend(other.strays);
    }
}

fn is_copy(switch: &Switch) -> bool {
    matches!(switch, Switch::Kind(kind::MEMCPY | kind::MEMCPY2))
}

fn needed(switch: Switch) -> bool {
    match switch {
        Switch::Kind(kind) => kind != kind::MEMCPY2,
        Switch::Callback(domain, cbid) => (domain, cbid) == (Domain::Driver, LAUNCH_KERNEL),
    }
}

fn meaning(switch: Switch) -> String {
    match switch {
        Switch::Kind(kind::CONCURRENT_KERNEL) => "record kernels".to_string(),
        Switch::Kind(kind::MEMCPY | kind::MEMCPY2) => "record copies".to_string(),
        Switch::Kind(kind::MEMSET) => "record memsets".to_string(),
        Switch::Kind(_) => "record this kind of work".to_string(),
        Switch::Callback(domain, cbid) => format!("follow {}", calls::name(domain, cbid).unwrap_or("a call")),
    }
}

/// A joined record on the host's time line. `None` before any clock was read, which `collect` rules out.
fn kernel(
    joined: JoinedActivity,
    correlation: u32,
    device: Arc<str>,
    cupti: &Anchors,
    calls: &Anchors,
) -> Option<RawKernel> {
    let JoinedActivity { ran: Ran { work, name }, span, call } = joined;
    let launch_start = call.and_then(|call| calls.host(call.start?));
    let launch_end = call.and_then(|call| calls.host(call.end));
    let mut kernel = RawKernel {
        kind: work.what.kind(),
        name,
        span,
        device,
        stream: work.stream,
        start: cupti.host(work.start)?,
        dur_ns: work.end.saturating_sub(work.start),
        grid: None,
        block: None,
        registers: None,
        shared_static: None,
        shared_dynamic: None,
        bytes: None,
        launch: call.map(|call| call.name),
        launch_start,
        launch_dur_ns: launch_start.and_then(|start| Some(launch_end?.since(start))),
        correlation,
        graph: work.graph,
    };
    match work.what {
        ActivityKind::Kernel { grid, block, registers, shared_static, shared_dynamic } => {
            (kernel.grid, kernel.block, kernel.registers) = (Some(grid), Some(block), Some(registers));
            (kernel.shared_static, kernel.shared_dynamic) = (Some(shared_static), Some(shared_dynamic));
        }
        ActivityKind::Copy { bytes, .. } | ActivityKind::Set { bytes } => kernel.bytes = Some(bytes),
    }
    Some(kernel)
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
