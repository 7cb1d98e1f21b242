//! Each thread's cache of what is known about span ids, so that enter and exit need not ask the registry.

use crate::names;
use crate::raw::NO_PHASE;
use crate::shared::SessionState;
use crate::sync::atomic::Ordering;

/// Bits of [`Meta::flags`].
pub(crate) mod meta_flag {
    /// Has fields whose values belong on the interval.
    pub(crate) const FIELDS: u8 = 1;
    /// Is a request.
    pub(crate) const REQUEST: u8 = 2;
    /// Is of an excluded target.
    pub(crate) const IGNORED: u8 = 4;
    /// Is neither a phase nor a request, nor known to be the model's: where phases are marked, it is no step.
    pub(crate) const APPLICATION: u8 = 8;
    /// Is a step of its own also inside of a step that is in no phase, and has its own place in a window of kernels.
    pub(crate) const STEP: u8 = 16;
}

/// What the hot path must know about a span. It never changes while the span lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Meta {
    pub(crate) name: u32,
    pub(crate) request: u32,
    pub(crate) phase: u8,
    pub(crate) flags: u8,
}

impl Meta {
    pub(crate) const OTHER: Meta = Meta { name: names::OTHER, request: 0, phase: NO_PHASE, flags: 0 };
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    span: u64,
    epoch: u32,
    meta: Meta,
}

/// Direct-mapped by the low bits of the span id, because the registry gives ids out consecutively.
#[derive(Debug)]
pub(crate) struct MetaCache {
    entries: Box<[Entry]>,
}

const ENTRIES: usize = 1024;

impl MetaCache {
    /// Size of one cache in bytes.
    pub(crate) const BYTES: usize = ENTRIES * size_of::<Entry>();

    /// An empty cache, for a thread that looks nothing up.
    pub(crate) fn none() -> Self {
        Self { entries: Box::default() }
    }

    pub(crate) fn new() -> Self {
        // Span ids are never zero, so an empty entry matches nothing.
        Self { entries: vec![Entry { span: 0, epoch: 0, meta: Meta::OTHER }; ENTRIES].into_boxed_slice() }
    }

    /// The span's meta; `load` asks the registry if the cache does not have it.
    #[inline]
    pub(crate) fn get(
        &mut self,
        shared: &SessionState,
        span: u64,
        load: impl FnOnce() -> Option<Meta>,
    ) -> Option<Meta> {
        let epoch = shared.epoch(span).load(Ordering::Relaxed);
        let entry = &mut self.entries[span as usize % ENTRIES];
        if entry.span == span && entry.epoch == epoch {
            return Some(entry.meta);
        }
        let meta = load()?;
        *entry = Entry { span, epoch, meta };
        Some(meta)
    }

    /// Stores the meta of a span that was just made, whose epoch is `epoch`.
    #[inline]
    pub(crate) fn put(&mut self, span: u64, epoch: u32, meta: Meta) {
        self.entries[span as usize % ENTRIES] = Entry { span, epoch, meta };
    }
}
