//! Maps whose keys are numbers that a run states: as fast as such maps can be, and with a secret factor, so that a crafted
//! run cannot make its numbers collide. Numbers that follow each other lie beside each other, because a run states most
//! of its numbers in order, and a map of many thousands does not fit a cache.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map by number.
pub type IntMap<K, V> = HashMap<K, V, IntState>;
/// A set of numbers.
pub type IntSet<K> = HashSet<K, IntState>;

/// Makes hashers that share two secret numbers.
#[derive(Debug, Clone, Copy)]
pub struct IntState {
    add: u64,
    factor: u64,
}

impl Default for IntState {
    fn default() -> Self {
        let random = RandomState::new();
        Self { add: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for IntState {
    type Hasher = IntHasher;

    #[inline]
    fn build_hasher(&self) -> IntHasher {
        IntHasher { value: self.add, factor: self.factor }
    }
}

/// Numbers in a row that lie beside each other.
const ROW: u64 = 32;

/// Both halves of the product with the factor, twice: rows that are equally far apart stay so in the high half of one
/// product, and for one secret in some ten to twenty fill less than half of the places that random ones would, down to a
/// few in all. Where in the row it is moves a number by as many places; the highest bits, by which neighbours are told
/// apart, differ too.
#[derive(Debug)]
pub struct IntHasher {
    value: u64,
    factor: u64,
}

/// The two halves of a product of two numbers, laid over each other.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for IntHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.value
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        let mixed = folded(folded(self.value ^ (n / ROW), self.factor), self.factor);
        self.value = mixed.wrapping_add(n % ROW) ^ (n << 57);
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    #[inline]
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    /// Numbers do not come this way.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_multiples_spread() {
        // The first is one with which a single product would fill 127 places.
        let known = IntState { add: 15_809_576_749_517_542_641, factor: 15_714_637_334_525_255_681 };
        for state in std::iter::once(known).chain((0..100).map(|_| IntState::default())) {
            for stride in [1u64, 1 << 12, 1 << 40, 0x9e37_79b9_7f4a_7c15] {
                let mut places = [false; 4096];
                (0..4096u64).for_each(|n| places[state.hash_one(n.wrapping_mul(stride)) as usize & 0xfff] = true);
                let filled = places.iter().filter(|place| **place).count();
                // Random ones fill 63 % of the places.
                assert!(filled > 1_800, "stride {stride}: {filled} of 4096 places, {state:?}");
            }
        }
        let mut map: IntMap<Option<u64>, u8> = IntMap::default();
        map.insert(None, 1);
        map.insert(Some(0), 2);
        assert_eq!((map[&None], map[&Some(0)]), (1, 2));
    }
}
