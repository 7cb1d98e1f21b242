//! The search for the best batch, on made-up machines.

use candlescope_lab::method::StopReason;
use candlescope_lab::tune::{Attempt, BatchFigures, BatchReason, Forecast, Goal, Latency, Metric, Next, Search, Stop};
use std::collections::BTreeMap;

const OUTPUT: u64 = 64;

/// A machine: a token takes 1 ms up to a batch of 24, which is the ridge, then in proportion; the prompt 0.2 ms a
/// sequence. Beyond a batch of `memory` there is no room.
struct Machine {
    memory: u64,
}

impl Machine {
    fn latency(&self, batch: u64) -> Latency {
        let token = 1e6 * (batch as f64 / 24.0).max(1.0) + 1e4 * batch as f64;
        Latency::of(2e5 * batch as f64, Some(token), OUTPUT)
    }

    fn attempt(&self, batch: u64, goal: &Goal) -> Attempt {
        if batch > self.memory {
            return Attempt::Without(StopReason::OutOfMemory, format!("{batch} sequences need more"));
        }
        let latency = self.latency(batch);
        let tps = latency.output_tokens_per_s(batch, OUTPUT);
        Attempt::Found(BatchFigures {
            samples: 3,
            latency,
            output_tokens_per_s: tps,
            output_tokens_per_s_spread: Some((tps * 0.995, tps * 1.005)),
            e2e_ns_spread: None,
            kept: if goal.excess(&latency) <= 1.0 { 1.0 } else { 0.0 },
            memory_bytes: None,
        })
    }

    /// A prediction that is twice too fast at a batch of one and 1.2 times at the end, and knows the ridge.
    fn predicted(&self, (start, end): (u64, u64)) -> BTreeMap<u64, Latency> {
        let off = |batch: u64| 0.5 + 0.33 * (batch as f64).ln() / (end as f64).ln();
        let scaled = |l: Latency, by: f64| Latency::of(l.ttft_ns * by, l.tpot_ns.map(|t| t * by), OUTPUT);
        (start..=end).map(|batch| (batch, scaled(self.latency(batch), off(batch)))).collect()
    }

    /// Searches, and returns the search with the batches in the order in which they were measured.
    fn search(
        &self,
        goal: Goal,
        range: (u64, u64),
        points: usize,
        predicts: bool,
    ) -> (Search, Vec<(u64, BatchReason)>, Stop) {
        let predicted = if predicts { self.predicted(range) } else { BTreeMap::new() };
        let mut search = Search::new(goal, range, points, OUTPUT, Forecast::new(OUTPUT, predicted));
        let mut order = Vec::new();
        loop {
            match search.next() {
                Next::Measure(batch, why) => {
                    assert!(!order.iter().any(|(known, _)| *known == batch), "{batch} twice: {order:?}");
                    order.push((batch, why));
                    search.learn(batch, self.attempt(batch, &goal));
                }
                Next::Stop(stop) => return (search, order, stop),
            }
        }
    }
}

fn goal(metric: Metric, slo: &str) -> Goal {
    Goal { metric, slo: if slo.is_empty() { Default::default() } else { slo.parse().unwrap() } }
}

#[test]
fn the_best_of_many_is_found_with_few() {
    let machine = Machine { memory: u64::MAX };
    for predicts in [true, false] {
        let goal = goal(Metric::Throughput, "");
        let (search, order, stop) = machine.search(goal, (1, 256), 12, predicts);
        let tps = |batch| machine.latency(batch).output_tokens_per_s(batch, OUTPUT);
        let most = (1..=256).map(tps).fold(0.0, f64::max);
        let (best, found) = search.best().unwrap();
        assert!(
            found.output_tokens_per_s > most * 0.97,
            "{best} has {} of {most}: {order:?}",
            found.output_tokens_per_s
        );
        assert!(
            order.len() <= 12 && order[0] == (1, BatchReason::End) && order[1] == (256, BatchReason::End),
            "{order:?}"
        );
        assert!(matches!(stop, Stop::Settled | Stop::Points), "{stop:?} {order:?}");
        let (knee, _) = search.knee().unwrap();
        let true_knee = (1..=256).find(|batch| tps(*batch) >= 0.8 * most).unwrap();
        assert!(knee.abs_diff(true_knee) <= true_knee / 4, "knee {knee}, in truth {true_knee}: {order:?}");
    }
}

#[test]
fn limits_are_kept_to_the_sequence() {
    let machine = Machine { memory: u64::MAX };
    let goal = goal(Metric::Throughput, "tpot=1205us");
    let truth = (1..=256).filter(|batch| goal.excess(&machine.latency(*batch)) <= 1.0).max().unwrap();
    let (search, order, stop) = machine.search(goal, (1, 256), 12, true);
    assert_eq!(search.best().map(|(batch, _)| batch), Some(truth), "{order:?} {stop:?}");
    assert!(order.iter().any(|(batch, _)| *batch > truth && *batch < 256), "one beyond it was tried: {order:?}");
    // Goodput counts the same requests here, as a machine without noise keeps a limit or does not.
    let (search, ..) = machine.search(Goal { metric: Metric::Goodput, ..goal }, (1, 256), 12, true);
    assert_eq!(search.best().map(|(batch, _)| batch), Some(truth));
}

#[test]
fn limits_that_nothing_keeps_name_the_nearest() {
    let machine = Machine { memory: u64::MAX };
    let (search, order, stop) = machine.search(goal(Metric::Throughput, "tpot=900us"), (4, 64), 12, true);
    assert_eq!((stop, search.best()), (Stop::Unmet, None), "{order:?}");
    assert_eq!(search.nearest().map(|(batch, _)| batch), Some(4));
    assert!(order.len() < 8, "it is not worth many: {order:?}");
}

#[test]
fn the_shortest_request_is_that_of_the_smallest_batch() {
    let (search, order, _) = Machine { memory: u64::MAX }.search(goal(Metric::Latency, ""), (2, 64), 12, true);
    assert_eq!(search.best().map(|(batch, _)| batch), Some(2), "{order:?}");
}

#[test]
fn the_end_of_memory_is_a_result() {
    let machine = Machine { memory: 20 };
    for predicts in [true, false] {
        let (search, order, stop) = machine.search(goal(Metric::Throughput, ""), (1, 256), 14, predicts);
        let (best, _) = search.best().unwrap();
        // Throughput grows up to the ridge at 24, so the largest that fits is best; it is found to an eighth.
        assert!((18..=20).contains(&best), "{best}: {order:?} {stop:?}");
        assert!(order.iter().all(|(batch, _)| *batch <= 256) && search.ceiling() < 24, "{order:?}");
    }
    let (search, _, stop) = Machine { memory: 0 }.search(goal(Metric::Throughput, ""), (1, 8), 14, true);
    assert_eq!((stop, search.found().count()), (Stop::NothingFits, 0));
}

#[test]
fn a_short_range_is_measured_whole_and_a_small_allowance_is_kept() {
    let machine = Machine { memory: u64::MAX };
    let (_, order, stop) = machine.search(goal(Metric::Throughput, ""), (3, 3), 12, true);
    assert_eq!((order.len(), stop), (1, Stop::AllMeasured));
    let (search, order, stop) = machine.search(goal(Metric::Throughput, ""), (1, 256), 3, true);
    assert!(order.len() == 3 && stop == Stop::Points, "{order:?} {stop:?}");
    assert!(search.finalists().contains(&search.best().unwrap().0));
}
