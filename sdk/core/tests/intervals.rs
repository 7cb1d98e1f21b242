//! What an interval is, with spans made here. Real candle models are tested under `tests/`.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::{Annotation, CandlescopeLayer, DType, MemoryExporter, Phase, Session, Shape, annotate, llm};
use candlescope_testkit::SOON;
use common::*;
use tracing::trace_span;
use tracing_subscriber::prelude::*;

#[test]
fn a_span_entered_again_is_another_interval_in_the_tree_of_the_moment() {
    let (batch, m) = record_default(|| {
        // As in candle: all spans are made first, under one that is open while the weights load.
        let load = trace_span!("load").entered();
        let block = trace_span!("block");
        let linears = [trace_span!("linear"), trace_span!("linear")];
        drop(load);
        for _ in 0..2 {
            let _step = llm::decode(llm::Tokens::new(1).context(7));
            for _ in 0..2 {
                let _b = block.enter();
                for l in &linears {
                    l.in_scope(|| ());
                }
            }
        }
    });
    let one = [
        "decode",
        "decode/block[0]",
        "decode/block[0]/linear[0]",
        "decode/block[0]/linear[1]",
        "decode/block[1]",
        "decode/block[1]/linear[0]",
        "decode/block[1]/linear[1]",
    ];
    let mut expected = vec!["load"];
    expected.extend(one);
    expected.extend(one);
    assert_eq!(paths(&batch), expected);
    assert_eq!(
        batch.spans.iter().find(|s| s.path.path == "decode/block[1]/linear[0]").unwrap().path.rollup,
        "decode/block/linear"
    );
    let spans = sorted(&batch);
    for span in &spans {
        if let Some(parent) = span.parent_seq {
            let parent = spans.iter().find(|s| s.seq == parent).expect("parent is there");
            assert!(span.path.path.starts_with(&format!("{}/", parent.path.path)));
            assert!(parent.host_start <= span.host_start);
            assert!(parent.host_start.plus_ns(parent.host_dur_ns) >= span.host_start.plus_ns(span.host_dur_ns));
            assert_eq!(span.trace_id, parent.trace_id);
        }
    }
    assert_eq!(batch.steps.len(), 3);
    let decode = batch.steps.iter().find(|s| s.phase == Some(Phase::Decode)).unwrap();
    assert_eq!((decode.tokens, decode.context_len, decode.batch, decode.intervals), (Some(1), Some(7), Some(1), 7));
    assert!(m.verdict.ok, "{:?}", m.verdict);
    assert_conserved(&m);
}

#[test]
fn the_same_span_nested_in_itself_is_two_intervals() {
    let (batch, m) = record_default(|| {
        let span = trace_span!("again");
        let _a = span.enter();
        let _b = span.enter();
        let _c = span.enter();
    });
    assert_eq!(paths(&batch), ["again", "again/again", "again/again/again"]);
    assert_conserved(&m);
}

#[test]
fn one_span_on_two_threads_at_once() {
    let (batch, m) = record_default(|| {
        let span = trace_span!("shared");
        let inner = trace_span!("inner");
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        std::thread::scope(|s| {
            for t in 0..4 {
                let (span, inner, dispatch) = (span.clone(), inner.clone(), dispatch.clone());
                std::thread::Builder::new()
                    .name(format!("worker-{t}"))
                    .spawn_scoped(s, move || {
                        tracing::dispatcher::with_default(&dispatch, || {
                            for _ in 0..500 {
                                let _s = span.enter();
                                let _i = inner.enter();
                            }
                        });
                    })
                    .unwrap();
            }
        });
    });
    assert_eq!(batch.spans.len(), 4 * 500 * 2);
    for t in 0..4 {
        let of_thread: Vec<_> = batch.spans.iter().filter(|s| *s.thread.name == *format!("worker-{t}")).collect();
        assert_eq!(of_thread.len(), 1000);
        assert!(of_thread.iter().all(|s| s.path.path == "shared" || s.path.path == "shared/inner"));
    }
    assert_conserved(&m);
}

#[test]
fn polls_of_a_future_are_intervals_on_whatever_thread_they_run() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let (batch, m) = record_default(|| {
        use tracing::Instrument;
        let inner = trace_span!("inner");
        let mut polls = 0;
        let future = std::future::poll_fn(move |_| {
            polls += 1;
            inner.in_scope(|| ());
            if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
        })
        .instrument(trace_span!("task"));
        let mut future = pin!(future);
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        // The second poll happens on another thread.
        std::thread::scope(|s| {
            s.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(future.as_mut().poll(&mut context).is_pending());
                })
            });
        });
        assert!(future.as_mut().poll(&mut context).is_ready());
    });
    // `instrument` enters its span once more to drop the finished future: that is an interval too.
    let tasks: Vec<_> = batch.spans.iter().filter(|s| s.path.path == "task").collect();
    assert!(tasks.len() >= 3, "{}", tasks.len());
    assert_eq!(batch.spans.iter().filter(|s| s.path.path == "task/inner").count(), 3);
    assert_eq!(tasks.iter().map(|s| s.thread.index).collect::<std::collections::HashSet<_>>().len(), 2);
    assert_conserved(&m);
}

#[test]
fn ids_reused_after_close_do_not_carry_old_names_over() {
    let (batch, m) = record(Session::builder(), |handle| {
        for i in 0..20_000 {
            // Created, entered and closed at once, so the registry reuses ids again and again.
            if i % 2 == 0 {
                trace_span!("even").in_scope(|| ())
            } else {
                trace_span!("odd").in_scope(|| ())
            }
            if i % 4096 == 0 {
                // So that the ring never gets full.
                handle.flush(SOON).expect("flushes");
            }
        }
    });
    let spans = sorted(&batch);
    assert_eq!(spans.len(), 20_000);
    for (i, span) in spans.iter().enumerate() {
        assert_eq!(&*span.path.name, if i % 2 == 0 { "even" } else { "odd" });
    }
    assert_conserved(&m);
}

#[test]
fn spans_left_out_of_order_are_kept_and_said() {
    let (batch, m) = record_default(|| {
        let (step, a, b) = (trace_span!("step"), trace_span!("a"), trace_span!("b"));
        let _s = step.enter();
        let guard_a = a.enter();
        let guard_b = b.enter();
        drop(guard_a);
        annotate(Annotation::new().flops(7)); // still goes to b
        drop(guard_b);
    });
    assert_eq!(paths(&batch), ["step", "step/a", "step/a/b"]);
    assert_eq!(sorted(&batch)[2].flops, Some(7));
    assert_eq!(sorted(&batch)[1].flops, None);
    assert!(m.verdict.findings.iter().any(|f| f.code == "parent_shorter_than_children"));
    assert_conserved(&m);
}

#[test]
fn a_step_left_before_its_children_loses_nothing() {
    let (batch, m) = record_default(|| {
        let (step, child) = (trace_span!("step"), trace_span!("child"));
        let s = step.enter();
        let c = child.enter();
        drop(s);
        drop(c);
        step.in_scope(|| child.in_scope(|| ()));
    });
    assert_eq!(batch.spans.len(), 4);
    assert!(batch.spans.iter().any(|s| s.path.path == "(lost)/child"));
    assert!(batch.spans.iter().any(|s| s.path.path == "step/child"));
    assert_conserved(&m);
}

#[test]
fn fields_and_annotations_land_on_the_interval() {
    let (batch, _) = record_default(|| {
        let layer =
            trace_span!("layer", flops = 100u64, tokens = tracing::field::Empty, shape = "1x5x576", dtype = "BF16");
        for tokens in [5u64, 6] {
            let _e = layer.enter();
            layer.record("tokens", tokens);
            annotate(Annotation::new().flops(1).bytes(10).context_len(9).batch(2));
            annotate(Annotation::new().bytes(5).shape(&[2, 3]).dtype(DType::Q4K));
        }
    });
    let spans = sorted(&batch);
    assert_eq!(spans[0].flops, Some(101));
    assert_eq!(spans[0].bytes, Some(15));
    assert_eq!((spans[0].tokens, spans[1].tokens), (Some(5), Some(6)));
    assert_eq!((spans[0].context_len, spans[0].batch), (Some(9), Some(2)));
    assert_eq!(spans[0].dtype, Some(DType::BF16), "fields have the last word");
    assert_eq!(spans[0].shape, Some(Shape::new(&[1, 5, 576])));
}

#[test]
fn what_is_executed_and_moved_adds_up_over_a_step() {
    let (batch, _) = record_default(|| {
        let fields = trace_span!("fields", flops_executed = 4u64, io_bytes = tracing::field::Empty);
        {
            let _step = llm::decode(llm::Tokens::new(4).context(10).batch(4));
            // Three of the four sequences have ended.
            annotate(Annotation::new().new_tokens(1).sequences(1).context_sum(10));
            trace_span!("both").in_scope(|| {
                annotate(Annotation::new().flops(100).flops_executed(130).bytes(10).io_bytes(25));
                annotate(Annotation::new().flops_executed(20).io_bytes(5));
            });
            trace_span!("flops").in_scope(|| annotate(Annotation::new().flops(7).bytes(3)));
            for bytes in [1u64, 2] {
                fields.record("io_bytes", bytes);
                fields.in_scope(|| ());
            }
        }
        let told = |io_bytes| annotate(Annotation::new().flops(7).bytes(3).io_bytes(io_bytes));
        {
            let _step = llm::decode(llm::Tokens::new(4).context(11).batch(4));
            trace_span!("flops").in_scope(|| annotate(Annotation::new().flops(7).bytes(3)));
        }
        let _step = llm::decode(llm::Tokens::new(4).context(12).batch(4));
        trace_span!("all").in_scope(|| told(30));
        trace_span!("all").in_scope(|| told(3));
    });
    let of = |name: &str| batch.spans.iter().filter(|s| &*s.path.name == name).collect::<Vec<_>>();
    let both = of("both")[0];
    assert_eq!((both.flops, both.flops_executed), (Some(100), Some(150)));
    assert_eq!((both.bytes, both.io_bytes), (Some(10), Some(30)));
    let flops = of("flops")[0];
    assert_eq!((flops.flops_executed, flops.io_bytes), (None, None), "nobody said");
    let fields = of("fields");
    assert_eq!((fields[0].io_bytes, fields[1].io_bytes), (Some(1), Some(2)), "a field has one value at a time");
    assert_eq!((fields[0].flops, fields[0].flops_executed), (None, Some(4)));

    let step = &batch.steps[0];
    assert_eq!((step.new_tokens, step.sequences, step.context_sum), (Some(1), Some(1), Some(10)));
    assert_eq!((step.tokens, step.batch, step.context_len), (Some(4), Some(4), Some(10)));
    // 150 and twice 4 are stated; the interval that states none counts with its 7 `flops`.
    assert_eq!((step.flops, step.flops_executed), (Some(107), Some(150 + 7 + 2 * 4)));
    assert_eq!((step.bytes, step.io_bytes), (Some(13), None), "one tells its work, but nothing of activations");
    assert_eq!((batch.steps[2].flops, batch.steps[2].io_bytes), (Some(14), Some(33)));
    // If no interval states a value, the step has none either.
    let step = &batch.steps[1];
    assert_eq!((step.flops, step.flops_executed, step.bytes, step.io_bytes), (Some(7), None, Some(3), None));
    assert_eq!((step.new_tokens, step.sequences, step.context_sum), (None, None, None));
}

#[test]
fn counts_of_a_step_may_be_fields() {
    let (batch, _) = record_default(|| {
        let step = trace_span!("step", new_tokens = 3u64, sequences = 2u64, context_sum = tracing::field::Empty);
        step.record("context_sum", 5_000_000_000u64);
        step.in_scope(|| ());
    });
    let step = &batch.steps[0];
    assert_eq!((step.new_tokens, step.sequences, step.context_sum), (Some(3), Some(2), Some(5_000_000_000)));
}

#[test]
fn requests_carry_their_context_across_threads() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (batch, m) = record_default(|| {
        let request = llm::Request::new("chat", "m").prompt_tokens(12).batch(1).trace_id(trace);
        {
            let _r = request.enter();
            let _p = llm::prefill(llm::Tokens::new(12).context(12));
            let _s = llm::sample();
            request.token();
        }
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        std::thread::scope(|s| {
            s.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    let _r = request.enter();
                    let _d = llm::decode(llm::Tokens::new(1).context(13));
                    request.token();
                })
            });
        });
        let _unrelated = trace_span!(target: "candle", "unrelated").entered();
    });
    assert_eq!(batch.requests.len(), 1);
    let r = &batch.requests[0];
    assert_eq!((&*r.operation, &*r.model), ("chat", "m"));
    assert_eq!((r.prompt_tokens, r.output_tokens, r.batch), (Some(12), Some(2), Some(1)));
    assert!(r.ttft_ns.unwrap() <= r.host_dur_ns);
    assert_eq!(r.trace_id.to_string(), trace);
    let of_request: Vec<_> = batch.steps.iter().filter(|s| s.request == Some(r.request)).collect();
    assert_eq!(of_request.len(), 2, "a sample inside a prefill is no step of its own");
    assert!(of_request.iter().all(|s| s.trace_id == r.trace_id));
    assert_ne!(of_request[0].thread.index, of_request[1].thread.index);
    let unrelated = batch.steps.iter().find(|s| &*s.path.name == "unrelated").unwrap();
    assert_eq!(unrelated.request, None);
    assert_ne!(unrelated.trace_id, r.trace_id);
    assert!(batch.spans.iter().any(|s| s.path.path == "prefill/sample" && s.phase == Some(Phase::Sample)));
    let entry = batch.spans.iter().find(|s| s.path.path == "request").unwrap();
    assert_eq!(entry.step, None);
    assert_conserved(&m);
}

#[test]
fn each_phase_has_a_helper_and_is_a_step() {
    let (batch, m) = record_default(|| {
        // One after the other: a phase inside another one is no step.
        let tokens = llm::Tokens::new(4);
        drop(llm::vision(tokens));
        drop(llm::encode(tokens));
        drop(llm::prefill(tokens));
        drop(llm::decode(tokens));
        drop(llm::sample());
    });
    let mut seen: Vec<Phase> = batch.steps.iter().filter_map(|step| step.phase).collect();
    assert!(batch.steps.iter().all(|step| step.phase.is_some_and(|phase| step.path.path == phase.as_str())));
    seen.sort_unstable();
    assert_eq!(seen, Phase::ALL);
    let vision = batch.spans.iter().find(|span| span.phase == Some(Phase::Vision)).unwrap();
    assert_eq!(vision.tokens, Some(4));
    assert_conserved(&m);
}

#[test]
fn excluded_targets_are_transparent() {
    let (batch, m) = record(Session::builder().exclude_target("noise"), |_| {
        let _step = trace_span!("step").entered();
        let _noise = trace_span!(target: "noise::inner", "wrapper").entered();
        annotate(Annotation::new().flops(3));
        trace_span!(target: "noisette", "kept").in_scope(|| ());
    });
    assert_eq!(paths(&batch), ["step", "step/kept"]);
    assert_eq!(sorted(&batch)[0].flops, Some(3));
    assert_conserved(&m);
}

#[test]
fn deep_recursion_is_counted() {
    let (batch, m) = record_default(|| {
        let span = trace_span!("deep");
        let mut guards: Vec<_> = (0..300).map(|_| span.enter()).collect();
        while let Some(g) = guards.pop() {
            drop(g);
        }
    });
    assert_eq!(batch.spans.len(), 256);
    assert_eq!(m.loss.too_deep, 44);
    assert!(m.verdict.findings.iter().any(|f| f.code == "too_deep"), "{:?}", m.verdict.findings);
    assert_eq!(m.loss.emitted, 300);
    assert_conserved(&m);
}

#[test]
fn a_run_inside_one_endless_span_is_resolved_in_parts() {
    const N: usize = 100_000;
    let (batch, m) = record(Session::builder().ring_capacity(1 << 18), |_| {
        let _main = trace_span!("main").entered();
        let outer = trace_span!("outer").entered();
        let (a, b) = (trace_span!("a"), trace_span!("b"));
        for _ in 0..N {
            let _a = a.enter();
            let _b = b.enter();
        }
        drop(outer);
    });
    assert_eq!(batch.spans.len(), 2 * N + 2);
    // Children of the endless spans have no ordinals, so the number of distinct paths stays bounded.
    let distinct: std::collections::BTreeSet<_> = batch.spans.iter().map(|s| s.path.path.as_str()).collect();
    let first_part = distinct.iter().filter(|p| p.contains('[')).count();
    assert_eq!(first_part, 0, "{:?}", distinct.iter().take(9).collect::<Vec<_>>());
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), ["main", "main/outer", "main/outer/a", "main/outer/a/b"]);
    assert_eq!(batch.steps.len(), 1);
    assert_eq!(batch.steps[0].intervals, 2 * N as u64 + 2);
    assert_conserved(&m);
}

/// A program that is one step, with the steps of a model inside: what else it does beside these is not kept to its end.
#[test]
fn a_run_inside_one_endless_span_with_steps_inside_is_resolved_in_parts() {
    const N: usize = 70_000;
    let memory = candlescope_core::MemoryExporter::new();
    let seen = memory.clone();
    let mut before = 0;
    let builder = Session::builder().ring_capacity(1 << 18).exporter(memory);
    let (batch, m) = record(builder, |handle| {
        let _main = trace_span!("main").entered();
        let a = trace_span!("a");
        for _ in 0..N {
            let _decode = trace_span!("decode", candlescope.phase = "decode").entered();
            trace_span!("layer").in_scope(|| ());
            drop(_decode);
            a.in_scope(|| ());
        }
        handle.flush(SOON).unwrap();
        before = seen.batch().spans.iter().filter(|span| &*span.path.name == "a").count();
    });
    assert!(before > 60_000, "{before} rows of the endless step were kept back");
    assert_eq!(batch.spans.len(), 3 * N + 1);
    let layers =
        batch.spans.iter().filter(|span| span.path.path.ends_with("/decode/layer") || span.path.path == "decode/layer");
    assert_eq!(layers.count(), N, "steps inside are whole");
    assert_conserved(&m);
}

#[test]
fn spans_made_before_the_layer_are_missing_and_the_verdict_says_so() {
    let span = trace_span!("made_too_early");
    let (batch, m) = record_default(|| {
        let _step = llm::decode(llm::Tokens::new(1).context(1));
        span.in_scope(|| ());
    });
    assert_eq!(paths(&batch), ["decode"]);
    assert!(!m.verdict.ok);
    assert_eq!(m.verdict.findings[0].code, "no_model_spans");
    let (_, m) = record_default(|| span.in_scope(|| ()));
    assert_eq!(m.verdict.findings[0].code, "no_spans");
    assert!(m.verdict.findings[0].remedy().contains("before the model loads"));
}

/// Passes everything on once it has a layer.
#[derive(Clone)]
struct Late(std::sync::Arc<std::sync::OnceLock<CandlescopeLayer>>);

impl<S> tracing_subscriber::Layer<S> for Late
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    fn on_enter(&self, id: &tracing::span::Id, ctx: tracing_subscriber::layer::Context<'_, S>) {
        if let Some(layer) = self.0.get() {
            layer.on_enter(id, ctx);
        }
    }
    fn on_exit(&self, id: &tracing::span::Id, ctx: tracing_subscriber::layer::Context<'_, S>) {
        if let Some(layer) = self.0.get() {
            layer.on_exit(id, ctx);
        }
    }
}

#[test]
fn plain_spans_made_before_the_layer_joined_keep_their_names() {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    let late = Late(std::sync::Arc::default());
    let subscriber = tracing_subscriber::registry().with(late.clone());
    tracing::subscriber::with_default(subscriber, || {
        let (plain, told) = (trace_span!("plain"), trace_span!("told", otel.name = "by a field"));
        assert!(late.0.set(layer).is_ok());
        plain.in_scope(|| told.in_scope(|| ()));
    });
    session.finish();
    assert_eq!(paths(&memory.batch()), ["plain", "plain/(other)"]);
}

#[test]
fn siblings_of_one_name_and_different_targets_have_paths_of_their_own() {
    let (batch, _) = record_default(|| {
        let _step = trace_span!("step").entered();
        trace_span!(target: "one", "linear").in_scope(|| ());
        trace_span!(target: "two", "linear").in_scope(|| ());
    });
    assert_eq!(paths(&batch), ["step", "step/linear[0]", "step/linear[1]"]);
    let targets: Vec<_> = sorted(&batch).iter().map(|s| s.path.target.to_string()).collect();
    assert_eq!(targets[1..], ["one", "two"]);
}

#[test]
fn a_late_layer_is_found_out_although_the_program_has_spans_of_its_own() {
    let model = trace_span!("made_too_early");
    let (_, m) = record_default(|| {
        let _handler = trace_span!("http").entered();
        for position in 1..3 {
            let _step = llm::decode(llm::Tokens::new(1).context(position));
            model.in_scope(|| ());
        }
    });
    let codes: Vec<_> = m.verdict.findings.iter().map(|finding| finding.code.as_str()).collect();
    assert_eq!(codes, ["spans_outside_phases", "no_model_spans"], "{:?}", m.verdict);
}

#[test]
fn steps_of_a_request_keep_its_trace_however_soon_it_closes() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (batch, _) = record(Session::builder().drain_interval(std::time::Duration::from_micros(100)), |_| {
        for _ in 0..2_000 {
            let request = llm::Request::new("chat", "m").trace_id(trace);
            let _entered = request.enter();
            drop(llm::decode(llm::Tokens::new(1).context(1)));
        }
    });
    assert_eq!(batch.requests.len(), 2_000);
    assert!(batch.spans.iter().all(|s| s.trace_id.to_string() == trace));
}

/// Ranges of other markers give the same intervals as spans do, without a subscriber.
#[test]
fn ranges_are_intervals_like_spans() {
    use candlescope_core::RangeKind;
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).exclude_target("noise").start().expect("starts");
    drop(layer);
    let ranges = session.handle().ranges();
    let name = |name: &str, target: &str, kind| ranges.name(name, target, kind);
    let handler = name("handler", "app", RangeKind::Application);
    let block = name("block", "model", RangeKind::Interval);
    let linear = name("linear", "model", RangeKind::Interval);
    let hidden = name("hidden", "noise", RangeKind::Interval);
    assert_eq!(linear, name("linear", "model", RangeKind::Interval), "a name has one number");
    // Known only when it ends, with what it did.
    let turn = name("turn", "model", RangeKind::Interval);
    ranges.enter(block, 5);
    ranges.enter(linear, 6);
    ranges.exit(6);
    ranges.exit_as(5, Some(turn), Some(Annotation::new().tokens(3).flops(70)));
    ranges.exit_as(5, Some(turn), None);
    // Without phases the outermost range is a step, as a span would be.
    ranges.enter(handler, 1);
    ranges.enter(block, 2);
    ranges.exit(2);
    ranges.exit(1);
    let decode = name("decode", "model", RangeKind::Phase(Phase::Decode));
    for token in 0..2 {
        ranges.enter(handler, 1);
        ranges.enter(decode, 2);
        ranges.enter(hidden, 3);
        for layer in 0..2 {
            ranges.enter(block, 10 + layer);
            ranges.enter(linear, 20);
            // Another domain's range crosses it.
            ranges.enter(linear, 30 + token);
            ranges.exit(20);
            ranges.exit(30 + token);
            ranges.exit(10 + layer);
        }
        // What nobody knows is ignored.
        ranges.exit(77);
        ranges.exit(3);
        ranges.exit(2);
        ranges.exit(1);
    }
    // Of another phase than it began with, and so is what was in it.
    ranges.enter(decode, 8);
    ranges.enter(linear, 9);
    ranges.exit(9);
    ranges.exit_as(8, Some(name("prefill", "model", RangeKind::Phase(Phase::Prefill))), None);
    let manifest = session.finish();
    let batch = memory.batch();
    let block = |n| {
        [format!("decode/block[{n}]"), format!("decode/block[{n}]/linear"), format!("decode/block[{n}]/linear/linear")]
    };
    let token: Vec<String> = std::iter::once("decode".into()).chain([block(0), block(1)].concat()).collect();
    let turn = vec!["turn".to_string(), "turn/linear".into()];
    let handler = vec!["handler".to_string(), "handler/block".into()];
    let prompt = vec!["prefill".to_string(), "prefill/linear".into()];
    let expected = [turn, handler, token.clone(), token, prompt].concat();
    assert_eq!(paths(&batch), expected);
    assert!(
        batch
            .spans
            .iter()
            .filter(|span| span.path.path.starts_with("prefill"))
            .all(|span| span.phase == Some(Phase::Prefill))
    );
    let phases: Vec<_> = batch.steps.iter().map(|step| step.phase).collect();
    assert_eq!(phases, [None, None, Some(Phase::Decode), Some(Phase::Decode), Some(Phase::Prefill)]);
    assert_eq!((batch.steps[0].tokens, batch.steps[0].flops), (Some(3), Some(70)));
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    assert_conserved(&manifest);
}

/// Ranges that may end anywhere stand beside the intervals: they change no path, and take no time from any.
#[test]
fn ranges_beside_intervals_end_on_any_thread_and_cross_what_they_like() {
    use candlescope_core::RangeKind;
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).exclude_target("noise").start().expect("starts");
    drop(layer);
    let ranges = session.handle().ranges();
    let decode = ranges.name("decode", "m", RangeKind::Phase(Phase::Decode));
    let linear = ranges.name("linear", "m", RangeKind::Interval);
    let beside = ranges.with_target(linear, "m::start_end");
    assert_eq!(ranges.begin(ranges.with_target(linear, "noise::start_end")), None);
    let before = ranges.begin(beside).expect("it records");
    ranges.enter(decode, 1);
    let inside = ranges.begin(beside).expect("it records");
    ranges.enter(linear, 2);
    ranges.end(before);
    ranges.exit(2);
    ranges.exit(1);
    assert!(ranges.begin(beside).is_some(), "it never ends");
    std::thread::scope(|scope| {
        scope.spawn(|| ranges.end(inside));
    });
    let manifest = session.finish();
    let batch = memory.batch();
    assert_eq!(paths(&batch), ["linear", "decode", "linear", "decode/linear"]);
    let [before, step, inside, part] = sorted(&batch)[..] else { panic!("{:?}", batch.spans) };
    assert_eq!((&*before.path.target, &*inside.path.target), ("m::start_end", "m::start_end"));
    let places = [before, step, inside, part].map(|span| (span.step.is_some(), span.parent_seq, span.phase));
    let decode = Some(Phase::Decode);
    let expected =
        [(false, None, None), (true, None, decode), (false, Some(step.seq), None), (true, Some(step.seq), decode)];
    assert_eq!(places, expected);
    assert!(batch.spans.iter().all(|span| span.thread.index == step.thread.index), "where they began");
    let end = |span: &candlescope_core::SpanRecord| span.host_start.plus_ns(span.host_dur_ns);
    assert!(before.host_start < step.host_start && end(before) > part.host_start && end(before) < end(part));
    assert!(inside.host_start < part.host_start && end(inside) > end(step));
    assert!(before.trace_id != inside.trace_id && inside.trace_id != step.trace_id);
    assert_eq!((batch.steps.len(), batch.steps[0].intervals), (1, 2));
    assert_eq!((manifest.loss.open_at_end, manifest.loss.emitted), (1, 4), "{:?}", manifest.loss);
    assert_conserved(&manifest);
}

#[test]
fn a_range_that_is_known_to_have_ended_before_is_as_long_as_it_was() {
    use candlescope_core::RangeKind;
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    drop(layer);
    let ranges = session.handle().ranges();
    let step = ranges.name("step", "m", RangeKind::Interval);
    let pause = std::time::Duration::from_millis(20);
    let begun = std::time::Instant::now();
    ranges.enter(step, 1);
    let ended = std::thread::scope(|scope| scope.spawn(|| ranges.now()).join()).expect("a time");
    std::thread::sleep(pause);
    ranges.exit_at(1, Some(ended), Some(Annotation::new().tokens(2)));
    let most = begun.elapsed() - pause;
    // Before it began: it has no time, rather than a negative one.
    ranges.enter(step, 2);
    ranges.exit_at(2, Some(ended), None);
    session.finish();
    let batch = memory.batch();
    let [first, second] = &batch.steps[..] else { panic!("{:?}", batch.steps) };
    assert!(u128::from(first.host_dur_ns) <= most.as_nanos() && first.host_dur_ns > 0, "{first:?}, {most:?}");
    assert_eq!((first.tokens, second.host_dur_ns), (Some(2), 0));
}
