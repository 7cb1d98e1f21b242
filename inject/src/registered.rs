//! Texts that a program has made known, for ranges that are called so.

use candlescope_core::RangeName;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A text that a program has made known. What a program gets for it is its address.
#[derive(Debug)]
pub(crate) struct RegisteredText {
    pub(crate) name: RangeName,
    domain: u32,
    /// The same of ranges that stand beside intervals.
    beside: OnceLock<RangeName>,
}

impl RegisteredText {
    /// The name of ranges that stand beside intervals, which `make` makes of the domain when it is first asked for.
    pub(crate) fn beside(&self, make: impl FnOnce(u32) -> RangeName) -> RangeName {
        *self.beside.get_or_init(|| make(self.domain))
    }
}

/// All of them. Programs keep what they get as long as they like, so none is ever freed. Texts that are one name in one
/// domain are one, and a session has 65,536 names at most: a program that makes texts known without end gets those that
/// it has.
#[derive(Debug, Default)]
pub(crate) struct RegisteredTexts(Mutex<HashMap<(u32, RangeName), &'static RegisteredText>>);

impl RegisteredTexts {
    /// The one of this name. Takes a lock.
    pub(crate) fn get(&self, domain: u32, name: RangeName) -> &'static RegisteredText {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || &*Box::leak(Box::new(RegisteredText { name, domain, beside: OnceLock::new() }));
        known.entry((domain, name)).or_insert_with(make)
    }
}
