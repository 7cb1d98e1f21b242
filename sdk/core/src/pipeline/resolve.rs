//! Orders and resolves: the raw records of one thread become a tree with stable paths, one step at a time.
//!
//! Intervals arrive in exit order, children before their parents, so a step is buffered until its outermost interval
//! ends: only then is it known which names repeat among siblings. A step that grows very large is resolved in parts.
//!
//! No I/O and no clocks here: records in, records out.

mod buffers;
mod modules_of_step;
mod scratch;
mod tree;
mod work_of_step;

use super::in_place::InPlace;
use super::paths::{Paths, UNIQUE};
use super::resolved::ResolvedRecords;
use super::thread_infos::ThreadInfos;
use crate::annotation::Annotation;
use crate::clock::TickMapper;
use crate::names::{NameInfo, OTHER};
use crate::raw::{NO_STEP, Raw, RawInterval, flag, phase_of};
use crate::record::{PathInfo, SpanRecord, StepRecord, ThreadInfo, TraceId, UnrecordedStep};
use crate::shared::SessionState;
use crate::vocabulary::Phase;
use crate::{MOST_SERVED, Served};
use buffers::StepBuffer;
pub(crate) use buffers::ThreadStream;
use rustc_hash::FxHashMap;
use scratch::{Parent, Scratch};
use std::sync::Arc;

/// Unrecorded steps that may wait for the next recorded one.
///
/// Overload policy: beyond this the oldest is forgotten, and rates of the steps beside it are a little too high.
const MAX_UNRECORDED: usize = 4_096;

/// Steps of one thread that may be buffered at once: nested ones, and ones whose end was lost.
const MAX_OPEN_STEPS: usize = 32;

/// The state that all threads share.
pub(crate) struct Resolver {
    paths: Paths,
    names: Vec<Arc<NameInfo>>,
    /// Whether any of the names belongs to a module.
    modules: bool,
    /// Names of spans that multiply by weights which nobody has told, with how many there are.
    lacking: (u64, Vec<&'static str>),
    /// Trees seen before, by the step's name: a step with the same tree takes its paths from here without hashing.
    templates: FxHashMap<u32, Vec<TemplateNode>>,
    scratch: Scratch,
    /// Intervals that ended after their parent did.
    pub(crate) outlived_parent: u64,
    /// Intervals whose parent's record never came.
    pub(crate) orphans: u64,
    /// Steps resolved, and (`steps_captured`) those of them that are recorded only because of a window.
    pub(crate) steps: u64,
    pub(crate) steps_captured: u64,
    /// Those of them that are spans of the application once a phase is marked, and number and name of the first one.
    pub(crate) application_steps: u64,
    pub(crate) application_step: Option<(u64, u32)>,
    /// Time in steps, for the overhead ratio, nanoseconds.
    pub(crate) step_ns: u64,
    /// Spans that are not the LLM helpers', which shows whether the model itself was seen.
    pub(crate) model_spans: u64,
    pub(crate) helper_spans: u64,
    /// Steps that are phases in which a model runs, and (`hollow_phase_steps`) those in which only the helpers' own
    /// spans were seen.
    pub(crate) phase_steps: u64,
    pub(crate) hollow_phase_steps: u64,
    /// Compares recorded steps with plain ones; `None` unless some are left plain.
    pub(crate) in_place: Option<InPlace>,
    /// Unrecorded steps that go out with the next recorded one.
    unrecorded: Vec<UnrecordedStep>,
    /// The threads whose records come.
    pub(crate) threads: ThreadInfos,
}

struct TemplateNode {
    name: u32,
    parent: Parent,
    path: Arc<PathInfo>,
}

/// What the resolver needs besides its own state.
pub(crate) struct ResolveContext<'a> {
    pub(crate) shared: &'a SessionState,
    pub(crate) mapper: &'a TickMapper,
}

impl Resolver {
    pub(crate) fn new() -> Self {
        Self {
            paths: Paths::new(),
            names: Vec::new(),
            modules: false,
            lacking: (0, Vec::new()),
            templates: FxHashMap::default(),
            scratch: Scratch::default(),
            outlived_parent: 0,
            orphans: 0,
            steps: 0,
            steps_captured: 0,
            application_steps: 0,
            application_step: None,
            step_ns: 0,
            model_spans: 0,
            helper_spans: 0,
            phase_steps: 0,
            hollow_phase_steps: 0,
            in_place: None,
            unrecorded: Vec::new(),
            threads: ThreadInfos::default(),
        }
    }

    /// Takes one record of `thread`; steps that are finished with it go to `out`.
    pub(crate) fn feed(
        &mut self,
        thread: &mut ThreadStream,
        raw: Raw,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        match raw {
            Raw::Work(work) => thread.pending.get_or_insert_default().work = work,
            Raw::Counts(counts) => thread.pending.get_or_insert_default().counts = counts,
            Raw::Served(served) => {
                let serves = &mut thread.buffer(served.step).serves;
                if serves.len() < MOST_SERVED {
                    serves.push(Served::new(served.request.into(), served.tokens, served.output_tokens));
                }
            }
            Raw::Unrecorded(step) => self.unrecorded(thread, &step, around),
            Raw::Interval(open) if open.open => {
                let last = open.flags & flag::LAST_OPEN != 0;
                let buffer = thread.buffer(open.step);
                buffer.announced.push(open);
                if last {
                    let mut buffer = thread.take(open.step);
                    self.resolve_part(&mut buffer, &thread.info, around, out);
                    thread.steps.push(buffer);
                }
            }
            Raw::Interval(interval) => {
                let annotation = thread.pending.take();
                let is_root = interval.flags & flag::STEP_ROOT != 0;
                // A step that was left late is still a step: what is in it was left before.
                if interval.step == NO_STEP || (interval.flags & flag::DETACHED != 0 && !is_root) {
                    self.resolve_alone(interval, annotation, &thread.info, around, out);
                    return;
                }
                let buffer = thread.buffer(interval.step);
                if let Some(annotation) = annotation {
                    buffer.annotations.push((buffer.items.len() as u32, annotation));
                }
                buffer.items.push(interval);
                if is_root {
                    let mut buffer = thread.take(interval.step);
                    if interval.flags & flag::RENAMED != 0 {
                        buffer.items.iter_mut().for_each(|item| item.phase = interval.phase);
                    }
                    buffer.source = thread.source(interval.request);
                    thread.remember_source(&interval, annotation);
                    self.resolve_part(&mut buffer, &thread.info, around, out);
                    self.finish_step(&interval, annotation, &mut buffer, &thread.info, around, out);
                    thread.steps_ended += 1;
                    if interval.flags & flag::NESTED_STEP == 0 {
                        thread.last_end = around.mapper.to_host(interval.end);
                    }
                    thread.recycle(buffer);
                } else if thread.steps.len() > MAX_OPEN_STEPS {
                    // Its end was lost: its intervals go out without their place, which is better than not at all.
                    let mut buffer = thread.steps.remove(0);
                    self.resolve_part(&mut buffer, &thread.info, around, out);
                    thread.recycle(buffer);
                }
            }
        }
    }

    fn unrecorded(&mut self, thread: &ThreadStream, step: &crate::raw::UnrecordedStep, around: &ResolveContext<'_>) {
        let start = around.mapper.to_host(step.start);
        let ns = around.mapper.to_host(step.end).since(start);
        if let Some(in_place) = self.in_place.as_mut().filter(|_| step.plain) {
            in_place.plain(thread.info.index, step.name, ns);
        }
        if !step.beside {
            return;
        }
        let name = self.name(step.name, around);
        let path = self.paths.child(None, step.name, &name, UNIQUE);
        if self.unrecorded.len() >= MAX_UNRECORDED {
            self.unrecorded.remove(0);
        }
        let mut unrecorded = UnrecordedStep::new(step.step, start, ns, path.rollup.as_str());
        unrecorded.request = (step.request != 0).then_some(u64::from(step.request));
        unrecorded.phase = phase_of(step.phase);
        self.unrecorded.push(unrecorded);
    }

    /// Adds the unrecorded steps that have come since the last recorded one to it, if it is still here: it may have
    /// been the last one for long.
    pub(crate) fn add_unrecorded(&mut self, out: &mut ResolvedRecords) {
        if let Some(step) = out.batch.steps.last_mut().filter(|_| !self.unrecorded.is_empty()) {
            step.unrecorded.get_or_insert_default().append(&mut self.unrecorded);
        }
    }

    /// No more records come from `thread`: what is buffered goes out, below `(lost)` if the parent is still open.
    pub(crate) fn finish_thread(
        &mut self,
        thread: &mut ThreadStream,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        for mut buffer in std::mem::take(&mut thread.steps) {
            self.resolve_part(&mut buffer, &thread.info, around, out);
        }
    }

    /// Resolves what is buffered of a step: all of it, or the part so far.
    fn resolve_part(
        &mut self,
        buffer: &mut StepBuffer,
        thread: &Arc<ThreadInfo>,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        self.place_announced(buffer, around);
        if buffer.items.is_empty() {
            return;
        }
        self.order(buffer);
        self.find_parents(buffer);
        self.find_paths(buffer, around);
        buffer.annotations.sort_unstable_by_key(|(i, _)| *i);
        if let Some(lacking) = around.shared.watch.lacking(self.lacking.0) {
            self.lacking = lacking;
        }
        self.find_work(buffer);
        self.emit(buffer, thread, around, out);
        buffer.items.clear();
        buffer.annotations.clear();
    }

    fn emit(
        &mut self,
        buffer: &mut StepBuffer,
        thread: &Arc<ThreadInfo>,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        let first = &buffer.items[self.scratch.order[0] as usize];
        let trace = trace_of(first, around.shared);
        out.batch.spans.reserve(buffer.items.len());
        for position in 0..self.scratch.order.len() {
            let i = self.scratch.order[position];
            let item = buffer.items[i as usize];
            let mut annotation = buffer.annotation(i);
            if let Some(work) = self.scratch.work.get(position).filter(|work| !work.is_empty()) {
                // What the program states takes precedence, also for element type and shape.
                let mut all = *work;
                all.merge(&annotation.unwrap_or_default());
                annotation = Some(all);
            }
            if let Parent::At(parent) = self.scratch.parents[position]
                && buffer.items[self.scratch.order[parent as usize] as usize].end < item.end
            {
                self.outlived_parent += 1;
            }
            if let Some(a) = &annotation {
                buffer.done.add(a);
            }
            let path = self.scratch.paths[position].clone();
            buffer.done.intervals += 1;
            buffer.done.model_intervals += u64::from(!is_helper(&path));
            self.push_span(&item, annotation, path, trace, thread, around, out);
        }
    }

    fn resolve_alone(
        &mut self,
        item: RawInterval,
        annotation: Option<Annotation>,
        thread: &Arc<ThreadInfo>,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        let name = self.name(item.name, around);
        let path = if item.step == NO_STEP {
            self.paths.child(None, item.name, &name, UNIQUE)
        } else {
            self.orphans += 1;
            self.outlived_parent += 1;
            let lost = self.paths.lost();
            self.paths.child(Some(&lost), item.name, &name, UNIQUE)
        };
        let trace = trace_of(&item, around.shared);
        // A range that ended here may have begun on another thread.
        let began_on = self.threads.of(item.seq).cloned();
        let thread = began_on.as_ref().unwrap_or(thread);
        self.push_span(&item, annotation, path, trace, thread, around, out);
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one call per record; a struct would be filled and taken apart at once"
    )]
    fn push_span(
        &mut self,
        item: &RawInterval,
        annotation: Option<Annotation>,
        path: Arc<PathInfo>,
        trace_id: TraceId,
        thread: &Arc<ThreadInfo>,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        if is_helper(&path) {
            self.helper_spans += 1;
        } else {
            self.model_spans += 1;
        }
        let start = around.mapper.to_host(item.start);
        let end = around.mapper.to_host(item.end);
        let a = annotation.unwrap_or_default();
        let mut span = SpanRecord::new(
            item.seq,
            trace_id,
            around.shared.span_id(item.seq),
            path,
            thread.clone(),
            start,
            end.since(start),
        );
        span.parent_seq = (item.parent != 0).then_some(item.parent);
        span.step = (item.step != NO_STEP).then_some(item.step);
        span.phase = item.phase();
        span.depth = item.depth;
        span.flops = a.get_flops();
        span.bytes = a.get_bytes();
        span.tokens = a.get_tokens();
        span.context_len = a.get_context_len();
        span.batch = a.get_batch();
        span.dtype = a.get_dtype();
        span.shape = a.get_shape();
        span.flops_executed = a.get_flops_executed();
        span.io_bytes = a.get_io_bytes();
        span.payload = a.get_payload();
        out.batch.spans.push(span);
        out.note(item, thread.index);
    }

    fn finish_step(
        &mut self,
        root: &RawInterval,
        annotation: Option<Annotation>,
        buffer: &mut StepBuffer,
        thread: &Arc<ThreadInfo>,
        around: &ResolveContext<'_>,
        out: &mut ResolvedRecords,
    ) {
        let name = self.name(root.name, around);
        let start = around.mapper.to_host(root.start);
        let dur = around.mapper.to_host(root.end).since(start);
        self.steps += 1;
        self.steps_captured += u64::from(root.flags & flag::CAPTURED != 0);
        // A step inside another one is part of that one's time.
        if root.flags & flag::NESTED_STEP == 0 {
            self.step_ns += dur;
            match &mut self.in_place {
                // The recorder of kernels slows these steps down, which is not a cost that every step has.
                Some(in_place) if root.flags & flag::KERNELS != 0 => {
                    in_place.with_kernels(thread.index, root.name, dur)
                }
                Some(in_place) => in_place.recorded(thread.index, root.name, dur),
                None => {}
            }
        }
        // Sampling does not run a model.
        if root.phase().is_some_and(|phase| phase != Phase::Sample) {
            self.phase_steps += 1;
            self.hollow_phase_steps += u64::from(buffer.done.model_intervals == 0);
        }
        let a = annotation.unwrap_or_default();
        let mut record = StepRecord::new(
            root.step,
            root.seq,
            trace_of(root, around.shared),
            self.paths.child(None, root.name, &name, UNIQUE),
            thread.clone(),
            start,
            dur,
        );
        record.phase = root.phase();
        record.request = (root.request != 0).then_some(u64::from(root.request));
        record.serves = Served::merged(std::mem::take(&mut buffer.serves));
        record.tokens = a.get_tokens();
        record.context_len = a.get_context_len();
        record.batch = a.get_batch();
        record.flops = buffer.done.flops.filter(|_| !buffer.done.work_missing);
        record.bytes = buffer.done.bytes.filter(|_| !buffer.done.work_missing);
        record.intervals = buffer.done.intervals;
        record.intervals_lost = Some(root.lost.into());
        record.unrecorded = Some(std::mem::take(&mut self.unrecorded));
        record.new_tokens = a.get_new_tokens();
        record.context_sum = a.get_context_sum();
        record.sequences = a.get_sequences();
        record.ran = a.get_ran();
        record.flops_executed =
            buffer.done.any_executed.then_some(buffer.done.flops_executed).filter(|_| !buffer.done.work_missing);
        record.io_bytes = buffer.done.io_bytes.filter(|_| !buffer.done.io_missing && !buffer.done.work_missing);
        if record.is_application() {
            self.application_steps += 1;
            // Threads are resolved one after the other.
            let first = self.application_step.filter(|(step, _)| *step < root.step);
            self.application_step = Some(first.unwrap_or((root.step, root.name)));
        }
        out.batch.steps.push(record);
    }

    /// The cost of recording, as plain steps show it.
    pub(crate) fn in_place(&mut self, around: &ResolveContext<'_>) -> Option<crate::run::InPlaceOverhead> {
        self.in_place_by(around, |in_place, name| in_place.overhead(name))
    }

    /// The same of the last steps alone.
    pub(crate) fn in_place_lately(&mut self, around: &ResolveContext<'_>) -> Option<crate::run::InPlaceOverhead> {
        self.in_place_by(around, |in_place, name| in_place.lately(name))
    }

    /// A thread has ended, and all that it wrote has been resolved.
    pub(crate) fn thread_ended(&mut self, thread: u32) {
        self.threads.has_ended(thread);
        if let Some(in_place) = &mut self.in_place {
            in_place.thread_ended(thread);
        }
    }

    fn in_place_by(
        &mut self,
        around: &ResolveContext<'_>,
        of: impl Fn(&InPlace, &dyn Fn(u32) -> String) -> Option<crate::run::InPlaceOverhead>,
    ) -> Option<crate::run::InPlaceOverhead> {
        let in_place = self.in_place.as_ref()?;
        around.shared.names.extend(&mut self.names);
        // Layers that are steps of their own are told by their modules, all of a kind as one.
        let name = |name| {
            self.names.get(name as usize).map_or_else(
                || "(other)".into(),
                |n: &Arc<NameInfo>| {
                    let module = n.module.as_ref().and_then(|slot| slot.get());
                    PathInfo::rollup_of(&n.name, module.map(|module| &*module.name))
                },
            )
        };
        let left_plain = around.shared.probe.as_ref().map_or(0, |probe| probe.plain());
        of(in_place, &name).map(|found| crate::run::InPlaceOverhead { left_plain, ..found })
    }

    /// The share of recorded steps whose kernels were recorded; 0 if that is not counted.
    pub(crate) fn window_share(&self) -> f64 {
        self.in_place.as_ref().map_or(0.0, InPlace::window_share)
    }

    fn name(&mut self, id: u32, around: &ResolveContext<'_>) -> Arc<NameInfo> {
        if id as usize >= self.names.len() {
            around.shared.names.extend(&mut self.names);
            self.modules = self.names.iter().any(|name| name.module.is_some());
        }
        let known = self.names.get(id as usize).or_else(|| self.names.get(OTHER as usize));
        // Names are interned before any record carries their number, so there is always one.
        known.cloned().unwrap_or_else(|| Arc::new(NameInfo::of_ours("(other)")))
    }
}

/// Whether the span is one of the LLM helpers'.
fn is_helper(path: &PathInfo) -> bool {
    &*path.target == crate::llm::TARGET
}

fn trace_of(item: &RawInterval, shared: &SessionState) -> TraceId {
    match (item.request, item.step) {
        (0, NO_STEP) => shared.range_trace(item.seq),
        (0, step) => shared.step_trace(step),
        (request, _) => shared.request_trace(request),
    }
}
