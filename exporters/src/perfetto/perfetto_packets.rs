//! Batches → Perfetto packets. Pure.

use super::arrows::Arrows;
use super::interned_stacks::InternedStacks;
use super::interner::Interner;
use super::proto::*;
use super::thread_states::ThreadStates;
use crate::call_stacks::{CallStacks, Tids};
use crate::kernel_tracks::{self, CallPlace, KernelTracks, kernel_name, kernel_numbers, kernel_words, span_numbers};
use crate::nesting::{CrossingTracks, Edge, crossing, edges};
use crate::step_runs::StepRuns;
use crate::trace_file::{LiveFormat, TraceFormat};
use candlescope_core::run::{RunManifest, env_key, model_key};
use candlescope_core::{
    Batch, KernelRecord, RequestRecord, SampleRecord, SpanRecord, StackSampleRecord, ThreadInfo, ThreadState, thread_of,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Converts the batches of one run.
#[derive(Debug)]
pub struct Perfetto {
    process_name: String,
    pid: i32,
    started_ns: i64,
    /// Base of all track ids, so that traces of several ranks can be concatenated.
    base: u64,
    sequence: u32,
    /// Whether the next packet resets the incremental state.
    clear: bool,
    names: Interner,
    categories: Interner,
    arguments: Interner,
    strings: Interner,
    /// Texts introduced since the last packet.
    fresh: InternedData,
    tracks: HashSet<u64>,
    counters: HashMap<(Arc<str>, &'static str), u64>,
    kernels: KernelTracks,
    arrows: Arrows,
    runs: StepRuns,
    crossing: CrossingTracks,
    /// Product names by UUID.
    gpus: HashMap<String, (u64, String)>,
    /// Offset of each device's track of streams, by UUID.
    devices: HashMap<Arc<str>, u64>,
    /// Offset of each thread's track, by the thread's number.
    threads: HashMap<u64, u64>,
    /// Offset of the track of each thread whose launch calls came before its intervals.
    called: HashMap<u64, u64>,
    stacks: CallStacks,
    interned_stacks: InternedStacks,
    states: ThreadStates,
    tids: Tids,
    /// Offset of each thread's track, by the operating system's number of the thread.
    by_tid: HashMap<u64, u64>,
    /// CPU time of all samples so far.
    sampled_ns: u64,
}

/// Offsets of track ids from the base.
const PROCESS: u64 = 1;
const THREADS: u64 = 1 << 8;
const GPU: u64 = 1 << 24;
const COUNTERS: u64 = 1 << 28;
const REQUESTS: u64 = 1 << 32;
/// Threads that are known by their samples only, so far.
const SAMPLED: u64 = 1 << 22;
/// Threads that are known by their launch calls only, so far.
const UNNAMED: u64 = 1 << 23;
const CALLS: u64 = 1 << 25;
const DEVICES: u64 = 1 << 26;
const STREAMS: u64 = 1 << 27;
/// Launch calls outside every interval.
const OUTSIDE: u64 = 1 << 33;
/// What threads do, each beside its thread's intervals.
const STATES: u64 = 1 << 34;
/// Ranges by start and end, of which the viewer shows all tracks as one.
const CROSSING: u64 = 1 << 35;

impl TraceFormat for Perfetto {
    const FOOTER: &'static [u8] = b"";

    fn new(run: &RunManifest) -> Self {
        let pid = env_key::PID.of(&run.environment);
        let name = model_key::NAME.of(&run.model).unwrap_or(&run.run_id);
        Self {
            process_name: match run.world_size {
                Some(_) => format!("candlescope {name} rank {}", run.rank),
                None => format!("candlescope {name}"),
            },
            pid: pid.and_then(|p| i32::try_from(p).ok()).unwrap_or(1),
            started_ns: run.started_ns,
            base: (u64::from(run.rank) + 1) << 40,
            sequence: run.rank.saturating_add(1),
            clear: true,
            names: Interner::default(),
            categories: Interner::default(),
            arguments: Interner::default(),
            strings: Interner::default(),
            fresh: InternedData::default(),
            tracks: HashSet::new(),
            counters: HashMap::new(),
            kernels: KernelTracks::default(),
            arrows: Arrows::default(),
            runs: StepRuns::default(),
            crossing: CrossingTracks::default(),
            gpus: kernel_tracks::gpus(run),
            devices: HashMap::new(),
            threads: HashMap::new(),
            called: HashMap::new(),
            stacks: CallStacks::default(),
            interned_stacks: InternedStacks::default(),
            states: ThreadStates::default(),
            tids: Tids::default(),
            by_tid: HashMap::new(),
            sampled_ns: 0,
        }
    }

    fn header(&mut self, out: &mut Vec<u8>) {
        // Timestamps are Unix time. The snapshot says so, and the viewer can then show the time of day.
        if let Ok(now) = u64::try_from(self.started_ns) {
            let clock = |id| Clock { clock_id: Some(id), timestamp: Some(now) };
            let snapshot = ClockSnapshot {
                clocks: vec![clock(CLOCK_REALTIME), clock(CLOCK_BOOTTIME)],
                primary_trace_clock: Some(CLOCK_BOOTTIME),
            };
            self.packet(
                out,
                TracePacket { clock_snapshot: Some(snapshot), timestamp: Some(now), ..TracePacket::default() },
            );
        }
        self.process(out);
    }

    fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        self.process(out);
        self.arrows.add(batch);
        self.runs.add(batch);
        self.stacks.add(&batch.stacks);
        batch.stack_samples.iter().for_each(|sample| self.tids.add(sample));
        self.slices(batch, out, None);
        if batch.spans.iter().any(|s| s.gpu.is_some()) {
            self.slices(batch, out, Some("GPU"));
        }
        self.runs.drawn(batch);
        crossing(&batch.spans).for_each(|range| self.range(range, out));
        batch.requests.iter().for_each(|request| self.request(request, out));
        batch.samples.iter().for_each(|sample| self.sample(sample, out));
        KernelTracks::in_order(batch).into_iter().for_each(|at| self.kernel(at, &batch.kernels[at], out));
        self.thread_states(&batch.stack_samples, out);
        batch.stack_samples.iter().for_each(|sample| self.stack_sample(sample, out));
    }
}

impl LiveFormat for Perfetto {
    const NAME: &'static str = "perfetto";

    fn forget(&mut self) {
        self.clear = true;
        self.fresh = InternedData::default();
        for interner in [&mut self.names, &mut self.categories, &mut self.arguments, &mut self.strings] {
            *interner = Interner::default();
        }
        self.interned_stacks = InternedStacks::default();
        self.tracks.clear();
    }
}

impl Perfetto {
    fn packet(&mut self, out: &mut Vec<u8>, mut packet: TracePacket) {
        packet.trusted_packet_sequence_id = Some(self.sequence);
        packet.sequence_flags = Some(if std::mem::take(&mut self.clear) { STATE_CLEARED } else { NEEDS_STATE });
        let fresh = std::mem::take(&mut self.fresh);
        packet.interned_data = (fresh != InternedData::default()).then_some(fresh);
        put_packet(out, &packet);
    }

    /// Describes a track the first time it is used.
    fn track(&mut self, out: &mut Vec<u8>, offset: u64, descriptor: impl FnOnce(&Self) -> TrackDescriptor) -> u64 {
        let uuid = self.base + offset;
        if self.tracks.insert(uuid) {
            let descriptor = TrackDescriptor { uuid: Some(uuid), ..descriptor(self) };
            self.packet(out, TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() });
        }
        uuid
    }

    fn process(&mut self, out: &mut Vec<u8>) {
        self.track(out, PROCESS, |this| TrackDescriptor {
            process: Some(ProcessDescriptor { pid: Some(this.pid), process_name: Some(this.process_name.clone()) }),
            ..TrackDescriptor::default()
        });
    }

    fn thread(&mut self, out: &mut Vec<u8>, span: &SpanRecord, device: Option<&str>) -> u64 {
        let thread = &span.thread;
        let index = u64::from(thread.index);
        let tid = self.tids.of(span);
        let sampled = tid.and_then(|tid| self.by_tid.get(&tid)).copied();
        // If its launch calls came first, they hang below this track.
        let own = self.called.get(&thread_of(span.seq)).copied().or(sampled).unwrap_or(THREADS + index);
        self.threads.insert(thread_of(span.seq), own);
        if let Some(tid) = tid {
            self.by_tid.entry(tid).or_insert(own);
        }
        match device {
            Some(device) => self.track(out, GPU + index, |this| TrackDescriptor {
                name: Some(format!("{device}: stream of {}", thread.name)),
                parent_uuid: Some(this.base + PROCESS),
                ..TrackDescriptor::default()
            }),
            // Intervals of a run read from disk do not have the system's thread ids.
            None => self.thread_track(out, own, tid.unwrap_or(1000 + index), thread),
        }
    }

    fn thread_track(&mut self, out: &mut Vec<u8>, offset: u64, tid: u64, thread: &ThreadInfo) -> u64 {
        self.track(out, offset, |this| TrackDescriptor {
            parent_uuid: Some(this.base + PROCESS),
            thread: Some(ThreadDescriptor {
                pid: Some(this.pid),
                tid: Some(tid as i64),
                thread_name: Some(thread.name.to_string()),
            }),
            ..TrackDescriptor::default()
        })
    }

    /// The track of a sample's thread.
    fn thread_of_sample(&mut self, out: &mut Vec<u8>, tid: u64, thread: &ThreadInfo) -> u64 {
        let next = SAMPLED + self.by_tid.len() as u64;
        let offset = *self.by_tid.entry(tid).or_insert(next);
        self.thread_track(out, offset, tid, thread);
        offset
    }

    /// When threads ran, waited or had no CPU, each on a track below its thread's.
    fn thread_states(&mut self, samples: &[StackSampleRecord], out: &mut Vec<u8>) {
        let threads: HashMap<u64, &ThreadInfo> = samples.iter().map(|s| (s.tid, &*s.thread)).collect();
        for stretch in self.states.take(samples) {
            let Some(thread) = threads.get(&stretch.tid) else { continue };
            let parent = self.thread_of_sample(out, stretch.tid, thread);
            let track = self.track(out, STATES + parent, |this| TrackDescriptor {
                name: Some("thread state".to_string()),
                parent_uuid: Some(this.base + parent),
                ..TrackDescriptor::default()
            });
            let mut event = self.begin_named(stretch.state.as_str(), "thread_state", track);
            if let Some(sample) = stretch.sample {
                let function = sample.stack.and_then(|stack| self.stacks.get(stack)).map(|frame| frame.name());
                let arguments = &mut event.debug_annotations;
                arguments.extend(function.map(|name| self.interned("function", &name)));
                arguments.extend(sample.path.as_ref().map(|path| self.interned("path", &path.path)));
            }
            self.event(out, stretch.start, event);
            self.end(out, stretch.end, track);
        }
    }

    /// A sample of a thread on a CPU, with its stack.
    fn stack_sample(&mut self, sample: &StackSampleRecord, out: &mut Vec<u8>) {
        if sample.state != ThreadState::Running {
            return;
        }
        self.thread_of_sample(out, sample.tid, &sample.thread);
        self.sampled_ns = self.sampled_ns.saturating_add(sample.weight_ns);
        let in_kernel = sample.kernel == Some(true);
        let callstack_iid =
            sample.stack.and_then(|stack| self.interned_stacks.get(&self.stacks, stack, in_kernel, &mut self.fresh));
        let perf_sample = PerfSample {
            pid: u32::try_from(self.pid).ok(),
            tid: u32::try_from(sample.tid).ok(),
            callstack_iid,
            cpu_mode: sample.kernel.map(|_| if in_kernel { MODE_KERNEL } else { MODE_USER }),
            timebase_count: Some(self.sampled_ns),
        };
        let timestamp = Some(u64::try_from(sample.time.0).unwrap_or(0));
        self.packet(out, TracePacket { timestamp, perf_sample: Some(perf_sample), ..TracePacket::default() });
    }

    /// A range by start and end.
    fn range(&mut self, range: &SpanRecord, out: &mut Vec<u8>) {
        let (start, end) = (range.host_start, range.host_start.plus_ns(range.host_dur_ns));
        let at = self.crossing.track(start.0, end.0) as u64;
        let track = self.track(out, CROSSING + at, |this| TrackDescriptor {
            name: Some("ranges by start and end".to_string()),
            parent_uuid: Some(this.base + PROCESS),
            ..TrackDescriptor::default()
        });
        let event = self.begin(range, track);
        self.event(out, start.0, event);
        self.end(out, end.0, track);
    }

    fn slices(&mut self, batch: &Batch, out: &mut Vec<u8>, device: Option<&str>) {
        let edges = match device {
            Some(_) => edges(&batch.spans, |s| s.gpu.map(|g| (g.start.0, g.dur_ns))),
            None => edges(&batch.spans, |s| s.host_time().map(|(start, ns)| (start.0, ns))),
        };
        for edge in edges {
            match edge {
                Edge::Begin { index, start, .. } => {
                    let span = &batch.spans[index];
                    let track = self.thread(out, span, device);
                    let mut event = self.begin(span, track);
                    if device.is_none() {
                        let arrows = self.arrows.of_interval(span.seq);
                        event.flow_ids = self.flows(arrows);
                    }
                    self.event(out, start, event);
                }
                Edge::End { index, end } => {
                    let track = self.thread(out, &batch.spans[index], device);
                    self.end(out, end, track);
                }
            }
        }
    }

    fn event(&mut self, out: &mut Vec<u8>, time: i64, event: TrackEvent) {
        let timestamp = Some(u64::try_from(time).unwrap_or(0));
        self.packet(out, TracePacket { timestamp, track_event: Some(event), ..TracePacket::default() });
    }

    fn begin(&mut self, span: &SpanRecord, track: u64) -> TrackEvent {
        let mut event = self.begin_named(&span.path.name, &span.path.target, track);
        let arguments = &mut event.debug_annotations;
        arguments.push(self.interned("path", &span.path.path));
        arguments.extend(span.path.module.as_ref().map(|module| self.interned("module", module)));
        arguments.push(self.number("seq", span.seq));
        arguments.extend(span.phase.map(|p| self.interned("phase", p.as_str())));
        arguments.extend(self.runs.of(span.seq).map(|ran| self.interned("ran", ran)));
        arguments.extend(span.dtype.map(|d| self.interned("dtype", d.as_str())));
        arguments.extend(span.shape.map(|s| self.interned("shape", &s.to_string())));
        for (name, value) in span_numbers(span) {
            arguments.extend(value.map(|v| self.number(name, v)));
        }
        let payload = |value| DebugAnnotation { double_value: Some(value), ..self.argument("payload") };
        arguments.extend(span.payload.map(payload));
        if span.depth == 0 {
            arguments.push(self.text("trace_id", span.trace_id.to_string()));
        }
        event
    }

    /// Numbers of arrows in the file, so that traces of several ranks can be concatenated.
    fn flows(&self, arrows: impl IntoIterator<Item = u64>) -> Vec<u64> {
        arrows.into_iter().map(|arrow| arrow ^ self.base.rotate_left(12)).collect()
    }

    /// A kernel on the track of its stream, its call on a track below its thread's, and an arrow between them. `at` is
    /// the kernel's index in its batch.
    fn kernel(&mut self, at: usize, kernel: &KernelRecord, out: &mut Vec<u8>) {
        if let Some(call) = self.kernels.new_call(kernel) {
            let (offset, parent) = match call.place {
                CallPlace::Thread(thread) => {
                    let known = self.threads.get(&thread).copied();
                    let parent = known.unwrap_or_else(|| *self.called.entry(thread).or_insert(UNNAMED + thread));
                    (CALLS + thread, parent)
                }
                CallPlace::Outside(lane) => (OUTSIDE + lane, PROCESS),
            };
            // Not among the intervals: by the error of the clocks a call could reach out of its interval there.
            let track = self.track(out, offset, |this| TrackDescriptor {
                name: Some(call.place.name()),
                parent_uuid: Some(this.base + parent),
                ..TrackDescriptor::default()
            });
            let mut event = self.begin_named(call.name, "launch", track);
            event.debug_annotations.push(self.number("correlation", u64::from(kernel.correlation)));
            let arrows = self.arrows.of_call(kernel);
            event.flow_ids = self.flows(arrows);
            self.event(out, call.start.0, event);
            self.end(out, call.start.plus_ns(call.ns).0, track);
        }
        let place = self.kernels.place(kernel);
        let next = self.devices.len() as u64;
        let device = DEVICES + *self.devices.entry(kernel.device.clone()).or_insert(next);
        let parent = self.track(out, device, |this| TrackDescriptor {
            name: Some(match this.gpus.get(&*kernel.device) {
                Some((number, name)) => format!("GPU {number} {name}"),
                None => kernel.device.to_string(),
            }),
            parent_uuid: Some(this.base + PROCESS),
            ..TrackDescriptor::default()
        });
        let more = if place.lane > 0 { " (overlapping)" } else { "" };
        let track = self.track(out, STREAMS + place.number, |_| TrackDescriptor {
            name: Some(format!("stream {}{more}", kernel.stream)),
            parent_uuid: Some(parent),
            ..TrackDescriptor::default()
        });
        let mut event = self.begin_named(&kernel_name(kernel), kernel.kind.as_str(), track);
        event.flow_ids = self.flows(self.arrows.of_kernel(at, kernel));
        let arguments = &mut event.debug_annotations;
        for (name, word) in kernel_words(kernel) {
            arguments.extend(word.map(|word| self.interned(name, &word)));
        }
        for (name, value) in kernel_numbers(kernel) {
            arguments.extend(value.map(|value| self.number(name, value)));
        }
        self.event(out, kernel.gpu_start.0, event);
        self.end(out, kernel.gpu_start.plus_ns(kernel.gpu_dur_ns).0, track);
    }

    fn begin_named(&mut self, name: &str, category: &str, track: u64) -> TrackEvent {
        TrackEvent {
            r#type: Some(SLICE_BEGIN),
            track_uuid: Some(track),
            name_iid: Some(self.name(name)),
            category_iids: vec![self.category(category)],
            ..TrackEvent::default()
        }
    }

    fn end(&mut self, out: &mut Vec<u8>, time: i64, track: u64) {
        let end = TrackEvent { r#type: Some(SLICE_END), track_uuid: Some(track), ..TrackEvent::default() };
        self.event(out, time, end);
    }

    fn request(&mut self, request: &RequestRecord, out: &mut Vec<u8>) {
        // Requests overlap: each has a track of its own, and the viewer merges tracks with the same name that do not
        // overlap.
        let track = self.track(out, REQUESTS + (request.request & 0xffff_ffff), |this| TrackDescriptor {
            name: Some("requests".to_string()),
            parent_uuid: Some(this.base + PROCESS),
            ..TrackDescriptor::default()
        });
        let mut event = TrackEvent {
            r#type: Some(SLICE_BEGIN),
            track_uuid: Some(track),
            name_iid: Some(self.name(&format!("{} {}", request.operation, request.model))),
            ..TrackEvent::default()
        };
        let arguments = &mut event.debug_annotations;
        arguments.push(self.number("request", request.request));
        arguments.push(self.text("trace_id", request.trace_id.to_string()));
        let numbers = [
            ("prompt_tokens", request.prompt_tokens),
            ("output_tokens", request.output_tokens),
            ("ttft_ns", request.ttft_ns),
            ("batch", request.batch.map(u64::from)),
        ];
        for (name, value) in numbers {
            arguments.extend(value.map(|v| self.number(name, v)));
        }
        self.event(out, request.host_start.0, event);
        self.end(out, request.host_start.plus_ns(request.host_dur_ns).0, track);
    }

    fn sample(&mut self, sample: &SampleRecord, out: &mut Vec<u8>) {
        let next = COUNTERS + self.counters.len() as u64;
        let offset = *self.counters.entry((sample.device.clone(), sample.metric)).or_insert(next);
        let track = self.track(out, offset, |this| TrackDescriptor {
            name: Some(match &*sample.device {
                "host" => sample.metric.to_string(),
                device => format!("{} {device}", sample.metric),
            }),
            parent_uuid: Some(this.base + PROCESS),
            counter: Some(match sample.unit {
                "bytes" => CounterDescriptor { unit: Some(3), unit_name: None },
                "count" => CounterDescriptor { unit: Some(2), unit_name: None },
                unit => CounterDescriptor { unit: None, unit_name: Some(unit.to_string()) },
            }),
            ..TrackDescriptor::default()
        });
        let event = TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(track),
            double_counter_value: Some(sample.value),
            ..TrackEvent::default()
        };
        self.event(out, sample.time.0, event);
    }

    fn name(&mut self, text: &str) -> u64 {
        let (iid, new) = self.names.get(text);
        if new {
            self.fresh.event_names.push(InternedText { iid: Some(iid), name: Some(text.to_string()) });
        }
        iid
    }

    fn category(&mut self, text: &str) -> u64 {
        let (iid, new) = self.categories.get(text);
        if new {
            self.fresh.event_categories.push(InternedText { iid: Some(iid), name: Some(text.to_string()) });
        }
        iid
    }

    fn argument(&mut self, name: &str) -> DebugAnnotation {
        let (iid, new) = self.arguments.get(name);
        if new {
            self.fresh.debug_annotation_names.push(InternedText { iid: Some(iid), name: Some(name.to_string()) });
        }
        DebugAnnotation { name_iid: Some(iid), ..DebugAnnotation::default() }
    }

    fn number(&mut self, name: &str, value: u64) -> DebugAnnotation {
        DebugAnnotation { uint_value: Some(value), ..self.argument(name) }
    }

    fn text(&mut self, name: &str, value: String) -> DebugAnnotation {
        DebugAnnotation { string_value: Some(value), ..self.argument(name) }
    }

    fn interned(&mut self, name: &str, value: &str) -> DebugAnnotation {
        let (iid, new) = self.strings.get(value);
        if new {
            let text = InternedBytes { iid: Some(iid), str: Some(value.as_bytes().to_vec()) };
            self.fresh.debug_annotation_string_values.push(text);
        }
        DebugAnnotation { string_value_iid: Some(iid), ..self.argument(name) }
    }
}
