//! SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014): random numbers one after the
//! other, and the hash of a counter, which is the number at any position without those before it. Recordings, sums and
//! figures stay the same under any version of a library.

/// What is added to the counter for each number: 2⁶⁴ divided by the golden ratio.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The last steps: every bit of the result depends on every bit of `x`, and different numbers stay different.
#[inline]
pub const fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number after `counter`.
#[inline]
pub const fn next(counter: u64) -> u64 {
    mixed(counter.wrapping_add(STEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // `splitmix64.c` of Sebastiano Vigna, from the state 0.
        let after = |n: u64| next(n.wrapping_mul(STEP));
        assert_eq!([0, 1].map(after), [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
