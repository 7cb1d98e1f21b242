//! The session of this process: who gets it, when it starts, how it ends.

use crate::lacking;
use crate::model::Model;
use crate::names::{Meanings, cleaned, is_library};
use crate::program::{Call, OwnSteps, Recorded, StepTotals};
use crate::registered::{Registered, RegisteredTexts};
use crate::start_end::StartEnd;
use candlescope::Scope;
use candlescope::env::EnvConfig;
use candlescope::gpu::KernelWindows;
use candlescope_core::GpuTier;
use candlescope_core::injected::{CHILDREN, CLAIM, NO_DOMAIN, START_END, STEPS, WINDOWS, Windows};
use candlescope_core::run::env_key;
use candlescope_core::{RangeKind, RangeName, Ranges, Schedule};
use regex::Regex;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Names kept by text; further ones are looked up anew each time.
const MOST_NAMES: usize = 65_536;

/// Names by domain and text.
type KnownNames = HashMap<(u32, Box<str>), RangeName>;

/// What is recorded of this process.
pub(crate) struct Recording {
    pub(crate) ranges: Ranges,
    pub(crate) own: OwnSteps,
    scope: Mutex<Option<Scope>>,
    names: Mutex<(Meanings, KnownNames)>,
    registered: RegisteredTexts,
    /// Texts of domains; the first one is for ranges without a domain.
    domains: Mutex<Vec<Domain>>,
    /// Ranges that began by a start and are open.
    pub(crate) start_end: StartEnd,
    /// Those that began while too many were.
    unrecorded: AtomicU64,
    /// What the run says of both and of its steps.
    told: Mutex<(u64, u64, StepTotals, u64)>,
    process: u32,
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

/// As [`recording`], of one that has started: for calls that come often. None in a process that was forked from the one that
/// records: its threads may have held our locks.
#[inline]
pub(crate) fn started() -> Option<&'static Recording> {
    if FORKED.load(Ordering::Relaxed) {
        return None;
    }
    RECORDING.get()?.as_ref()
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// This process was forked just now.
pub(crate) fn is_forked() {
    FORKED.store(true, Ordering::Relaxed);
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
    let steps = match std::env::var(STEPS).ok().map(|text| Regex::new(&text)).transpose() {
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
    let model = match Model::told() {
        Ok(model) => model,
        Err(why) => {
            complain(&format!("{why}: nothing is recorded"));
            return None;
        }
    };
    if !claimed() {
        return None;
    }
    let text = std::env::var(candlescope::env::VARIABLE).ok().filter(|text| !text.trim().is_empty())?;
    let windows = std::env::var(WINDOWS).ok().and_then(|text| Windows::parse(&text));
    let config = EnvConfig::parse(&text).map_err(|error| error.to_string());
    let recorded = config.as_ref().map_or(Recorded::PLAIN, |config| recorded(config.cupti, windows));
    let started = config.and_then(|mut config| {
        // Marks need a stream of the program's.
        config.gpu = Some(GpuTier::Off);
        let builder = config.into_builder().map_err(|error| lacking::why(&error))?;
        builder.report_at_end(false).layer().map_err(|error| error.to_string())
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
/// Seconds after which a step ends that fetches nothing, where all kernels are recorded: those of one step wait for its end.
const LONGEST: u64 = 10;

/// How kernels are recorded.
fn recorded(kernels: Option<KernelWindows>, windows: Option<Windows>) -> Recorded {
    match kernels {
        Some(KernelWindows::Scheduled(schedule)) if schedule == Schedule::all() => {
            Recorded { all: Some(COLD), longest: LONGEST, ..Recorded::PLAIN }
        }
        Some(KernelWindows::Scheduled(_)) => Recorded { ranges_are_steps: true, in_windows: true, ..Recorded::PLAIN },
        _ => Recorded { in_windows: windows.is_some(), ..Recorded::PLAIN },
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

/// What is done each second. Where nobody tells of calls, the first second stands for the first of them: without it the recording
/// ended after the driver, of which CUPTI's last records are asked for.
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
    let Some(recording) = started() else { return };
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

/// Whether kernels were asked for.
#[cfg(feature = "gpu")]
pub(crate) fn records_kernels() -> bool {
    let text = std::env::var(candlescope::env::VARIABLE).unwrap_or_default();
    EnvConfig::parse(&text).is_ok_and(|config| config.cupti.is_some())
}

/// Whether they are to be recorded from the first step on.
#[cfg(feature = "gpu")]
pub(crate) fn from_the_start() -> bool {
    let text = std::env::var(candlescope::env::VARIABLE).unwrap_or_default();
    let kernels = EnvConfig::parse(&text).ok().and_then(|config| config.cupti);
    matches!(kernels, Some(KernelWindows::Scheduled(schedule)) if schedule.begins_at_once())
}

/// Whether this process is the one that records. The first one that makes the file is, or every one where that is asked for.
pub(crate) fn claimed() -> bool {
    static CLAIMED: OnceLock<bool> = OnceLock::new();
    *CLAIMED.get_or_init(claim)
}

fn claim() -> bool {
    if std::env::var_os(CHILDREN).is_some() {
        return true;
    }
    let Some(file) = std::env::var_os(CLAIM).map(PathBuf::from) else { return true };
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(_) => true,
        // Somebody else's, or the recording is over: a process that outlived it.
        Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => false,
        Err(error) => {
            complain(&format!("cannot make {}: {error}: nothing is recorded", file.display()));
            false
        }
    }
}

/// One line on standard error.
fn complain(text: &str) {
    candlescope_core::diagnostics::print(&format!("candlescope: {text}\n"));
}

impl Recording {
    pub(crate) fn new(scope: Scope, steps: Option<Regex>, model: Option<Model>, recorded: Recorded) -> Option<Self> {
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
    pub(crate) fn registered(&self, domain: u32, text: &str) -> &'static Registered {
        self.registered.get(domain, self.name(domain, text))
    }

    /// The name of ranges that are called `name` and stand beside intervals: by their target they are known. Takes locks.
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

    /// The process ends, on this thread: what is open here ends as well. The session ends by itself after that.
    pub(crate) fn at_end(&self) {
        if self.is_of_this_process() {
            self.own.leave();
            self.tell();
            #[cfg(feature = "gpu")]
            candlescope_collectors::cupti::program_ends();
        }
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
        let now = (self.unrecorded.load(Ordering::Relaxed), self.start_end.open(), self.own.known(), panics());
        let mut told = lock(&self.told);
        if *told == now {
            return;
        }
        let (_, was_open, ..) = std::mem::replace(&mut *told, now);
        let (unrecorded, open, known, panics) = now;
        let scope = lock(&self.scope);
        let Some(handle) = scope.as_ref().and_then(Scope::handle) else { return };
        if panics > 0 {
            handle.set_environment(env_key::RECORDER_PANICS.name(), panics);
        }
        if unrecorded > 0 {
            handle.set_environment(env_key::RANGES_UNRECORDED.name(), unrecorded);
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
    }

    /// Ends the session.
    pub(crate) fn end(&self) {
        self.tell();
        #[cfg(feature = "gpu")]
        candlescope_collectors::cupti::program_ends();
        let scope = lock(&self.scope).take();
        drop(scope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::MemoryExporter;

    /// Steps by name, and paths in order, of what a thread does.
    fn recorded(work: impl FnOnce(&Recording)) -> (Vec<String>, Vec<String>) {
        recorded_with(Recorded::PLAIN, None, work)
    }

    fn recorded_with(
        kernels: Recorded,
        model: Option<Model>,
        work: impl FnOnce(&Recording),
    ) -> (Vec<String>, Vec<String>) {
        let memory = MemoryExporter::new();
        let builder = candlescope::builder().exporter(memory.clone()).report_at_end(false);
        let (_layer, scope) = builder.layer().expect("a session");
        let recording = Recording::new(scope, None, model, kernels).expect("it records");
        work(&recording);
        recording.own.leave();
        recording.end();
        let batch = memory.batch();
        let mut spans: Vec<_> = batch.spans.iter().collect();
        spans.sort_by_key(|span| span.seq);
        let steps = spans.iter().filter(|span| span.parent_seq.is_none()).map(|span| span.path.path.clone()).collect();
        (steps, spans.iter().map(|span| span.path.path.clone()).collect())
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn a_recording_without_calls_ends_early_as_well() {
        static TIMES: AtomicU64 = AtomicU64::new(0);
        at_first_launch(|| _ = TIMES.fetch_add(1, Ordering::Relaxed));
        (0..3).for_each(|_| launches_first());
        assert_eq!(TIMES.load(Ordering::Relaxed), 1, "registered once");
    }

    fn call(outside: bool) -> Call {
        Call { outside, what: 1, is_graph: false }
    }

    #[test]
    fn a_step_lasts_from_one_result_to_the_next() {
        let (steps, _) = recorded(|recording| {
            recording.own.launches(call(true), Some(7));
            for _ in 0..3 {
                (0..5).for_each(|_| recording.own.launches(call(false), Some(7)));
                recording.own.fetched();
                recording.own.fetched();
            }
            recording.own.launches(call(false), Some(7));
        });
        assert_eq!(steps, ["program"; 4]);
    }

    #[test]
    fn a_window_that_has_its_steps_gets_no_more_until_the_next_one() {
        let (steps, _) = recorded(|recording| {
            let launch = |outside, window| recording.own.launches(call(outside), window);
            launch(true, Some(7));
            launch(false, Some(7));
            // A range that is a phase ends it, and there is room for one more after that.
            let phase = recording.name(0, "prefill");
            recording.own.around(phase.is_phase(), Some(7));
            recording.ranges.enter(phase, 1);
            recording.ranges.exit(1);
            launch(true, Some(7));
            launch(false, Some(7));
            // The window has no room for the next one.
            recording.own.fetched();
            launch(false, Some(7));
            (0..9_999).for_each(|_| launch(true, Some(7)));
            launch(true, Some(8));
            launch(false, Some(8));
            // Between windows nothing is told, and nothing begins.
            launch(true, None);
        });
        let expected = ["program", "prefill", "program", "program", "program"];
        assert_eq!(steps, expected, "with one that found no room, and one of the second window");
    }

    /// What a program launches while a window opens is in none: steps that began then are begun again, ever less often.
    #[test]
    fn a_window_that_only_opens_has_its_steps_soon() {
        let (steps, _) = recorded(|recording| {
            (0..100).for_each(|_| recording.own.launches(call(true), Some(7)));
            (0..100).for_each(|_| recording.own.launches(call(false), Some(7)));
        });
        assert_eq!(steps.len(), 8, "at once, and after 1, 2, 4, 8, 16, 32 and 64 calls");
        let (steps, _) = recorded(|recording| {
            (0..9_999).for_each(|_| recording.own.launches(call(true), Some(9)));
        });
        assert_eq!(steps.len(), 11, "and never again");
    }

    #[test]
    fn operators_are_parts_of_the_programs_step_and_phases_are_steps() {
        let (steps, paths) = recorded(|recording| {
            let range = |text: &str, number: u64, window: Option<u64>| {
                let name = recording.name(0, text);
                recording.own.around(name.is_phase(), window);
                recording.ranges.enter(name, number);
                recording.ranges.exit(number);
            };
            range("aten::mm, seq = 1", 1, Some(7));
            range("aten::add", 2, Some(7));
            recording.own.fetched();
            range("aten::mm, seq = 2", 3, Some(7));
            range("decode 1", 4, Some(7));
            // No window: a range by itself is a step.
            range("forward", 5, None);
        });
        assert_eq!(steps, ["program", "program", "decode 1", "forward"]);
        assert_eq!(paths[..3], ["program", "program/aten::mm", "program/aten::add"]);
    }

    /// A range as a program makes it.
    fn range(recording: &Recording, text: &str, window: Option<u64>) {
        let name = recording.name(0, text);
        if name.is_phase() {
            recording.own.marks_phases();
        }
        recording.own.around(name.is_phase(), window);
        recording.ranges.enter(name, 1);
        recording.ranges.exit(1);
    }

    #[test]
    fn where_no_window_comes_ranges_are_steps() {
        let soon = Recorded { all: Some(Duration::from_millis(50)), ..Recorded::PLAIN };
        let (steps, _) = recorded_with(soon, None, |recording| {
            (0..3).for_each(|_| range(recording, "forward", None));
            std::thread::sleep(Duration::from_millis(60));
            (0..2).for_each(|_| range(recording, "forward", None));
        });
        assert_eq!(steps, ["program", "forward", "forward"]);
    }

    #[test]
    fn in_windows_that_count_ranges_these_are_steps() {
        let counted = Recorded { ranges_are_steps: true, ..Recorded::PLAIN };
        let (steps, _) = recorded_with(counted, None, |recording| {
            range(recording, "forward", None);
            (0..2).for_each(|_| range(recording, "forward", Some(7)));
        });
        assert_eq!(steps, ["forward"; 3]);
    }

    /// A token of six kernels and its result, so often.
    fn tokens(recording: &Recording, times: usize, window: u64) {
        for _ in 0..times {
            (1..7)
                .for_each(|what| recording.own.launches(Call { outside: false, what, is_graph: false }, Some(window)));
            recording.own.fetched();
        }
    }

    #[test]
    fn where_a_server_waits_for_requests_that_is_in_no_token() {
        let (steps, _) = recorded(|recording| {
            recording.own.launches(call(true), Some(7));
            recording.own.fetched();
            tokens(recording, 5, 7);
            std::thread::sleep(Duration::from_millis(150));
            tokens(recording, 2, 7);
        });
        // The first launch, three that are learned from, one like them, the one that waited, and after it one and the last.
        let expected = ["program", "program", "program", "program", "repeated", "program", "repeated", "program"];
        assert_eq!(steps, expected);
    }

    #[test]
    fn what_a_program_says_is_not_guessed_and_windows_know_nothing_of_what_was_before() {
        let config = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}"#;
        let model = || Model::of(config, "batch=1,prompt=8").expect("a model");
        // As a phase is in it, a request repeats and is no token. On a thread of its own, which goes on so.
        let marked = || {
            recorded_with(Recorded::PLAIN, Some(model()), |recording| {
                recording.own.launches(call(true), Some(7));
                recording.own.fetched();
                recording.own.marks_phases();
                tokens(recording, 6, 7);
            })
        };
        let (steps, _) = std::thread::scope(|scope| scope.spawn(marked).join()).expect("ends");
        assert_eq!(steps, ["program"; 7]);
        let in_windows = Recorded { in_windows: true, ..Recorded::PLAIN };
        let (steps, _) = recorded_with(in_windows, Some(model()), |recording| {
            recording.own.launches(call(true), Some(7));
            recording.own.fetched();
            tokens(recording, 5, 7);
            // The next window opens in the middle of a token.
            recording.own.launches(call(true), Some(8));
            (3..7).for_each(|what| recording.own.launches(Call { outside: false, what, is_graph: false }, Some(8)));
            recording.own.fetched();
            tokens(recording, 2, 8);
        });
        let expected =
            [vec!["program"; 4], vec!["decode"; 2], vec!["program"], vec!["decode"], vec!["program"]].concat();
        assert_eq!(steps, expected);
    }
}
