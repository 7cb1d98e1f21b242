//! The recorder against a scripted library.

use super::*;
use crate::cupti::backend::Show;
use crate::cupti::calls::{self, Domain};
use crate::cupti::detach::{Link, State};
use crate::cupti::errors::{Code, code};
use crate::cupti::in_flight::CountedCall;
use crate::cupti::records::{built, kind};
use candlescope_core::gpu::{ActivitySink, OUTSIDE_WINDOW, RawKernel, UndeliveredWork};
use candlescope_core::{KernelKind, SpanId};
use std::cell::Cell;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

/// The calls that the library got, and the answers that it will give.
#[derive(Debug, Default)]
struct Script {
    on: Vec<Switch>,
    log: Vec<String>,
    /// Switches that are refused.
    refuse: Vec<(Switch, Code)>,
    refuse_flush: Option<Code>,
    /// Records by the flush that brings them: plain, forced.
    plain: Vec<(Vec<u8>, Option<&'static [u8]>)>,
    forced: Vec<(Vec<u8>, Option<&'static [u8]>)>,
    ready: Vec<(Vec<u8>, Option<&'static [u8]>)>,
    dropped: u64,
    unreadable: u64,
    /// What attaching is refused with.
    refuse_attach: Option<Code>,
    finalize_status: u32,
    version: u32,
    now: u64,
    /// The driver has ended.
    is_gone: bool,
    several_devices: bool,
    /// When records of copies were turned, on or off.
    copies_turned: Vec<(bool, u64)>,
}

#[derive(Debug, Clone)]
struct Scripted(Arc<Mutex<Script>>, Arc<Link>);

impl Scripted {
    fn new() -> Self {
        let script = Script { version: 130_000, now: 1_000, ..Script::default() };
        Self(Arc::new(Mutex::new(script)), Arc::new(Link::new()))
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("no test panicked with it")
    }

    /// The script, for calls that are allowed only while the library is attached: any call would attach it again.
    fn attached(&self) -> MutexGuard<'_, Script> {
        assert_eq!(self.1.state(), State::Attached, "called while it is not attached");
        self.script()
    }

    /// The application launches something, which carries out a requested detachment.
    fn launch(&self) -> u32 {
        let mut happened = 0;
        let can = self.script().on.iter().any(|on| matches!(on, Switch::Callback(Domain::Driver, 307)));
        if can {
            self.1.detach(|| {
                let mut script = self.script();
                script.on.clear();
                script.log.push("finalize".to_string());
                happened = 1;
                script.finalize_status
            });
        }
        happened
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.script().log)
    }
}

impl Backend for Scripted {
    fn version(&self) -> u32 {
        self.script().version
    }

    fn path(&self) -> &Path {
        Path::new("/opt/libcupti.so.13")
    }

    fn is_gone(&self) -> bool {
        self.script().is_gone
    }

    fn several_devices(&self) -> bool {
        self.script().several_devices
    }

    fn start(&mut self, _: &CuptiOptions) -> Result<(), ActivityError> {
        self.script().log.push("start".to_string());
        Ok(())
    }

    fn attach(&mut self) -> Result<(), ActivityError> {
        let mut script = self.script();
        script.log.push("attach".to_string());
        script.on.clear();
        script.refuse_attach.map_or(Ok(()), |code| Err(errors::refused("attach to this process", code)))
    }

    fn link(&self) -> &Link {
        &self.1
    }

    fn stop(&mut self) {
        self.script().log.push("stop".to_string());
    }

    /// An old library that lacks what came with CUDA 12.8, and uses one number for something else.
    fn call_name(&self, domain: Domain, cbid: u32) -> Option<String> {
        drop(self.attached());
        match (domain, cbid) {
            (Domain::Driver, 776..) => None,
            (Domain::Driver, 653) => Some("cuSomethingElse".to_string()),
            _ => calls::name(domain, cbid).map(|name| format!("{name}_v2_ptsz")),
        }
    }

    fn turn(&self, switch: Switch, on: bool) -> Result<(), Code> {
        assert!(on || matches!(switch, Switch::Kind(_)), "a thread may be inside {switch:?}");
        let mut script = self.attached();
        if let Some((_, code)) = script.refuse.iter().find(|(refused, _)| on && *refused == switch) {
            return Err(*code);
        }
        script.on.retain(|there| *there != switch);
        if on {
            script.on.push(switch);
        }
        if switch == Switch::Kind(kind::MEMCPY) {
            script.copies_turned.push((on, lanes::clock().raw()));
        }
        Ok(())
    }

    fn timestamp(&self) -> Option<u64> {
        Some(self.attached().now)
    }

    fn flush(&mut self, forced: bool) -> Result<(), Code> {
        let mut script = self.attached();
        script.log.push(if forced { "flush forced" } else { "flush" }.to_string());
        let brought = if forced { std::mem::take(&mut script.forced) } else { std::mem::take(&mut script.plain) };
        script.ready.extend(brought);
        script.refuse_flush.map_or(Ok(()), Err)
    }

    fn records(&mut self, show: Show<'_>) -> u64 {
        let ready = std::mem::take(&mut self.attached().ready);
        ready.iter().for_each(|(bytes, name)| show(bytes, *name));
        std::mem::take(&mut self.script().unreadable)
    }

    fn dropped(&mut self) -> u64 {
        std::mem::take(&mut self.attached().dropped)
    }

    fn uuid(&self, device: u32) -> Option<String> {
        (device == 1).then(|| "GPU-one".to_string())
    }
}

fn options(correlate: Correlate) -> CuptiOptions {
    CuptiOptions { correlate, ..CuptiOptions::default() }
}

fn recorder(correlate: Correlate) -> (Scripted, KernelRecorder<Scripted>) {
    let library = Scripted::new();
    let recorder = KernelRecorder::new(library.clone(), &options(correlate)).expect("a recorder");
    (library, recorder)
}

/// Runs a test alone, because the rings belong to the process, and on a thread of its own, whose ring ends with it.
fn alone(test: impl FnOnce() + Send) {
    let _only = lanes::tests_own();
    std::thread::scope(|scope| scope.spawn(test).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn collect(recorder: &mut KernelRecorder<Scripted>, all: bool, host: i64) -> ActivitySink {
    let mut sink = ActivitySink::default();
    recorder.collect(all, &|| HostNs(host), &mut sink).expect("collected");
    sink
}

fn kinds(on: &[Switch]) -> Vec<Switch> {
    on.iter().copied().filter(|switch| matches!(switch, Switch::Kind(_))).collect()
}

#[test]
fn windows_follow_what_the_library_knows() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        assert_eq!(kinds(&library.script().on), [], "everything was turned off again");
        recorder.enable().expect("enabled");
        let on = library.script().on.clone();
        for switch in [
            Switch::Callback(Domain::Driver, 307),
            Switch::Callback(Domain::Driver, 515),
            Switch::Kind(kind::CONCURRENT_KERNEL),
            Switch::Kind(kind::MEMCPY2),
        ] {
            assert!(on.contains(&switch), "{switch:?}");
        }
        for switch in [Switch::Callback(Domain::Driver, 776), Switch::Callback(Domain::Driver, 653)] {
            assert!(!on.contains(&switch), "{switch:?}");
        }
        assert!(
            !on.iter().any(|switch| matches!(switch, Switch::Callback(Domain::Runtime, _))),
            "the driver's will do"
        );
        assert!(lanes::is_recording());
        recorder.disable().expect("disabled");
        assert_eq!((kinds(&library.script().on), lanes::is_recording()), (vec![], false));
        let facts = recorder.describe();
        assert_eq!((&facts["cupti_strategy"], &facts["cupti_version"]), (&"callbacks".into(), &"13.0".into()));
        assert_eq!((&facts["cupti_library"], &facts["cupti_detaches"]), (&"/opt/libcupti.so.13".into(), &true.into()));
        let followed = on.iter().filter(|switch| matches!(switch, Switch::Callback(..))).count();
        assert_eq!(facts["cupti_calls_followed"], followed);
    });
}

#[test]
fn runtime_calls_are_followed_where_that_is_wanted() {
    alone(|| {
        for (correlate, expected) in [(Correlate::Callbacks, true), (Correlate::Nothing, false)] {
            let library = Scripted::new();
            let options = CuptiOptions { runtime_calls: true, ..options(correlate) };
            let mut recorder = KernelRecorder::new(library.clone(), &options).expect("a recorder");
            recorder.enable().expect("enabled");
            assert_eq!(library.script().on.contains(&Switch::Callback(Domain::Runtime, 211)), expected);
            // What may detach CUPTI is on in any case.
            assert_eq!(recorder.calls.contains(&Switch::Callback(Domain::Driver, 307)), expected);
            assert_eq!(lanes::is_recording(), expected);
            let copy = Switch::Callback(Domain::Driver, 278);
            assert!(library.script().on.contains(&copy), "copies are followed for safety");
            recorder.disable().expect("disabled");
        }
    });
}

#[test]
fn a_trial_leaves_out_what_it_says_and_the_run_says_so() {
    alone(|| {
        for (text, records, calls) in
            [("no-records", 0, true), ("no-calls", 4, false), ("no-records,no-calls", 0, false)]
        {
            let library = Scripted::new();
            let options = options(Correlate::Callbacks).under(Trial::parse(text).expect("understood"));
            let mut recorder = KernelRecorder::new(library.clone(), &options).expect("a recorder");
            recorder.enable().expect("enabled");
            assert_eq!(kinds(&library.script().on).len(), records, "{text}");
            assert_eq!(recorder.calls.contains(&Switch::Callback(Domain::Driver, 307)), calls, "{text}");
            assert_eq!(lanes::is_recording(), calls, "{text}");
            for call in [278, 249] {
                let call = Switch::Callback(Domain::Driver, call);
                assert!(library.script().on.contains(&call), "copies and memsets are followed for safety");
            }
            lanes::push(SpanId(40));
            lanes::launched(Domain::Driver, 307, 1, lanes::clock().raw(), lanes::clock().raw());
            lanes::pop();
            let undelivered = collect(&mut recorder, false, 1_000_000).undelivered;
            assert_eq!(undelivered, UndeliveredWork::Unknown, "{text}: no record is waited for");
            assert_eq!(recorder.describe()["cupti_trial"], text);
        }
        let (_, recorder) = recorder(Correlate::Callbacks);
        assert!(!recorder.describe().contains_key("cupti_trial"), "none");
    });
}

#[test]
fn a_refusal_leaves_nothing_on() {
    alone(|| {
        let library = Scripted::new();
        library.script().refuse.push((Switch::Kind(kind::CONCURRENT_KERNEL), code::INSUFFICIENT_PRIVILEGES));
        let error = KernelRecorder::new(library.clone(), &options(Correlate::Callbacks)).expect_err("it may not");
        assert!(error.0.contains("record kernels") && error.0.contains("root"), "{error}");
        assert_eq!(kinds(&library.script().on), []);
        assert_eq!((library.launch(), library.1.state()), (1, State::Detached), "it slows nothing down either");

        // Another tool is there.
        let library = Scripted::new();
        library.script().refuse_attach = Some(code::MULTIPLE_SUBSCRIBERS);
        let error = KernelRecorder::new(library.clone(), &options(Correlate::Callbacks)).expect_err("it may not");
        assert!(error.0.contains("attach") && error.0.contains("run without"), "{error}");
        assert_eq!(library.log(), ["start", "attach", "stop"]);

        // Copies between devices are optional; and a refusal after preparation concerns a window, not the run.
        let library = Scripted::new();
        library.script().refuse.push((Switch::Kind(kind::MEMCPY2), code::NOT_SUPPORTED));
        let mut recorder = KernelRecorder::new(library.clone(), &options(Correlate::Callbacks)).expect("a recorder");
        library.script().refuse.push((Switch::Kind(kind::CONCURRENT_KERNEL), Code(8)));
        let error = recorder.enable().expect_err("refused now");
        assert!(error.0.contains("record kernels"), "{error}");
        assert_eq!(kinds(&library.script().on), []);
        library.launch();
        assert_eq!(library.1.state(), State::Detached);
        library.script().refuse.truncate(1);
        recorder.enable().expect("the next window");
        let on = library.script().on.clone();
        assert!(on.contains(&Switch::Kind(kind::MEMCPY)) && !on.contains(&Switch::Kind(kind::MEMCPY2)), "{on:?}");
        drop(recorder);
        assert_eq!(kinds(&library.script().on), [], "what is dropped records no more");
        assert_eq!(library.launch(), 1, "and is gone with the next launch");

        // Memsets refused: copies are recorded all the same, and as nobody knows which calls are without a record, all
        // of them count as lost.
        let library = Scripted::new();
        let mut recorder = KernelRecorder::new(library.clone(), &options(Correlate::Callbacks)).expect("a recorder");
        library.script().refuse.push((Switch::Kind(kind::MEMSET), Code(8)));
        recorder.enable().expect("enabled");
        let on = kinds(&library.script().on);
        assert!(on.contains(&Switch::Kind(kind::MEMCPY)) && !on.contains(&Switch::Kind(kind::MEMSET)), "{on:?}");
        lanes::push(SpanId(70));
        lanes::launched(Domain::Driver, 249, 1, lanes::clock().raw(), lanes::clock().raw());
        lanes::pop();
        let sink = collect(&mut recorder, false, 1_000);
        assert_eq!((sink.dropped, sink.dropped_of), (1, vec![SpanId(70)]));
    });
}

#[test]
fn a_driver_that_has_ended_is_asked_nothing() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("a window");
        library.script().is_gone = true;
        library.log();
        let error = recorder.disable().expect_err("it has ended");
        assert!(error.0.contains("driver") && error.0.contains("flush"), "{error}");
        collect(&mut recorder, true, 1);
        drop(recorder);
        assert_eq!(library.log(), Vec::<String>::new());
        assert!(!lanes::is_recording());
    });
}

#[test]
fn between_windows_the_library_is_gone() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        assert_eq!(library.log(), ["start", "attach"]);
        assert_eq!((library.1.state(), library.launch()), (State::Requested, 1), "what is in the way is known by now");
        // None of this may call the library, which the script checks.
        recorder.describe();
        assert!(collect(&mut recorder, true, 5_000).kernels.is_empty());
        recorder.release();
        recorder.disable().expect("nothing to do");
        assert_eq!(library.log(), ["finalize"]);

        for window in 1..4u64 {
            recorder.enable().expect("enabled");
            assert_eq!(library.launch(), 0, "not while it records");
            recorder.release();
            assert_eq!((library.1.state(), library.launch()), (State::Attached, 0), "not by mistake either");
            library.script().now = window * 1_000_000;
            // Ids start again, and a kernel comes before its call.
            library.script().plain = vec![(built::kernel(5, 1_200, 1_500, 0), Some(b"k"))];
            assert!(collect(&mut recorder, false, 1_000_000_000).kernels.is_empty(), "window {window}: its own call");
            lanes::push(SpanId(window));
            lanes::launched(Domain::Driver, 307, 5, lanes::clock().raw(), lanes::clock().raw());
            lanes::pop();
            recorder.disable().expect("disabled");
            let sink = collect(&mut recorder, true, 1_000_100_000);
            let told: Vec<_> = sink.kernels.iter().map(|k| (k.span, k.launch, k.correlation)).collect();
            assert_eq!(told, [(Some(SpanId(window)), Some("cuLaunchKernel"), 5 * window as u32)]);
            recorder.release();
            assert_eq!(library.1.state(), State::Requested);
            collect(&mut recorder, true, 1_000_200_000);
            assert_eq!((library.launch(), library.launch()), (1, 0));
            let log = library.log();
            assert_eq!(
                log.iter().filter(|said| !said.starts_with("flush")).collect::<Vec<_>>(),
                ["attach", "finalize"]
            );
        }
        drop(recorder);
        assert!(library.log().is_empty(), "it was gone already");
    });
}

#[test]
fn a_window_that_comes_before_a_launch_keeps_the_library() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Nothing);
        recorder.enable().expect("enabled");
        assert_eq!((library.log(), library.launch()), (vec!["start".to_string(), "attach".to_string()], 0));
        assert_eq!((library.1.state(), kinds(&library.script().on).len()), (State::Attached, 4));
        assert!(!lanes::is_recording(), "what would have detached it is on, and records no calls");
        recorder.disable().expect("disabled");
        recorder.release();
        drop(recorder);
        assert_eq!(library.launch(), 1, "a request outlives the recorder");

        // The next recorder takes over what the last one left.
        let recorder = KernelRecorder::new(library.clone(), &options(Correlate::Nothing)).expect("a recorder");
        drop(recorder);
        assert_eq!(library.1.state(), State::Requested);
        library.log();
        let mut recorder = KernelRecorder::new(library.clone(), &options(Correlate::Nothing)).expect("a recorder");
        assert_eq!(library.log(), ["start", "attach"]);
        recorder.enable().expect("enabled");
        assert_eq!(library.1.state(), State::Attached);
    });
}

#[test]
fn what_was_launched_and_has_not_come_is_known_and_so_is_whose_it_was() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        let launch = |correlation, span| {
            lanes::push(span);
            lanes::launched(Domain::Driver, 307, correlation, lanes::clock().raw(), lanes::clock().raw());
            lanes::pop();
        };
        launch(1, SpanId(40));
        launch(2, OUTSIDE_WINDOW);
        launch(3, SpanId(41));
        library.script().plain = vec![(built::kernel(1, 1_200, 1_500, 0), Some(b"k"))];
        let sink = collect(&mut recorder, false, 1_000_000);
        assert!(matches!(sink.undelivered, UndeliveredWork::Since(_)), "the third: {:?}", sink.undelivered);
        assert_eq!((sink.kernels.len(), sink.dropped), (1, 0));

        // A record comes before its call is seen.
        library.script().plain = vec![(built::kernel(4, 1_600, 1_700, 0), Some(b"k"))];
        collect(&mut recorder, false, 1_100_000);
        launch(4, SpanId(42));
        recorder.disable().expect("disabled");
        library.script().plain = vec![(built::kernel(3, 1_500, 1_600, 0), Some(b"k"))];
        let sink = collect(&mut recorder, false, 1_200_000);
        assert_eq!(
            (sink.undelivered, sink.kernels.len()),
            (UndeliveredWork::Nothing, 2),
            "what steps outside left is nobody's"
        );

        // Forced out while they run.
        launch(5, SpanId(43));
        library.script().forced =
            [2, 5, 77].map(|id| (built::kernel(id, 1_800, 0, 0), Some(&b"k"[..]))).into_iter().collect();
        let sink = collect(&mut recorder, true, 1_300_000);
        assert_eq!((sink.dropped, sink.dropped_of, sink.outside_unfinished), (2, vec![SpanId(43)], 1));
        assert_eq!(sink.undelivered, UndeliveredWork::Nothing, "it is not waited for again");
    });
}

#[test]
fn where_contexts_end_while_it_is_attached_the_library_stays() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        let making = library.1.context_call_begins(CountedCall::NONE, false);
        library.1.context_call_ends(making);
        recorder.disable().expect("disabled");
        recorder.release();
        assert_eq!((library.1.state(), library.launch()), (State::Requested, 1), "one that is made does no harm");

        recorder.enable().expect("enabled");
        let ending = library.1.context_call_begins(CountedCall::NONE, true);
        library.1.context_call_ends(ending);
        recorder.disable().expect("disabled");
        recorder.release();
        assert_eq!((library.1.state(), library.launch()), (State::Attached, 0));
        assert_eq!(recorder.describe()["cupti_detaches"], false);
        recorder.enable().expect("the next window");
    });
}

#[test]
fn where_graphs_are_launched_the_library_stays() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        recorder.disable().expect("disabled");
        recorder.release();
        // A graph that is captured before the launch comes which would have detached it.
        library.1.sees_graph();
        assert_eq!((library.1.state(), library.1.is_held()), (State::Requested, true));
        recorder.enable().expect("the next window");
        recorder.disable().expect("disabled");
        recorder.release();
        assert_eq!((library.1.state(), library.launch()), (State::Attached, 0));
        assert_eq!(recorder.describe()["cupti_detaches"], false);
    });
}

#[test]
fn where_several_devices_are_worked_on_the_library_stays() {
    alone(|| {
        // Known from the driver before the first window's end.
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        library.script().several_devices = true;
        recorder.disable().expect("disabled");
        recorder.release();
        assert_eq!((library.1.state(), library.launch()), (State::Attached, 0));
        assert_eq!(recorder.describe()["cupti_detaches"], false);
    });
    alone(|| {
        // A thread launches on a second one after the request.
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        library.1.in_context(1);
        recorder.disable().expect("disabled");
        recorder.release();
        assert!(!library.1.is_held());
        library.1.in_context(2);
        assert_eq!((library.1.state(), library.1.is_held()), (State::Requested, true));
        recorder.enable().expect("the next window");
        recorder.disable().expect("disabled");
        recorder.release();
        assert_eq!((library.1.state(), library.launch()), (State::Attached, 0));
    });
}

#[test]
fn it_can_be_attached_late_or_stay() {
    alone(|| {
        let library = Scripted::new();
        let late = CuptiOptions { attach_late: true, ..options(Correlate::Callbacks) };
        let mut recorder = KernelRecorder::new(library.clone(), &late).expect("a recorder");
        assert!(!recorder.describe().contains_key("cupti_calls_followed"), "not known yet");
        collect(&mut recorder, true, 5_000);
        assert_eq!((library.log(), library.1.state()), (vec!["start".to_string()], State::Detached));
        recorder.enable().expect("enabled");
        assert!(library.script().on.contains(&Switch::Callback(Domain::Driver, 307)));

        // CUPTI stays if that was asked for, and if the library cannot be detached safely.
        for (keep_attached, version) in [(true, 130_000), (false, 23)] {
            let library = Scripted::new();
            library.script().version = version;
            let keep = CuptiOptions { keep_attached, ..options(Correlate::Callbacks) };
            let mut recorder = KernelRecorder::new(library.clone(), &keep).expect("a recorder");
            for _ in 0..2 {
                recorder.enable().expect("enabled");
                recorder.disable().expect("disabled");
                recorder.release();
                assert_eq!((library.launch(), library.1.state()), (0, State::Attached));
            }
            assert_eq!(recorder.describe()["cupti_detaches"], false);
            drop(recorder);
            assert_eq!(library.log(), ["start", "attach", "flush forced", "stop"]);
        }
    });
}

#[test]
fn a_library_that_does_not_go_is_not_asked_again() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        library.script().finalize_status = 999;
        assert_eq!(library.launch(), 1);
        recorder.enable().expect("it can still record");
        recorder.disable().expect("disabled");
        recorder.release();
        assert_eq!((library.launch(), library.1.state()), (0, State::Attached));
        assert_eq!(recorder.describe()["cupti_detaches"], false);
    });
}

#[test]
fn what_comes_while_it_is_detached_is_delivered_by_the_next_window() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        lanes::push(SpanId(3));
        lanes::launched(Domain::Driver, 307, 9, lanes::clock().raw(), lanes::clock().raw());
        lanes::pop();
        recorder.disable().expect("disabled");
        collect(&mut recorder, true, 1_000_000_000);
        recorder.release();
        assert_eq!(library.launch(), 1);
        library.script().ready = vec![(built::kernel(9, 1_200, 1_500, 0), Some(b"late"))];
        assert!(collect(&mut recorder, true, 1_000_100_000).kernels.is_empty());
        recorder.enable().expect("enabled");
        let sink = collect(&mut recorder, false, 1_000_200_000);
        let told: Vec<_> = sink.kernels.iter().map(|k| (&*k.name, k.span)).collect();
        assert_eq!(told, [("late", Some(SpanId(3)))]);
    });
}

#[test]
fn an_unknown_version_is_not_touched() {
    let library = Scripted::new();
    library.script().version = 140_000;
    let error = KernelRecorder::new(library.clone(), &options(Correlate::Nothing)).expect_err("too new");
    assert!(error.0.contains("14.0"), "{error}");
    assert!(library.script().log.is_empty());
}

#[test]
fn records_arrive_whole() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        // Far from what the host's clock will say, so that the two readings do not define a line and both clocks are
        // taken to run at the same speed.
        library.script().now = 10_000_000_000;
        library.script().plain = vec![
            (built::kernel(5, 1_200, 1_500, 3), Some(b"_Z3addPf")),
            (built::memory(kind::MEMSET, 0, 7, 1_600, 1_650), None),
        ];
        for (span, cbid, correlation) in [(70, 307, 5), (71, 249, 7)] {
            lanes::push(SpanId(span));
            lanes::launched(Domain::Driver, cbid, correlation, lanes::clock().raw(), lanes::clock().raw());
            lanes::pop();
        }
        let sink = collect(&mut recorder, false, 1_002_000);
        let [kernel, memset] = <[RawKernel; 2]>::try_from(sink.kernels).expect("two");
        assert_eq!(
            kernel,
            RawKernel {
                kind: KernelKind::Kernel,
                name: "add(float*)".into(),
                span: Some(SpanId(70)),
                device: "GPU-one".into(),
                stream: 7,
                start: kernel.start,
                dur_ns: 300,
                grid: Some([64, 2, 1]),
                block: Some([256, 1, 1]),
                registers: Some(32),
                shared_static: Some(48),
                shared_dynamic: Some(1024),
                bytes: None,
                launch: Some("cuLaunchKernel"),
                launch_start: kernel.launch_start,
                launch_dur_ns: kernel.launch_dur_ns,
                correlation: 5,
                graph: Some(3),
                graph_node: Some(built::node_of(3)),
            }
        );
        assert_eq!(memset.start.since(kernel.start), 400);
        let told = (&*memset.name, memset.bytes, memset.span, memset.launch, memset.grid);
        assert_eq!(told, ("memset", Some(4096), Some(SpanId(71)), Some("cuMemsetD8"), None));
        assert_eq!(sink.dropped, 0);
    });
}

#[test]
fn callbacks_arrive_whole_whatever_comes_first() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        assert!(library.script().on.contains(&Switch::Callback(Domain::Driver, 307)));
        library.script().plain = vec![
            (built::kernel(5, 1_200, 1_500, 0), Some(b"k")),
            (built::memory(kind::MEMCPY, 1, 6, 1_300, 1_400), None),
        ];
        let clock = lanes::clock();
        lanes::push(SpanId(44));
        let start = clock.raw();
        std::thread::sleep(std::time::Duration::from_millis(1));
        let end = clock.raw();
        lanes::launched(Domain::Driver, 307, 5, start, end);
        lanes::pop();
        let sink = collect(&mut recorder, false, 5_000_000_000);
        let [kernel] = <[RawKernel; 1]>::try_from(sink.kernels).expect("the copy's call is not over");
        assert_eq!((kernel.span, kernel.launch), (Some(SpanId(44)), Some("cuLaunchKernel")));
        let took = kernel.launch_dur_ns.expect("both ends were seen");
        let expected = clock.delta_as_nanos(start, end);
        assert!(took.abs_diff(expected) <= 2 && expected >= 1_000_000, "{took} and {expected}");
        let began = kernel.launch_start.expect("it was seen");
        assert!((4_000_000_000..5_000_000_000).contains(&began.0), "{began:?}");

        lanes::launched(Domain::Driver, 421, 6, 0, clock.raw());
        let sink = collect(&mut recorder, false, 5_100_000_000);
        let [copy] = <[RawKernel; 1]>::try_from(sink.kernels).expect("now it is");
        assert_eq!((&*copy.name, copy.span, copy.launch), ("htod", None, Some("cuMemcpyHtoDAsync")));
        assert_eq!((copy.launch_start, copy.launch_dur_ns), (None, None), "its beginning was not seen");
    });
}

#[test]
fn all_holds_nothing_back_and_losses_are_counted() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        recorder.disable().expect("disabled");
        {
            let mut script = library.script();
            script.plain = vec![(built::kernel(5, 1_200, 1_500, 0), Some(b"k"))];
            script.forced = vec![
                (built::kernel(6, 1_200, 0, 0), Some(b"k")),
                (built::kernel(7, 1_300, 1_400, 0), None),
                (vec![10, 0, 0, 0], None),
            ];
            script.dropped = 20;
            script.unreadable = 4;
            script.log.clear();
        }
        let sink = collect(&mut recorder, false, 10_000);
        assert!(sink.kernels.is_empty(), "its call may still come");
        assert_eq!((sink.dropped, library.script().log.as_slice()), (24, &["flush".to_string()][..]));
        let sink = collect(&mut recorder, true, 20_000);
        let names: Vec<_> = sink.kernels.iter().map(|k| (k.correlation, &*k.name, k.span)).collect();
        assert_eq!(names, [(5, "k", None), (7, "unknown", None)]);
        assert_eq!(sink.dropped, 2, "one without its end, one cut short");
        assert_eq!(library.script().log[1..], ["flush", "flush forced"]);
    });
}

#[test]
fn a_record_that_ends_before_it_starts_is_lost_and_no_kernel_of_no_time() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        let launch = |correlation, span: Option<SpanId>| {
            span.into_iter().for_each(lanes::push);
            lanes::launched(Domain::Driver, 307, correlation, lanes::clock().raw(), lanes::clock().raw());
            span.into_iter().for_each(|_| lanes::pop());
        };
        let backwards = |correlation| (built::kernel(correlation, 1_500, 1_200, 0), Some(&b"k"[..]));
        for (correlation, span) in [(1, Some(SpanId(40))), (2, Some(OUTSIDE_WINDOW)), (3, None), (5, Some(SpanId(42)))]
        {
            launch(correlation, span);
        }
        let no_time_at_all = built::kernel(5, 1_500, 1_500, 0);
        library.script().plain =
            vec![backwards(1), backwards(2), backwards(3), backwards(4), (no_time_at_all, Some(b"k"))];
        let sink = collect(&mut recorder, false, 1_000_000);
        let told: Vec<_> = sink.kernels.iter().map(|kernel| (kernel.correlation, kernel.dur_ns)).collect();
        assert_eq!(told, [(5, 0)], "only the one that says so took no time");
        assert_eq!((sink.dropped, sink.dropped_of), (1, vec![SpanId(40)]), "the call of the fourth may still come");
        assert_eq!((sink.outside_unfinished, sink.stray_unfinished.len()), (1, 1), "these are judged as others are");
        assert_eq!(sink.undelivered, UndeliveredWork::Nothing, "a lost record is not waited for");
        // Its call comes after it, so its interval is known.
        launch(4, Some(SpanId(41)));
        let sink = collect(&mut recorder, false, 1_100_000);
        assert_eq!((sink.kernels.len(), sink.dropped, sink.dropped_of), (0, 1, vec![SpanId(41)]));

        // Without a start, or without an end, it has no time either.
        recorder.disable().expect("disabled");
        library.script().plain = [(6, 0, 1_900), (7, 1_900, 0), (8, 0, 0)]
            .map(|(correlation, start, end)| (built::kernel(correlation, start, end, 0), Some(&b"k"[..])))
            .into();
        let sink = collect(&mut recorder, true, 1_200_000);
        assert_eq!((sink.kernels.len(), sink.dropped), (0, 3));
    });
}

#[test]
fn a_refused_flush_keeps_what_there_is() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Nothing);
        recorder.enable().expect("enabled");
        library.script().refuse_flush = Some(code::UNKNOWN);
        library.script().ready = vec![(built::kernel(5, 1_200, 1_500, 0), Some(b"k"))];
        let mut sink = ActivitySink::default();
        let error = recorder.collect(false, &|| HostNs(9_000), &mut sink).expect_err("refused");
        assert!(error.0.contains("hand over"), "{error}");
        assert_eq!(sink.kernels.len(), 1);
        assert_eq!((sink.kernels[0].span, sink.kernels[0].launch), (None, None));
    });
}

#[test]
fn windows_are_anchored_where_they_begin() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Nothing);
        // The host's clock is the monotonic one, and CUPTI's is set forward by an hour while the window is open.
        let began = std::time::Instant::now();
        let host = || HostNs(began.elapsed().as_nanos() as i64);
        library.script().now = 5_000_000;
        let before = host();
        recorder.enable().expect("enabled");
        let after = host();
        // The reading at the end of the window must be clearly later than that at its beginning.
        std::thread::sleep(std::time::Duration::from_millis(5));
        let hour = 3_600_000_000_000;
        library.script().now = hour + 10_000_000;
        library.script().plain = vec![(built::kernel(5, 5_000_100, 5_000_200, 0), Some(b"k"))];
        let mut sink = ActivitySink::default();
        recorder.collect(false, &host, &mut sink).expect("collected");
        // 100 ns after the window's beginning, by CUPTI's clock.
        let start = sink.kernels[0].start.0 - 100;
        assert!((before.0 - 1_000..=after.0 + 1_000).contains(&start), "{start} is not in {before:?} to {after:?}");
        let reads = Cell::new(0);
        recorder
            .collect(
                false,
                &|| {
                    reads.set(reads.get() + 1);
                    host()
                },
                &mut sink,
            )
            .expect("collected");
        assert!(reads.get() > 0, "every delivery anchors");
        // The brackets of readings are microseconds wide at most; setting a clock in between does not count as their
        // error.
        let bound = sink.clock_bound_ns.expect("both were read");
        assert!(bound < 50_000_000, "{bound}");
    });
}

#[test]
fn nothing_is_handed_over_while_a_copy_with_a_record_goes_on() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        library.log();
        let copy = library.1.copy_begins(CountedCall::NONE);
        library.script().plain = vec![(built::kernel(1, 1_200, 1_500, 0), Some(b"k"))];
        assert!(collect(&mut recorder, false, 1_000).kernels.is_empty() && library.log().is_empty());
        library.1.copy_ends(copy);
        collect(&mut recorder, false, 2_000);
        assert_eq!(library.log(), ["flush"], "and copies are recorded again after it");
        assert!(library.script().on.contains(&Switch::Kind(kind::MEMCPY)));

        // One goes on beyond the window's end: its record must not be cut off either.
        let copy = library.1.copy_begins(CountedCall::NONE);
        recorder.disable().expect("disabled");
        let on = kinds(&library.script().on);
        assert_eq!(on.len(), 3, "copies of both kinds, and memsets, which CUPTI records with them only: {on:?}");
        assert!(on.contains(&Switch::Kind(kind::MEMCPY)) && on.contains(&Switch::Kind(kind::MEMSET)), "{on:?}");
        collect(&mut recorder, false, 3_000);
        assert!(library.log().is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                library.1.copy_ends(copy);
            });
            collect(&mut recorder, true, 4_000);
        });
        assert_eq!(library.log(), ["flush", "flush forced"], "the last delivery waits for it");
        assert_eq!(kinds(&library.script().on), []);
        recorder.release();
        assert_eq!((library.launch(), library.1.is_held()), (1, false));
    });
}

#[test]
fn a_window_that_begins_inside_a_copy_records_copies_from_the_next_one_on() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        recorder.disable().expect("disabled");
        let copy = library.1.copy_begins(CountedCall::NONE);
        recorder.enable().expect("enabled");
        let begins = lanes::clock().raw();
        assert!(!library.script().on.contains(&Switch::Kind(kind::MEMCPY)), "it would be recorded in part");
        assert!(library.script().on.contains(&Switch::Kind(kind::CONCURRENT_KERNEL)));
        library.1.copy_ends(copy);
        lanes::push(SpanId(60));
        lanes::launched(Domain::Driver, 279, 1, begins, lanes::clock().raw());
        lanes::pop();
        let sink = collect(&mut recorder, false, 1_000);
        assert_eq!((sink.dropped, sink.dropped_of), (1, vec![SpanId(60)]), "this one has no record");
        assert!(library.script().on.contains(&Switch::Kind(kind::MEMCPY)), "the next one has");
    });
}

#[test]
fn copies_that_begin_while_records_are_handed_over_are_lost_and_told() {
    alone(|| {
        let (library, mut recorder) = recorder(Correlate::Callbacks);
        recorder.enable().expect("enabled");
        let call = |cbid, correlation, span, start| {
            lanes::push(span);
            lanes::launched(Domain::Driver, cbid, correlation, start, lanes::clock().raw());
            lanes::pop();
        };
        let before = lanes::clock().raw();
        collect(&mut recorder, false, 1_000);
        let (began, ended) = *recorder.gaps.back().expect("records were handed over");
        // What waits while they are turned begins after that, and so with the moment before it all of these are told.
        let turned = library.script().copies_turned.clone();
        let [(false, off), (true, on)] = turned[turned.len() - 2..] else { panic!("{turned:?}") };
        assert!(began <= off && ended <= on, "{began} to {ended}, turned at {off} and {on}");
        // A copy (279) and a memset (249) have none, a kernel (307) and a copy of before have.
        for (cbid, correlation, span, start) in [
            (279, 1, SpanId(50), began),
            (279, 2, SpanId(51), before),
            (307, 3, SpanId(52), began),
            (249, 5, SpanId(53), began),
        ] {
            call(cbid, correlation, span, start);
        }
        call(279, 4, OUTSIDE_WINDOW, began);
        lanes::launched(Domain::Driver, 279, 6, began, lanes::clock().raw());
        let sink = collect(&mut recorder, false, 2_000);
        assert_eq!((sink.dropped, sink.dropped_of), (2, vec![SpanId(50), SpanId(53)]));
        assert_eq!(sink.stray_unfinished.len(), 1, "one of no interval is lost if it was in a window");
    });
}
