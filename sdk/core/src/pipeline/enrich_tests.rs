//! How often a mark is looked at.

use super::*;
use crate::gpu::{DeviceNs, GpuReport, MarkId};
use std::num::NonZeroU32;

#[test]
fn a_batch_is_looked_at_where_something_was_learnt_and_no_mark_of_it_twice() {
    const BATCHES: u32 = 100;
    let mut enricher = Enricher::new(None, None, true);
    // In each batch, the first interval ends last on the device.
    for batch in 0..BATCHES {
        let marked = (0..10).map(|n| MarkedSpan { span: n, thread: 1, marks: [1, batch * 10 + 11 - n] });
        enricher
            .held
            .push_back(HeldBatch::new(ResolvedRecords { marked: marked.collect(), ..ResolvedRecords::default() }));
    }
    let mut mark = 0;
    let mut learn = |enricher: &mut Enricher, n: u32| {
        for _ in 0..n {
            mark += 1;
            let id = MarkId(NonZeroU32::new(mark).expect("not zero"));
            let at = Some(DeviceNs(i64::from(mark)));
            enricher.mark_times.take(GpuReport::Mark { thread: 1, id, device: 0, at });
        }
    };
    let look = |enricher: &mut Enricher| {
        let before = enricher.mark_times.asked.get();
        enricher.look_at_held(false);
        let done = enricher.held.iter().filter(|held| held.waits_for == WaitsFor::Nothing).count();
        (enricher.mark_times.asked.get() - before, done)
    };
    assert_eq!(look(&mut enricher), (100, 0), "one of each batch is enough");
    assert_eq!(look(&mut enricher), (0, 0), "nothing was learnt");
    // All marks but the last of the first batch.
    learn(&mut enricher, 10);
    assert_eq!(look(&mut enricher), (109, 0));
    learn(&mut enricher, 1);
    assert_eq!(look(&mut enricher), (100, 1), "the others are known");
    learn(&mut enricher, BATCHES * 10);
    assert_eq!(look(&mut enricher), (99 * 10, 99 + 1));
    assert_eq!(look(&mut enricher), (0, 100));
}
