//! The hot path allocates nothing once warm: counted.

use super::*;
use candlescope_testkit::allocations::{Counting, allocator_calls, assert_counting};

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn marking_allocates_nothing_once_warm() {
    let mut rig = Rig::new(2, 4_096);
    let mut lane = rig.lane(0);
    let mark_both = |rig: &Rig, lane: &mut Lane<Fake>| {
        for n in 0..600 {
            rig.fake.make_current(Some(context(n / 300)));
            assert!(lane.mark().is_ok());
        }
    };
    mark_both(&rig, &mut lane);
    rig.run_ms(10);
    let mut during = 0;
    for _ in 0..10 {
        during += allocator_calls(|| mark_both(&rig, &mut lane));
        rig.run_ms(10);
    }
    assert_eq!(during, 0, "allocations in 6000 marks");
    // Refused marks allocate nothing either.
    rig.fake.make_current(None);
    let refused = || assert_eq!(lane.mark(), Err(NoMark::NoContext));
    assert_eq!(allocator_calls(refused), 0);
    assert_eq!(rig.marks().len(), 6_600);
    assert_counting();
}
