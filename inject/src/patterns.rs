//! Steps of a program that marks none, by what it launches: stretches between two results repeat.
//!
//! A token of `torch.compile` may fetch two results, one of another program three; what lies between two of them is a *stretch*. Where
//! the last stretches have repeated, so many of them make a step, and what has the same shape later is one, too.

use rustc_hash::FxHasher;
use std::hash::Hasher as _;

/// Most stretches of one step.
const LONGEST: usize = 4;
/// Repetitions that make a pattern.
const TIMES: usize = 3;
/// Stretches that are looked back on.
const KEPT: usize = LONGEST * TIMES;
/// Launches by which a stretch is known: a prompt's first layers take other kernels than a token's.
const HEAD: u32 = 48;
/// Numbers of launches that differ by less than this share are alike: what grows with the context may take a kernel more.
const ALIKE: f64 = 0.05;

/// What was launched between two results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stretch {
    launches: u32,
    /// Of the first [`HEAD`].
    hash: u64,
}

impl Stretch {
    fn launch(&mut self, what: u64) {
        if self.launches < HEAD {
            let mut hasher = FxHasher::default();
            hasher.write_u64(self.hash);
            hasher.write_u64(what);
            self.hash = hasher.finish();
        }
        self.launches = self.launches.saturating_add(1);
    }

    fn is_like(self, other: Self) -> bool {
        let (a, b) = (f64::from(self.launches), f64::from(other.launches));
        self.hash == other.hash && (a - b).abs() <= ALIKE * a.max(b)
    }
}

/// What a step was, once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Was {
    /// A whole pattern.
    Repeated,
    /// Something else, before a pattern is known or between its repetitions.
    Other,
    /// The same, with launches enough that it may be a prompt beside tokens.
    Beside,
}

/// The stretches of a thread.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    now: Stretch,
    /// Stretches that have ended, the latest last.
    seen: [Stretch; KEPT],
    ended: usize,
    /// The stretches of a step, `length` of them.
    pattern: [Stretch; LONGEST],
    length: usize,
    /// How many of them the step that goes on has had.
    had: usize,
    launches: u32,
}

impl Patterns {
    /// This is launched.
    pub(crate) fn launches(&mut self, what: u64) {
        self.now.launch(what);
    }

    /// Whether steps are known by a pattern.
    pub(crate) fn is_known(&self) -> bool {
        self.length > 0
    }

    /// Results that a step fetches.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// What goes on is given up, without a result: none of it is like anything.
    pub(crate) fn forget(&mut self) {
        (self.now, self.had, self.launches) = (Stretch::default(), 0, 0);
    }

    /// A result was fetched, and what follows is launched next: what the step was, if it ends here.
    pub(crate) fn fetched(&mut self) -> Option<Was> {
        let stretch = std::mem::take(&mut self.now);
        self.launches = self.launches.saturating_add(stretch.launches);
        self.seen.rotate_left(1);
        self.seen[KEPT - 1] = stretch;
        self.ended = (self.ended + 1).min(KEPT);
        if self.length > 0 && stretch.is_like(self.pattern[self.had]) {
            self.had += 1;
            if self.had < self.length {
                return None;
            }
            return Some(self.ends(Was::Repeated));
        }
        // Not the pattern; it may be its beginning, with something else before.
        let of_a_step: u32 = self.pattern[..self.length].iter().map(|stretch| stretch.launches).sum();
        let was = match self.launches * 2 >= of_a_step && self.length > 0 {
            true => Was::Beside,
            false => Was::Other,
        };
        self.learn();
        Some(self.ends(was))
    }

    fn ends(&mut self, was: Was) -> Was {
        (self.had, self.launches) = (0, 0);
        was
    }

    /// The shortest pattern of which the latest stretches are repetitions.
    fn learn(&mut self) {
        let repeats = |length: &usize| {
            let n = length * TIMES;
            let last = &self.seen[KEPT - n..];
            self.ended >= n && (*length..n).all(|at| last[at].is_like(last[at - length]))
        };
        if let Some(length) = (1..=LONGEST).find(repeats) {
            self.pattern[..length].copy_from_slice(&self.seen[KEPT - length..]);
            self.length = length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches each of these, and fetches: what steps were.
    fn steps(stretches: &[&[u64]]) -> (Vec<Was>, Patterns) {
        let mut patterns = Patterns::default();
        let mut steps = Vec::new();
        for stretch in stretches {
            stretch.iter().for_each(|what| patterns.launches(*what));
            steps.extend(patterns.fetched());
        }
        (steps, patterns)
    }

    const TOKEN: &[u64] = &[1, 2, 3, 4, 5, 6];
    const SAMPLED: &[u64] = &[7, 8];
    const PROMPT: &[u64] = &[1, 2, 30, 4, 50, 6, 9, 9];

    #[test]
    fn a_result_a_token_is_a_pattern_after_three() {
        use Was::*;
        let (found, patterns) = steps(&[PROMPT, TOKEN, TOKEN, TOKEN, TOKEN, TOKEN, PROMPT, TOKEN, TOKEN]);
        assert_eq!(found, [Other, Other, Other, Other, Repeated, Repeated, Beside, Repeated, Repeated]);
        assert_eq!(patterns.length(), 1);
    }

    #[test]
    fn two_results_a_token_are_one_step() {
        use Was::*;
        let tokens = [TOKEN, SAMPLED].repeat(6);
        let (found, patterns) = steps(&[&[PROMPT][..], &tokens, &[PROMPT], &tokens[..4]].concat());
        assert_eq!(patterns.length(), 2);
        // The prompt, three tokens in halves, and from the fourth on whole ones.
        let expected = [vec![Other; 7], vec![Repeated; 3], vec![Beside], vec![Repeated; 2]].concat();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_kernel_more_is_alike_and_another_program_is_not() {
        let long: Vec<u64> = (0..200).collect();
        let longer: Vec<u64> = (0..204).collect();
        let (found, _) = steps(&[&long, &long, &long, &longer, &long[..150], &long]);
        use Was::*;
        assert_eq!(found, [Other, Other, Other, Repeated, Beside, Repeated]);
        // What changes is learnt anew.
        let (found, patterns) = steps(&[&[TOKEN; 4][..], &[SAMPLED; 4]].concat());
        assert_eq!(found[4..], [Other, Other, Other, Repeated]);
        assert!(patterns.is_known());
        let (found, patterns) = steps(&[&[1], &[2], &[3], &[4], &[5], &[6]]);
        assert!(found.iter().all(|was| *was == Other) && !patterns.is_known());
    }

    #[test]
    fn what_is_given_up_is_like_nothing() {
        let (_, mut patterns) = steps(&[TOKEN; 4]);
        TOKEN[..3].iter().for_each(|what| patterns.launches(*what));
        patterns.forget();
        TOKEN.iter().for_each(|what| patterns.launches(*what));
        assert_eq!(patterns.fetched(), Some(Was::Repeated));
    }
}
