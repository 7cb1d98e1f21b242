//! Any sequence of enters and exits: nothing is lost uncounted, nothing panics, the tree is the one a simple model predicts.
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
            // The model: a stack of span numbers, with the names around each entry noted when it was entered.
            let mut stack: Vec<(usize, Vec<usize>)> = Vec::new();
            let dispatch = tracing::dispatcher::get_default(Dispatch::clone);
            let id = |s: &Span| -> Id { s.id().expect("enabled") };
            for op in &ops {
                match *op {
                    Op::Enter(i) => {
                        dispatch.enter(&id(&spans[i]));
                        let mut path = stack.last().map(|(_, p)| p.clone()).unwrap_or_default();
                        path.push(i);
                        stack.push((i, path));
                    }
                    Op::Exit(i) => {
                        dispatch.exit(&id(&spans[i]));
                        match stack.iter().rposition(|(s, _)| *s == i) {
                            Some(at) => {
                                expected_paths.push(stack.remove(at).1);
                                expected_intervals += 1;
                            }
                            None => expected_unmatched += 1,
                        }
                    }
                    // Closes a span and makes a new one, whose id may be the old one.
                    Op::Reopen(i) => if !stack.iter().any(|(s, _)| *s == i) {
                        spans[i] = make(i);
                    }
                }
            }
            while let Some((i, path)) = stack.pop() {
                dispatch.exit(&id(&spans[i]));
                expected_paths.push(path);
                expected_intervals += 1;
            }
        });
        prop_assert_eq!(m.loss.emitted, expected_intervals);
        prop_assert_eq!(batch.spans.len() as u64, expected_intervals);
        prop_assert_eq!(m.loss.unmatched_exits, expected_unmatched);
        common::assert_conserved(&m);
        // Intervals that did not outlive their step stand exactly where the model says.
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
