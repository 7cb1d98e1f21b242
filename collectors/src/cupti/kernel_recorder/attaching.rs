//! CUPTI into the process and out of it again, and what of it works here.

use super::KernelRecorder;
use crate::cupti::backend::{Backend, Switch};
use crate::cupti::calls::{self, Domain};
use crate::cupti::contexts::UNDER_WAY;
use crate::cupti::detach::{State, StayReason};
use crate::cupti::records::kind;
use crate::cupti::switches::{is_on_memory, meaning, needed};
use crate::cupti::sys::{NODE_CLONED, NODE_CREATED};
use crate::cupti::{Correlate, errors, lanes};
use candlescope_core::gpu::ActivityError;
use std::time::Duration;

/// What runs on a device. Copies between devices are separate, because some shared devices refuse to record them.
const WORK: [u32; 3] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET];

/// How long a window waits for a launch that is detaching CUPTI. It takes milliseconds.
const DETACHING: Duration = Duration::from_secs(5);

impl<B: Backend> KernelRecorder<B> {
    /// Whether this thread may call CUPTI. If it is detached, any call would attach it again; if a detachment was
    /// requested, a launch may detach it at any time.
    pub(super) fn is_attached(&self) -> bool {
        self.mine && self.backend.link().state() == State::Attached && !self.backend.is_gone()
    }

    /// Makes sure that CUPTI is in the process, ready to record.
    pub(super) fn attach(&mut self) -> Result<(), ActivityError> {
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
    pub(in crate::cupti) fn release(&mut self) {
        if self.recording || !self.detaches || !self.is_attached() || !self.turn_copies(false, Duration::ZERO) {
            return;
        }
        if self.backend.several_devices() {
            self.backend.link().sees_several_contexts();
        }
        if let Some(stay) = self.backend.link().must_stay() {
            self.detaches = false;
            let what = match stay {
                StayReason::EndsContexts => "ends CUDA contexts while kernels are recorded",
                StayReason::SeveralContexts => {
                    "works on several devices, which can wait for each other for ever while CUPTI leaves"
                }
                StayReason::LaunchesGraphs => "launches CUDA graphs, which fail once CUPTI has left",
            };
            let message = format!(
                "this program {what}, so CUPTI stays attached from now on: each launch costs up to 0.8 µs more"
            );
            candlescope_core::diagnostics::report("cupti", message);
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
        let on_memory = |cbid: u32| apart && calls::is_on_memory(Domain::Driver, cbid);
        let copies = Domain::Driver.calls().iter().filter(|(cbid, _)| on_memory(*cbid));
        let graphs = calls::MAKE_GRAPHS.iter().chain(calls::LAUNCH_GRAPHS.iter().filter(|_| apart));
        self.watched = (on_contexts.chain(copies).chain(graphs))
            .filter(|(cbid, name)| self.is_named(Domain::Driver, *cbid, name))
            .map(|(cbid, _)| Switch::Callback(Domain::Driver, *cbid))
            .chain([NODE_CREATED, NODE_CLONED].map(Switch::Resource))
            .collect();
        let no_records = self.trial.no_records;
        let work = WORK.into_iter().chain([kind::MEMCPY2]).filter(|_| !no_records).map(Switch::Kind);
        let switches: Vec<_> = self.followed().into_iter().chain(work).collect();
        // First: without them it is not known whether a context is being made meanwhile.
        for call in &self.watched {
            let _ = self.backend.turn(*call, true);
        }
        let (calls, kinds) = self.backend.link().contexts().between(UNDER_WAY, |_| self.try_out(switches))?;
        (self.calls, self.kinds) = (calls, Some(kinds));
        self.backend.timestamp();
        Ok(())
    }

    /// Of these, the calls and the kinds of work that can be switched on. Calls are left on, kinds off.
    fn try_out(&self, switches: Vec<Switch>) -> Result<(Vec<Switch>, Vec<Switch>), ActivityError> {
        let (mut calls, mut kinds) = (Vec::new(), Vec::new());
        for switch in switches {
            // Copies are not tried: a thread may be inside one that began before CUPTI was attached. One that is
            // recorded in part crashed programs while they loaded their model.
            let outcome = if is_on_memory(&switch) { Ok(()) } else { self.backend.turn(switch, true) };
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
        Ok((calls, kinds))
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
    pub(super) fn all_off(&self, switches: &[Switch]) -> Result<(), (Switch, errors::Code)> {
        self.backend.link().contexts().between(UNDER_WAY, |_| {
            let mut outcome = Ok(());
            for switch in switches.iter().rev() {
                outcome = outcome.and(self.backend.turn(*switch, false).map_err(|code| (*switch, code)));
            }
            outcome
        })
    }
}
