//! Marks in order, pools, streams, devices, precision.

use super::*;
use crate::cuda::stream::{Stream, with_stream};

#[test]
fn while_cupti_is_being_detached_the_driver_is_not_called() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(1);
    lane.mark().expect("a mark");
    let closed = rig.gate.close().expect("nobody is inside");
    rig.run_ms(50);
    assert_eq!(rig.marks(), [], "a round is left out");
    drop(closed);
    rig.run_ms(50);
    assert_eq!(rig.marks().len(), 1);
}

#[test]
fn marks_measure_the_work_between_them() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(7);
    for ns in [0, 10_000, 250_000, 3] {
        rig.fake.work(context(0), STREAM, ns);
        lane.mark().expect("a mark");
    }
    rig.run_ms(10);
    let marks = rig.marks();
    assert_eq!(
        marks.iter().map(|m| (m.thread, m.id, m.device)).collect::<Vec<_>>(),
        [(7, 1, 0), (7, 2, 0), (7, 3, 0), (7, 4, 0)]
    );
    let at: Vec<_> = marks.iter().map(|m| m.at.expect("a time").0).collect();
    // The first work is in the queue no sooner than the first record ends, so it is a little over 10 µs.
    assert_eq!(at[2] - at[1], 250_000);
    assert_eq!(at[3] - at[2], 3);
    assert!(matches!(&rig.reports[0], GpuReport::Device { device: 0, info } if &*info.uuid == "GPU-0"));
    assert!(matches!(rig.reports[1], GpuReport::Anchor { device: 0, .. }), "an anchor before the first mark");
    rig.assert_balance();
}

#[test]
fn what_is_not_passed_waits_and_few_questions_are_asked() {
    let mut rig = Rig::new(1, 2_048);
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.run_ms(5);
    for _ in 0..1_000 {
        rig.fake.work(context(0), STREAM, 1_000_000);
        lane.mark().expect("a mark");
    }
    let before = rig.fake.state().queries;
    rig.poll();
    let asked = rig.fake.state().queries - before;
    assert!(asked <= 12, "{asked} queries for a thousand marks");
    let so_far = rig.marks().len();
    assert!(so_far < 10, "{so_far}");
    rig.run_ms(500);
    let half = rig.marks().len();
    assert!((490..520).contains(&half), "{half}");
    rig.run_ms(600);
    let marks = rig.marks();
    assert!(marks.iter().map(|m| m.id).eq(1..=1_001));
    let at: Vec<_> = marks.iter().map(|m| m.at.expect("a time").0).collect();
    assert!(at[1..].windows(2).all(|w| w[1] - w[0] == 1_000_000));
    rig.assert_balance();
}

#[test]
fn a_full_lane_refuses_and_recovers() {
    let mut rig = Rig::new(1, 100);
    let mut lane = rig.lane(0);
    rig.fake.work(context(0), STREAM, 50_000_000);
    let outcomes: Vec<_> = (0..150).map(|_| lane.mark()).collect();
    assert!(outcomes[..100].iter().all(Result::is_ok));
    assert!(outcomes[100..].iter().all(|o| *o == Err(NoMark::Full)));
    rig.poll();
    // Marks under way hold their events until the device has passed them, not only until the next poll.
    assert_eq!(lane.mark(), Err(NoMark::Full));
    assert_eq!(rig.count("no_mark_full"), 51);
    rig.run_ms(60);
    assert_eq!(lane.mark().map(|id| id.0.get()), Ok(101), "ids stay consecutive");
    rig.run_ms(5);
    assert!(rig.marks().iter().map(|m| m.id).eq(1..=101));
    assert!(rig.marks().iter().all(|m| m.at.is_some()));
    assert!(rig.count("events") <= 100 + 8, "{}", rig.count("events"));
    rig.assert_balance();
}

#[test]
fn pools_grow_before_they_are_empty_up_to_the_bound() {
    let mut rig = Rig::new(1, 16_384);
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.run_ms(5);
    let fresh = rig.count("events");
    // Less than a quarter at a time: nothing grows.
    for _ in 0..5 {
        (0..800).for_each(|_| assert!(lane.mark().is_ok()));
        rig.run_ms(5);
    }
    assert_eq!(rig.count("events"), fresh);
    // More than a quarter: the number of events doubles, although the device was done with all of them when they were
    // polled.
    (0..2_400).for_each(|_| assert!(lane.mark().is_ok()));
    rig.run_ms(5);
    assert_eq!(rig.count("events"), fresh + 4_096);
    rig.fake.work(context(0), STREAM, 30_000_000_000);
    for round in 0..4 {
        // One event is not the lane's at the moment: the one that times are counted from.
        let marks = if round < 3 { 4_096 } else { 4_095 };
        (0..marks).for_each(|_| assert!(lane.mark().is_ok(), "round {round}"));
        rig.run_ms(5);
    }
    assert_eq!(lane.mark(), Err(NoMark::Full));
    assert_eq!(rig.count("events"), fresh + 12_288, "no more than in_flight");
    assert_eq!(rig.count("no_mark_full"), 1);
    rig.assert_balance();
}

#[test]
fn streams_pass_their_marks_independently_and_reports_keep_the_lanes_order() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    let other = || Stream::unowned(StreamId(0x77));
    lane.mark().expect("a mark");
    rig.fake.work(context(0), STREAM, 40_000_000);
    lane.mark().expect("behind slow work");
    with_stream(other(), || lane.mark()).expect("in an idle stream");
    lane.mark().expect("behind slow work");
    with_stream(other(), || lane.mark()).expect("in an idle stream");
    rig.run_ms(20);
    assert_eq!(rig.marks().len(), 1, "the second is not passed, and order counts");
    rig.run_ms(30);
    let at: Vec<_> = rig.marks().iter().map(|m| m.at.expect("a time").0).collect();
    assert_eq!(at.len(), 5);
    assert!(at[2] - at[0] < 10_000 && at[4] - at[2] < 10_000, "the idle stream's own times: {at:?}");
    assert!(at[1] - at[0] > 39_000_000, "{at:?}");
    rig.assert_balance();
}

#[test]
fn the_devices_stream_is_used_where_the_thread_names_none() {
    let mut rig = Rig::new(2, 64);
    rig.shared.use_stream(1, Stream::unowned(StreamId(0x55)));
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.shared.use_stream(0, Stream::unowned(StreamId(0x44)));
    rig.fake.work(context(0), StreamId(0x44), 1_000_000);
    rig.fake.work(context(1), StreamId(0x55), 2_000_000);
    lane.mark().expect("behind 1 ms");
    rig.fake.make_current(Some(context(1)));
    lane.mark().expect("behind 2 ms, in a context met after its stream was named");
    rig.run_ms(5);
    let marks = rig.marks();
    assert_eq!(marks.iter().map(|m| m.device).collect::<Vec<_>>(), [0, 0, 1]);
    let between = marks[1].at.expect("a time").0 - marks[0].at.expect("a time").0;
    assert!((990_000..1_010_000).contains(&between), "{between}");
    // The other device has another clock: its anchor places the mark in time.
    let (at, host, _) = rig.anchors(1)[0];
    let (at0, host0, _) = rig.anchors(0)[0];
    let host_of = |mark: &ReportedMark, at: DeviceNs, host: HostNs| host.0 + mark.at.expect("a time").0 - at.0;
    let apart = host_of(&marks[2], at, host) - host_of(&marks[1], at0, host0);
    assert!((990_000..1_020_000).contains(&apart), "{apart}");
}

#[test]
fn two_devices_on_one_thread_keep_one_order() {
    let mut rig = Rig::new(2, 64);
    let mut lane = rig.lane(0);
    for n in 0..20 {
        let which = context(n % 2);
        rig.fake.make_current(Some(which));
        rig.fake.work(which, STREAM, if n % 2 == 0 { 1_000_000 } else { 10_000 });
        assert_eq!(lane.mark().map(|id| id.0.get() as usize), Ok(n + 1));
    }
    rig.run_ms(20);
    let marks = rig.marks();
    assert!(marks.iter().map(|m| m.id).eq(1..=20));
    assert!(marks.iter().enumerate().all(|(n, m)| usize::from(m.device) == n % 2 && m.at.is_some()));
    let first: Vec<_> = marks.iter().filter(|m| m.device == 0).map(|m| m.at.expect("a time").0).collect();
    assert!(first.windows(2).all(|w| w[1] - w[0] == 1_000_000));
    assert_eq!(rig.reports.iter().filter(|r| matches!(r, GpuReport::Device { .. })).count(), 2);
    rig.assert_balance();
}

#[test]
fn threads_have_streams_pools_and_orders_of_their_own() {
    let mut rig = Rig::new(1, 64);
    let mut lanes = [rig.lane(3), rig.lane(9)];
    for n in 0..30 {
        lanes[n % 2].mark().expect("a mark");
        if n % 7 == 0 {
            rig.run_ms(5);
        }
    }
    drop(lanes);
    rig.run_ms(10);
    for thread in [3, 9] {
        assert!(rig.marks().iter().filter(|m| m.thread == thread).map(|m| m.id).eq(1..=15));
    }
    assert_eq!(rig.poller.backlog(), 0);
    // The pools of threads that ended are gone once nothing is counted from their events any more.
    rig.run_ms(4_000);
    assert!(rig.count("events") <= 8, "{}", rig.count("events"));
    assert_eq!(rig.count("marks_recorded"), 30, "what they counted stays");
    rig.assert_balance();
}

#[test]
fn ids_wrap_around() {
    let mut rig = Rig::new(1, 64);
    let last = MarkId(std::num::NonZeroU32::new(u32::MAX - 1).expect("not zero"));
    let mut lane = Lane::new(rig.shared.clone(), 0, last);
    let ids: Vec<_> = (0..4).map(|_| lane.mark().expect("a mark").0.get()).collect();
    assert_eq!(ids, [u32::MAX - 1, u32::MAX, 1, 2]);
    rig.run_ms(5);
    assert_eq!(rig.marks().iter().map(|m| m.id).collect::<Vec<_>>(), ids);
}

#[test]
fn durations_are_exact_after_an_hour() {
    let mut rig = Rig::new(1, 256);
    let mut lane = rig.lane(0);
    let began = rig.fake.state().now;
    lane.mark().expect("a mark");
    rig.run_ms(5);
    let origin = rig.marks()[0].at.expect("a time").0;
    // Pauses of awkward lengths, polled at awkward times: links of 3 to 112 ms, each rounded to a float.
    let mut n = 0i64;
    while rig.fake.host().0 - began < 3_600_000_000_000 {
        n += 1;
        rig.fake.pass_ns(3_456_789 + n % 977 * 111_111);
        rig.poll();
        if n % 3 == 0 {
            lane.mark().expect("a mark");
        }
    }
    rig.reports.retain(|r| !matches!(r, GpuReport::Mark { .. }));
    let ended = rig.fake.state().now;
    lane.mark().expect("a mark");
    let expected = 123_457;
    for _ in 0..50 {
        rig.fake.work(context(0), STREAM, expected);
        lane.mark().expect("a mark");
    }
    rig.run_ms(20);
    let at: Vec<_> = rig.marks().iter().rev().take(51).rev().map(|m| m.at.expect("a time").0).collect();
    assert!(at[2..].windows(2).all(|w| w[1] - w[0] == expected), "{at:?}");
    // Links over 8 ms are rounded, so the sum wanders by some microseconds, which anchors take out. A single `f32` of
    // milliseconds over the whole hour would be exact only to a quarter of a millisecond.
    let error = (at[0] - origin) - (ended - began);
    assert!(error.abs() < 10_000, "{error} ns off after an hour of {n} rounds");
    assert!(n > 40_000, "{n}");
}

#[test]
fn the_device_is_kept_waiting_for_so_long_and_the_kernel_is_loaded_once() {
    let mut rig = Rig::new(1, 64);
    let (mut lane, mut other) = (rig.lane(0), rig.lane(1));
    lane.mark().expect("a mark");
    lane.wait(40_000).expect("launched");
    lane.mark().expect("a mark");
    lane.wait(0).expect("launched");
    other.wait(0).expect("another thread's, in the same context");
    rig.run_ms(10);
    let at: Vec<_> = rig.marks().iter().map(|mark| mark.at.expect("a time").0).collect();
    assert!(at[1] - at[0] >= 40_000, "{at:?}");
    assert_eq!(rig.fake.state().loaded, 1);
    assert_eq!(rig.fake.state().breaches, 0, "no capture of another thread is broken");
    // Nothing of it becomes part of a graph.
    rig.fake.state().capturing.insert(STREAM);
    assert_eq!(lane.wait(10), Err(NoMark::Capturing));
    rig.fake.state().capturing.clear();
    rig.fake.make_current(None);
    assert_eq!(lane.wait(10), Err(NoMark::NoContext));
}

#[test]
fn where_the_kernel_that_waits_cannot_be_loaded_nothing_else_changes() {
    let rig = Rig::new(1, 64);
    rig.fake.state().refuse_load = true;
    let mut lane = rig.lane(0);
    assert_eq!((lane.wait(10), lane.wait(10)), (Err(NoMark::Failed), Err(NoMark::Failed)));
    assert_eq!(rig.fake.state().loaded, 1, "it is not tried again");
    assert!(lane.mark().is_ok());
}
