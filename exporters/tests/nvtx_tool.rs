//! The NVTX tap with a tool attached: a small one inside this very program, which NVTX finds as a statically linked
//! injection.
#![allow(missing_docs, unreachable_pub, unsafe_code, reason = "a test that speaks the C interface of NVTX tools")]
#[path = "common/nvtx_tool.rs"]
mod tool;

use candlescope_core::{MemoryExporter, Phase, Session, SpanId, SpanRecord, Tap, TapInterval, llm};
use candlescope_exporters::nvtx::NvtxTap;
use candlescope_testkit::allocations::{Counting, allocator_calls, assert_counting};
use std::collections::HashMap;
use tool::{Event, Range, events, ranges};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

#[global_allocator]
static GLOBAL: Counting = Counting;

fn interval(name: u32, span_id: u64) -> TapInterval {
    TapInterval { name, span_id: SpanId(span_id), phase: None, is_step: false, depth: 0 }
}

/// Runs `f` under a session with the tap; returns what was recorded.
fn record(f: impl FnOnce()) -> Vec<SpanRecord> {
    let memory = MemoryExporter::new();
    let tap = NvtxTap::attached().expect("the tool in this program is attached");
    let (layer, session) = Session::builder().exporter(memory.clone()).tap(tap).start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), f);
    session.finish();
    let mut spans = memory.batch().spans;
    spans.sort_by_key(|s| s.seq);
    spans
}

/// (name, parent's name) of every record, by span id.
fn tree(spans: &[SpanRecord]) -> HashMap<u64, (String, Option<u64>)> {
    let ids: HashMap<u64, u64> = spans.iter().map(|s| (s.seq, s.span_id.0)).collect();
    spans
        .iter()
        .map(|s| (s.span_id.0, (s.path.name.to_string(), s.parent_seq.and_then(|p| ids.get(&p).copied()))))
        .collect()
}

/// The same of ranges, by payload.
fn range_tree(ranges: &[Range]) -> HashMap<u64, (String, Option<u64>)> {
    ranges.iter().map(|r| (r.payload, (r.text.clone(), r.parent))).collect()
}

#[test]
fn every_interval_is_a_range_nested_as_recorded() {
    const N: usize = 7;
    let spans = record(|| {
        let (block, linear, again) = (trace_span!("block"), trace_span!("linear"), trace_span!("rms-norm"));
        for _ in 0..N {
            let _b = block.enter();
            for _ in 0..3 {
                linear.in_scope(|| again.in_scope(|| ()));
            }
            // The same span inside itself.
            linear.in_scope(|| linear.in_scope(|| ()));
        }
    });
    let ranges = ranges(&events());
    assert_eq!(spans.len(), N * 9);
    assert_eq!(ranges.len(), spans.len(), "one range for each interval");
    assert_eq!(range_tree(&ranges), tree(&spans));
}

#[test]
fn phases_have_categories_and_colours_of_their_own() {
    record(|| {
        let plain = trace_span!("plain");
        plain.in_scope(|| ());
        llm::prefill(llm::Tokens::new(4).context(4)).in_scope(|| plain.in_scope(|| ()));
        llm::decode(llm::Tokens::new(1).context(5)).in_scope(|| ());
    });
    let ranges = ranges(&events());
    let find = |text: &str, top: bool| ranges.iter().find(|r| r.text == text && r.parent.is_none() == top).expect(text);
    let (outside, inside) = (find("plain", true), find("plain", false));
    let (prefill, decode) = (find("prefill", true), find("decode", true));
    assert_eq!(tool::category_name(prefill.category).as_deref(), Some("prefill"));
    assert_eq!(tool::category_name(decode.category).as_deref(), Some("decode"));
    assert_eq!((inside.category, inside.color), (prefill.category, prefill.color), "an interval has its phase's look");
    assert_eq!(outside.category, 0);
    assert!(outside.color != prefill.color && prefill.color != decode.color && decode.color != outside.color);
    for &phase in Phase::ALL {
        assert!(
            (1..=Phase::ALL.len() as u32).any(|c| tool::category_name(c).as_deref() == Some(phase.as_str())),
            "{phase}"
        );
    }
    assert_eq!(tool::domains(), ["candlescope"], "one domain, however many sessions");
}

#[test]
fn spans_left_out_of_order_keep_the_ranges_balanced() {
    let spans = record(|| {
        let (a, b, outer) = (trace_span!("a"), trace_span!("b"), trace_span!("outer"));
        let _o = outer.enter();
        let ea = a.enter();
        let eb = b.enter();
        drop(ea);
        drop(eb);
        trace_span!("after").in_scope(|| ());
    });
    let events = events();
    let pushes = events.iter().filter(|e| matches!(e, Event::Push { .. })).count();
    let pops = events.iter().filter(|e| matches!(e, Event::Pop)).count();
    assert_eq!((pushes, pops), (spans.len(), spans.len()));
    // What follows is in the right place, so nothing is shifted.
    let ranges = ranges(&events);
    let outer = ranges.iter().find(|r| r.text == "outer").unwrap().payload;
    assert_eq!(ranges.iter().find(|r| r.text == "after").unwrap().parent, Some(outer));
}

#[test]
fn threads_have_ranges_of_their_own() {
    let mut per_thread = Vec::new();
    let spans = record(|| {
        let span = trace_span!("shared");
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            let run = |n: usize| {
                let (span, dispatch) = (span.clone(), dispatch.clone());
                scope.spawn(move || {
                    tracing::dispatcher::with_default(&dispatch, || (0..n).for_each(|_| span.in_scope(|| ())));
                    ranges(&events())
                })
            };
            let threads = [run(3), run(5)];
            per_thread = threads.map(|t| t.join().unwrap()).into_iter().collect();
        });
    });
    assert_eq!(per_thread.iter().map(Vec::len).collect::<Vec<_>>(), [3, 5]);
    let all: HashMap<_, _> = per_thread.iter().flat_map(|r| range_tree(r)).collect();
    assert_eq!(all, tree(&spans));
}

#[test]
fn odd_names_are_ranges_too() {
    let tap = NvtxTap::new();
    tap.name(1, "schritt ↦ 1", "");
    tap.name(2, "nul\0inside", "");
    tap.name(65_536, "one too many", "");
    for (i, name) in [1, 2, 3, 65_535, 65_536, u32::MAX].into_iter().enumerate() {
        tap.enter(interval(name, i as u64));
        tap.exit(interval(name, i as u64));
    }
    let texts: Vec<_> = ranges(&events()).into_iter().map(|r| r.text).collect();
    assert_eq!(texts, ["schritt ↦ 1", "nulinside", "(other)", "(other)", "(other)", "(other)"]);
}

#[test]
fn enter_and_exit_allocate_nothing() {
    let tap = NvtxTap::new();
    tap.name(1, "linear", "");
    tap.name(300, "block", "");
    tool::reserve(4_096);
    assert_counting();
    let calls = allocator_calls(|| {
        for i in 0..1_000 {
            tap.enter(interval(300, i));
            tap.enter(interval(1, i));
            tap.exit(interval(1, i));
            tap.exit(interval(300, i));
        }
    });
    assert_eq!(calls, 0);
    assert_eq!(ranges(&events()).len(), 2_000);
}
