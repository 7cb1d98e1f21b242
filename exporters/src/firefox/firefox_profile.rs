//! Batches → a profile. Pure.

use super::category::{Categories, Category};
use crate::call_stacks::{CallStacks, Tids};
use candlescope_core::run::{RunManifest, env_key, model_key};
use candlescope_core::{Batch, HostNs, KERNEL_FRAME, SpanRecord, StackSampleRecord, ThreadInfo, ThreadState};
use fxprof_processed_profile::{
    CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags, MarkerFieldFormat,
    MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp, WeightType,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Intervals that become markers.
///
/// Overload policy: the first ones are kept, as the viewer cannot show more, and the others are counted.
const MOST_INTERVALS: u64 = 1_000_000;

/// Threads that are named by their intervals only begin here, above any number of the system's.
const UNSAMPLED: u64 = 1 << 23;

/// Counts of what [`write`](super::write) put into a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProfileCounts {
    /// Samples of threads on a CPU.
    pub samples: u64,
    /// Times off the CPU.
    pub off_cpu: u64,
    /// Intervals with a time on the host that became markers, a million at most.
    pub intervals: u64,
    /// Intervals beyond the million that the viewer can show.
    pub intervals_left_out: u64,
    /// Threads with a sample, a time off the CPU or an interval among these.
    pub threads: u64,
}

/// Converts the batches of one run.
#[derive(Debug)]
pub(super) struct Firefox {
    profile: Profile,
    process: ProcessHandle,
    pid: u64,
    /// Unix time that is zero in the profile.
    origin: Option<i64>,
    categories: Categories,
    stacks: CallStacks,
    tids: Tids,
    /// By the operating system's number.
    threads: HashMap<u64, Thread>,
    written: ProfileCounts,
}

#[derive(Debug)]
struct Thread {
    handle: ThreadHandle,
    /// What the library calls the stacks of a run.
    stacks: HashMap<u64, StackHandle>,
    /// CPU time that was too short for a weight so far, nanoseconds.
    carried_ns: u64,
}

impl Firefox {
    pub(super) fn new(run: &RunManifest) -> Self {
        let hz = env_key::STACKS_HZ.of(&run.environment).filter(|hz| (1..=1_000_000).contains(hz));
        let interval = SamplingInterval::from_nanos(hz.map_or(1_000_000, |hz| 1_000_000_000 / hz));
        let name = match model_key::NAME.of(&run.model) {
            Some(model) => format!("candlescope {model}"),
            None => format!("candlescope {}", run.run_id),
        };
        let origin = Some(run.started_ns).filter(|ns| *ns > 0);
        let mut profile = Profile::new(&name, reference(origin), interval);
        // Names of functions are in the profile: the viewer need not ask for them.
        profile.set_symbolicated(true);
        let pid = env_key::PID.of(&run.environment).unwrap_or(1);
        let process = profile.add_process(&name, narrow(pid), Timestamp::from_nanos_since_reference(0));
        let categories = Categories::new(&mut profile);
        Self {
            profile,
            process,
            pid,
            origin,
            categories,
            stacks: CallStacks::default(),
            tids: Tids::default(),
            threads: HashMap::new(),
            written: ProfileCounts::default(),
        }
    }

    pub(super) fn batch(&mut self, batch: &Batch) {
        let first = batch.stack_samples.iter().map(|sample| sample.time.0);
        self.origin = self.origin.or_else(|| first.chain(batch.spans.iter().map(|span| span.host_start.0)).min());
        self.stacks.add(&batch.stacks);
        for sample in &batch.stack_samples {
            self.tids.add(sample);
            match sample.state {
                ThreadState::Running => self.sample(sample),
                ThreadState::Blocked | ThreadState::Preempted => self.off_cpu(sample),
            }
        }
        batch.spans.iter().for_each(|span| self.interval(span));
    }

    pub(super) fn end(mut self) -> (Profile, ProfileCounts) {
        self.profile.set_reference_timestamp(reference(self.origin));
        self.written.threads = self.threads.len() as u64;
        (self.profile, self.written)
    }

    fn time(&self, at: HostNs) -> Timestamp {
        let since = at.0.saturating_sub(self.origin.unwrap_or(0));
        Timestamp::from_nanos_since_reference(u64::try_from(since).unwrap_or(0))
    }

    fn timing(&self, start: HostNs, ns: u64) -> MarkerTiming {
        MarkerTiming::Interval(self.time(start), self.time(start.plus_ns(ns)))
    }

    fn sample(&mut self, sample: &StackSampleRecord) {
        self.written.samples += 1;
        let thread = self.thread(sample.tid, &sample.thread);
        let stack = self.stack(sample, sample.kernel == Some(true));
        let at = self.time(sample.time);
        let weight = self.threads.get_mut(&sample.tid).map_or(0, |thread| {
            let ns = sample.weight_ns.saturating_add(thread.carried_ns);
            thread.carried_ns = ns % 1_000;
            i32::try_from(ns / 1_000).unwrap_or(i32::MAX)
        });
        self.profile.add_sample(thread, at, stack, CpuDelta::from_nanos(sample.weight_ns), weight);
    }

    fn off_cpu(&mut self, sample: &StackSampleRecord) {
        self.written.off_cpu += 1;
        let thread = self.thread(sample.tid, &sample.thread);
        let stack = self.stack(sample, false);
        let path = sample.path.as_ref().map_or("", |path| &path.path);
        let marker = Marker::<OffCpu> {
            name: self.profile.intern_string(sample.state.as_str()),
            category: self.categories.off_cpu,
            fields: [path, "", sample.phase.map_or("", |phase| phase.as_str()), &number(sample.step)]
                .map(|text| self.profile.intern_string(text)),
            kind: std::marker::PhantomData,
        };
        let timing = self.timing(sample.time, sample.weight_ns);
        let marker = self.profile.add_marker(thread, timing, marker);
        self.profile.set_marker_stack(thread, marker, stack);
    }

    fn interval(&mut self, span: &SpanRecord) {
        let Some((start, dur_ns)) = span.host_time() else { return };
        if self.written.intervals >= MOST_INTERVALS {
            self.written.intervals_left_out += 1;
            return;
        }
        self.written.intervals += 1;
        let tid = self.tids.of(span).unwrap_or(UNSAMPLED + u64::from(span.thread.index));
        let thread = self.thread(tid, &span.thread);
        let module = span.path.module.as_deref().unwrap_or("");
        let marker = Marker::<Interval> {
            name: self.profile.intern_string(&span.path.name),
            category: self.categories.intervals,
            fields: [
                span.path.path.as_str(),
                module,
                span.phase.map_or("", |phase| phase.as_str()),
                &number(span.step),
            ]
            .map(|text| self.profile.intern_string(text)),
            kind: std::marker::PhantomData,
        };
        let timing = self.timing(start, dur_ns);
        self.profile.add_marker(thread, timing, marker);
    }

    fn thread(&mut self, tid: u64, info: &Arc<ThreadInfo>) -> ThreadHandle {
        if let Some(thread) = self.threads.get(&tid) {
            return thread.handle;
        }
        let start = Timestamp::from_nanos_since_reference(0);
        let handle = self.profile.add_thread(self.process, narrow(tid), start, tid == self.pid);
        self.profile.set_thread_name(handle, &info.name);
        self.profile.set_thread_samples_weight_type(handle, WeightType::TracingMs);
        self.profile.set_thread_show_markers_in_timeline(handle, true);
        self.threads.insert(tid, Thread { handle, stacks: HashMap::new(), carried_ns: 0 });
        handle
    }

    /// The stack of a sample whose thread is known, made from the outermost frame on.
    fn stack(&mut self, sample: &StackSampleRecord, in_kernel: bool) -> Option<StackHandle> {
        let thread = self.threads.get_mut(&sample.tid)?;
        let (mut new, mut at) = (Vec::new(), None);
        for frame in sample.stack.into_iter().flat_map(|stack| self.stacks.outwards(stack)) {
            at = thread.stacks.get(&frame.stack).copied();
            if at.is_some() {
                break;
            }
            new.push(frame);
        }
        for frame in new.into_iter().rev() {
            let category = self.categories.of(frame, &mut self.profile);
            let stack = push(&mut self.profile, thread.handle, at, &frame.name(), category);
            thread.stacks.insert(frame.stack, stack);
            at = Some(stack);
        }
        if in_kernel && at.is_some() {
            let category = self.categories.get(Category::Kernel).into();
            at = Some(push(&mut self.profile, thread.handle, at, KERNEL_FRAME, category));
        }
        at
    }
}

/// A stack with one more function inside.
fn push(
    profile: &mut Profile,
    thread: ThreadHandle,
    caller: Option<StackHandle>,
    name: &str,
    category_pair: CategoryPairHandle,
) -> StackHandle {
    let frame = Frame::Label(profile.intern_string(name));
    let frame = profile.intern_frame(thread, FrameInfo { frame, category_pair, flags: FrameFlags::empty() });
    profile.intern_stack(thread, caller, frame)
}

fn reference(origin: Option<i64>) -> ReferenceTimestamp {
    ReferenceTimestamp::from_millis_since_unix_epoch(origin.unwrap_or(0) as f64 / 1e6)
}

/// Numbers of processes and threads have 32 bits in the library, and fewer on Linux.
fn narrow(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}

fn number(step: Option<u64>) -> String {
    step.map_or(String::new(), |step| step.to_string())
}

/// A kind of markers, which tells only the names of its fields and how it is shown.
trait Kind {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
}

/// An interval of the run.
#[derive(Debug)]
enum Interval {}

/// Time of a thread off the CPU.
#[derive(Debug)]
enum OffCpu {}

impl Kind for Interval {
    const NAME: &'static str = "Interval";
    const DESCRIPTION: &'static str = "An interval: a span between enter and exit.";
}

impl Kind for OffCpu {
    const NAME: &'static str = "OffCpu";
    const DESCRIPTION: &'static str =
        "Time of the thread off the CPU: blocked, as it waited, or preempted, as another thread had the CPU.";
}

#[derive(Debug)]
struct Marker<K> {
    name: StringHandle,
    category: CategoryHandle,
    /// As in `FIELDS`.
    fields: [StringHandle; 4],
    kind: std::marker::PhantomData<K>,
}

const fn field(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format: MarkerFieldFormat::String, flags: MarkerFieldFlags::SEARCHABLE }
}

impl<K: Kind> StaticSchemaMarker for Marker<K> {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = K::NAME;
    const DESCRIPTION: Option<&'static str> = Some(K::DESCRIPTION);
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.path}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.path}");
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("path", "Path"), field("module", "Module"), field("phase", "Phase"), field("step", "Step")];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field: u32) -> StringHandle {
        self.fields.get(field as usize).copied().unwrap_or(self.name)
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}
