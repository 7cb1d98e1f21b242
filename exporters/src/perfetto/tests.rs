//! The packets, decoded again and compared with the records.

use super::proto::*;
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, HostNs};
use candlescope_testkit::Decoder;
use candlescope_testkit::records::T0;
use prost::Message;
use std::collections::HashMap;

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
    let batch = source.decode();
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
