//! Which stream a thread launches into, if not into the per-thread default stream.

use super::driver_calls::{Context, StreamId};
use cudarc::driver::CudaStream;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A stream that marks are put into.
///
/// Made of cudarc's `Arc<CudaStream>`, which is kept alive, or with [`Stream::from_raw`].
#[derive(Debug, Clone)]
pub struct Stream {
    id: StreamId,
    /// The context it belongs to, if known.
    context: Option<Context>,
    _keep: Option<Arc<CudaStream>>,
}

impl Stream {
    /// The per-thread default stream: what marks go into when nothing else was said.
    pub const PER_THREAD: Stream = Stream { id: StreamId::PER_THREAD, context: None, _keep: None };

    pub(super) fn unowned(id: StreamId) -> Self {
        Self { id, context: None, _keep: None }
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// Whether the stream may be one of `context`'s.
    pub(super) fn fits(&self, context: Context) -> bool {
        self.context.is_none_or(|own| own == context)
    }
}

impl From<Arc<CudaStream>> for Stream {
    fn from(stream: Arc<CudaStream>) -> Self {
        let context = NonZeroUsize::new(stream.context().cu_ctx().expose_provenance()).map(Context);
        Self { id: StreamId(stream.cu_stream().expose_provenance()), context, _keep: Some(stream) }
    }
}

impl From<&Arc<CudaStream>> for Stream {
    fn from(stream: &Arc<CudaStream>) -> Self {
        stream.clone().into()
    }
}

thread_local! {
    static OVERRIDE: Cell<Option<StreamId>> = const { Cell::new(None) };
}

/// The stream that the calling thread named with [`with_stream`].
#[inline]
pub(super) fn named() -> Option<StreamId> {
    // A thread that is ending has no override any more, which must not panic.
    OVERRIDE.try_with(Cell::get).unwrap_or(None)
}

/// Runs `f` with the calling thread's marks put into `stream`: for a thread that launches into a stream of its own.
///
/// It takes precedence over a stream named for the whole device; calls nest. The stream must belong to the context that
/// is current in `f`, or marks are refused ([`NoMark::Failed`](candlescope_core::gpu::NoMark::Failed)).
pub fn with_stream<T>(stream: impl Into<Stream>, f: impl FnOnce() -> T) -> T {
    struct Restore(Option<StreamId>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = OVERRIDE.try_with(|o| o.set(self.0));
        }
    }
    let stream = stream.into();
    let _restore = Restore(OVERRIDE.replace(Some(stream.id)));
    f()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_nest_and_end_with_a_panic_too() {
        let stream = |n| Stream::unowned(StreamId(n));
        assert_eq!(named(), None);
        with_stream(stream(10), || {
            assert_eq!(named(), Some(StreamId(10)));
            with_stream(stream(20), || assert_eq!(named(), Some(StreamId(20))));
            assert_eq!(named(), Some(StreamId(10)));
            std::thread::spawn(|| assert_eq!(named(), None)).join().expect("another thread has no override");
        });
        assert_eq!(named(), None);
        let outcome = std::panic::catch_unwind(|| with_stream(stream(30), || panic!("in the closure")));
        assert!(outcome.is_err());
        assert_eq!(named(), None);
    }
}
