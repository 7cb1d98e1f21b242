//! A library's markers are recorded as the program's own: the same program with markers, with `candlescope::llm` and with
//! spans made by hand has the same rows. Nothing but the link to candlescope switches the markers on.
#![allow(missing_docs, reason = "a test")]

use candlescope::llm;
use candlescope::sdk::{Batch, MemoryExporter};
use candlescope_markers::{self as markers, Outcome, Request, Tokens};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tracing::{Span, info_span, trace_span};
use tracing_subscriber::prelude::*;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PROMPT: usize = 5;
const TOKENS: usize = 3;
const LAYERS: usize = 2;

/// What is recorded of `program`, and the codes of findings.
fn record(program: impl FnOnce()) -> (Batch, Vec<String>) {
    let memory = MemoryExporter::new();
    let (layer, scope) = candlescope::builder().exporter(memory.clone()).layer().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), program);
    let manifest = scope.finish().expect("recorded");
    assert_eq!(manifest.loss.lost(), 0, "{:?}", manifest.loss);
    (memory.batch(), manifest.verdict.findings.iter().map(|finding| format!("{:?}", finding.code)).collect())
}

/// All that does not differ from run to run.
fn rows(batch: &Batch) -> Vec<String> {
    let mut spans: Vec<_> = batch.spans.iter().collect();
    spans.sort_by_key(|span| span.seq);
    let mut rows = Vec::new();
    for span in spans {
        let path = (&span.path.path, &span.path.rollup, &span.path.name, &span.path.target, &span.path.module);
        let tokens = (span.tokens, span.context_len, span.batch);
        rows.push(format!("{path:?} {:?} {tokens:?} {:?}", span.phase, (span.step, span.depth)));
    }
    for step in &batch.steps {
        let served: Vec<_> = step.requests().collect();
        let tokens = (step.tokens, step.context_len, step.batch, step.new_tokens, step.sequences, step.context_sum);
        rows.push(format!("{} {:?} {tokens:?} {:?} {served:?}", step.path.path, step.phase, step.request));
    }
    for request in &batch.requests {
        let asked = (&request.operation, &request.model, request.trace_id, request.parent_span_id);
        let tokens = (request.prompt_tokens, request.output_tokens, request.batch, request.outcome);
        let known = (request.queue_ns.is_some(), request.ttft_ns.is_some(), request.last_token_ns.is_some());
        rows.push(format!("{asked:?} {:?} {tokens:?} {known:?}", request.caller_sampled));
    }
    rows
}

/// A model by the program's means: what stands for a layer and for its attention.
fn forward<M>(model: &[(M, M)], enter: impl Fn(&M, &dyn Fn())) {
    for (layer, attn) in model {
        enter(layer, &|| enter(attn, &|| ()));
    }
}

fn with_markers() {
    let model: Vec<_> = (0..LAYERS).map(|n| (markers::layer(n), markers::module_of_layer(n, "attn"))).collect();
    let head = markers::module("lm_head");
    let request = Request::new("chat", "m").prompt_tokens(PROMPT).batch(1).traceparent(CALLER);
    {
        let _in_request = request.enter();
        for n in 0..TOKENS {
            let context = PROMPT + n;
            let _step = match n {
                0 => markers::prefill(Tokens::new(context).context(context)),
                _ => markers::decode(Tokens::new(1).context(context)),
            };
            forward(&model, |module, inside| module.in_scope(inside));
            head.in_scope(|| ());
            drop(markers::sample());
            request.token();
        }
    }
    request.outcome(Outcome::Done);
    drop(request);
    drop(markers::encode(Tokens::new(7).batch(2)));
    drop(markers::vision(Tokens::new(16)));
    drop(markers::step(Tokens::new(6).batch(2)));
}

fn with_llm() {
    let model: Vec<_> = (0..LAYERS).map(|n| (llm::layer(n), llm::module_of_layer(n, "attn"))).collect();
    let head = llm::module("lm_head");
    let request = llm::Request::new("chat", "m").prompt_tokens(PROMPT).batch(1).traceparent(CALLER);
    {
        let _in_request = request.enter();
        for n in 0..TOKENS {
            let context = PROMPT + n;
            let _step = match n {
                0 => llm::prefill(llm::Tokens::new(context).context(context)),
                _ => llm::decode(llm::Tokens::new(1).context(context)),
            };
            forward(&model, |module, inside| module.in_scope(inside));
            head.in_scope(|| ());
            drop(llm::sample());
            request.token();
        }
    }
    request.outcome(candlescope::Outcome::Done);
    drop(request);
    drop(llm::encode(llm::Tokens::new(7).batch(2)));
    drop(llm::vision(llm::Tokens::new(16)));
    drop(llm::step(llm::Tokens::new(6).batch(2)));
}

/// Names are written out: these are what the markers promise to any subscriber.
fn by_hand() {
    let module = |name: &str, module: &str| trace_span!(target: "candlescope::module", "module", otel.name = name, candlescope.module = module);
    let model: Vec<(Span, Span)> = (0..LAYERS)
        .map(|n| (module("layer", &format!("layers.{n}")), module("attn", &format!("layers.{n}.attn"))))
        .collect();
    let head = module("lm_head", "lm_head");
    let request = info_span!(
        target: "candlescope::llm",
        "request",
        gen_ai.operation.name = "chat",
        gen_ai.request.model = "m",
        gen_ai.usage.input_tokens = PROMPT,
        gen_ai.usage.output_tokens = TOKENS,
        gen_ai.response.time_to_first_chunk = 0.0,
        candlescope.time_to_last_token = 0.0,
        candlescope.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
        candlescope.parent_span_id = "00f067aa0ba902b7",
        candlescope.caller_sampled = true,
        candlescope.outcome = "done",
        batch = 1,
    );
    let in_request = request.entered();
    for n in 0..TOKENS {
        let context_len = PROMPT + n;
        let _step = match n {
            0 => info_span!(
                target: "candlescope::llm", "prefill", candlescope.phase = "prefill", tokens = PROMPT, context_len, batch = 1
            ),
            _ => info_span!(
                target: "candlescope::llm", "decode", candlescope.phase = "decode", tokens = 1, context_len, batch = 1
            ),
        }
        .entered();
        forward(&model, |module, inside| module.in_scope(inside));
        head.in_scope(|| ());
        info_span!(target: "candlescope::llm", "sample", candlescope.phase = "sample").in_scope(|| ());
    }
    drop(in_request);
    info_span!(target: "candlescope::llm", "encode", candlescope.phase = "encode", tokens = 7, batch = 2)
        .in_scope(|| ());
    info_span!(target: "candlescope::llm", "vision", candlescope.phase = "vision", tokens = 16, batch = 1)
        .in_scope(|| ());
    info_span!(target: "candlescope::llm", "step", tokens = 6, batch = 2).in_scope(|| ());
}

#[test]
fn the_same_program_has_the_same_rows() {
    let ((ours, findings), (of_llm, others), (made, _)) = (record(with_markers), record(with_llm), record(by_hand));
    let rows_of_markers = rows(&ours);
    assert_eq!(rows_of_markers, rows(&of_llm));
    assert_eq!(rows_of_markers, rows(&made));
    assert_eq!(findings, others);
    assert_eq!((ours.steps.len(), ours.requests.len()), (TOKENS + 3, 1));
    let attn = ours.spans.iter().find(|span| span.path.path == "decode/layer[1]/attn").expect("the second layer's");
    assert_eq!(attn.path.module.as_deref(), Some("layers.1.attn"));
    assert_eq!(attn.path.rollup, "decode/layers.*.attn");
    let step = ours.steps.last().expect("steps");
    assert_eq!((&*step.path.path, step.phase, step.tokens, step.batch), ("step", None, Some(6), Some(2)));
}

#[test]
fn outcomes_have_the_words_of_records() {
    for outcome in candlescope::Outcome::ALL {
        assert_eq!(Outcome::from(*outcome).as_str(), outcome.as_str());
    }
}

/// An engine in a library marks which requests a step serves; the program made them.
#[test]
fn a_step_serves_requests_of_either_crate() {
    let (batch, _) = record(|| {
        let (ours, of_library) = (llm::Request::new("chat", "m"), Request::new("chat", "m"));
        let _step = markers::decode(Tokens::new(3).batch(2));
        markers::serves(&ours, Tokens::new(1).context(4), 1);
        llm::serves(&of_library, llm::Tokens::new(2).context(2), 0);
    });
    let served: Vec<_> = batch.steps[0].requests().collect();
    assert_eq!(served.len(), 2, "{served:?}");
    assert!(batch.requests.iter().all(|request| request.queue_ns.is_some()));
    let mut tokens: Vec<_> = batch.requests.iter().map(|request| request.output_tokens).collect();
    tokens.sort();
    assert_eq!(tokens, [Some(0), Some(1)]);
}

/// A future of a request that is polled on two threads: what it does belongs to the request on both.
#[test]
fn a_request_goes_with_its_future() {
    let (batch, _) = record(|| {
        let request = Request::new("chat", "m").prompt_tokens(1);
        let mut is_first = true;
        let steps = std::future::poll_fn(move |_| {
            drop(markers::decode(Tokens::new(1)));
            if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut future = Box::pin(request.instrument(steps));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        request.outcome(Outcome::Cancelled);
        drop(request); // the future goes on, and with it the request
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
                    assert_eq!(polled, Poll::Ready(()));
                });
            });
        });
    });
    let [request] = &batch.requests[..] else { panic!("{:?}", batch.requests) };
    assert_eq!(request.outcome, Some(candlescope::Outcome::Cancelled));
    assert_eq!(batch.steps.len(), 2);
    assert!(batch.steps.iter().all(|step| step.request == Some(request.request)));
    assert_ne!(batch.steps[0].thread.index, batch.steps[1].thread.index);
}
