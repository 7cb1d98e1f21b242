//! The hash of a counter that makes random numbers at any position without those before it: weights, which are made in
//! parts, and tokens, which are chosen by request and position, on a device as here (`sampling/choose.cu`).

/// What SplitMix64 adds to its counter: 2⁶⁴ divided by the golden ratio.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's last steps (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014).
pub(crate) const fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The number after `counter`.
pub(crate) const fn next(counter: u64) -> u64 {
    mixed(counter.wrapping_add(STEP))
}
