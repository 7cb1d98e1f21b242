//! Kernels, copies and memsets through CUPTI's Activity API, each with the interval and the call that launched it.
//!
//! The library is loaded on demand, so this builds and runs anywhere; if something is missing, [`Cupti`] says what, and
//! how to get it. CUPTI of CUDA 12 and 13 is supported.
//!
//! | file | does |
//! |---|---|
//! | `search`, `errors` | where the library may be; what prevents recording |
//! | `sys` | C functions, and our callbacks, which CUPTI calls |
//! | `detach`, `contexts`, `in_flight` | when CUPTI leaves the process, and who may call it meanwhile |
//! | `buffers`, `lanes` | what application threads hand over: full buffers, launch calls |
//! | `records`, `names`, `numbers`, `clock` | bytes to records, symbols to names, ids to unique ones, CUPTI's time to the host's |
//! | `join` | kernels to their calls and intervals |
//! | `told` | recorded from outside: who else is told of calls |
//! | `trial` | what is left out or done otherwise, to measure what it costs |
//! | `backend`, `kernel_recorder` | what is switched on in a window, and the kernels that come of it |
//!
//! # What it costs
//!
//! Measured on an H200 in a VM, CUDA 13.0, driver 580 (`docs/measurements/gpu.md`); nanoseconds of the launching thread
//! per kernel:
//!
//! | | ns |
//! |---|---|
//! | without CUPTI | 2,600 |
//! | CUPTI attached, nothing recorded | 2,950 |
//! | kernels recorded, in a window | 3,180–3,390 |
//!
//! So recording is for windows of a few steps, and between windows CUPTI is detached: while attached it slows down
//! every call of the driver, even with everything switched off, by 9 to 12 % of a decode step of a small model. While it
//! is attached calls stay followed, as in a window.
//!
//! Kernels find their intervals through callbacks at launch calls. CUPTI's external correlation ids would be another
//! way, but they cost one or two more records per launch; and with records of selected calls only
//! (`cuptiActivityEnableDriverApi`), which would be the cheap way to get them, no kernel could be tied to an interval
//! on the same machine.

mod backend;
mod buffers;
mod calls;
mod clock;
mod contexts;
mod cupti_options;
mod delivery;
mod detach;
mod errors;
mod in_flight;
mod join;
mod kernel_recorder;
mod lanes;
mod names;
mod numbers;
mod records;
mod search;
mod switches;
mod sys;
mod told;
mod trial;

use candlescope_core::gpu::{Activity, ActivityError, ActivitySink, Correlator, GraphNode};
use candlescope_core::{HostNs, SpanId};
pub use cupti_options::{Correlate, CuptiOptions};
use kernel_recorder::KernelRecorder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
pub use told::{FollowedCall, is_injected, program_ends, window};
use trial::Trial;

/// The library that would be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CuptiFacts {
    /// Its file, as it was found on this machine.
    pub library: PathBuf,
    /// The API version that it reports, as in `cupti_version.h`.
    pub api_version: u32,
    /// The CUDA toolkit of that version, such as `13.0`.
    pub toolkit: String,
    /// Whether it leaves the process between two windows: of CUDA 12.6 or later, unless `CANDLESCOPE_CUPTI_KEEP_ATTACHED`
    /// keeps it. Otherwise each launch pays for it from the first window on.
    pub detaches: bool,
}

/// Finds the library without using it.
///
/// # Errors
/// If there is none that can be used in this process, with the remedy. Whether there is a GPU is not checked.
pub fn probe() -> Result<CuptiFacts, ActivityError> {
    let driver = sys::Driver::load().ok().and_then(|driver| driver.version());
    let cupti = understood(driver)?;
    let api_version = cupti.version();
    let detaches = !is_kept_attached() && search::detachable(api_version);
    Ok(CuptiFacts { library: cupti.path().into(), api_version, toolkit: search::toolkit(api_version), detaches })
}

/// The library that [attached early](attach_early).
static EARLY: OnceLock<sys::Cupti> = OnceLock::new();

/// The program is in `cuInit`, or was: who waits for its driver does not wait long.
static IS_NEAR: AtomicBool = AtomicBool::new(false);

/// Whether what is recorded begins when the recorder switches it on, and not when that is ready.
static EARLY_ON: AtomicBool = AtomicBool::new(false);

/// Attaches CUPTI to this process for the recorder that comes later. For a library that the driver loads in `cuInit`: the
/// program has no context yet, and makes none before this returns, nor, for two seconds at most, before the recorder is
/// ready; with `from_the_start`, before that has switched on what it records, so that nothing is missed. Attached later, on
/// another thread, CUPTI meets threads that make contexts, and crashed some of those programs. The driver is asked for
/// nothing but its version, which it tells before it is up.
///
/// # Errors
/// As [`probe`], and if CUPTI has another client. The recorder tries again, and says so.
pub fn attach_early(from_the_start: bool) -> Result<(), ActivityError> {
    let trial = Trial::told();
    IS_NEAR.store(true, Ordering::Relaxed);
    told::wake();
    // Without a version a CUPTI could be chosen that is too new for the driver: that is left to the recorder.
    let version = sys::Driver::load()?.version();
    let version = version.ok_or_else(|| ActivityError("the driver does not tell its version yet".to_string()))?;
    let cupti = understood(Some(version))?;
    let cupti = EARLY.get_or_init(|| cupti);
    EARLY_ON.store(from_the_start, Ordering::Relaxed);
    cupti.subscribe_early().map_err(|code| errors::refused("attach to this process", code))?;
    // Before there is a context, which these have to be set for. Where it is refused the recorder says so.
    let _ = backend::set_attributes(cupti, trial.device_buffer_bytes, trial.is_pinned);
    Ok(())
}

/// There will be no recorder: ends what [`attach_early`] began, unless one has taken it over. CUPTI itself stays in the
/// process; it calls nobody.
pub fn leave_early() {
    EARLY.get().into_iter().for_each(sys::Cupti::leave_early);
    sys::LINK.contexts().let_go();
}

/// The library of this machine, if its records can be read.
fn understood(driver: Option<u32>) -> Result<sys::Cupti, ActivityError> {
    let cupti = load(None, driver)?;
    if search::understood(cupti.version()) { Ok(cupti) } else { Err(errors::version(cupti.path(), cupti.version())) }
}

fn load(given: Option<&std::path::Path>, driver: Option<u32>) -> Result<sys::Cupti, ActivityError> {
    let environment = |name: &str| std::env::var(name).ok();
    if let Some(obstacle) = search::obstacle(&environment) {
        return Err(obstacle);
    }
    // A path of the program's may be in no UTF-8.
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    sys::Cupti::load(&search::candidates(given, &environment, driver, &String::from_utf8_lossy(&maps)))
}

/// Whether calls are followed, which a trial of what recording costs (`CANDLESCOPE_CUPTI_TRIAL`) may leave out.
///
/// # Errors
/// If that variable is not understood, with what is: nothing is tried then, and calls are followed.
pub fn are_calls_followed() -> Result<bool, ActivityError> {
    Trial::asked().map(|trial| !trial.no_calls)
}

/// Sets [`CuptiOptions::keep_attached`] from outside.
const KEEP_ATTACHED: &str = "CANDLESCOPE_CUPTI_KEEP_ATTACHED";

/// Whether it is.
fn is_kept_attached() -> bool {
    std::env::var(KEEP_ATTACHED).is_ok_and(|value| !matches!(value.as_str(), "" | "0"))
}

/// Records kernels through CUPTI. There can be one at a time in a process, because CUPTI serves one client.
///
/// If a program makes its CUDA context before [`prepare`](Activity::prepare), that call takes up to seconds; if it
/// makes the context later, opening the first window does. Between windows CUPTI is not in the process: after
/// [`release`](Activity::release) the next launch detaches it, and [`enable`](Activity::enable) attaches it again.
#[derive(Debug)]
pub struct Cupti {
    options: CuptiOptions,
    threads: Arc<Threads>,
    /// Dropped in this order: the recorder releases CUPTI first, then another one may claim it.
    recorder: Option<KernelRecorder<backend::LoadedCupti>>,
    claim: Option<Claim>,
    pace: Pace,
}

impl Default for Cupti {
    fn default() -> Self {
        Self::new(CuptiOptions::default())
    }
}

impl Cupti {
    /// A recorder with these options. Nothing is loaded before [`prepare`](Activity::prepare).
    pub fn new(options: CuptiOptions) -> Self {
        Self::kept(options, is_kept_attached())
    }

    fn kept(mut options: CuptiOptions, is_kept: bool) -> Self {
        options.keep_attached |= is_kept;
        let threads = Threads { correlate: options.correlate, graphs: options.follow_graphs };
        Self { options, threads: Arc::new(threads), recorder: None, claim: None, pace: Pace::default() }
    }

    fn begin(&mut self) -> Result<(), ActivityError> {
        let claim = Claim::take()?;
        // First: by then it is known which library has attached early, if one has, and the program's own is loaded.
        if told::told().is_some() {
            sys::Driver::await_start(|| IS_NEAR.load(Ordering::Relaxed))?;
        }
        let driver = sys::Driver::load()?;
        let cupti = match (&self.options.library, EARLY.get()) {
            // The same library: a subscription is one of its own.
            (None, Some(early)) => early.clone(),
            (given, early) => {
                early.into_iter().for_each(sys::Cupti::leave_early);
                load(given.as_deref(), driver.version())?
            }
        };
        let trial = Trial::asked().unwrap_or_else(|why| {
            candlescope_core::diagnostics::report("cupti", why.0);
            Trial::default()
        });
        let options = self.options.clone().under(trial);
        self.recorder = Some(KernelRecorder::new(backend::LoadedCupti::new(cupti, driver), &options)?);
        self.claim = Some(claim);
        Ok(())
    }

    fn recorder(&mut self) -> Result<&mut KernelRecorder<backend::LoadedCupti>, ActivityError> {
        self.recorder.as_mut().ok_or_else(|| {
            ActivityError("kernels cannot be recorded before `prepare` has succeeded: call it first".to_string())
        })
    }
}

impl Activity for Cupti {
    fn name(&self) -> &'static str {
        "cupti"
    }

    fn correlator(&self) -> Arc<dyn Correlator> {
        Arc::clone(&self.threads) as Arc<dyn Correlator>
    }

    fn prepare(&mut self) -> Result<(), ActivityError> {
        if self.recorder.is_some() {
            return Ok(());
        }
        let outcome = self.begin();
        // What is recorded from the start is switched on at once.
        if outcome.is_err() || !EARLY_ON.swap(false, Ordering::Relaxed) {
            sys::LINK.contexts().let_go();
        }
        outcome
    }

    fn describe(&mut self) -> BTreeMap<String, Value> {
        self.recorder.as_ref().map(KernelRecorder::describe).unwrap_or_default()
    }

    fn wait(&self) -> Duration {
        // Where nothing is detached, no memory is kept.
        let stays = self.options.stays() || self.recorder.as_ref().is_some_and(|recorder| !recorder.detaches());
        if stays { Duration::ZERO } else { self.pace.wait(Instant::now()) }
    }

    fn enable(&mut self) -> Result<(), ActivityError> {
        self.pace.window(Instant::now());
        let outcome = self.recorder().and_then(KernelRecorder::enable);
        told::opens(outcome.is_ok());
        sys::LINK.contexts().let_go();
        outcome
    }

    fn disable(&mut self) -> Result<(), ActivityError> {
        told::opens(false);
        self.recorder()?.disable()
    }

    fn collect(&mut self, all: bool, host: &dyn Fn() -> HostNs, into: &mut ActivitySink) -> Result<(), ActivityError> {
        self.recorder()?.collect(all, host, into)
    }

    fn release(&mut self) -> Result<(), ActivityError> {
        // Without a recorder there is nothing to release.
        self.recorder.iter_mut().for_each(KernelRecorder::release);
        // Where no window has come, none does.
        sys::LINK.contexts().let_go();
        Ok(())
    }
}

/// When windows may come.
///
/// CUPTI keeps about half a MiB of the device's memory each time it is detached (measured: 40 MiB after 85 windows,
/// none without detaching). So the first windows come as requested, and later ones keep a minimum distance: 3 MiB per
/// hour at most.
#[derive(Debug, Default)]
struct Pace {
    windows: u64,
    last: Option<Instant>,
}

impl Pace {
    const FREE: u64 = 64;
    const APART: Duration = Duration::from_secs(600);

    fn window(&mut self, now: Instant) {
        self.windows += 1;
        self.last = Some(now);
    }

    fn wait(&self, now: Instant) -> Duration {
        match self.last {
            Some(last) if self.windows >= Self::FREE => Self::APART.saturating_sub(now.saturating_duration_since(last)),
            _ => Duration::ZERO,
        }
    }
}

/// What application threads call to announce their intervals.
#[derive(Debug)]
struct Threads {
    correlate: Correlate,
    /// Whether graphs are followed from their capture on.
    graphs: bool,
}

impl Correlator for Threads {
    #[inline]
    fn push(&self, span: SpanId) {
        if self.correlate == Correlate::Callbacks {
            lanes::push(span);
        }
    }

    #[inline]
    fn pop(&self) {
        if self.correlate == Correlate::Callbacks {
            lanes::pop();
        }
    }

    fn follows_graphs(&self) -> bool {
        self.graphs && self.correlate == Correlate::Callbacks
    }

    #[inline]
    fn push_outside_window(&self, span: SpanId) {
        if self.correlate == Correlate::Callbacks {
            lanes::push_outside_window(span);
        }
    }

    fn graph_nodes(&self, into: &mut Vec<GraphNode>) {
        lanes::take_nodes(into);
    }
}

/// The claim to be the only user of CUPTI through this library in the process.
#[derive(Debug)]
struct Claim;

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Claim {
    fn take() -> Result<Self, ActivityError> {
        if TAKEN.swap(true, Ordering::AcqRel) { Err(errors::taken()) } else { Ok(Claim) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single test, because the claim belongs to the process.
    #[test]
    fn there_is_one_client_at_a_time() {
        let first = Claim::take().expect("nobody else has it");
        let error = Cupti::default().prepare().expect_err("it is taken");
        assert!(error.0.contains("already being recorded") && error.0.contains("drop it"), "{error}");
        drop(first);
        drop(Claim::take().expect("it was given back"));

        // A recorder that cannot be prepared gives the claim back too, whatever the reason.
        let options = CuptiOptions { library: Some("/nonexistent/libcupti.so".into()), ..CuptiOptions::default() };
        let mut cupti = Cupti::new(options);
        let error = cupti.prepare().expect_err("there is no such library");
        assert!(error.0.contains(": "), "{error}");
        drop(Claim::take().expect("it was given back"));
        assert!(cupti.enable().is_err() && cupti.describe().is_empty());
        let error = cupti.collect(true, &|| HostNs(1), &mut ActivitySink::default()).expect_err("not prepared");
        assert!(error.0.contains("call it first"), "{error}");
    }

    /// Of CUPTI that leaves some memory stays each time.
    #[test]
    fn windows_need_no_distance_where_cupti_stays() {
        for is_kept in [false, true] {
            let mut cupti = Cupti::kept(CuptiOptions::default(), is_kept);
            (0..Pace::FREE).for_each(|_| cupti.pace.window(Instant::now()));
            assert_eq!(cupti.wait().is_zero(), is_kept);
        }
    }

    #[test]
    fn many_windows_keep_a_distance() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..Pace::FREE {
            assert_eq!(pace.wait(now), Duration::ZERO);
            pace.window(now);
            now += Duration::from_secs(1);
        }
        assert_eq!(pace.wait(now), Pace::APART - Duration::from_secs(1));
        now += Pace::APART;
        assert_eq!(pace.wait(now), Duration::ZERO);
        pace.window(now);
        assert_eq!(pace.wait(now), Pace::APART);
    }

    #[test]
    fn intervals_can_be_told_before_anything_is_loaded() {
        for correlate in [Correlate::Callbacks, Correlate::Nothing] {
            let cupti = Cupti::new(CuptiOptions { correlate, ..CuptiOptions::default() });
            assert_eq!((cupti.name(), cupti.options.correlate), ("cupti", correlate));
            cupti.correlator().push(SpanId(1));
            cupti.correlator().pop();
        }
        assert_eq!(Correlate::default().name(), "callbacks");
    }
}
