//! Handles of registered strings by the number of their name: written when a name is interned, read without a lock.

use super::sys::StringSlot;
use std::sync::OnceLock;

/// Most names: a session does not number more.
const MAX_NAMES: usize = 65_536;
/// Most programs have a few dozen names, so a block of slots is made when its first name occurs.
const BLOCK: usize = 256;

/// A slot for every name, made in blocks.
#[derive(Debug)]
pub(super) struct Strings {
    blocks: Box<[OnceLock<Box<[StringSlot]>>]>,
    /// For names without a slot of their own: see [`get`](Strings::get).
    other: StringSlot,
}

impl Strings {
    pub(super) fn new() -> Self {
        Self { blocks: (0..MAX_NAMES / BLOCK).map(|_| OnceLock::new()).collect(), other: StringSlot::default() }
    }

    /// The slot of names that have none of their own.
    pub(super) fn other(&self) -> &StringSlot {
        &self.other
    }

    /// The slot of a name, made if need be. Allocates: not for the hot path.
    pub(super) fn slot(&self, name: u32) -> Option<&StringSlot> {
        let block = self.blocks.get(name as usize / BLOCK)?;
        block.get_or_init(|| (0..BLOCK).map(|_| StringSlot::default()).collect()).get(name as usize % BLOCK)
    }

    /// The filled slot of a name, or [`other`](Strings::other) for the name that replaces names beyond the limit.
    #[inline]
    pub(super) fn get(&self, name: u32) -> &StringSlot {
        self.blocks
            .get(name as usize / BLOCK)
            .and_then(OnceLock::get)
            .and_then(|block| block.get(name as usize % BLOCK))
            .filter(|slot| slot.is_filled())
            .unwrap_or(&self.other)
    }
}
