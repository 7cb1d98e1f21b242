//! Mutations of inputs: the same for the same seed on every machine.

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// One generator per input, so that a failure is identified by the input's number. `Cargo.lock` pins the generator.
#[derive(Debug)]
pub struct Dice(StdRng);

/// Numbers and pieces of text that parsers often get wrong.
const WORDS: [&[u8]; 16] = [
    b"-1",
    b"0",
    b"1e999",
    b"9223372036854775807",
    b"18446744073709551616",
    b"NaN",
    b"null",
    b"{}",
    b"[[[[[[[[",
    b"\"\\ud800\"",
    b"\r\n",
    b"\x1b[2J",
    b"%00%ff",
    b"{% for i in range(99999) %}",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0\0\0\0\x80",
];

impl Dice {
    /// For input `index` of the series `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        let mut both = [0; 32];
        both[..8].copy_from_slice(&seed.to_le_bytes());
        both[8..16].copy_from_slice(&index.to_le_bytes());
        Self(StdRng::from_seed(both))
    }

    /// A number below `most`, 0 where `most` is.
    pub fn below(&mut self, most: usize) -> usize {
        (self.0.next_u64() % most.max(1) as u64) as usize
    }

    /// One of the seeds with some bytes changed, removed, repeated, made extreme, or taken from another seed.
    pub fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.place(bytes.len());
            match self.below(10) {
                0 => bytes.truncate(at),
                1 => fill(&mut bytes, at, 8, 0xff),
                2 => fill(&mut bytes, at, 4, 0),
                3 => {
                    let (from, count) = (self.below(bytes.len()), self.below(64));
                    let piece: Vec<u8> = bytes.iter().skip(from).take(count).copied().collect();
                    bytes.splice(at..at, piece);
                }
                4 => {
                    let other = &seeds[self.below(seeds.len())];
                    let (from, count) = (self.below(other.len()), self.below(256));
                    let piece: Vec<u8> = other.iter().skip(from).take(count).copied().collect();
                    let end = (at + piece.len()).min(bytes.len());
                    bytes.splice(at..end, piece);
                }
                5 => {
                    let end = (at + self.below(16)).min(bytes.len());
                    bytes.drain(at..end);
                }
                6 => {
                    let word = WORDS[self.below(WORDS.len())];
                    let end = (at + self.below(word.len() + 1)).min(bytes.len());
                    bytes.splice(at..end, word.iter().copied());
                }
                7 => {
                    let value = self.0.next_u64().to_le_bytes();
                    let width = 1 << self.below(4);
                    bytes.iter_mut().skip(at).zip(&value[..width]).for_each(|(b, v)| *b = *v);
                }
                8 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = b.wrapping_add(1)),
                _ => {
                    let bit = 1 << self.below(8);
                    bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= bit);
                }
            }
        }
        bytes
    }

    /// Half the places are near the end, where the footer of a Parquet file is.
    fn place(&mut self, length: usize) -> usize {
        if self.below(2) == 0 {
            length.saturating_sub(self.below(length.min(2000)) + 1)
        } else {
            self.below(length + 1)
        }
    }
}

fn fill(bytes: &mut [u8], at: usize, count: usize, value: u8) {
    bytes.iter_mut().skip(at).take(count).for_each(|b| *b = value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_named_by_its_number() {
        let seeds = [b"some text that is not all the same".to_vec(), (0..=250).collect()];
        let of = |index| Dice::new(7, index).mutated(&seeds);
        assert!((0..2000).all(|index| of(index) == of(index)));
        let different: std::collections::BTreeSet<_> = (0..2000).map(of).collect();
        assert!(different.len() > 1500, "{}", different.len());
    }
}
