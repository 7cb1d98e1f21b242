//! How a token is chosen: the rule, and what it does on the host. `choose.cu` does the same on a device.
//!
//! A token is drawn by a race: each one that the rule lets in gets a time, exponentially distributed with the rate of
//! its probability, and the first wins, which is drawing by probability (the Gumbel-max trick, written for uniform
//! numbers near zero, which `f32` resolves). The uniform number is a hash of the seed, the position and the token, so
//! that a draw depends on nothing else: not on the device, on the sequences beside it, or on how many draws there were
//! before.

use candlescope_core::splitmix::{STEP, mixed};
use std::cmp::Ordering;

/// How the tokens of a sequence are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// 0 takes the most likely token.
    pub(crate) temperature: f32,
    /// Draw among so many of the most likely; `u32::MAX` for all.
    pub(crate) top_k: u32,
    /// Draw among the most likely that together reach this probability; 1 for all.
    pub(crate) top_p: f32,
    pub(crate) seed: u64,
}

/// 32-bit words that [`Rule::words`] makes of a rule.
pub(crate) const WORDS: usize = 5;

/// What is chosen where logits are no numbers. No vocabulary is as large.
pub(crate) const NONE: u32 = u32::MAX;

impl Rule {
    /// The most likely token, whatever came before.
    pub(crate) const GREEDY: Self = Self { temperature: 0., top_k: u32::MAX, top_p: 1., seed: 0 };

    pub(crate) const fn is_greedy(&self) -> bool {
        self.temperature == 0.
    }

    /// As a device is told.
    pub(crate) const fn words(&self) -> [u32; WORDS] {
        let Self { temperature, top_k, top_p, seed } = *self;
        [temperature.to_bits(), top_k, top_p.to_bits(), seed as u32, (seed >> 32) as u32]
    }

    /// What [`words`](Self::words) were made of.
    pub(super) const fn of(words: [u32; WORDS]) -> Self {
        let [temperature, top_k, top_p, low, high] = words;
        let seed = low as u64 | (high as u64) << 32;
        Self { temperature: f32::from_bits(temperature), top_k, top_p: f32::from_bits(top_p), seed }
    }

    /// The token that follows the one at `position`; [`NONE`] if a logit is no number, or none is finite.
    pub(super) fn choose(&self, logits: &[f32], position: u32) -> u32 {
        let Some(best) = most_likely(logits) else { return NONE };
        if self.is_greedy() {
            return best;
        }
        let relative = |token: u32| (logits[token as usize] - logits[best as usize]) / self.temperature;
        let key = key_of(self.seed, position);
        let score = |token: u32| relative(token) - arrival(key, token).ln();
        let mut first = (f32::NEG_INFINITY, best);
        let mut race = |token: u32| {
            let score = score(token);
            if score > first.0 || (score == first.0 && token < first.1) {
                first = (score, token);
            }
        };
        match self.likely(logits, relative) {
            Some(tokens) => tokens.into_iter().for_each(&mut race),
            None => (0..logits.len() as u32).for_each(&mut race),
        }
        first.1
    }

    /// The tokens to draw among; `None` for all.
    fn likely(&self, logits: &[f32], relative: impl Fn(u32) -> f32) -> Option<Vec<u32>> {
        let count = logits.len();
        let most = (self.top_k as usize).min(count);
        let limits_mass = self.top_p < 1.;
        if most == count && !limits_mass {
            return None;
        }
        let order = |a: &u32, b: &u32| by_likelihood(logits, *a, *b);
        let mut tokens: Vec<u32> = (0..count as u32).collect();
        if most < count {
            tokens.select_nth_unstable_by(most - 1, order);
            tokens.truncate(most);
        }
        if limits_mass {
            let total: u64 = (0..count as u32).map(|token| mass(relative(token))).sum();
            let wanted = wanted_mass(self.top_p, total);
            tokens = reaching(tokens, order, |token| mass(relative(token)), wanted);
        }
        Some(tokens)
    }
}

/// The most likely first, and of equal ones that with the lowest number.
fn by_likelihood(logits: &[f32], a: u32, b: u32) -> Ordering {
    sort_key(logits[b as usize]).cmp(&sort_key(logits[a as usize])).then(a.cmp(&b))
}

/// The first tokens in order whose mass reaches `wanted`, or all.
fn reaching(
    mut tokens: Vec<u32>,
    order: impl Fn(&u32, &u32) -> Ordering,
    mass: impl Fn(u32) -> u64,
    wanted: u64,
) -> Vec<u32> {
    // Most often few reach it: sorting all would take longer than all else.
    let mut sorted = 128.min(tokens.len());
    loop {
        if sorted < tokens.len() {
            tokens.select_nth_unstable_by(sorted, &order);
        }
        tokens[..sorted].sort_unstable_by(&order);
        let mut before = 0u64;
        let reached = tokens[..sorted].iter().position(|token| {
            before += mass(*token);
            before >= wanted
        });
        if let Some(last) = reached {
            tokens.truncate(last + 1);
            return tokens;
        }
        if sorted == tokens.len() {
            return tokens;
        }
        sorted = (sorted * 8).min(tokens.len());
    }
}

/// The largest logit's place, the first of equal ones. `None` if one is no number or infinite, or all are −∞.
fn most_likely(logits: &[f32]) -> Option<u32> {
    // Three passes that compile to vector instructions are faster than one that does not.
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, x| if *x > most { *x } else { most });
    let has_nan = logits.iter().fold(false, |has, x| has | x.is_nan());
    if has_nan || !most.is_finite() {
        return None;
    }
    logits.iter().position(|x| *x == most).map(|at| at as u32)
}

/// Larger for larger numbers, and equal for both zeros.
fn sort_key(x: f32) -> u32 {
    let bits = (x + 0.).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// A weight of e^`relative`, at most 1, in units of 2^-32: sums of integers are the same in every order.
fn mass(relative: f32) -> u64 {
    (relative.exp() * 4_294_967_296.) as u64
}

/// The mass that reaches a probability.
fn wanted_mass(top_p: f32, total: u64) -> u64 {
    ((f64::from(top_p) * total as f64).ceil() as u64).clamp(1, total)
}

const fn key_of(seed: u64, position: u32) -> u64 {
    mixed(seed.wrapping_add((position as u64 + 1).wrapping_mul(STEP)))
}

/// When a token arrives: exponentially distributed with rate 1.
fn arrival(key: u64, token: u32) -> f32 {
    let hash = (mixed(key ^ (u64::from(token) + 1).wrapping_mul(0xd1b5_4a32_d192_ed03)) >> 32) as u32;
    let uniform = (hash as f32 + 0.5) * 2f32.powi(-32);
    -(-uniform.min(0.999_999_94)).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rule: Rule, logits: &[f32], draws: u32) -> Vec<u32> {
        let mut counts = vec![0; logits.len()];
        for position in 0..draws {
            counts[rule.choose(logits, position) as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [2f32, 1., 0., -1., f32::NEG_INFINITY, -3.];
        for (temperature, seed) in [(1f32, 1), (0.5, 2), (3., 3)] {
            let weight: Vec<f64> = logits.iter().map(|x| f64::from(x / temperature).exp()).collect();
            let (sum, draws) = (weight.iter().sum::<f64>(), 100_000);
            let counts = drawn(Rule { temperature, seed, ..Rule::GREEDY }, &logits, draws);
            for (count, weight) in counts.iter().zip(weight) {
                let expected = f64::from(draws) * weight / sum;
                // Five standard deviations.
                let off = (f64::from(*count) - expected).abs();
                assert!(off <= 5. * expected.sqrt() + 1e-9, "{temperature}: {counts:?}, expected {expected}");
            }
        }
    }

    #[test]
    fn draws_of_other_seeds_positions_and_tokens_are_independent() {
        let rule = |seed| Rule { temperature: 1., seed, ..Rule::GREEDY };
        let flat = [0f32; 2];
        let series = |seed| (0..4000).map(|position| rule(seed).choose(&flat, position)).collect::<Vec<_>>();
        let agree = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64;
        let (a, b) = (series(7), series(8));
        assert_eq!(a, series(7));
        // Half, to within five standard deviations: for neighbouring seeds, and for neighbouring positions.
        assert!((agree(&a, &b) - 0.5).abs() < 0.04, "{}", agree(&a, &b));
        assert!((agree(&a[1..], &a[..3999]) - 0.5).abs() < 0.04);
        assert!((agree(&a[1..], &b[..3999]) - 0.5).abs() < 0.04);
    }

    #[test]
    fn the_largest_wins_and_the_first_of_equal_ones() {
        assert_eq!(Rule::GREEDY.choose(&[0., 5., 4., 5.], 0), 1);
        let one = Rule { temperature: 5., top_k: 1, ..Rule::GREEDY };
        assert!((0..50).all(|position| one.choose(&[0., 5., 4., 5., -0.], position) == 1));
        let zeros = Rule { temperature: 1., top_k: 2, ..Rule::GREEDY };
        assert!((0..50).all(|position| zeros.choose(&[-1., -0., 0., 0.], position) < 3), "both zeros are equal");
    }

    #[test]
    fn what_is_no_number_is_not_chosen_from() {
        for row in [[0., f32::NAN, 1.], [f32::NEG_INFINITY; 3], [0., f32::INFINITY, 1.]] {
            assert_eq!(Rule::GREEDY.choose(&row, 0), NONE);
            assert_eq!(Rule { temperature: 1., ..Rule::GREEDY }.choose(&row, 0), NONE);
        }
    }

    /// By sorting everything and counting up, in doubles.
    fn naively(rule: &Rule, logits: &[f32]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        order.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
        let most = f64::from(logits[order[0] as usize]);
        let weight = |token: u32| ((f64::from(logits[token as usize]) - most) / f64::from(rule.temperature)).exp();
        let total: f64 = order.iter().map(|token| weight(*token)).sum();
        order.truncate(rule.top_k as usize);
        let mut before = 0.;
        order.retain(|token| {
            let kept = before < f64::from(rule.top_p) * total;
            before += weight(*token);
            kept
        });
        order
    }

    #[test]
    fn few_are_let_in_as_sorting_would() {
        for n in 0..200u32 {
            let count = [3, 40, 700, 3000][n as usize % 4];
            // Coarse ones have many ties.
            let coarse = if n % 3 == 0 { 4. } else { 1e6 };
            let of = |token| ((arrival(u64::from(n), token).ln() * 2. * coarse) as i64) as f32 / coarse;
            let logits: Vec<f32> = (0..count).map(of).collect();
            let top_k = [1, 5, 130, u32::MAX][(n / 4) as usize % 4];
            let rule = Rule { temperature: 0.7, top_k, top_p: [0.1, 0.5, 0.9, 1.][(n / 16) as usize % 4], seed: 0 };
            let best = most_likely(&logits).unwrap();
            let relative = |token: u32| (logits[token as usize] - logits[best as usize]) / rule.temperature;
            let mut likely = rule.likely(&logits, relative).unwrap_or_else(|| (0..count).collect());
            let mut expected = naively(&rule, &logits);
            likely.sort_unstable();
            expected.sort_unstable();
            assert_eq!(likely, expected, "{rule:?} of {count}");
        }
    }
}
