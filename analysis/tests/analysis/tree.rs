//! The tree of where the time goes.

use crate::common::scenario::{Scenario, make};
use crate::common::{span, step};
use candlescope_figures::Intervals;
use candlescope_figures::Tree;
use candlescope_figures::flame::collapsed;
use candlescope_figures::intervals::IntervalPass;
use candlescope_figures::operators::operators;
use candlescope_schema::SpanRecord;
use candlescope_testkit::with;
use std::collections::BTreeMap;

fn intervals(spans: &[SpanRecord]) -> Intervals {
    let mut pass = IntervalPass::default();
    spans.iter().for_each(|span| pass.add(span));
    pass.finish()
}

/// decode 100 = block[0] 40 (linear 25) + block[1] 50 (linear 30, linear 10) + 10 of its own.
fn small() -> Vec<SpanRecord> {
    let mut spans = vec![
        span(0, None, "decode", 0, 100),
        span(1, Some(0), "decode/block[0]", 1, 40),
        span(2, Some(1), "decode/block[0]/linear[0]", 2, 25),
        span(3, Some(0), "decode/block[1]", 45, 50),
        span(4, Some(3), "decode/block[1]/linear[0]", 46, 30),
        span(5, Some(3), "decode/block[1]/linear[1]", 80, 10),
    ];
    for (at, flops, bytes) in [(2, 250, 50), (4, 300, 60), (5, 100, 20)] {
        spans[at].flops = Some(flops);
        spans[at].bytes = Some(bytes / 2);
        spans[at].io_bytes = Some(bytes);
    }
    spans
}

#[test]
fn self_and_total_by_hand() {
    let intervals = intervals(&small());
    let tree = Tree::of(&intervals);
    assert_eq!(tree.total_ns, 100);
    let rows: Vec<_> = tree.rows.iter().map(|r| (r.depth, r.label.as_str(), r.calls, r.total_ns, r.self_ns)).collect();
    assert_eq!(rows, [(0, "decode", Some(1), 100, 10), (1, "block", Some(2), 90, 25), (2, "linear", Some(3), 65, 65)]);
    // Parents with children: 10 + 25.
    assert_eq!(tree.unaccounted_ns(), 35);
    assert!((tree.rows[1].share - 0.9).abs() < 1e-12);
    assert_eq!((intervals.impossible, intervals.orphans), (0, 0));
}

#[test]
fn work_is_carried_up_and_rates_are_over_total_time() {
    let intervals = intervals(&small());
    let operators = operators(&Tree::of(&intervals), &intervals, &BTreeMap::new(), &BTreeMap::new());
    let order: Vec<_> = operators.iter().map(|o| (o.path.as_str(), o.self_ns)).collect();
    assert_eq!(order, [("decode/block/linear", 65), ("decode/block", 25), ("decode", 10)]);
    let linear = &operators[0];
    assert_eq!((linear.work.flops, linear.work.bytes, linear.work.io_bytes), (Some(650), Some(65), Some(130)));
    assert!((linear.gflops.unwrap() - 10.0).abs() < 1e-12, "650 FLOP in 65 ns");
    assert!((linear.gbytes.unwrap() - 2.0).abs() < 1e-12, "130 B in 65 ns");
    assert!((linear.work.intensity().unwrap() - 5.0).abs() < 1e-12);
    let decode = &operators[2];
    assert_eq!(decode.work.flops, Some(650), "the whole step's work");
    assert!((decode.gflops.unwrap() - 6.5).abs() < 1e-12, "over its 100 ns");
    assert!((operators.iter().map(|o| o.self_share).sum::<f64>() - 1.0).abs() < 1e-12);
}

#[test]
fn any_order_gives_the_same() {
    let forward = intervals(&small());
    let mut spans = small();
    spans.reverse();
    assert_eq!(intervals(&spans), forward, "children before parents");
    spans.swap(0, 3);
    assert_eq!(intervals(&spans), forward);
}

#[test]
fn letting_go_of_finished_intervals_changes_nothing() {
    let (batch, _) = make(&Scenario { gpu: true, ..Scenario::default() });
    let all = intervals(&batch.spans);
    for most in [16, 100, 1000] {
        let mut pass = IntervalPass::holding(most);
        batch.spans.iter().for_each(|span| pass.add(span));
        assert_eq!(pass.finish(), all, "holding {most}");
    }
}

#[test]
fn requests_stand_above_steps() {
    let mut spans = vec![span(0, None, "request", 0, 1000)];
    spans[0].step = None;
    spans.push(span(1, Some(0), "prefill", 10, 300));
    spans.push(span(2, Some(0), "decode", 400, 100));
    for order in [false, true] {
        if order {
            spans.reverse();
        }
        let intervals = intervals(&spans);
        assert_eq!((intervals.count, intervals.above_steps, intervals.outermost_ns), (2, 1, 400));
        let tree = Tree::of(&intervals);
        let labels: Vec<_> = tree.rows.iter().map(|r| (r.label.as_str(), r.depth)).collect();
        assert_eq!(labels, [("prefill", 0), ("decode", 0)]);
    }
}

/// A server: `handle` 2000 around two requests, one of them inside another request, `tokenize` 50 beside them.
///
/// handle = request (prefill 300 (linear 200) + decode 100) + request (request (decode 150)) + tokenize + 1400 of its
/// own.
fn server() -> Vec<SpanRecord> {
    let mut spans = vec![
        span(0, None, "handle", 0, 2000),
        span(1, Some(0), "request", 10, 800),
        span(2, Some(1), "prefill", 20, 300),
        span(3, Some(2), "prefill/linear", 30, 200),
        span(4, Some(1), "decode", 400, 100),
        span(5, Some(0), "request", 900, 700),
        span(6, Some(5), "request", 910, 600),
        span(7, Some(6), "decode", 920, 150),
        span(8, Some(0), "handle/tokenize", 1800, 50),
    ];
    for request in [1, 5, 6] {
        spans[request].step = None;
    }
    spans
}

/// Every permutation of a few items, by swapping (Heap's algorithm).
fn each_order<T>(items: &mut Vec<T>, n: usize, look: &mut impl FnMut(&[T])) {
    if n <= 1 {
        return look(items);
    }
    for i in 0..n {
        each_order(items, n - 1, look);
        items.swap(if n.is_multiple_of(2) { i } else { 0 }, n - 1);
    }
}

#[test]
fn steps_of_a_request_inside_a_step_are_part_of_its_time() {
    let expected = intervals(&server());
    assert_eq!((expected.count, expected.above_steps, expected.outermost_ns), (6, 3, 2000));
    assert_eq!((expected.orphans, expected.impossible), (0, 0));
    assert_eq!(expected.paths.iter().map(|p| p.self_ns).sum::<u64>(), 2000, "nothing is counted twice");
    let tree = Tree::of(&expected);
    let rows: Vec<_> = tree.rows.iter().map(|r| (r.depth, r.label.as_str(), r.total_ns, r.self_ns)).collect();
    let by_hand = [
        (0, "handle", 2000, 1400),
        (1, "prefill", 300, 100),
        (2, "linear", 200, 200),
        (1, "decode", 250, 250),
        (1, "tokenize", 50, 50),
    ];
    assert_eq!(rows, by_hand);
    // The second request's chain in every order, between the others as they come.
    let (mut chain, rest): (Vec<_>, Vec<_>) = server().into_iter().partition(|s| [0, 5, 6, 7].contains(&s.seq));
    each_order(&mut chain, 4, &mut |chain| {
        let around = [chain, &rest].concat();
        assert_eq!(intervals(&around), expected);
        let exits: Vec<_> = around.into_iter().rev().collect();
        assert_eq!(intervals(&exits), expected);
    });
}

#[test]
fn a_step_still_open_around_requests_makes_no_orphans_of_their_steps() {
    // `main` never ended, so it is not in the run; the requests' steps are then outermost, as without it.
    let mut spans: Vec<_> = server().into_iter().filter(|s| [1, 2, 3, 4].contains(&s.seq)).collect();
    for _ in 0..2 {
        let intervals = intervals(&spans);
        assert_eq!((intervals.outermost_ns, intervals.orphans), (400, 0));
        assert_eq!(intervals.paths.iter().map(|p| p.self_ns).sum::<u64>(), 400);
        spans.reverse();
    }
}

#[test]
fn requests_in_a_ring_do_not_hang_the_reader() {
    let mut spans = vec![span(0, Some(1), "request", 0, 50), span(1, Some(0), "request", 0, 50)];
    spans.iter_mut().for_each(|s| s.step = None);
    spans.push(span(2, Some(0), "decode", 0, 40));
    for _ in 0..2 {
        let intervals = intervals(&spans);
        assert_eq!((intervals.outermost_ns, intervals.above_steps), (40, 2));
        spans.reverse();
    }
}

#[test]
fn a_step_inside_a_step_hangs_below_it() {
    // `generate` is entered by the application; the phase inside it starts a path of its own.
    let mut spans = vec![span(0, None, "generate", 0, 100), span(1, Some(0), "decode", 10, 60)];
    spans[1].step = Some(1);
    spans.push(with(span(2, Some(1), "decode/linear", 20, 50), |r| r.step = Some(1)));
    let intervals = intervals(&spans);
    assert_eq!(intervals.outermost_ns, 100);
    let tree = Tree::of(&intervals);
    let rows: Vec<_> = tree.rows.iter().map(|r| (r.depth, r.label.as_str(), r.self_ns)).collect();
    assert_eq!(rows, [(0, "generate", 40), (1, "decode", 10), (2, "linear", 50)]);
}

#[test]
fn steps_inside_each_other_both_ways_do_not_hang_the_reader() {
    let a = |seq, parent, text: &str, dur| span(seq, parent, text, 0, dur);
    let spans = vec![a(0, None, "x", 50), a(1, Some(0), "y", 40), a(2, None, "y", 50), a(3, Some(2), "x", 40)];
    let tree = Tree::of(&intervals(&spans));
    assert_eq!(tree.rows.len(), 2);
    assert_eq!(tree.rows.iter().map(|r| r.self_ns).sum::<u64>(), 100);
}

#[test]
fn a_lost_parent_leaves_orphans() {
    let mut spans = small();
    spans.remove(3); // block[1]
    let intervals = intervals(&spans);
    assert_eq!(intervals.orphans, 2);
    // The step keeps the time of its lost child; the orphans count as outermost: 100 + 30 + 10.
    assert_eq!(intervals.outermost_ns, 140);
    assert_eq!(intervals.paths.iter().map(|p| p.self_ns).sum::<u64>(), 140);
}

#[test]
fn a_parent_shorter_than_its_children_is_seen() {
    let mut spans = small();
    spans[3].host_dur_ns = 20;
    let intervals = intervals(&spans);
    assert_eq!(intervals.impossible, 1);
    assert_eq!(intervals.worst, Some(("decode/block".to_string(), 20, 40)));
}

#[test]
fn self_times_add_up_to_the_steps() {
    // The property behind every share: nothing is counted twice and nothing is left out.
    for (layers, output, requests) in [(1, 2, 1), (3, 9, 2), (6, 20, 4)] {
        let scenario = Scenario { layers, output, requests, warmup: 0, ..Scenario::default() };
        let (batch, _) = make(&scenario);
        let intervals = intervals(&batch.spans);
        let tree = Tree::of(&intervals);
        let steps: u64 = batch.steps.iter().map(|s| s.host_dur_ns).sum();
        assert_eq!(intervals.outermost_ns, steps);
        assert_eq!(tree.rows.iter().map(|r| r.self_ns).sum::<u64>(), steps);
        assert_eq!(intervals.impossible, 0);
        let folded: u64 = collapsed(&tree).iter().map(|l| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(folded, steps, "the flame graph's widths add up too");
    }
}

#[test]
fn hostile_names_cannot_break_a_stack_line() {
    let spans = vec![span(0, None, "a;b\nc 7", 0, 10), span(1, Some(0), "a;b\nc 7/", 0, 4)];
    assert_eq!(collapsed(&Tree::of(&intervals(&spans))), ["a_b_c 7 6", "a_b_c 7;(unnamed) 4"]);
}

#[test]
fn very_deep_paths_are_no_danger() {
    let mut text = "s".to_string();
    let mut spans = vec![span(0, None, "s", 0, 10_000)];
    for seq in 1..5_000 {
        text.push_str("/s");
        spans.push(span(seq, Some(seq - 1), &text, seq as i64, 10_000 - seq));
    }
    let intervals = intervals(&spans);
    let tree = Tree::of(&intervals);
    assert_eq!(tree.rows.len(), 5_000);
    assert_eq!(tree.rows.iter().map(|r| r.self_ns).sum::<u64>(), 10_000);
    assert!(collapsed(&tree).iter().all(|line| line.matches(';').count() < 256));
    let _ = step(0, "s", 0, 1);
}
