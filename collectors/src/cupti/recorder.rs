//! Switching recording on and off, and turning what comes of it into kernels with their intervals.

use super::backend::{Backend, Switch};
use super::calls::{self, Domain};
use super::clock::{Anchors, bracketed};
use super::errors;
use super::join::{Call, Join, Joined, Ran};
use super::names::Names;
use super::records::{self, Record, What, kind};
use super::{Correlate, CuptiOptions, lanes, search};
use candlescope_core::gpu::{ActivityError, ActivitySink, RawKernel};
use candlescope_core::{HostNs, SpanId};
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What runs on a device. Copies between devices are extra, as some shared devices refuse them.
const WORK: [u32; 3] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET];

/// `cuLaunchKernel`, without which nothing is worth following.
const LAUNCH_KERNEL: u32 = 307;

/// A recorder that is ready for windows.
#[derive(Debug)]
pub(super) struct Recorder<B: Backend> {
    backend: B,
    correlate: Correlate,
    /// In the order they are switched on; off goes the other way round.
    switches: Vec<Switch>,
    recording: bool,
    join: Join,
    names: Names,
    devices: FxHashMap<u32, Arc<str>>,
    /// CUPTI's clock beside the host's.
    cupti: Anchors,
    /// The callbacks' clock, in nanoseconds since `origin`, beside the host's.
    ticks: Anchors,
    origin: u64,
    /// Readings of both clocks when windows began and ended. The host's clock is not at hand then, and is put to them later.
    noted: Vec<(u64, u64)>,
}

impl<B: Backend> Recorder<B> {
    /// Does what is slow the first time: starts the driver, attaches to the process, and turns everything on and off once.
    pub(super) fn new(backend: B, options: &CuptiOptions) -> Result<Self, ActivityError> {
        let version = backend.version();
        if !search::understood(version) {
            return Err(errors::version(backend.path(), version));
        }
        lanes::configure(options.ring_calls);
        let mut recorder = Self {
            backend,
            correlate: options.correlate,
            switches: Vec::new(),
            recording: false,
            join: Join::new(options.correlate != Correlate::Nothing),
            names: Names::default(),
            devices: FxHashMap::default(),
            cupti: Anchors::default(),
            ticks: Anchors::default(),
            origin: lanes::clock().raw(),
            noted: Vec::new(),
        };
        recorder.backend.start(options)?;
        recorder.warm_up(options.runtime_calls)?;
        Ok(recorder)
    }

    /// Turns every switch on and off, and keeps those that work.
    fn warm_up(&mut self, runtime: bool) -> Result<(), ActivityError> {
        let mut wanted = self.followed(runtime);
        wanted.extend(WORK.map(Switch::Kind));
        wanted.push(Switch::Kind(kind::MEMCPY2));
        for switch in wanted {
            match self.backend.turn(switch, true) {
                Ok(()) => self.switches.push(switch),
                Err(code) if needed(switch) => {
                    let _ = self.all_off();
                    return Err(errors::refused(&meaning(switch), code));
                }
                // A call that this library or this driver does not offer is never made either.
                Err(_) => {}
            }
        }
        self.all_off().map_err(|(switch, code)| errors::refused(&format!("stop: {}", meaning(switch)), code))?;
        self.backend.timestamp();
        Ok(())
    }

    /// What has to be on to follow calls.
    fn followed(&self, runtime: bool) -> Vec<Switch> {
        let domains = if runtime { &[Domain::Driver, Domain::Runtime][..] } else { &[Domain::Driver] };
        let mut switches = Vec::new();
        for domain in domains.iter().copied() {
            // The library's own name decides, not its version.
            let known = |(cbid, ours): &&(u32, &str)| {
                self.backend.call_name(domain, *cbid).is_some_and(|name| calls::plain(&name) == *ours)
            };
            let numbers = domain.calls().iter().filter(known).map(|(cbid, _)| *cbid);
            match (self.correlate, domain) {
                (Correlate::Nothing, _) => {}
                (Correlate::Callbacks, _) => switches.extend(numbers.map(|cbid| Switch::Callback(domain, cbid))),
                (Correlate::ExternalIds, _) if self.backend.has_single_calls(domain) => {
                    switches.extend(numbers.map(|cbid| Switch::Call(domain, cbid)));
                }
                (Correlate::ExternalIds, Domain::Driver) => switches.push(Switch::Kind(kind::DRIVER)),
                (Correlate::ExternalIds, Domain::Runtime) => switches.push(Switch::Kind(kind::RUNTIME)),
            }
        }
        if self.correlate == Correlate::ExternalIds {
            switches.push(Switch::Kind(kind::EXTERNAL_CORRELATION));
        }
        switches
    }

    /// Turns everything off, whatever fails; tells the first that did.
    fn all_off(&mut self) -> Result<(), (Switch, errors::Code)> {
        let mut outcome = Ok(());
        for switch in self.switches.iter().rev() {
            outcome = outcome.and(self.backend.turn(*switch, false).map_err(|code| (*switch, code)));
        }
        outcome
    }

    pub(super) fn enable(&mut self) -> Result<(), ActivityError> {
        if self.recording {
            return Ok(());
        }
        lanes::begin();
        self.note();
        for at in 0..self.switches.len() {
            let switch = self.switches[at];
            if let Err(code) = self.backend.turn(switch, true) {
                // Turning off what was not on does nothing. The refusal is the better news than what fails on the way back.
                let _ = self.all_off();
                return Err(errors::refused(&meaning(switch), code));
            }
        }
        self.recording = true;
        Ok(())
    }

    pub(super) fn disable(&mut self) -> Result<(), ActivityError> {
        if !self.recording {
            return Ok(());
        }
        self.recording = false;
        let outcome = self.all_off();
        self.note();
        outcome.map_err(|(switch, code)| errors::refused(&format!("stop: {}", meaning(switch)), code))
    }

    /// Delivers what is known.
    ///
    /// A plain flush hands over the buffers whose records are all complete; one kernel that is still running holds its buffer back,
    /// and no record is lost. That is what a window that goes on wants. With `all` the work is done on the device, so a plain flush
    /// has everything; a forced one follows for buffers that hold a record which will never be complete, as its time stamp was lost.
    pub(super) fn collect(
        &mut self,
        all: bool,
        host: &dyn Fn() -> HostNs,
        into: &mut ActivitySink,
    ) -> Result<(), ActivityError> {
        let mut flushed = self.backend.flush(false);
        if all {
            flushed = flushed.and(self.backend.flush(true));
        }
        // After the flush, so that all times it brought lie between anchors.
        self.anchor(host);
        into.dropped += self.read() + self.backend.dropped() + lanes::lost();
        let Self { join, cupti, ticks, devices, backend, correlate, .. } = self;
        let callbacks = *correlate == Correlate::Callbacks;
        join.deliver(all, |joined| {
            let uuid = || backend.uuid(joined.ran.work.device).unwrap_or_else(|| "unknown".to_string()).into();
            let device = Arc::clone(devices.entry(joined.ran.work.device).or_insert_with(uuid));
            into.kernels.extend(kernel(joined, device, cupti, if callbacks { ticks } else { cupti }));
        });
        flushed.map_err(|code| errors::refused("hand over its records", code))
    }

    /// Takes in the records of CUPTI's buffers and of the threads' rings. Returns how many could not be used.
    fn read(&mut self) -> u64 {
        let Self { backend, join, names, .. } = self;
        let mut lost = 0;
        lost += backend.records(&mut |bytes, name| match records::parse(bytes) {
            // Times are zero where the device had no room for them, or where the record was forced out before its end.
            Some(Record::Work(work)) if work.start == 0 || work.end == 0 => lost += 1,
            Some(Record::Work(work)) => {
                let name = match &work.what {
                    What::Kernel { .. } => name.unwrap_or(b"unknown"),
                    What::Copy { direction, .. } => direction.as_bytes(),
                    What::Set { .. } => b"memset",
                };
                join.ran(Ran { name: names.readable(name), work });
            }
            Some(Record::Call { runtime, cbid, correlation, start, end }) => {
                let domain = if runtime { Domain::Runtime } else { Domain::Driver };
                // Others come along where the library records all calls or none.
                if let Some(name) = calls::name(domain, cbid) {
                    join.call(correlation, Call { name, start: Some(start).filter(|start| *start != 0), end });
                }
            }
            Some(Record::External { correlation, id }) => join.external(correlation, SpanId(id)),
            Some(Record::Other) => {}
            None => lost += 1,
        });
        // After the buffers: a kernel can be over before its call has returned, hardly the other way round.
        let nanoseconds = |raw: u64| lanes::clock().delta_as_nanos(self.origin, raw);
        lanes::drain(|launch| {
            let Some(name) = calls::name(launch.domain, launch.cbid) else { return };
            let start = Some(launch.start).filter(|start| *start != 0).map(nanoseconds);
            let span = Some(SpanId(launch.span)).filter(|span| span.0 != 0);
            join.launched(launch.correlation, span, Call { name, start, end: nanoseconds(launch.end) });
        });
        lost
    }

    fn now(&self) -> u64 {
        let clock = lanes::clock();
        clock.delta_as_nanos(self.origin, clock.raw())
    }

    fn note(&mut self) {
        let before = self.now();
        if let Some(at) = self.backend.timestamp() {
            self.noted.push((at, before.midpoint(self.now())));
        }
    }

    /// Reads all clocks together.
    fn anchor(&mut self, host: &dyn Fn() -> HostNs) {
        if let Some((at, host)) = bracketed(host, &|| Some(self.now())) {
            self.ticks.add(at, host);
        }
        for (at, ticks) in std::mem::take(&mut self.noted) {
            if let Some(host) = self.ticks.host(ticks) {
                self.cupti.add(at, host);
            }
        }
        if let Some((at, host)) = bracketed(host, &|| self.backend.timestamp()) {
            self.cupti.add(at, host);
        }
    }

    pub(super) fn describe(&self) -> BTreeMap<String, Value> {
        let followed = self.switches.iter().filter(|switch| !matches!(switch, Switch::Kind(_))).count();
        BTreeMap::from([
            ("cupti_version".to_string(), search::toolkit(self.backend.version()).into()),
            ("cupti_library".to_string(), self.backend.path().display().to_string().into()),
            ("cupti_strategy".to_string(), self.correlate.name().into()),
            ("cupti_calls_followed".to_string(), followed.into()),
        ])
    }
}

impl<B: Backend> Drop for Recorder<B> {
    fn drop(&mut self) {
        // Nothing can be reported any more. The flush brings CUPTI's buffers home, for the next recorder.
        let _ = self.disable();
        let _ = self.backend.flush(true);
        self.backend.records(&mut |_, _| {});
        self.backend.stop();
    }
}

fn needed(switch: Switch) -> bool {
    match switch {
        Switch::Kind(kind) => kind != kind::MEMCPY2,
        Switch::Call(domain, cbid) | Switch::Callback(domain, cbid) => {
            (domain, cbid) == (Domain::Driver, LAUNCH_KERNEL)
        }
    }
}

fn meaning(switch: Switch) -> String {
    match switch {
        Switch::Kind(kind::CONCURRENT_KERNEL) => "record kernels".to_string(),
        Switch::Kind(kind::MEMCPY | kind::MEMCPY2) => "record copies".to_string(),
        Switch::Kind(kind::MEMSET) => "record memsets".to_string(),
        Switch::Kind(kind::EXTERNAL_CORRELATION) => "record which interval launched a kernel".to_string(),
        Switch::Kind(_) => "record launch calls".to_string(),
        Switch::Call(domain, cbid) | Switch::Callback(domain, cbid) => {
            format!("follow {}", calls::name(domain, cbid).unwrap_or("a call"))
        }
    }
}

/// A joined record on the host's time line. `None` before any clock was read, which `collect` rules out.
fn kernel(joined: Joined, device: Arc<str>, cupti: &Anchors, calls: &Anchors) -> Option<RawKernel> {
    let Joined { ran: Ran { work, name }, span, call } = joined;
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
        correlation: work.correlation,
        graph: work.graph,
    };
    match work.what {
        What::Kernel { grid, block, registers, shared_static, shared_dynamic } => {
            (kernel.grid, kernel.block, kernel.registers) = (Some(grid), Some(block), Some(registers));
            (kernel.shared_static, kernel.shared_dynamic) = (Some(shared_static), Some(shared_dynamic));
        }
        What::Copy { bytes, .. } | What::Set { bytes } => kernel.bytes = Some(bytes),
    }
    Some(kernel)
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
