//! Marks that are refused, wait too long, or lose their context are counted and reported as unknown; other marks are
//! not affected.

use super::*;
use crate::cuda::driver_calls::{CaptureMode, Driver, Fault};

#[test]
fn a_thread_without_a_context_gets_no_mark_and_costs_nothing() {
    let mut rig = Rig::new(1, 64);
    rig.fake.make_current(None);
    let mut lane = rig.lane(0);
    assert_eq!(lane.mark(), Err(NoMark::NoContext));
    rig.poll();
    assert_eq!(rig.fake.state().made, 0);
    assert!(rig.reports.is_empty());
    assert_eq!(rig.count("no_mark_no_context"), 1);
    assert!(!rig.poller.statistics().contains_key("anchor_bound_ns"), "unknown is absent, not zero");
    rig.fake.make_current(Some(context(0)));
    assert!(lane.mark().is_ok());
}

#[test]
fn a_capturing_stream_is_left_alone() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    rig.fake.state().capturing.insert(STREAM);
    assert_eq!(lane.mark(), Err(NoMark::Capturing), "also the thread's first mark");
    assert_eq!(rig.fake.state().made, 0, "and it makes no events");
    rig.fake.state().capturing.clear();
    lane.mark().expect("a mark");
    rig.fake.state().capturing.insert(StreamId(0x99));
    lane.mark().expect("another stream captures");
    rig.shared.use_stream(0, crate::cuda::Stream::unowned(StreamId(0)));
    assert_eq!(lane.mark(), Err(NoMark::Capturing), "the legacy stream waits for every other");
    assert_eq!(rig.fake.state().mode, Some(CaptureMode::Global), "the mode is put back");
    rig.run_ms(5);
    assert_eq!(rig.fake.state().mode, Some(CaptureMode::Global));
    assert_eq!(rig.marks().len(), 2);
    assert_eq!(rig.count("no_mark_capturing"), 2);
    rig.assert_balance();
}

#[test]
fn a_mark_that_became_part_of_a_graph_is_unknown_and_the_others_are_not() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    for n in 0..9 {
        rig.fake.state().captures_secretly = n % 3 == 1;
        lane.mark().expect("a mark");
    }
    rig.fake.state().captures_secretly = false;
    rig.run_ms(5);
    let known: Vec<_> = rig.marks().iter().map(|m| m.at.is_some()).collect();
    assert_eq!(known, [true, false, true, true, false, true, true, false, true]);
    assert_eq!(rig.count("marks_refused_by_driver"), 3);
    rig.assert_balance();
}

#[test]
fn a_refused_record_keeps_its_event_and_its_id() {
    let mut rig = Rig::new(1, 2);
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.fake.state().refuse_record = Some(Fault(700));
    for _ in 0..5 {
        assert_eq!(lane.mark(), Err(NoMark::Failed));
    }
    rig.fake.state().refuse_record = Some(Fault(901));
    assert_eq!(lane.mark(), Err(NoMark::Capturing));
    rig.fake.state().refuse_record = None;
    assert_eq!(lane.mark().map(|id| id.0.get()), Ok(2));
    assert_eq!(rig.count("no_mark_failed"), 5);
    rig.run_ms(5);
    assert!(rig.marks().iter().map(|m| m.id).eq(1..=2));
    rig.assert_balance();
}

#[test]
fn a_driver_that_makes_no_events_is_asked_once() {
    let mut rig = Rig::new(2, 64);
    let mut lane = rig.lane(0);
    rig.fake.state().refuse_create = Some(Fault(2));
    assert_eq!(lane.mark(), Err(NoMark::Failed));
    rig.fake.state().refuse_create = None;
    assert_eq!(lane.mark(), Err(NoMark::Failed));
    // Another context of the same thread works, and is the first that is reported.
    rig.fake.make_current(Some(context(1)));
    lane.mark().expect("a mark");
    rig.run_ms(5);
    assert!(matches!(&rig.reports[0], GpuReport::Device { device: 0, info } if &*info.uuid == "GPU-1"));
    assert_eq!(rig.marks().len(), 1);
}

#[test]
fn what_the_device_never_passes_ages_out() {
    let mut rig = Rig::with(&[0], 64, Duration::from_secs(2));
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.fake.hang(context(0), STREAM);
    lane.mark().expect("a mark");
    crate::cuda::with_stream(crate::cuda::Stream::unowned(StreamId(0x77)), || lane.mark()).expect("a mark");
    rig.run_ms(1_900);
    assert_eq!(rig.marks().len(), 1);
    rig.run_ms(300);
    let marks = rig.marks();
    assert_eq!(marks.iter().map(|m| m.at.is_some()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(rig.count("marks_aged"), 1);
    assert!((0..100).all(|_| {
        let mark = lane.mark();
        rig.run_ms(5);
        mark.is_ok() || mark == Err(NoMark::Full)
    }));
    rig.assert_balance();
}

#[test]
fn a_hanging_stream_does_not_grow_the_backlog_without_end() {
    let mut rig = Rig::with(&[0], 64, Duration::from_secs(3_600));
    let mut lane = rig.lane(0);
    rig.fake.hang(context(0), STREAM);
    lane.mark().expect("a mark");
    let mut refused = 0;
    for _ in 0..1_000 {
        let mark = crate::cuda::with_stream(crate::cuda::Stream::unowned(StreamId(0x77)), || lane.mark());
        refused += u64::from(mark == Err(NoMark::Full));
        rig.run_ms(5);
    }
    assert!(rig.poller.backlog() <= 128, "{}", rig.poller.backlog());
    assert!(refused > 700, "{refused}");
    assert_eq!(rig.count("no_mark_full"), refused);
}

#[test]
fn without_an_anchor_for_long_marks_are_reported_unknown() {
    let mut rig = Rig::with(&[0], 64, Duration::from_secs(2));
    let mut lane = rig.lane(0);
    rig.fake.work_before_anchors(context(0), 60_000_000_000);
    lane.mark().expect("a mark");
    rig.run_ms(1_900);
    assert!(rig.marks().is_empty());
    rig.run_ms(200);
    assert_eq!(rig.marks().len(), 1);
    assert_eq!(rig.marks()[0].at, None);
    assert_eq!(rig.count("marks_unanchored"), 1);
    rig.assert_balance();
}

#[test]
fn a_destroyed_context_is_never_asked_again_and_the_other_device_goes_on() {
    // The fake panics if an event of a context that is gone is queried or destroyed.
    let mut rig = Rig::new(2, 64);
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.fake.make_current(Some(context(1)));
    lane.mark().expect("a mark");
    rig.run_ms(5);
    rig.fake.work(context(1), STREAM, 10_000_000);
    lane.mark().expect("in the context that ends");
    rig.fake.make_current(Some(context(0)));
    lane.mark().expect("a mark");
    rig.fake.destroy_context(context(1));
    rig.run_ms(5);
    let known: Vec<_> = rig.marks().iter().map(|m| m.at.is_some()).collect();
    assert_eq!(known, [true, true, false, true]);
    assert_eq!(rig.count("contexts_lost"), 1);
    assert_eq!(rig.poller.last_fault(), Some(Fault(709)));
    rig.fake.make_current(Some(context(1)));
    assert_eq!(lane.mark(), Err(NoMark::Failed));
    rig.fake.make_current(Some(context(0)));
    lane.mark().expect("the other device goes on");
    rig.run_ms(5_000);
    assert_eq!(rig.count("contexts_lost"), 1, "counted once");
    rig.assert_balance();
    drop(lane);
    rig.run_ms(5);
}

#[test]
fn everything_made_is_ended_and_the_context_let_go_whoever_ends_last() {
    for lane_first in [true, false] {
        let mut rig = Rig::new(1, 64);
        let mut lane = rig.lane(0);
        for _ in 0..40 {
            lane.mark().expect("a mark");
        }
        rig.fake.work(context(0), STREAM, 1_000_000_000);
        lane.mark().expect("under way at the end");
        rig.run_ms(5);
        assert_eq!(rig.fake.state().retained[&0], 1);
        let Rig { fake, shared, poller, .. } = rig;
        drop(shared);
        if lane_first {
            drop(lane);
            drop(poller);
        } else {
            drop(poller);
            assert!(fake.state().retained[&0] == 1, "the lane still has events in the context");
            lane.mark().expect("harmless: the lane's own events");
            drop(lane);
        }
        let state = fake.state();
        assert_eq!(state.made, state.ended, "lane first: {lane_first}");
        assert_eq!(state.retained[&0], 0);
        assert_eq!(state.mode, Some(CaptureMode::Global));
    }
}

#[test]
fn the_costs_of_calls_are_measured_and_cleaned_up() {
    let fake = Fake::new(&[0]);
    fake.state().mode = Some(CaptureMode::Relaxed);
    assert!(crate::cuda::call_costs::measure(&fake, 16).is_ok());
    {
        let state = fake.state();
        assert!(state.made >= 16 && state.made == state.ended, "{} made, {} ended", state.made, state.ended);
    }
    fake.make_current(None);
    assert_eq!(crate::cuda::call_costs::measure(&fake, 16).err(), Some(("cuCtxGetCurrent", Fault(201))));
    assert!(fake.current().is_none());
}
