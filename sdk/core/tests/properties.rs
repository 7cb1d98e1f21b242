//! For any sequence of enters and exits, every loss is counted, nothing panics, and the tree is that of a simple model.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::Session;
use proptest::prelude::*;
use tracing::span::Id;
use tracing::{Dispatch, Span};

#[derive(Debug, Clone)]
enum Op {
    Enter(usize),
    Exit(usize),
    Reopen(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(
        prop_oneof![3 => (0..5usize).prop_map(Op::Enter), 3 => (0..5usize).prop_map(Op::Exit), 1 => (0..5usize).prop_map(Op::Reopen)],
        0..120,
    )
}

/// What the model knows of an open interval.
struct Open {
    span: usize,
    is_step: bool,
    /// Numbers of the spans from its step down to it, at the time when it was entered.
    path: Vec<usize>,
    step: usize,
    /// Whether its step has ended.
    detached: bool,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn make(i: usize) -> Span {
    match i {
        0 => tracing::trace_span!("a"),
        1 => tracing::trace_span!("b"),
        2 => tracing::trace_span!("c", flops = 1u64),
        3 => tracing::trace_span!("d"),
        _ => tracing::trace_span!("e"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn every_balanced_interval_is_recorded_once(ops in ops()) {
        let mut expected_intervals = 0u64;
        let mut expected_unmatched = 0u64;
        let mut expected_paths: Vec<Vec<usize>> = Vec::new();
        let (batch, m) = common::record(Session::builder(), |_| {
            let mut spans: Vec<Span> = (0..5).map(make).collect();
            let mut stack: Vec<Open> = Vec::new();
            let mut steps = 0;
            let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
            let id = |s: &Span| -> Id { s.id().expect("enabled") };
            for op in &ops {
                match *op {
                    Op::Enter(i) => {
                        dispatch.enter(&id(&spans[i]));
                        if stack.last().is_some_and(|top| top.detached) {
                            // If more intervals than this have outlived their step, the oldest are given up.
                            while stack.iter().filter(|open| open.detached).count() > 16 {
                                stack.remove(stack.iter().position(|open| open.detached).expect("there is one"));
                            }
                        }
                        let parent = stack.iter().rev().find(|open| !open.detached);
                        let mut path = parent.map(|open| open.path.clone()).unwrap_or_default();
                        path.push(i);
                        steps += usize::from(parent.is_none());
                        let step = parent.map_or(steps, |open| open.step);
                        stack.push(Open { span: i, is_step: parent.is_none(), path, step, detached: false });
                    }
                    Op::Exit(i) => {
                        dispatch.exit(&id(&spans[i]));
                        match stack.iter().rposition(|open| open.span == i) {
                            Some(at) => {
                                let left = stack.remove(at);
                                if left.is_step {
                                    let inside = stack.iter_mut().filter(|open| open.step == left.step);
                                    inside.for_each(|open| open.detached = true);
                                }
                                expected_paths.push(left.path);
                                expected_intervals += 1;
                            }
                            None => expected_unmatched += 1,
                        }
                    }
                    // Closes a span and makes a new one, which may get the same id.
                    Op::Reopen(i) => if !stack.iter().any(|open| open.span == i) {
                        spans[i] = make(i);
                    }
                }
            }
            while let Some(open) = stack.pop() {
                dispatch.exit(&id(&spans[open.span]));
                expected_paths.push(open.path);
                expected_intervals += 1;
            }
        });
        prop_assert_eq!(m.loss.emitted, expected_intervals);
        prop_assert_eq!(batch.spans.len() as u64, expected_intervals);
        prop_assert_eq!(m.loss.unmatched_exits, expected_unmatched);
        common::assert_conserved(&m);
        // Intervals that did not outlive their step are exactly where the model says.
        let mut ours: Vec<String> = batch.spans.iter()
            .filter(|s| !s.path.path.starts_with("(lost)")).map(|s| s.path.rollup.clone()).collect();
        let mut theirs: Vec<String> = expected_paths.iter()
            .map(|p| p.iter().map(|i| NAMES[*i]).collect::<Vec<_>>().join("/")).collect();
        let lost = batch.spans.len() - ours.len();
        ours.sort();
        theirs.sort();
        for path in &ours {
            prop_assert!(theirs.contains(path), "{} is not in {:?}", path, theirs);
        }
        if lost == 0 {
            prop_assert_eq!(ours, theirs);
        }
        let with_flops = batch.spans.iter().filter(|s| s.flops.is_some()).count();
        prop_assert_eq!(with_flops, batch.spans.iter().filter(|s| &*s.path.name == "c").count());
    }
}
