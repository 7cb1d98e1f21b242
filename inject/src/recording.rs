//! The session of this process: who gets it, when it starts, how it ends.

use crate::claim::{claimed, settings};
use crate::forks::{forked, goes_unrecorded, unrecorded};
use crate::lacking;
use crate::model::Model;
use crate::names::{Meanings, cleaned, is_library};
use crate::problems::{self, complain};
use crate::program::{Call, KernelRecording, OwnSteps, StepTotals};
use crate::registered::{RegisteredText, RegisteredTexts};
use crate::start_end::StartEnd;
use candlescope::Scope;
use candlescope::env::EnvConfig;
use candlescope::gpu::KernelWindows;
use candlescope_core::GpuTier;
use candlescope_core::injected::{NO_DOMAIN, START_END, STEPS, Windows};
use candlescope_core::run::env_key;
use candlescope_core::{RangeKind, RangeName, Ranges, Schedule};
use regex::Regex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Names kept by text; further ones are looked up anew each time.
const MOST_NAMES: usize = 65_536;

/// How long the end of a process waits for that of its session, and another program in its place for what was recorded.
pub(crate) const MOST_OF_END: Duration = Duration::from_secs(10);
const MOST_OF_FLUSH: Duration = Duration::from_secs(5);

/// Names by domain and text.
type KnownNames = HashMap<(u32, Box<str>), RangeName>;

/// What is recorded of this process.
pub(crate) struct Recording {
    pub(crate) ranges: Ranges,
    pub(crate) own: OwnSteps,
    scope: Mutex<Option<Scope>>,
    /// The session has ended.
    has_ended: AtomicBool,
    names: Mutex<(Meanings, KnownNames)>,
    registered: RegisteredTexts,
    /// Texts of domains; the first one is for ranges without a domain.
    domains: Mutex<Vec<Domain>>,
    /// Ranges that began by a start and are open.
    pub(crate) start_end: StartEnd,
    /// Those that began while too many were.
    unrecorded: AtomicU64,
    /// What the run says of both and of its steps.
    told: Mutex<RunTotals>,
    process: u32,
}

/// What the run says beside its tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RunTotals {
    unrecorded: u64,
    open: u64,
    known: StepTotals,
    panics: u64,
    forked: u64,
}

#[derive(Debug, Clone)]
struct Domain {
    name: Arc<str>,
    is_library: bool,
}

static RECORDING: OnceLock<Option<Recording>> = OnceLock::new();

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recording of this process, which starts when it is first asked for; `None` if there is none.
pub(crate) fn recording() -> Option<&'static Recording> {
    RECORDING.get_or_init(start).as_ref()
}

/// As [`recording`], of one that has started: for calls that come often. None in a process that was forked from the one
/// that records: its threads may have held our locks.
#[inline]
pub(crate) fn started() -> Option<&'static Recording> {
    if forked() {
        return None;
    }
    RECORDING.get()?.as_ref()
}

/// As [`started`], for what a program does that is to be recorded: in a process that was forked it is counted.
#[inline]
pub(crate) fn wanted() -> Option<&'static Recording> {
    if forked() {
        goes_unrecorded();
        return None;
    }
    RECORDING.get()?.as_ref()
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// A call of ours panicked, and what it did was given up.
pub(crate) fn panicked() {
    PANICS.fetch_add(1, Ordering::Relaxed);
}

/// How often that happened.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

fn start() -> Option<Recording> {
    let settings = settings();
    let steps = match settings.steps.as_deref().map(Regex::new).transpose() {
        Ok(steps) => steps,
        Err(error) => {
            let why = error.to_string();
            complain(&format!(
                "{STEPS} is no regular expression ({}): nothing is recorded",
                why.lines().last().unwrap_or(&why)
            ));
            return None;
        }
    };
    let model = match Model::told(settings) {
        Ok(model) => model,
        Err(why) => {
            complain(&format!("{why}: nothing is recorded"));
            return None;
        }
    };
    if !claimed() {
        return None;
    }
    let Some(text) = &settings.session else {
        complain(&format!(
            "{} is not set, as candlescope record does: nothing is recorded",
            candlescope::env::VARIABLE
        ));
        return None;
    };
    let windows = settings.windows;
    let config = EnvConfig::parse(text).map_err(|error| error.to_string());
    let recorded = config.as_ref().map_or(KernelRecording::PLAIN, |config| recorded(config.cupti, windows));
    let started = config.and_then(|mut config| {
        // Marks need a stream of the program's.
        config.gpu = Some(GpuTier::Off);
        let builder = config.into_builder().map_err(|error| lacking::why(&error))?;
        builder.report_at_end(false).on_problem(problems::reported).layer().map_err(|error| error.to_string())
    });
    let scope = match started {
        // Nobody makes spans.
        Ok((_layer, scope)) => scope,
        Err(why) => {
            complain(&format!("{why}: nothing is recorded"));
            return None;
        }
    };
    let handle = scope.handle()?.clone();
    problems::told_to(handle.clone());
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    handle.set_environment(env_key::INJECTED_PROGRAM.name(), program.unwrap_or_default());
    if let Some(model) = &model {
        model.tell(&handle);
    }
    let recording = Recording::new(scope, steps, model, recorded);
    if recording.is_some() {
        crate::windows::every_second(handle, windows, each_second());
    }
    recording
}

/// The first window of a program opens within this time, or hardly ever: what the program loads comes before.
const COLD: Duration = Duration::from_secs(60);
/// Seconds after which a step ends that fetches nothing, where all kernels are recorded: those of one step wait for its
/// end.
const LONGEST: u64 = 10;

/// How kernels are recorded.
fn recorded(kernels: Option<KernelWindows>, windows: Option<Windows>) -> KernelRecording {
    match kernels {
        Some(KernelWindows::Scheduled(schedule)) if schedule == Schedule::all() => {
            KernelRecording { all: Some(COLD), longest: LONGEST, ..KernelRecording::PLAIN }
        }
        Some(KernelWindows::Scheduled(_) | KernelWindows::Apart(..)) => {
            KernelRecording { ranges_are_steps: true, in_windows: true, ..KernelRecording::PLAIN }
        }
        _ => KernelRecording { in_windows: windows.is_some(), ..KernelRecording::PLAIN },
    }
}

/// Has calls told, and the driver's variable be no sign of another profiler.
#[cfg(feature = "gpu")]
pub(crate) fn listen() {
    candlescope_collectors::cupti::is_injected(told);
}

static AT_FIRST_LAUNCH: OnceLock<fn()> = OnceLock::new();

/// Has `work` called by the first call of the process that puts work on a device.
pub(crate) fn at_first_launch(work: fn()) {
    let _ = AT_FIRST_LAUNCH.set(work);
}

static AT_LAUNCH: OnceLock<fn(&Recording)> = OnceLock::new();

/// Has `work` called by each call that puts work on a device, once a thread has ended a step of another one.
pub(crate) fn at_launch(work: fn(&Recording)) {
    let _ = AT_LAUNCH.set(work);
}

/// Once, by the first call that puts work on a device.
#[cfg(feature = "gpu")]
static EARLY: std::sync::Once = std::sync::Once::new();

/// Does what waits for the first call that puts work on a device.
#[cfg(feature = "gpu")]
fn launches_first() {
    EARLY.call_once(|| AT_FIRST_LAUNCH.get().into_iter().for_each(|work| work()));
}

/// What is done each second. Where nobody tells of calls, the first second stands for the first of them: without it the
/// recording ended after the driver, of which CUPTI's last records are asked for.
fn each_second() -> fn() {
    #[cfg(feature = "gpu")]
    match candlescope_collectors::cupti::are_calls_followed() {
        Ok(true) => {}
        Ok(false) => {
            return || {
                launches_first();
                tick();
            };
        }
        Err(why) if records_kernels() => complain(&why.0),
        Err(_) => {}
    }
    tick
}

/// Another second has passed.
fn tick() {
    if let Some(recording) = started() {
        recording.own.tick();
        // A server ends by a signal, and nobody asks us then.
        recording.tell();
    }
}

/// What CUPTI's callbacks say of calls on their thread.
#[cfg(feature = "gpu")]
fn told(call: candlescope_collectors::cupti::FollowedCall) {
    use candlescope_collectors::cupti::FollowedCall;
    let Some(recording) = wanted() else { return };
    match call {
        FollowedCall::Begins { outside, what, is_graph } => {
            launches_first();
            // What is launched after another thread ended this one's step is not the step's.
            if recording.start_end.elsewhere() > 0 {
                AT_LAUNCH.get().into_iter().for_each(|work| work(recording));
            }
            recording.own.launches(Call { outside, what, is_graph }, window())
        }
        FollowedCall::Fetched => recording.own.fetched(),
        _ => {}
    }
}

/// The window of kernels that is open.
#[inline]
pub(crate) fn window() -> Option<u64> {
    #[cfg(feature = "gpu")]
    return candlescope_collectors::cupti::window();
    #[cfg(not(feature = "gpu"))]
    None
}

/// Whether a signal by which programs are ended ends the session first.
#[cfg(target_os = "linux")]
pub(crate) fn ends_by_signals() -> bool {
    let text = settings().session.as_deref().unwrap_or_default();
    EnvConfig::parse(text).is_ok_and(|config| config.sigterm)
}

/// Whether kernels were asked for.
#[cfg(feature = "gpu")]
pub(crate) fn records_kernels() -> bool {
    kernels().is_some_and(|windows| windows != KernelWindows::Off)
}

/// Whether they are to be recorded from the first step on.
#[cfg(feature = "gpu")]
pub(crate) fn from_the_start() -> bool {
    matches!(kernels(), Some(KernelWindows::Scheduled(schedule)) if schedule.begins_at_once())
}

/// Which kernels were asked for.
#[cfg(feature = "gpu")]
fn kernels() -> Option<KernelWindows> {
    let text = settings().session.as_deref().unwrap_or_default();
    EnvConfig::parse(text).ok()?.cupti
}

impl Recording {
    pub(crate) fn new(
        scope: Scope,
        steps: Option<Regex>,
        model: Option<Model>,
        recorded: KernelRecording,
    ) -> Option<Self> {
        let ranges = scope.handle()?.ranges();
        let kind = match steps {
            // Said before the first range: what does not match is no step from the beginning.
            Some(_) => {
                ranges.name("step", NO_DOMAIN, RangeKind::Phase(candlescope_core::Phase::Decode));
                RangeKind::Application
            }
            None => RangeKind::Interval,
        };
        Some(Self {
            own: OwnSteps::new(ranges.clone(), kind, model, recorded),
            ranges,
            scope: Mutex::new(Some(scope)),
            has_ended: AtomicBool::new(false),
            names: Mutex::new((Meanings::new(steps), HashMap::new())),
            registered: RegisteredTexts::default(),
            domains: Mutex::new(vec![Domain { name: NO_DOMAIN.into(), is_library: false }]),
            start_end: StartEnd::new(),
            unrecorded: AtomicU64::new(0),
            told: Mutex::default(),
            process: std::process::id(),
        })
    }

    /// The number of a domain.
    pub(crate) fn domain(&self, name: &str) -> u32 {
        let mut domains = lock(&self.domains);
        if let Some(at) = domains.iter().position(|domain| &*domain.name == name) {
            return u32::try_from(at).unwrap_or(0);
        }
        // A program that makes domains without end has one for those beyond.
        if domains.len() >= 1_000 {
            return 0;
        }
        domains.push(Domain { name: name.into(), is_library: is_library(name) });
        u32::try_from(domains.len() - 1).unwrap_or(0)
    }

    /// The name of a range. May take a lock.
    #[cold]
    pub(crate) fn name(&self, domain: u32, text: &str) -> RangeName {
        let text = cleaned(text);
        let domains = lock(&self.domains);
        let of = domains.get(domain as usize).unwrap_or(&domains[0]).clone();
        drop(domains);
        let mut names = lock(&self.names);
        let (meanings, known) = &mut *names;
        if let Some(name) = known.get(&(domain, text.into())) {
            return *name;
        }
        let called = meanings.name(text);
        let kind = if of.is_library { RangeKind::Application } else { meanings.kind(&called) };
        let name = self.ranges.name(&called, &of.name, kind);
        if known.len() < MOST_NAMES {
            known.insert((domain, text.into()), name);
        }
        name
    }

    /// What a program gets for a text that it makes known: the same again for what has the same name. Takes locks.
    #[cold]
    pub(crate) fn registered(&self, domain: u32, text: &str) -> &'static RegisteredText {
        self.registered.get(domain, self.name(domain, text))
    }

    /// The name of ranges that are called `name` and stand beside intervals: by their target they are known. Takes
    /// locks.
    #[cold]
    pub(crate) fn beside(&self, domain: u32, name: RangeName) -> RangeName {
        let domains = lock(&self.domains);
        let of = domains.get(domain as usize).unwrap_or(&domains[0]).clone();
        drop(domains);
        self.ranges.with_target(name, &format!("{}::{START_END}", of.name))
    }

    /// Whether ranges of this domain begin no step.
    pub(crate) fn is_library(&self, domain: u32) -> bool {
        domain != 0 && lock(&self.domains).get(domain as usize).is_some_and(|of| of.is_library)
    }

    /// Whether this is the process that records, and not one that was forked from it.
    pub(crate) fn is_of_this_process(&self) -> bool {
        std::process::id() == self.process
    }

    /// The process ends. The session ends by itself after that.
    pub(crate) fn at_end(&self) {
        self.tell();
        #[cfg(feature = "gpu")]
        candlescope_collectors::cupti::program_ends();
    }

    /// A range began by a start for which there is no place.
    #[cold]
    pub(crate) fn leave_out(&self) {
        // At once: a program may end before the next second.
        if self.unrecorded.fetch_add(1, Ordering::Relaxed) == 0 {
            self.tell();
        }
    }

    /// What the run says of its ranges and steps beside its tables.
    fn tell(&self) {
        let now = RunTotals {
            unrecorded: self.unrecorded.load(Ordering::Relaxed),
            open: self.start_end.open(),
            known: self.own.known(),
            panics: panics(),
            forked: unrecorded(),
        };
        let mut told = lock(&self.told);
        if *told == now {
            return;
        }
        let was_open = std::mem::replace(&mut *told, now).open;
        let RunTotals { unrecorded, open, known, panics, forked } = now;
        let scope = lock(&self.scope);
        let Some(handle) = scope.as_ref().and_then(Scope::handle) else { return };
        if panics > 0 {
            handle.set_environment(env_key::RECORDER_PANICS.name(), panics);
        }
        if unrecorded > 0 {
            handle.set_environment(env_key::RANGES_UNRECORDED.name(), unrecorded);
        }
        if forked > 0 {
            handle.set_environment(env_key::FORKED_UNRECORDED.name(), forked);
        }
        if open > 0 || was_open > 0 {
            handle.set_environment(env_key::RANGES_OPEN_AT_END.name(), open);
        }
        if known.ended > 0 {
            handle.set_environment(env_key::STEPS_BY_RESULTS.name(), known.ended);
            handle.set_environment(env_key::STEPS_BY_PATTERN.name(), known.repeated);
        }
        if known.results > 0 {
            handle.set_environment(env_key::RESULTS_A_STEP.name(), known.results);
        }
        if let Some((mean, least)) = known.alike() {
            handle.set_environment(env_key::STEPS_ALIKE.name(), mean);
            handle.set_environment(env_key::STEPS_ALIKE_LEAST.name(), least);
        }
        if let Some(confidence) = known.confidence() {
            handle.set_environment(env_key::STEPS_CONFIDENCE.name(), confidence);
        }
    }

    /// Ends the session. Where another thread does, this one waits for it: whoever calls this may end the process next.
    pub(crate) fn end(&self) {
        /// Also where the session panics.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        self.tell();
        #[cfg(feature = "gpu")]
        candlescope_collectors::cupti::program_ends();
        let scope = lock(&self.scope).take();
        if scope.is_some() {
            let _done = Done(&self.has_ended);
            drop(scope);
            return;
        }
        let begun = Instant::now();
        while !self.has_ended.load(Ordering::Acquire) && begun.elapsed() < MOST_OF_END {
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Makes durable what was recorded so far: the process may be about to put another program in its place.
    pub(crate) fn flush(&self) {
        self.tell();
        let handle = lock(&self.scope).as_ref().and_then(Scope::handle).cloned();
        if let Some(handle) = handle {
            let _ = handle.flush(MOST_OF_FLUSH);
        }
    }
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;
