//! The packets, decoded again and compared with the records.

use super::proto::*;
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, HostNs, KernelRecord, Ran, StackRecord, StackSampleRecord, ThreadInfo, ThreadState};
use candlescope_testkit::Decoder;
use candlescope_testkit::records::{T0, kernel, kernel_of};
use candlescope_testkit::with;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

#[derive(Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

fn packets(batches: &[Batch]) -> Vec<TracePacket> {
    let mut bytes = Vec::new();
    let run = RunManifest { run_id: "r".into(), started_ns: T0, ..RunManifest::default() };
    super::write(&mut bytes, &run, batches).expect("a vector takes everything");
    Trace::decode(bytes.as_slice()).expect("our own packets").packet
}

#[test]
fn traces_of_ranks_that_take_turns_in_a_file_are_there_what_they_are_alone() {
    let run = |rank| RunManifest { rank, run_id: "r".into(), started_ns: T0, ..RunManifest::default() };
    let mut source = Decoder::new(1);
    source.annotated = true;
    let batches: Vec<Batch> = (0..3).map(|_| source.decode()).collect();
    let mut bytes = Vec::new();
    let mut traces = [0, 1].map(|rank| super::PerfettoTrace::new(&run(rank)));
    for batch in &batches {
        traces.iter_mut().for_each(|trace| trace.batch(batch, &mut bytes).expect("a vector takes everything"));
    }
    traces.into_iter().for_each(|trace| drop(trace.end(&mut bytes).expect("a vector takes everything")));
    let both = Trace::decode(bytes.as_slice()).expect("our own packets").packet;
    let mut of_ranks = 0;
    for rank in [0, 1] {
        let mut bytes = Vec::new();
        super::write(&mut bytes, &run(rank), &batches).expect("a vector takes everything");
        let alone = Trace::decode(bytes.as_slice()).expect("our own packets").packet;
        let sequence = alone[0].trusted_packet_sequence_id;
        let own: Vec<_> = both.iter().filter(|packet| packet.trusted_packet_sequence_id == sequence).collect();
        assert_eq!(own, alone.iter().collect::<Vec<_>>(), "rank {rank}");
        of_ranks += own.len();
    }
    assert_eq!(of_ranks, both.len(), "each packet is of one of them");
}

#[test]
fn slices_nest_on_every_track() {
    let mut source = Decoder::new(1);
    (source.annotated, source.gpu) = (true, true);
    let batches: Vec<Batch> = (0..3).map(|_| source.decode()).collect();
    let packets = packets(&batches);
    let (mut open, mut begins) = (HashMap::<u64, Vec<u64>>::new(), 0);
    let mut last = HashMap::new();
    for packet in &packets {
        let Some(event) = &packet.track_event else { continue };
        let (track, time) = (event.track_uuid.expect("a track"), packet.timestamp.expect("a time"));
        assert!(last.insert(track, time).unwrap_or(0) <= time, "time runs backwards on track {track}");
        match event.r#type {
            Some(SLICE_BEGIN) => {
                open.entry(track).or_default().push(time);
                begins += 1;
            }
            Some(SLICE_END) => assert!(open.get_mut(&track).and_then(Vec::pop).is_some(), "an end without a begin"),
            other => panic!("unexpected event {other:?}"),
        }
    }
    assert!(open.values().all(Vec::is_empty));
    let spans: usize = batches.iter().map(|b| b.spans.len()).sum();
    assert_eq!(begins, 2 * spans, "host and device");
}

#[test]
fn names_and_arguments_resolve() {
    let mut source = Decoder::new(1);
    source.annotated = true;
    let mut batch = source.decode();
    batch.steps[0].ran = Some(Ran::Replay);
    let (mut names, mut arguments, mut strings) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut spans = batch.spans.iter();
    for (at, packet) in packets(std::slice::from_ref(&batch)).into_iter().enumerate() {
        assert_eq!(packet.sequence_flags, Some(if at == 0 { STATE_CLEARED } else { NEEDS_STATE }));
        if let Some(data) = packet.interned_data {
            names.extend(data.event_names.into_iter().map(|n| (n.iid, n.name)));
            arguments.extend(data.debug_annotation_names.into_iter().map(|n| (n.iid, n.name)));
            strings.extend(data.debug_annotation_string_values.into_iter().map(|n| (n.iid, n.str)));
        }
        let Some(event) = packet.track_event.filter(|e| e.r#type == Some(SLICE_BEGIN)) else { continue };
        let span = spans.next().expect("one slice an interval, in enter order");
        assert_eq!(names[&event.name_iid].as_deref(), Some(&*span.path.name));
        let argument =
            |name: &str| event.debug_annotations.iter().find(|a| arguments[&a.name_iid].as_deref() == Some(name));
        let path = argument("path").expect("a path").string_value_iid;
        assert_eq!(strings[&path].as_deref(), Some(span.path.path.as_bytes()));
        assert_eq!(argument("flops").and_then(|a| a.uint_value), span.flops);
        assert_eq!(argument("seq").and_then(|a| a.uint_value), Some(span.seq));
        let ran = argument("ran").and_then(|a| strings[&a.string_value_iid].as_deref());
        assert_eq!(ran, (span.seq == batch.steps[0].seq).then_some(b"replay".as_slice()));
    }
    assert!(spans.next().is_none());
}

#[test]
fn counters_and_requests_have_tracks() {
    let mut source = Decoder::new(1);
    let mut batch = source.decode();
    batch.samples = [source.samples(), source.samples()].concat();
    batch.requests = vec![source.request(1, HostNs(T0)), source.request(2, HostNs(T0 + 500))];
    let packets = packets(&[batch]);
    let tracks: Vec<_> = packets.iter().filter_map(|p| p.track_descriptor.clone()).collect();
    let named = |name: &str| tracks.iter().filter(|t| t.name.as_deref() == Some(name)).collect::<Vec<_>>();
    assert_eq!(named("requests").len(), 2, "requests overlap");
    let rss = named("process_resident_memory_bytes");
    assert_eq!(rss.len(), 1);
    assert_eq!(rss[0].counter.as_ref().and_then(|c| c.unit), Some(3));
    let values = packets.iter().filter_map(|p| p.track_event.as_ref()).filter(|e| e.r#type == Some(COUNTER)).count();
    assert_eq!(values, 4);
    assert!(
        tracks.iter().all(|t| t.process.is_some() || t.parent_uuid == tracks[0].uuid),
        "all hang below the process"
    );
}

#[test]
fn samples_have_their_stacks_and_threads_their_states() {
    let mut source = Decoder::new(1);
    let mut batch = source.decode();
    let thread = batch.spans[0].thread.clone();
    let other = Arc::new(ThreadInfo::new(0, 77, "pool"));
    let mut inner = StackRecord::new(2, Some(1), 1, "app", 0x20);
    (inner.function, inner.file, inner.line) = (Some("multiply".into()), Some("gemm.rs".into()), Some(12));
    inner.build_id = Some("0aff".into());
    batch.stacks = vec![StackRecord::new(1, None, 0, "libc.so.6", 0x10), inner];
    let sample = |thread: &Arc<ThreadInfo>, state, at: i64, ns, kernel| {
        let mut sample = StackSampleRecord::new(HostNs(T0 + at), thread.clone(), state, ns);
        (sample.stack, sample.kernel) = (Some(2), Some(kernel));
        sample
    };
    batch.stack_samples = vec![
        sample(&thread, ThreadState::Running, 2_000, 2_000, false),
        sample(&other, ThreadState::Running, 2_500, 500, true),
        sample(&thread, ThreadState::Blocked, 3_000, 700, true),
    ];
    let tid = thread.os_id;
    let packets = packets(&[batch.clone()]);
    let fresh: Vec<&InternedData> = packets.iter().filter_map(|p| p.interned_data.as_ref()).collect();
    let text = |all: Vec<&InternedBytes>, iid: Option<u64>| {
        let found = all.into_iter().find(|text| text.iid == iid).and_then(|text| text.str.clone());
        String::from_utf8(found.expect("a text")).unwrap()
    };
    let functions = |callstack: Option<u64>| -> Vec<String> {
        let stack = fresh.iter().flat_map(|d| &d.callstacks).find(|c| c.iid == callstack).expect("a stack");
        let frame = |iid: &u64| fresh.iter().flat_map(|d| &d.frames).find(|f| f.iid == Some(*iid)).expect("a frame");
        let name = |frame: &Frame| text(fresh.iter().flat_map(|d| &d.function_names).collect(), frame.function_name_id);
        stack.frame_ids.iter().map(|iid| name(frame(iid))).collect()
    };
    let samples: Vec<&PerfSample> = packets.iter().filter_map(|p| p.perf_sample.as_ref()).collect();
    assert_eq!(samples.len(), 2, "of threads on a CPU");
    assert_eq!((samples[0].tid, samples[0].timebase_count), (u32::try_from(tid).ok(), Some(2_000)));
    assert_eq!(functions(samples[0].callstack_iid), ["[libc.so.6]", "multiply"]);
    assert_eq!(
        (samples[1].tid, samples[1].timebase_count, samples[1].cpu_mode),
        (Some(77), Some(2_500), Some(MODE_KERNEL))
    );
    assert_eq!(functions(samples[1].callstack_iid), ["[libc.so.6]", "multiply", "[kernel]"]);
    let multiply = fresh.iter().flat_map(|d| &d.frames).find(|frame| frame.line_number == Some(12)).expect("its line");
    let mapping = fresh.iter().flat_map(|d| &d.mappings).find(|m| m.iid == multiply.mapping_id).expect("its file");
    let build_id = fresh.iter().flat_map(|d| &d.build_ids).find(|text| text.iid == mapping.build_id);
    assert_eq!(build_id.and_then(|text| text.str.clone()), Some(vec![0x0a, 0xff]));

    // What the thread did, below the thread.
    let tracks: Vec<&TrackDescriptor> = packets.iter().filter_map(|p| p.track_descriptor.as_ref()).collect();
    let of_tid = |tid: u64| {
        let is = |t: &&&TrackDescriptor| t.thread.as_ref().is_some_and(|t| t.tid == Some(tid as i64));
        tracks.iter().filter(is).collect::<Vec<_>>()
    };
    assert_eq!((of_tid(tid).len(), of_tid(77).len()), (1, 1), "one track for intervals and samples of a thread");
    let state = tracks.iter().find(|t| t.name.is_some() && t.parent_uuid == of_tid(tid)[0].uuid).expect("a track");
    let edges: Vec<(u64, Option<String>)> = packets
        .iter()
        .filter(|p| p.track_event.as_ref().is_some_and(|e| e.track_uuid == state.uuid))
        .map(|p| {
            let name = p.track_event.as_ref().and_then(|e| e.name_iid);
            let name = name.and_then(|iid| fresh.iter().flat_map(|d| &d.event_names).find(|n| n.iid == Some(iid)));
            (p.timestamp.unwrap() - T0 as u64, name.and_then(|name| name.name.clone()))
        })
        .collect();
    let named = |name: &str| Some(name.to_string());
    assert_eq!(edges, [(0, named("running")), (3_000, None), (3_000, named("blocked")), (3_700, None)]);

    // A run on disk: samples come before intervals, which do not have the system's number of their thread.
    let (mut first, mut then) = (batch.clone(), batch);
    (first.spans, first.steps) = (Vec::new(), Vec::new());
    (then.stacks, then.stack_samples) = (Vec::new(), Vec::new());
    let unnumbered = Arc::new(ThreadInfo::new(thread.index, 0, thread.name.clone()));
    then.spans.iter_mut().for_each(|span| span.thread = unnumbered.clone());
    let packets = self::packets(&[first, then]);
    let threads = packets.iter().filter_map(|p| p.track_descriptor.as_ref()).filter_map(|t| t.thread.as_ref());
    let tids: Vec<Option<i64>> = threads.map(|thread| thread.tid).collect();
    assert_eq!(tids, [Some(tid as i64), Some(77)]);
}

/// The viewer chains all slices of a flow: kernels that shared one would point at each other.
/// What is read back comes in batches of some thousand rows, and a graph may launch more.
#[test]
fn kernels_of_a_launch_that_come_in_later_batches_have_an_arrow_from_it() {
    let mut first = Decoder::new(1).decode();
    let span = first.spans[0].clone();
    let launched = |correlation, start| {
        with(kernel_of(&span, "GPU-1", 10), |r| {
            (r.launch_start, r.launch_dur_ns, r.correlation) = (Some(span.host_start), Some(5), correlation);
            r.gpu_start = span.host_start.plus_ns(start);
        })
    };
    first.kernels = vec![launched(6, 90), launched(7, 100), launched(7, 120)];
    let of = |kernels: Vec<KernelRecord>| {
        let mut batch = Batch::default();
        batch.kernels = kernels;
        batch
    };
    let batches =
        [first, of(vec![launched(7, 140)]), of(vec![launched(7, 160), launched(8, 180)]), of(vec![launched(9, 200)])];
    let mut categories = HashMap::new();
    let mut flows: Vec<(String, Vec<u64>)> = Vec::new();
    for packet in packets(&batches) {
        if let Some(data) = packet.interned_data {
            categories.extend(data.event_categories.into_iter().map(|n| (n.iid, n.name.unwrap_or_default())));
        }
        let Some(event) = packet.track_event.filter(|e| e.r#type == Some(SLICE_BEGIN)) else { continue };
        flows.push((categories[&event.category_iids.first().copied()].clone(), event.flow_ids));
    }
    let of = |category: &str| -> Vec<Vec<u64>> {
        flows.iter().filter(|(of, _)| of == category).map(|(_, ids)| ids.clone()).collect()
    };
    let (calls, kernels) = (of("launch"), of("kernel"));
    assert_eq!((calls.len(), kernels.len()), (4, 7));
    assert!(kernels.iter().all(|ids| ids.len() == 1), "{kernels:?}");
    let all: Vec<u64> = calls.concat();
    assert!(kernels.concat().iter().all(|id| all.contains(id)), "each begins at a call: {kernels:?} {calls:?}");
    let of_launch: HashSet<u64> = calls[1].iter().copied().collect();
    let theirs: Vec<u64> = kernels[1..5].concat();
    assert!(theirs.iter().all(|id| of_launch.contains(id)), "at theirs: {theirs:?} {calls:?}");
}

#[test]
fn every_kernel_has_an_arrow_of_its_own_from_its_call_or_its_interval() {
    let mut batch = Decoder::new(1).decode();
    let span = batch.spans[0].clone();
    // Two of a graph's launch, one outside every interval, and two whose calls were not recorded.
    let uncalled = |start| with(kernel_of(&span, "GPU-1", 10), |r| r.gpu_start = span.host_start.plus_ns(start));
    let called = |start| {
        with(uncalled(start), |r| {
            (r.launch_start, r.launch_dur_ns, r.correlation) = (Some(span.host_start), Some(5), 7);
        })
    };
    let outside = with(kernel("GPU-1", 0, 10), |r| r.gpu_start = span.host_start.plus_ns(500));
    batch.kernels = vec![called(120), called(100), outside, uncalled(140), uncalled(160)];
    let (mut names, mut categories) = (HashMap::new(), HashMap::new());
    let mut flows: Vec<(String, String, Vec<u64>)> = Vec::new();
    for packet in packets(&[batch]) {
        if let Some(data) = packet.interned_data {
            names.extend(data.event_names.into_iter().map(|n| (n.iid, n.name.unwrap_or_default())));
            categories.extend(data.event_categories.into_iter().map(|n| (n.iid, n.name.unwrap_or_default())));
        }
        let Some(event) = packet.track_event.filter(|e| e.r#type == Some(SLICE_BEGIN)) else { continue };
        let category = categories[&event.category_iids.first().copied()].clone();
        flows.push((names[&event.name_iid].clone(), category, event.flow_ids));
    }
    let of = |category: &str| -> Vec<Vec<u64>> {
        flows.iter().filter(|(_, of, _)| of == category).map(|(_, _, ids)| ids.clone()).collect()
    };
    let kernels = of("kernel");
    let call = of("launch");
    assert_eq!(call.len(), 1, "one call launched two kernels");
    assert_eq!(kernels.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 1, 0], "by start; the last has no origin");
    let set = |ids: &[u64]| -> HashSet<u64> { ids.iter().copied().collect() };
    assert_eq!(set(&kernels.concat()).len(), 4, "{kernels:?}");
    assert_eq!(set(&call[0]), set(&kernels[..2].concat()), "a call has those of its kernels");
    let is_interval = |of: &str| of != "launch" && of != "kernel";
    let intervals: Vec<_> = flows.iter().filter(|(_, of, ids)| is_interval(of) && !ids.is_empty()).collect();
    assert_eq!(intervals.len(), 1, "{intervals:?}");
    assert_eq!(intervals[0].0.as_str(), &*span.path.name);
    assert_eq!(set(&intervals[0].2), set(&kernels[2..4].concat()));
}
