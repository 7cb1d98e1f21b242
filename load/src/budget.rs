//! How much a run holds: what a server sends, and how fast requests are to arrive, must not fill this machine's memory
//! or its disk. Times of chunks and records of requests count, over all stages, and so do answers under way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that may be held, and those that are. Once they were not enough, that stays so: the run ends.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    held: AtomicU64,
    spent: AtomicBool,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Self { most, held: AtomicU64::new(0), spent: AtomicBool::new(false) }
    }

    /// Holds that many more; whether there was room for them.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held > self.most {
            self.spent.store(true, Ordering::Relaxed);
        }
        held <= self.most
    }

    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there was too little room for anything so far.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}

/// What one answer under way holds; nothing once this is dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl<'a> Share<'a> {
    pub(crate) fn of(budget: &'a Budget) -> Self {
        Self { budget, bytes: 0 }
    }

    /// It holds `bytes` now; whether there is room for that.
    pub(crate) fn set(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes < before {
            self.budget.give_back(before - bytes);
            return true;
        }
        bytes == before || self.budget.take(bytes - before)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_given_back_and_what_was_too_much_stays_known() {
        let budget = Budget::new(100);
        {
            let mut share = Share::of(&budget);
            assert!(share.set(60) && share.set(40) && budget.take(60));
            assert!(!budget.is_spent() && !share.set(41));
        }
        assert!(budget.is_spent());
        assert_eq!(budget.held.load(Ordering::Relaxed), 60);
    }
}
