//! Each thread's cache of callsites, so that making a span of a known callsite needs no look-up in shared tables.

use super::cache::Meta;
use crate::fields::FieldKinds;
use crate::modules::rules::Rule;
use std::cell::Cell;
use tracing_core::Metadata;

/// What a callsite says about its spans.
#[derive(Debug, Clone, Copy)]
pub(super) struct Callsite {
    pub(super) kinds: FieldKinds,
    /// Present if all spans of the callsite are alike; absent if the value of a field decides.
    pub(super) meta: Option<Meta>,
    /// How its spans relate to weights, if it is one of candle's callsites.
    pub(super) rule: Option<Rule>,
}

#[derive(Clone, Copy)]
struct Entry {
    session: u64,
    /// Address of the metadata, which is `'static`: no other callsite ever has it.
    metadata: usize,
    callsite: Callsite,
}

const ENTRIES: usize = 64;

thread_local! {
    static KNOWN: [Cell<Option<Entry>>; ENTRIES] = const { [const { Cell::new(None) }; ENTRIES] };
}

/// The callsite of `metadata` for a session; `describe` is called if this thread does not know it.
#[inline]
pub(super) fn get(session: u64, metadata: &'static Metadata<'static>, describe: impl FnOnce() -> Callsite) -> Callsite {
    let address = std::ptr::from_ref(metadata) as usize;
    // Callsites lie side by side in memory: the low bits of their addresses are alike, the higher ones are not.
    let slot = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES.ilog2());
    let known = KNOWN.try_with(|known| known[slot as usize].get()).ok().flatten();
    if let Some(entry) = known
        && entry.metadata == address
        && entry.session == session
    {
        return entry.callsite;
    }
    let callsite = describe();
    let _ = KNOWN.try_with(|known| known[slot as usize].set(Some(Entry { session, metadata: address, callsite })));
    callsite
}
