//! Taps: called on the application's own thread at enter and exit, for example to open and close an NVTX range.

use crate::diagnostics::panic_message;
use crate::notices::Notices;
use crate::record::SpanId;
use crate::run::{Code, Finding};
use crate::vocabulary::Phase;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An interval as a tap sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapInterval {
    /// Number of the interval's name, as given to [`Tap::name`].
    pub name: u32,
    /// Span id, the same in all exports.
    pub span_id: SpanId,
    /// Innermost phase around it, or its own; `None` outside of phases.
    pub phase: Option<Phase>,
    /// Whether the interval is a step.
    pub is_step: bool,
    /// Number of intervals open around it on the thread.
    pub depth: u16,
}

/// Runs on the application's threads: it must not allocate, lock, wait or panic. A tap that panics is not called again,
/// by any thread; the program goes on. Until then calls balance on each thread, and come only for recorded intervals.
/// Exits come in the reverse order of enters, unless the application itself leaves spans out of order.
pub trait Tap: Send + Sync + 'static {
    /// A name was interned. Called before any interval uses the name; not on the hot path, but other threads that make
    /// the same span wait meanwhile.
    fn name(&self, id: u32, name: &str, target: &str);
    /// The intervals of a name stand for a module of the model (`model.layers.7.mlp.down_proj`). Called after
    /// [`name`](Tap::name), on any thread, and sometimes only after the first of these intervals have ended.
    fn module(&self, _id: u32, _module: &str) {}
    /// An interval begins on this thread.
    fn enter(&self, interval: TapInterval);
    /// An interval ends on this thread.
    fn exit(&self, interval: TapInterval);
}

/// A tap as a session calls it: a panic in it ends the tap and nothing else.
pub(crate) struct TapSlot {
    tap: Arc<dyn Tap>,
    gone: AtomicBool,
}

impl TapSlot {
    pub(crate) fn new(tap: Arc<dyn Tap>) -> Self {
        Self { tap, gone: AtomicBool::new(false) }
    }

    #[inline]
    pub(crate) fn call(&self, notices: &Notices, f: impl FnOnce(&dyn Tap)) {
        if self.gone.load(Ordering::Relaxed) {
            return;
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| f(&*self.tap))) {
            self.end(notices, payload.as_ref());
        }
    }

    #[cold]
    fn end(&self, notices: &Notices, payload: &(dyn Any + Send)) {
        self.gone.store(true, Ordering::Relaxed);
        let finding = Finding::new(
            Code::TapPanicked,
            "a tap panicked and is not called again: {error}",
            "what it does with intervals is incomplete; the run itself is not affected",
        );
        notices.add(finding.text("error", panic_message(payload)));
    }
}
