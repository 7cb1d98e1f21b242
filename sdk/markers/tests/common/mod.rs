//! A program with every marker, and a subscriber that counts.
#![allow(missing_docs, unreachable_pub)]

use candlescope_markers::{self as markers, Outcome, Request, Tokens};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What an application does with markers, whether they are on or off.
pub fn program() {
    let request = Request::new("chat", "m").prompt_tokens(3).batch(1).trace_id("x").traceparent("y");
    let (attn, layer) = (markers::module_of_layer(0, "attn"), markers::layer(0));
    {
        let _in_request = request.enter();
        let _step = markers::prefill(Tokens::new(3).context(3));
        layer.in_scope(|| attn.in_scope(|| drop(attn.clone().enter())));
        let _one_off = markers::module("model.norm").entered();
        drop(markers::sample());
        request.token();
    }
    request.in_scope(|| drop(markers::decode(Tokens::new(1).context(4).batch(1))));
    drop((markers::encode(Tokens::new(1)), markers::vision(Tokens::new(1))));
    {
        let _step = markers::step(Tokens::new(2));
        markers::serves(&request, Tokens::new(1), 1);
        request.record_tokens(0);
    }
    assert_eq!(poll_once(request.instrument(std::future::ready(7))), Poll::Ready(7));
    request.outcome(Outcome::Done);
    is_send_and_sync(&request);
    is_send_and_sync(&attn);
}

fn is_send_and_sync<T: Send + Sync + 'static>(_: &T) {}

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

/// A task of a runtime: it may go from thread to thread, and outlives what made it.
fn poll_once<F: Future + Send + 'static>(future: F) -> Poll<F::Output> {
    let mut future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
    let waker = Waker::from(Arc::new(Nothing));
    future.as_mut().poll(&mut Context::from_waker(&waker))
}

#[derive(Default)]
struct Counts {
    spans: AtomicUsize,
    enters: AtomicUsize,
}

struct Counting(Arc<Counts>);

impl Subscriber for Counting {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.0.spans.fetch_add(1, Relaxed) as u64 + 1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {
        self.0.enters.fetch_add(1, Relaxed);
    }
    fn exit(&self, _: &Id) {}
}

/// Spans made and entered while `f` runs.
pub fn seen_while(f: impl FnOnce()) -> (usize, usize) {
    let counts = Arc::new(Counts::default());
    tracing::subscriber::with_default(Counting(counts.clone()), f);
    (counts.spans.load(Relaxed), counts.enters.load(Relaxed))
}
