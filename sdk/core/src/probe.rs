//! Which steps are left plain, so that recorded ones can be compared with them: this measures the cost of recording in
//! place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kinds of steps that are counted separately; steps of a kind with a higher number are never left plain.
const KINDS: usize = 512;

/// The first steps of a kind are cold, and never left plain.
const WARM_UP: u64 = 3;

/// Leaves one step in `every` of each kind plain, over all threads.
#[derive(Debug)]
pub(crate) struct Probe {
    every: u64,
    /// Steps that have begun, by the number of their name.
    begun: Box<[AtomicU64]>,
    plain: AtomicU64,
}

impl Probe {
    /// `every` is at least 2.
    pub(crate) fn new(every: u64) -> Self {
        let begun = (0..KINDS).map(|_| AtomicU64::new(0)).collect();
        Self { every: every.max(2), begun, plain: AtomicU64::new(0) }
    }

    /// Steps left plain so far.
    pub(crate) fn plain(&self) -> u64 {
        self.plain.load(Relaxed)
    }

    /// Whether the step of this kind that begins now is left plain.
    pub(crate) fn leaves_plain(&self, kind: u32) -> bool {
        let Some(begun) = self.begun.get(kind as usize) else { return false };
        let Some(n) = begun.fetch_add(1, Relaxed).checked_sub(WARM_UP) else { return false };
        let (block, at) = (n / self.every, n % self.every);
        // One in each block, at a place that changes from block to block, so that plain steps are not in step with
        // anything that the program does at regular intervals.
        let mixed = mixed(block, u64::from(kind));
        let plain = (mixed >> 32) % self.every == at;
        self.plain.fetch_add(u64::from(plain), Relaxed);
        plain
    }
}

/// A number that depends on both, and is in step with nothing that goes on at regular intervals.
pub(crate) const fn mixed(block: u64, with: u64) -> u64 {
    (block.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ with).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_in_each_block_of_a_kind_is_left_plain_and_none_of_the_first() {
        for every in [2, 5, 10] {
            let probe = Probe::new(every);
            let plain: Vec<u64> = (0..WARM_UP + 1000 * every).filter(|_| probe.leaves_plain(7)).collect();
            assert_eq!((plain.len(), probe.plain()), (1000, 1000));
            assert!(plain.iter().enumerate().all(|(block, n)| (n - WARM_UP) / every == block as u64));
            // Each place in a block is chosen about equally often.
            for at in 0..every {
                let there = plain.iter().filter(|n| (*n - WARM_UP) % every == at).count() as u64;
                assert!((700 / every..1400 / every).contains(&there), "{there} of 1000 at {at} of {every}");
            }
        }
        assert!((0..100).all(|_| !Probe::new(2).leaves_plain(KINDS as u32)));
    }
}
