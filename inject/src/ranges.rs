//! NVTX ranges of a thread, as intervals. Those that begin by a push nest, each domain by itself. Those that begin by a
//! start may end anywhere, or never: where such a range is a phase and its thread is in none, it is a step like others,
//! and else it stands beside the intervals, so that these are what they would be without it.

use crate::names::cleaned;
use crate::open;
use crate::operator_sizes;
use crate::program::end_with_this_thread;
use crate::recording::{Recording, started, wanted, window};
use crate::registered::RegisteredText;
use crate::start_end::{EndedByNumber, KeptRange};
use candlescope_core::{Annotation, Phase, RangeName, RangeTime};
use rustc_hash::{FxHashMap, FxHasher};
use std::cell::RefCell;
use std::hash::Hasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a thread knows.
struct Thread {
    /// Domains: a thread has ranges of few.
    domains: Vec<Domain>,
    /// Ranges that were left out, by domain and depth: libraries' outside of all others.
    left_out: Vec<(u32, u32)>,
    /// Open ranges that are phases.
    phases: Vec<(u64, Phase)>,
    /// Open ranges whose texts said what they do.
    told: Vec<(u64, Annotation)>,
    /// The range by a start that is a step. There is one at most, as it is in no other phase.
    step: Option<StartedStep>,
    /// Where it looks for a place for the next range by a start.
    place: usize,
    /// Names by a hash of domain and text. Texts that share one are told apart by comparing.
    names: FxHashMap<u64, (u32, Box<str>, RangeName)>,
}

/// A step that began by a start.
#[derive(Debug, Clone, Copy)]
struct StartedStep {
    /// What the program ends it by.
    id: u64,
    /// Ranges inside that have not ended.
    inside: u32,
    /// [`StartEnd::elsewhere`](crate::start_end::StartEnd::elsewhere) when it was looked at last.
    seen: u64,
    /// The program has ended it, here or on another thread, while something was open inside.
    ended: Option<RangeTime>,
}

impl StartedStep {
    /// Of its range, among those that are open on the thread.
    fn number(&self) -> u64 {
        STARTED | self.id
    }
}

/// Set in the numbers of steps that began by a start.
const STARTED: u64 = 1 << 62;

/// Set in the numbers of domains under which names of ranges are kept that stand beside intervals.
const BESIDE: u32 = 1 << 31;

/// What a program gets for a range by a start that is not recorded. Ending it does nothing.
const NOT_RECORDED: u64 = 0;

impl Default for Thread {
    fn default() -> Self {
        // Far from where other threads look.
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        Self {
            domains: Vec::new(),
            left_out: Vec::new(),
            phases: Vec::new(),
            told: Vec::new(),
            step: None,
            place: THREADS.fetch_add(1, Ordering::Relaxed).wrapping_mul(64),
            names: FxHashMap::default(),
        }
    }
}

/// A domain on a thread.
struct Domain {
    number: u32,
    is_library: bool,
    /// Open ranges.
    depth: u32,
    /// How many of them are around the step that began by a start, if there is one.
    around: u32,
}

/// Open ranges of a thread of which it is known what they do.
const MOST_TOLD: usize = 1_024;

/// Names that a thread keeps.
const MOST: usize = 4_096;

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread::default());
}

/// `None` in a thread that is ending, or from within itself.
#[inline]
fn with_thread<T>(work: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| thread.try_borrow_mut().ok().map(|mut thread| work(&mut thread))).ok().flatten()
}

/// What a range is called: a text, or one that was made known before.
#[derive(Clone, Copy)]
pub(crate) enum GivenName<'a> {
    Text(&'a str),
    Known(&'a RegisteredText),
}

impl Thread {
    fn name(&mut self, recording: &Recording, domain: u32, called: GivenName<'_>) -> RangeName {
        match called {
            // What differs from call to call is no part of a name.
            GivenName::Text(text) => self.kept_name(domain, cleaned(text), |text| recording.name(domain, text)),
            GivenName::Known(text) => text.name,
        }
    }

    /// The name of ranges that stand beside intervals, where that of others is `name`.
    fn beside(&mut self, recording: &Recording, domain: u32, called: GivenName<'_>, name: RangeName) -> RangeName {
        match called {
            GivenName::Text(text) => self.kept_name(domain | BESIDE, cleaned(text), |_| recording.beside(domain, name)),
            GivenName::Known(text) => text.beside(|domain| recording.beside(domain, name)),
        }
    }

    fn kept_name(&mut self, domain: u32, text: &str, make: impl FnOnce(&str) -> RangeName) -> RangeName {
        let mut hasher = FxHasher::default();
        hasher.write_u32(domain);
        hasher.write(text.as_bytes());
        let hash = hasher.finish();
        match self.names.get(&hash) {
            Some((of, known, name)) if *of == domain && **known == *text => *name,
            _ => {
                let name = make(text);
                if self.names.len() < MOST {
                    self.names.insert(hash, (domain, text.into(), name));
                }
                name
            }
        }
    }

    fn domain(&mut self, recording: &Recording, number: u32) -> &mut Domain {
        let at = match self.domains.iter().position(|of| of.number == number) {
            Some(at) => at,
            None => {
                self.domains.push(Domain { number, is_library: recording.is_library(number), depth: 0, around: 0 });
                self.domains.len() - 1
            }
        };
        &mut self.domains[at]
    }

    /// A range is about to begin that is a phase, or none.
    fn around(recording: &Recording, name: RangeName) {
        if name.is_phase() {
            recording.own.marks_phases();
        }
        if open::count() > 0 {
            recording.own.inside(None, window());
        } else {
            recording.own.around(name.is_phase(), window());
        }
    }

    fn begin(&mut self, recording: &Recording, name: RangeName, number: u64) {
        Self::around(recording, name);
        open::begins();
        if let Some(phase) = name.phase() {
            self.phases.push((number, phase));
        }
        recording.ranges.enter(name, number);
    }

    /// Keeps what the range of this number says that it does. Where the program's model is known, steps have its FLOPs
    /// already.
    fn tell(&mut self, recording: &Recording, number: u64, called: GivenName<'_>, payload: Option<f64>) {
        let sizes = match called {
            GivenName::Text(text) => operator_sizes::told(text, recording.own.model.is_none()),
            GivenName::Known(_) => None,
        };
        let told = match payload {
            Some(payload) => Some(sizes.unwrap_or_default().payload(payload)),
            None => sizes,
        };
        // Ranges that are never popped on their thread stay open there.
        if self.told.len() < MOST_TOLD {
            self.told.extend(told.map(|told| (number, told)));
        }
    }

    /// What the range of this number did, which ends, if it is known. A phase in a phase is no step, and the outer one
    /// does what is done. Those of two domains may end in any order.
    fn did(&mut self, recording: &Recording, number: u64) -> Option<Annotation> {
        let told = self.told.iter().rposition(|(of, _)| *of == number).map(|at| self.told.remove(at).1);
        let phase = self.phases.iter().rposition(|(of, _)| *of == number).map(|at| self.phases.remove(at).1);
        let model = recording.own.model.as_ref().filter(|_| self.phases.is_empty());
        let mut did = phase.and_then(|phase| model?.did(phase));
        if let Some(told) = told {
            did.get_or_insert_default().merge(&told);
        }
        did
    }

    /// Ends the step that began by a start, if the program has ended it by now and nothing is open inside.
    #[inline]
    fn settle(&mut self, recording: &Recording) {
        let Some(step) = &mut self.step else { return };
        if step.ended.is_none() {
            let elsewhere = recording.start_end.elsewhere();
            if step.seen == elsewhere {
                return;
            }
            step.seen = elsewhere;
            step.ended = recording.start_end.ended(step.id);
        }
        if let Some(at) = step.ended.filter(|_| step.inside == 0) {
            self.end_step(recording, Some(at));
        }
    }

    /// As [`settle`](Self::settle), where the thread may be anywhere: takes no lock that somebody may hold, allocates
    /// nothing, and leaves out what the step did. Inside of it nothing of the program's own may be open.
    fn settle_at_once(&mut self, recording: &Recording) {
        let Some(step) = self.step.filter(|step| step.inside == 0) else { return };
        let Some(at) = recording.start_end.take_ended(step.id) else { return };
        self.step = None;
        open::ends();
        recording.ranges.exit_at(step.number(), Some(at), None);
    }

    /// Ends that step as it is; `at`: the time that it ended at, `None` for now.
    fn end_step(&mut self, recording: &Recording, at: Option<RangeTime>) {
        let Some(step) = self.step.take() else { return };
        recording.own.range_ends(open::count().saturating_sub(1));
        open::ends();
        let did = self.did(recording, step.number());
        recording.ranges.exit_at(step.number(), at, did);
        recording.start_end.free(step.id);
    }

    fn push(&mut self, recording: &Recording, domain: u32, called: GivenName<'_>, payload: Option<f64>) -> u32 {
        self.settle(recording);
        let of = self.domain(recording, domain);
        let (depth, is_library) = (of.depth, of.is_library);
        of.depth += 1;
        // A library's range by itself would be a step.
        if open::count() == 0 && is_library {
            self.left_out.push((domain, depth));
            return depth;
        }
        let name = self.name(recording, domain, called);
        self.begin(recording, name, number(domain, depth));
        self.tell(recording, number(domain, depth), called, payload);
        if let Some(step) = &mut self.step {
            step.inside += 1;
        }
        depth
    }

    /// The depth of the range that ended; `None` if there was none.
    fn pop(&mut self, recording: &Recording, domain: u32) -> Option<u32> {
        self.settle(recording);
        let of = self.domain(recording, domain);
        let depth = of.depth.checked_sub(1)?;
        let is_inside = depth >= of.around;
        (of.depth, of.around) = (depth, of.around.min(depth));
        if let Some(at) = self.left_out.iter().rposition(|of| *of == (domain, depth)) {
            self.left_out.remove(at);
            return Some(depth);
        }
        recording.own.range_ends(open::count().saturating_sub(1));
        open::ends();
        let number = number(domain, depth);
        let did = self.did(recording, number);
        recording.ranges.exit_as(number, None, did);
        if let Some(step) = self.step.as_mut().filter(|_| is_inside) {
            step.inside = step.inside.saturating_sub(1);
            // What was inside lasted longer than the program said of the step, which is as long as that.
            if step.ended.is_some() && step.inside == 0 {
                self.end_step(recording, None);
            }
        }
        Some(depth)
    }

    fn start(&mut self, recording: &Recording, domain: u32, called: GivenName<'_>, payload: Option<f64>) -> u64 {
        self.settle(recording);
        if self.domain(recording, domain).is_library && open::count() == 0 {
            return NOT_RECORDED;
        }
        let name = self.name(recording, domain, called);
        let Some(id) = recording.start_end.reserve(&mut self.place) else {
            recording.leave_out();
            return NOT_RECORDED;
        };
        if name.is_phase() && self.phases.is_empty() {
            let step = StartedStep { id, inside: 0, seen: recording.start_end.elsewhere(), ended: None };
            recording.start_end.keep(id, KeptRange::Step(None));
            self.begin(recording, name, step.number());
            self.tell(recording, step.number(), called, payload);
            self.domains.iter_mut().for_each(|domain| domain.around = domain.depth);
            self.step = Some(step);
            end_with_this_thread();
            return id;
        }
        let beside = self.beside(recording, domain, called, name);
        match recording.ranges.begin(beside) {
            Some(range) => {
                let range = payload.map_or(range, |payload| range.payload(payload));
                recording.start_end.keep(id, KeptRange::Beside(range));
                id
            }
            None => {
                recording.start_end.free(id);
                NOT_RECORDED
            }
        }
    }

    /// Ends the thread's own step of this number; whether it has it.
    fn end(&mut self, recording: &Recording, id: u64) -> bool {
        let Some(step) = self.step.as_mut().filter(|step| step.id == id) else { return false };
        if step.inside == 0 {
            // At the time of another thread's end, if that came first.
            let at = step.ended.or_else(|| recording.start_end.ended(id));
            self.end_step(recording, at);
        } else {
            step.ended.get_or_insert_with(|| recording.ranges.now());
        }
        true
    }
}

/// Of a range: unique among those that are open on a thread.
fn number(domain: u32, depth: u32) -> u64 {
    u64::from(domain) << 32 | u64::from(depth)
}

/// A range begins on this thread. Returns how many of its domain are open around it, as NVTX does.
pub(crate) fn push(domain: u32, called: GivenName<'_>, payload: Option<f64>) -> i32 {
    let Some(recording) = wanted() else { return -1 };
    with_thread(|thread| thread.push(recording, domain, called, payload))
        .and_then(|depth| i32::try_from(depth).ok())
        .unwrap_or(-1)
}

/// The innermost range of the domain ends. Returns how many are open around it; −2 if there was none.
pub(crate) fn pop(domain: u32) -> i32 {
    let Some(recording) = started() else { return -1 };
    match with_thread(|thread| thread.pop(recording, domain)) {
        Some(Some(depth)) => i32::try_from(depth).unwrap_or(-1),
        Some(None) => -2,
        None => -1,
    }
}

/// A range begins on this thread that may end on any. Returns what it ends by.
pub(crate) fn start(domain: u32, called: GivenName<'_>, payload: Option<f64>) -> u64 {
    let Some(recording) = wanted() else { return NOT_RECORDED };
    with_thread(|thread| thread.start(recording, domain, called, payload)).unwrap_or(NOT_RECORDED)
}

/// A range that began by [`start`] ends. Another number is ignored.
pub(crate) fn end(id: u64) {
    if let Some(recording) = started().filter(|_| id != NOT_RECORDED) {
        end_in(recording, id);
    }
}

fn end_in(recording: &Recording, id: u64) {
    if with_thread(|thread| thread.end(recording, id)) == Some(true) {
        return;
    }
    if let EndedByNumber::Beside(range) = recording.start_end.end(id, || recording.ranges.now()) {
        recording.ranges.end(range);
    }
}

/// What other threads have ended of this one ends.
pub(crate) fn settle(recording: &Recording) {
    let _ = with_thread(|thread| thread.settle(recording));
}

/// The process ends on this thread, or puts another program in its place: what other threads have ended of this one
/// ends, and the program's own step with it. What every end of the process does, but `_exit`.
pub(crate) fn leave(recording: &Recording) {
    settle(recording);
    recording.own.leave();
}

/// The same for `_exit`, which may be called in a handler of a signal: takes no lock that somebody may hold, and
/// allocates nothing.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "`_exit` is seen on Linux alone"))]
pub(crate) fn leave_at_once(recording: &Recording) {
    // First what is inside of the step that began by a start.
    recording.own.leave();
    let _ = with_thread(|thread| thread.settle_at_once(recording));
}

/// This thread ends: what other threads have ended of it ends as well, and a step that nobody has ended is lost.
pub(crate) fn end_of_thread() {
    if let Some(recording) = started() {
        end_of_thread_in(recording);
    }
}

fn end_of_thread_in(recording: &Recording) {
    let end = |thread: &mut Thread| {
        thread.settle(recording);
        if let Some(step) = thread.step.take() {
            match step.ended {
                Some(_) => {
                    thread.step = Some(step);
                    thread.end_step(recording, None);
                }
                None => recording.start_end.abandon(step.id),
            }
        }
    };
    let _ = with_thread(end);
    recording.own.leave();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::KernelRecording;
    use crate::start_end;
    use candlescope_core::run::RunManifest;
    use candlescope_core::{MemoryExporter, SpanRecord, StepRecord};
    use regex::Regex;
    use std::time::{Duration, Instant};

    /// What is recorded of `work`: intervals in the order of their numbers, and steps. `steps` as `--step-range`.
    fn recorded(steps: Option<&str>, work: impl FnOnce(&Recording)) -> (Vec<SpanRecord>, Vec<StepRecord>, RunManifest) {
        let memory = MemoryExporter::new();
        let builder = candlescope::builder().exporter(memory.clone()).report_at_end(false);
        let (_layer, scope) = builder.layer().expect("a session");
        let steps = steps.map(|text| Regex::new(text).expect("an expression"));
        let recording = Recording::new(scope, steps, None, KernelRecording::PLAIN).expect("it records");
        work(&recording);
        recording.own.leave();
        recording.end();
        let batch = memory.batch();
        let mut spans = batch.spans.clone();
        spans.sort_by_key(|span| span.seq);
        (spans, batch.steps.clone(), memory.manifest().expect("it ended"))
    }

    fn push(recording: &Recording, text: &str) {
        with_thread(|thread| thread.push(recording, 0, GivenName::Text(text), None));
    }

    fn pop(recording: &Recording) {
        with_thread(|thread| thread.pop(recording, 0));
    }

    fn start(recording: &Recording, domain: u32, text: &str) -> u64 {
        with_thread(|thread| thread.start(recording, domain, GivenName::Text(text), None))
            .expect("no other call is under way")
    }

    fn paths(spans: &[SpanRecord]) -> Vec<&str> {
        spans.iter().map(|span| span.path.path.as_str()).collect()
    }

    #[test]
    fn an_operator_with_sizes_has_its_shape_and_flops_and_its_step_their_sum() {
        let (spans, steps, _) = recorded(None, |recording| {
            push(recording, "decode");
            for rows in [1, 4] {
                push(recording, "aten::linear, seq = 1, sizes = [[1, 8], [16, 8], []]");
                push(
                    recording,
                    &format!("aten::mm, op_id = {rows}, sizes = [[{rows}, 8], [8, 16]], input_op_ids = [(1,0)]"),
                );
                pop(recording);
                pop(recording);
            }
            pop(recording);
        });
        let of = |name: &str| -> Vec<Option<u64>> {
            spans.iter().filter(|span| span.path.path.ends_with(name)).map(|span| span.flops).collect()
        };
        assert_eq!(of("aten::mm"), [Some(256), Some(1024)], "{:?}", paths(&spans));
        let worked = spans.iter().filter(|span| span.flops.is_some()).count();
        assert_eq!(worked, 2, "what is inside of a linear does its work: {:?}", paths(&spans));
        assert_eq!(steps.iter().map(|step| step.flops).collect::<Vec<_>>(), [Some(1280)]);
    }

    #[test]
    fn ranges_by_a_start_cross_others_and_change_nothing_of_them() {
        let (spans, steps, manifest) = recorded(None, |recording| {
            let nccl = recording.domain("NCCL");
            assert_eq!(start(recording, nccl, "outside of the program's"), NOT_RECORDED);
            push(recording, "block");
            let copy = start(recording, 0, "copy, seq = 7");
            push(recording, "linear");
            let name = recording.registered(nccl, "ncclSend");
            let send =
                with_thread(|thread| thread.start(recording, nccl, GivenName::Known(name), None)).expect("a number");
            end_in(recording, copy);
            pop(recording);
            end_in(recording, send);
            // No number of any, or that of one that has ended.
            [0, 1, copy, send].into_iter().for_each(|id| end_in(recording, id));
            pop(recording);
            let request = start(recording, 0, "request");
            assert!(![copy, send].contains(&request), "a place is used again, and no number");
            std::thread::scope(|scope| {
                scope.spawn(|| end_in(recording, request));
            });
        });
        assert_eq!(paths(&spans), ["block", "copy", "block/linear", "ncclSend", "request"]);
        let [block, copy, linear, send, request] = &spans[..] else { unreachable!("there are five") };
        assert_eq!([copy, send, request].map(|span| span.parent_seq), [Some(block.seq), Some(linear.seq), None]);
        let targets = [copy, send, request].map(|span| &*span.path.target);
        assert_eq!(targets, ["nvtx::start_end", "NCCL::start_end", "nvtx::start_end"]);
        assert!(
            [copy, send, request].iter().all(|span| span.step.is_none() && span.thread.index == block.thread.index)
        );
        let end = |span: &SpanRecord| span.host_start.plus_ns(span.host_dur_ns);
        assert!(end(copy) < end(linear) && end(linear) < end(send) && end(send) < end(block));
        assert_eq!((steps.len(), steps[0].intervals), (1, 2));
        assert_eq!((manifest.loss.lost(), manifest.loss.open_at_end), (0, 0), "{:?}", manifest.loss);
        assert!(manifest.environment.keys().all(|key| !key.starts_with("nvtx_ranges")), "{:?}", manifest.environment);
    }

    #[test]
    fn ranges_by_a_start_are_steps_where_these_are_asked_for_and_none_is_open() {
        let (spans, steps, _) = recorded(Some("^turn"), |recording| {
            let first = start(recording, 0, "turn 1");
            push(recording, "linear");
            pop(recording);
            let crosses = start(recording, 0, "turn 2");
            end_in(recording, first);
            end_in(recording, crosses);
            // What is open inside is the step's still.
            let third = start(recording, 0, "turn 3");
            push(recording, "linear");
            end_in(recording, third);
            end_in(recording, third);
            pop(recording);
            push(recording, "between");
            pop(recording);
            // It goes on where what was around it has ended.
            push(recording, "around");
            let fourth = start(recording, 0, "turn 4");
            push(recording, "linear");
            pop(recording);
            pop(recording);
            push(recording, "norm");
            pop(recording);
            end_in(recording, fourth);
            push(recording, "between");
            pop(recording);
        });
        let expected =
            ["turn 1", "turn 1/linear", "turn 2", "turn 3", "turn 3/linear", "turn 4", "turn 4/linear", "turn 4/norm"];
        assert_eq!(paths(&spans), expected);
        let of_steps: Vec<_> = steps.iter().map(|step| (step.path.path.as_str(), step.phase)).collect();
        assert_eq!(of_steps, ["turn 1", "turn 3", "turn 4"].map(|path| (path, Some(Phase::Decode))));
        assert_eq!(
            (spans[2].step, spans[2].parent_seq, &*spans[2].path.target),
            (None, Some(spans[0].seq), "nvtx::start_end")
        );
        assert!(spans[3].host_dur_ns > spans[4].host_dur_ns, "a step is not shorter than what is in it");
        assert_eq!(&*spans[0].path.target, "nvtx");
    }

    #[test]
    fn a_step_that_another_thread_ends_is_as_long_as_that_says() {
        let pause = Duration::from_millis(20);
        let begun = Instant::now();
        let mut most = Duration::MAX;
        let (spans, steps, manifest) = recorded(None, |recording| {
            let step = start(recording, 0, "decode");
            push(recording, "linear");
            pop(recording);
            std::thread::scope(|scope| {
                scope.spawn(|| end_in(recording, step));
            });
            assert_eq!(recording.start_end.open(), 1, "its own thread is to notice");
            std::thread::sleep(pause);
            most = begun.elapsed() - pause;
            push(recording, "other");
            assert_eq!(recording.start_end.open(), 0);
            pop(recording);
        });
        assert_eq!(paths(&spans), ["decode", "decode/linear", "other"]);
        let names: Vec<_> = steps.iter().map(|step| step.path.path.as_str()).collect();
        assert_eq!(names, ["decode", "other"]);
        assert!(u128::from(steps[0].host_dur_ns) <= most.as_nanos(), "{most:?}: {:?}", steps[0]);
        assert_eq!(manifest.loss.open_at_end, 0);
    }

    /// The ends of a process: where the thread does nothing more that would notice.
    #[test]
    fn a_step_that_another_thread_ended_is_not_lost_where_the_process_ends() {
        // A thread keeps numbers of the names that its session knows: each session has one of its own.
        for leave in [leave, leave_at_once] {
            let ends = move || {
                let (spans, steps, manifest) = recorded(None, |recording| {
                    let step = start(recording, 0, "decode");
                    std::thread::scope(|scope| {
                        scope.spawn(|| end_in(recording, step));
                    });
                    std::thread::sleep(Duration::from_millis(20));
                    leave(recording);
                    assert_eq!(recording.start_end.open(), 0);
                });
                assert_eq!((paths(&spans), steps.len()), (vec!["decode"], 1));
                assert!(steps[0].host_dur_ns < 20_000_000, "as long as the other thread said: {:?}", steps[0]);
                assert_eq!((manifest.loss.lost(), manifest.loss.open_at_end), (0, 0));
            };
            std::thread::spawn(ends).join().expect("it passes");
        }
    }

    #[test]
    fn what_never_ends_and_what_there_is_no_room_for_is_counted() {
        let (spans, _, manifest) = recorded(None, |recording| {
            // A thread that ends before its step.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_ne!(start(recording, 0, "decode"), NOT_RECORDED);
                    end_of_thread_in(recording);
                });
            });
            let open: Vec<u64> = (0..start_end::MOST).map(|_| start(recording, 0, "request")).collect();
            assert!(open.iter().all(|id| *id != NOT_RECORDED));
            assert_eq!([(); 2].map(|()| start(recording, 0, "request")), [NOT_RECORDED; 2]);
            end_in(recording, open[0]);
            assert_ne!(start(recording, 0, "request"), NOT_RECORDED);
        });
        let open = start_end::MOST as u64 + 1;
        assert_eq!((spans.len(), manifest.loss.open_at_end), (1, open));
        let told = ["nvtx_ranges_open_at_end", "nvtx_ranges_unrecorded"].map(|key| manifest.environment[key].as_u64());
        assert_eq!(told, [Some(open), Some(2)]);
    }
}
