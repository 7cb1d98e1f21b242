//! Taps: what happens on the application's own thread at enter and exit, such as an NVTX range.

use crate::record::SpanId;
use crate::vocabulary::Phase;

/// An interval as a tap sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapInterval {
    /// Number of the interval's name, as given to [`Tap::name`].
    pub name: u32,
    /// Span id, the same in all exports.
    pub span_id: SpanId,
    /// Innermost phase.
    pub phase: Option<Phase>,
    /// Whether the interval is a step.
    pub is_step: bool,
    /// Number of intervals open on the thread around it.
    pub depth: u16,
}

/// Runs on the application's threads: it must not allocate, lock, wait or panic. Calls balance on each thread, and come
/// only for recorded intervals. Exits come in the reverse order of enters, except where the application itself leaves spans out of order.
pub trait Tap: Send + Sync + 'static {
    /// A name was interned; called before any interval uses it, not on the hot path, but while other threads that make the same span wait.
    fn name(&self, id: u32, name: &str, target: &str);
    /// An interval begins on this thread.
    fn enter(&self, interval: TapInterval);
    /// An interval ends on this thread.
    fn exit(&self, interval: TapInterval);
}
