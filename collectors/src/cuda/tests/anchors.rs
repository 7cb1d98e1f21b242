//! Anchors are made often enough, are narrow and right, also on a busy device.

use super::*;
use crate::cuda::anchor::{Anchors, Reading};

/// The host's time of a device's time: in the fake both clocks run alike, at an offset fixed by the first event.
fn offset(rig: &Rig) -> i64 {
    let (at, host, _) = rig.anchors(0)[0];
    host.0 - at.0
}

#[test]
fn anchors_come_often_at_first_and_every_four_seconds_always() {
    let mut rig = Rig::new(1, 256);
    let mut lane = rig.lane(0);
    for _ in 0..6_000 {
        lane.mark().expect("a mark");
        rig.run_ms(5);
    }
    let anchors = rig.anchors(0);
    let gaps: Vec<_> = anchors.windows(2).map(|w| w[1].1.since(w[0].1) / 1_000_000).collect();
    assert!(gaps.iter().all(|ms| *ms <= 4_000), "{gaps:?}");
    assert!(gaps[0] < 600 && gaps[1] < 600 && gaps[2] < 1_200, "{gaps:?}");
    assert!((10..20).contains(&anchors.len()), "{} in 30 s", anchors.len());
    let first = offset(&rig);
    for (at, host, bound) in anchors {
        assert!(bound < 4_000, "{bound}");
        assert!((host.0 - at.0 - first).unsigned_abs() <= 2 * bound, "the bracket holds the truth");
    }
    assert_eq!(rig.count("anchors"), rig.anchors(0).len() as u64);
    assert!(rig.count("anchor_bound_worst_ns") >= rig.count("anchor_bound_ns"));
    assert_eq!(rig.count("mark_cost_ns"), fake::RECORD_NS as u64 + 30);
}

#[test]
fn an_idle_device_is_anchored_too() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.run_ms(60_000);
    lane.mark().expect("a mark");
    rig.run_ms(5);
    let anchors = rig.anchors(0);
    assert!(anchors.windows(2).all(|w| w[1].1.since(w[0].1) <= 4_000_000_000));
    let marks = rig.marks();
    let (at, host, _) = anchors[anchors.len() - 1];
    let of_last = host.0 + marks[1].at.expect("a time").0 - at.0;
    assert!((rig.fake.state().now - of_last) < 6_000_000);
}

#[test]
fn an_anchor_behind_work_is_bounded_by_the_questions_answered_no() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    lane.mark().expect("a mark");
    rig.fake.work_before_anchors(context(0), 100_000);
    rig.poll();
    let anchors = rig.anchors(0);
    assert_eq!(anchors.len(), 1, "within one round: it is watched for 200 µs");
    assert!(anchors[0].2 < 6_000, "bound of {} ns", anchors[0].2);
    assert_eq!(rig.marks().len(), 1);
}

#[test]
fn marks_wait_for_the_first_anchor_and_a_mark_stands_in_for_one_that_is_stuck() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    rig.fake.work_before_anchors(context(0), 20_000_000_000);
    lane.mark().expect("a mark");
    rig.run_ms(300);
    assert!(rig.marks().is_empty() && rig.anchors(0).is_empty());
    // Something in flight over a round, so that its end is bracketed.
    for _ in 0..200 {
        rig.fake.work(context(0), STREAM, 7_000_000);
        lane.mark().ok();
        rig.run_ms(10);
    }
    let anchors = rig.anchors(0);
    assert!(anchors.len() >= 3, "{anchors:?}");
    assert!(anchors.iter().all(|a| (1_000_000..4_000_000).contains(&a.2)), "as wide as the pause: {anchors:?}");
    assert!(rig.marks().len() > 150);
    // Their true times, by the exact anchors that follow.
    rig.run_ms(20_000);
    let (at, host, bound) = rig.anchors(0)[rig.anchors(0).len() - 1];
    assert!(bound < 4_000, "{bound}");
    for (stood_at, stood_host, stood_bound) in anchors {
        let wrong = (stood_host.0 - stood_at.0) - (host.0 - at.0);
        assert!(wrong.unsigned_abs() <= stood_bound + bound, "{wrong} ns off, bound {stood_bound}");
    }
    rig.assert_balance();
}

#[test]
fn an_anchor_over_rounds_keeps_the_bound_of_the_round_it_ends_in() {
    let fake = Fake::new(&[0]);
    let host = || fake.host();
    let mut anchors = Anchors::new(host());
    // 1 ms is five rounds' worth of watching.
    fake.work(context(0), STREAM, 1_000_000);
    let mut rounds = 0;
    let reading: Reading = loop {
        rounds += 1;
        if let Some(reading) = anchors.step(&fake, &host).expect("no faults") {
            break reading;
        }
        assert!(rounds < 10);
    };
    assert!((4..8).contains(&rounds), "{rounds}");
    let width = reading.upper.since(reading.lower);
    assert!(width < 12_000, "{width}");
    assert_eq!(anchors.step(&fake, &host), Ok(None), "not due");
}

/// Skips the records of the calibration, the first of all.
const CALIBRATION: usize = 64;

#[test]
fn an_anchor_that_was_held_up_is_taken_again_before_anything_is_placed_by_it() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    // Modules load: the first record of the anchor's event returns after 14.66 s, those of the next round after 3 ms.
    let held_up = std::iter::repeat_n(0, CALIBRATION).chain([14_660_000_000, 3_000_000]);
    rig.fake.state().held_up = held_up.collect();
    lane.mark().expect("a mark");
    rig.poll();
    assert!(rig.anchors(0).is_empty() && rig.marks().is_empty(), "no mark is placed by 7.33 s");
    rig.run_ms(200);
    let anchors = rig.anchors(0);
    assert!(anchors.iter().all(|a| a.2 < 4_000), "{anchors:?}");
    assert_eq!(rig.marks().len(), 1);
    assert!(rig.count("anchor_bound_worst_ns") < 4_000);
    rig.assert_balance();
}

#[test]
fn where_every_reading_is_held_up_the_narrowest_is_told_with_its_bound() {
    let mut rig = Rig::new(1, 64);
    let mut lane = rig.lane(0);
    let waits = [9_000_000, 5_000_000, 2_000_000, 7_000_000, 8_000_000, 6_000_000];
    rig.fake.state().held_up = std::iter::repeat_n(0, CALIBRATION).chain(waits).collect();
    let first = rig.fake.state().now;
    lane.mark().expect("a mark");
    rig.run_ms(400);
    let (at, host, bound) = rig.anchors(0)[0];
    assert!((1_000_000..1_010_000).contains(&bound), "half of the least wait: {bound}");
    assert_eq!(rig.marks().len(), 1, "it is placed in the end");
    let mark = host.0 + rig.marks()[0].at.expect("a time").0 - at.0;
    assert!((mark - first).unsigned_abs() <= bound + 4_000, "{} ns off", mark - first);
    assert!(rig.anchors(0).iter().skip(1).all(|a| a.2 < 4_000), "and the next one is narrow");
    rig.assert_balance();
}
