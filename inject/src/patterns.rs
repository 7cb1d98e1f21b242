//! Steps of a program that marks none, by what it launches: stretches between two results repeat.
//!
//! A token of one program fetches a result, one of another program several; what lies between two of them is a
//! *stretch*. Where the last stretches have repeated, so many of them make a step, and what is like it later is one,
//! too. Programs that do several things have several patterns; all threads of a process count them alike.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::thread::LocalKey;

/// Most stretches of one step.
const LONGEST: usize = 4;
/// Repetitions that make a pattern.
const TIMES: usize = 3;
/// Stretches that are looked back on: those of a pattern, and the one before them.
const KEPT: usize = LONGEST * TIMES + 1;
/// Patterns that are known; what repeats besides has no name.
pub(crate) const MOST: usize = 8;
/// Bins that launches are counted in, by what they launch.
const BINS: usize = 64;
/// Of two stretches that are alike: launches that both have ÷ launches that either has. A context that grows changes a
/// few kernels, a prompt in place of a token most.
const ALIKE: f64 = 0.8;
/// A graph is one launch, and stands for many.
const OF_A_GRAPH: u32 = 1_000;
/// Of what is launched beside tokens, a part at least is what no token launches: other kernels, as a prompt has. A part
/// of a token, or two of them, has none.
const OF_ITS_OWN: f64 = 0.05;

/// What was launched between two results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    launches: u32,
    graphs: u32,
    bins: [u16; BINS],
    /// Results that were fetched within: nobody knew yet where the program's loop is.
    results: u32,
}

impl Stretch {
    const NOTHING: Self = Self { launches: 0, graphs: 0, bins: [0; BINS], results: 0 };

    #[inline]
    fn launch(&mut self, what: u64, is_graph: bool) {
        self.launches = self.launches.saturating_add(1);
        self.graphs = self.graphs.saturating_add(u32::from(is_graph));
        // Fibonacci hashing: handles are addresses, of which the low bits are alike.
        let bin = (what.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
        self.bins[bin % BINS] = self.bins[bin % BINS].saturating_add(1);
    }

    /// Launches that both have ÷ launches that either has: 1 for the same ones, 0 where either has none.
    fn likeness(&self, other: &Self) -> f64 {
        let pairs = || self.bins.iter().zip(&other.bins);
        let both: u32 = pairs().map(|(a, b)| u32::from(*a.min(b))).sum();
        let either: u32 = pairs().map(|(a, b)| u32::from(*a.max(b))).sum();
        if both == 0 { 0.0 } else { f64::from(both) / f64::from(either) }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.likeness(other) >= ALIKE
    }

    fn add(&mut self, other: &Self) {
        self.launches = self.launches.saturating_add(other.launches);
        self.graphs = self.graphs.saturating_add(other.graphs);
        self.bins.iter_mut().zip(&other.bins).for_each(|(a, b)| *a = a.saturating_add(*b));
    }

    /// Kernels, as far as launches tell.
    fn size(&self) -> u32 {
        self.launches.saturating_add(self.graphs.saturating_mul(OF_A_GRAPH))
    }
}

/// Stretches that repeat, one after the other.
#[derive(Debug, Clone, Copy)]
struct Pattern {
    stretches: [Stretch; LONGEST],
    length: usize,
    /// Among those of all threads.
    number: usize,
}

/// The patterns of all threads, in the order in which they were found.
#[derive(Debug)]
pub(crate) struct PatternTable(Mutex<Vec<Pattern>>);

/// The patterns of this process.
pub(crate) static FOUND: PatternTable = PatternTable::new();

impl PatternTable {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// A pattern with its number: that of one that is like it, or a new one. `None` if there are too many.
    fn numbered(&self, mut pattern: Pattern) -> Option<Pattern> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pattern.number = match found.iter().position(|other| other.is_like(&pattern)) {
            Some(number) => number,
            None if found.len() < MOST => {
                found.push(pattern);
                found.len() - 1
            }
            None => return None,
        };
        Some(pattern)
    }
}

impl Pattern {
    const NONE: Self = Self { stretches: [Stretch::NOTHING; LONGEST], length: 0, number: 0 };

    fn is_like(&self, other: &Self) -> bool {
        let mut pairs = self.stretches.iter().zip(&other.stretches).take(self.length);
        self.length == other.length && pairs.all(|(a, b)| a.is_like(b))
    }

    /// That of the stretch that is least like its other: [`Stretch::likeness`].
    fn likeness(&self, stretches: &[Stretch]) -> f64 {
        let each = self.stretches[..self.length].iter().zip(stretches).map(|(a, b)| a.likeness(b));
        each.fold(1.0, f64::min)
    }

    fn size(&self) -> u32 {
        self.stretches[..self.length].iter().map(Stretch::size).fold(0, u32::saturating_add)
    }

    fn launches(&self) -> u32 {
        self.stretches[..self.length].iter().map(|stretch| stretch.launches).fold(0, u32::saturating_add)
    }
}

/// What is known of a repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Repetition {
    /// Results that it fetched.
    pub(crate) results: usize,
    /// How like it was to the one before, or to that by which its pattern became known: of its stretches, that of the
    /// least like one, 0.8 to 1.
    pub(crate) likeness: f64,
}

/// What a step was, once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// The whole of the pattern with this number.
    Repeated(usize),
    /// Something else, before a pattern is known or between its repetitions.
    Other,
    /// The same, with launches enough that it may be a prompt beside tokens.
    Beside,
}

/// What came before the first step that is known by a new pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassedBefore {
    /// What may be a prompt, and so many repetitions after it.
    Prompt(u64),
    /// A repetition of another pattern, and so many of this one after it, as where a CUDA graph for longer contexts comes in.
    Repetitions(u64),
    /// Something else, or nobody saw it.
    Unknown,
}

/// The stretches of a thread.
#[derive(Debug)]
pub(crate) struct Patterns {
    found: &'static PatternTable,
    now: Stretch,
    /// A result was fetched, and nothing was launched since.
    has_result: bool,
    /// The latest stretch that was not followed from its beginning, and how many have ended since.
    part: Stretch,
    since_part: usize,
    /// Of the pattern that became known with the latest result.
    passed: Option<PassedBefore>,
    /// Stretches that have ended, the latest last.
    seen: [Stretch; KEPT],
    ended: usize,
    known: [Pattern; MOST],
    patterns: usize,
    /// Stretches of the step that goes on, and the patterns that begin like it, a bit each.
    had: usize,
    like: u32,
    /// What they launched together.
    all: Stretch,
    /// What goes on was not followed from its beginning: nothing is to be said of it.
    is_part: bool,
    /// How like the latest repetition was to the one before.
    likeness: f64,
    /// Launches of a repetition at least.
    least: u32,
}

impl Patterns {
    pub(crate) const fn new(found: &'static PatternTable) -> Self {
        Self {
            found,
            now: Stretch::NOTHING,
            has_result: false,
            part: Stretch::NOTHING,
            since_part: usize::MAX,
            passed: None,
            seen: [Stretch::NOTHING; KEPT],
            ended: 0,
            known: [Pattern::NONE; MOST],
            patterns: 0,
            had: 0,
            like: u32::MAX,
            all: Stretch::NOTHING,
            is_part: false,
            likeness: 0.0,
            least: 0,
        }
    }

    /// What repeats with fewer launches is no step.
    pub(crate) fn at_least(&mut self, launches: u32) {
        self.least = launches;
    }

    /// This is launched.
    #[inline]
    pub(crate) fn launches(&mut self, what: u64, is_graph: bool) {
        if self.has_result {
            self.has_result = false;
            self.now.results = self.now.results.saturating_add(1);
        }
        self.now.launch(what, is_graph);
    }

    /// A result is wanted. Whether it ends a stretch is known when something is launched after it.
    #[inline]
    pub(crate) fn wants(&mut self) {
        self.has_result = true;
    }

    /// What came before, where a pattern became known with the latest result. Told once.
    pub(crate) fn passed(&mut self) -> Option<PassedBefore> {
        self.passed.take()
    }

    /// Whether steps are known by a pattern.
    pub(crate) fn is_known(&self) -> bool {
        self.patterns > 0
    }

    /// Whether a known pattern says what the step that goes on is to be: it was followed from its beginning.
    pub(crate) fn foretells(&self) -> bool {
        self.is_known() && !self.is_part
    }

    /// Results that a repetition fetches.
    pub(crate) fn length(&self, number: usize) -> usize {
        let known = &self.known[..self.patterns];
        known.iter().find(|pattern| pattern.number == number).map_or(0, |pattern| pattern.length)
    }

    /// How like the latest repetition was to the one before it, or to that by which its pattern became known: of its
    /// stretches, that of the least like one, 0.8 to 1. 0 before the first.
    #[cfg(test)]
    fn likeness(&self) -> f64 {
        self.likeness
    }

    /// What goes on is given up, without a result, and what comes next may have begun before: until the next result
    /// nothing is like anything.
    pub(crate) fn forget(&mut self) {
        (self.now, self.has_result) = (Stretch::NOTHING, false);
        self.begins();
        self.is_part = true;
    }

    /// What comes begins here, and is not like what was seen before; patterns that are known stay.
    pub(crate) fn begins_anew(&mut self) {
        (self.now, self.has_result, self.ended, self.since_part) = (Stretch::NOTHING, false, 0, usize::MAX);
        self.begins();
    }

    /// What is known of the latest step, if it was a repetition.
    pub(crate) fn repetition(&self, was: StepKind) -> Option<Repetition> {
        let StepKind::Repeated(number) = was else { return None };
        Some(Repetition { results: self.length(number), likeness: self.likeness })
    }

    fn begins(&mut self) {
        (self.had, self.like, self.all, self.is_part) = (0, u32::MAX, Stretch::NOTHING, false);
    }

    /// A result was fetched, and what follows is launched next: what the step was, if it ends here.
    pub(crate) fn fetched(&mut self) -> Option<StepKind> {
        let stretch = std::mem::replace(&mut self.now, Stretch::NOTHING);
        self.has_result = false;
        if self.is_part {
            (self.part, self.since_part) = (stretch, 0);
            self.begins();
            return Some(StepKind::Other);
        }
        self.since_part = self.since_part.saturating_add(1);
        self.all.add(&stretch);
        self.seen.rotate_left(1);
        self.seen[KEPT - 1] = stretch;
        self.ended = (self.ended + 1).min(KEPT);
        let at = self.had;
        let is_like = |(number, pattern): (usize, &Pattern)| {
            self.like >> number & 1 == 1 && pattern.length > at && pattern.stretches[at].is_like(&stretch)
        };
        let like = self.known[..self.patterns].iter().enumerate().filter(|each| is_like(*each));
        let like: u32 = like.map(|(number, _)| 1 << number).sum();
        if like != 0 {
            (self.like, self.had) = (like, at + 1);
            let whole =
                (0..self.patterns).find(|number| like >> number & 1 == 1 && self.known[*number].length == at + 1);
            let whole = whole?;
            // What changes slowly, as with a context that grows, stays like the one before.
            let length = at + 1;
            self.likeness = self.known[whole].likeness(&self.seen[KEPT - length..]);
            self.known[whole].stretches[..length].copy_from_slice(&self.seen[KEPT - length..]);
            self.begins();
            return Some(StepKind::Repeated(self.known[whole].number));
        }
        let was = if self.is_beside(&self.all) { StepKind::Beside } else { StepKind::Other };
        self.learn();
        self.begins();
        Some(was)
    }

    /// Whether what was launched may be a prompt beside tokens: it launches kernels one by one, also where tokens are
    /// graphs, and some that no token launches.
    fn is_beside(&self, all: &Stretch) -> bool {
        let known = &self.known[..self.patterns];
        let Some(largest) = known.iter().map(Pattern::launches).max() else { return false };
        let one_by_one = all.launches.saturating_sub(all.graphs);
        let is_in_tokens =
            |bin: usize| known.iter().any(|of| of.stretches[..of.length].iter().any(|stretch| stretch.bins[bin] > 0));
        let own = (0..BINS).filter(|bin| !is_in_tokens(*bin)).map(|bin| u32::from(all.bins[bin])).sum::<u32>();
        one_by_one >= (largest / 2).max(self.least) && f64::from(own) >= OF_ITS_OWN * f64::from(one_by_one)
    }

    /// The shortest pattern of which the latest stretches are repetitions.
    fn learn(&mut self) {
        let repeats = |length: &usize| {
            let n = length * TIMES;
            let last = &self.seen[KEPT - n..];
            self.ended >= n && (*length..n).all(|at| last[at].is_like(&last[at - length]))
        };
        let Some(length) = (1..=LONGEST).find(repeats) else { return };
        let mut pattern = Pattern { length, ..Pattern::NONE };
        pattern.stretches[..length].copy_from_slice(&self.seen[KEPT - length..]);
        if self.patterns < MOST
            && pattern.size() >= self.least
            && let Some(pattern) = self.found.numbered(pattern)
        {
            self.known[self.patterns] = pattern;
            self.patterns += 1;
            self.passed = Some(self.passed_before(length));
        }
    }

    /// What came before the next step, where the latest stretches have just made a pattern of this length.
    fn passed_before(&self, length: usize) -> PassedBefore {
        let n = length * TIMES;
        let before = match self.since_part {
            since if since == n => Some(&self.part),
            since if since > n && self.ended > n => Some(&self.seen[KEPT - n - 1]),
            _ => None,
        };
        let (repeats, known) = (TIMES as u64, &self.known[..self.patterns.saturating_sub(1)]);
        let is_known = |before: &Stretch| {
            known.iter().any(|of| of.stretches[..of.length].iter().any(|stretch| stretch.is_like(before)))
        };
        match before {
            Some(before) if is_known(before) => PassedBefore::Repetitions(repeats),
            // Where its result ended no stretch, the first repetitions are in the prompt's.
            Some(prompt) if self.is_beside(prompt) => {
                PassedBefore::Prompt(repeats + u64::from(prompt.results) / length as u64)
            }
            _ => PassedBefore::Unknown,
        }
    }
}

/// Works on the stretches that a thread keeps in this cell. `None`, and nothing is done, in a thread that is ending, and
/// where they are at work already.
#[inline]
pub(crate) fn with_patterns<T>(
    cell: &'static LocalKey<RefCell<Patterns>>,
    work: impl FnOnce(&mut Patterns) -> T,
) -> Option<T> {
    cell.try_with(|patterns| patterns.try_borrow_mut().ok().map(|mut patterns| work(&mut patterns))).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::StepKind::*;
    use super::*;

    fn launched(patterns: &mut Patterns, stretch: &[u64]) -> Option<StepKind> {
        stretch.iter().for_each(|what| patterns.launches(*what, false));
        patterns.fetched()
    }

    /// Of a program of its own.
    fn patterns() -> Patterns {
        Patterns::new(Box::leak(Box::new(PatternTable::new())))
    }

    /// Launches each of these, and fetches: what steps were.
    fn steps(stretches: &[&[u64]]) -> (Vec<StepKind>, Patterns) {
        let mut patterns = patterns();
        let steps = stretches.iter().filter_map(|stretch| launched(&mut patterns, stretch)).collect();
        (steps, patterns)
    }

    /// What became known of what came before, after each of these; a stretch that is not followed from its beginning is
    /// `part`.
    fn passed(part: Option<&[u64]>, stretches: &[&[u64]]) -> Vec<PassedBefore> {
        let mut patterns = patterns();
        if let Some(part) = part {
            patterns.forget();
            launched(&mut patterns, part);
        }
        let passed = |stretch: &&[u64]| {
            launched(&mut patterns, stretch);
            patterns.passed()
        };
        stretches.iter().filter_map(passed).collect()
    }

    #[test]
    fn tokens_are_counted_from_a_prompt_that_was_seen() {
        use PassedBefore::{Prompt, Unknown};
        let tokens = [TOKEN, TOKEN, TOKEN, TOKEN, TOKEN];
        let after = |first: &[&'static [u64]]| [first, &tokens].concat();
        assert_eq!(passed(None, &after(&[SAMPLED, PROMPT])), [Prompt(3)]);
        assert_eq!(passed(Some(PROMPT), &tokens), [Prompt(3)], "as where recording begins with it");
        assert_eq!(passed(None, &tokens), [Unknown], "nobody saw what was before");
        assert_eq!(passed(None, &after(&[PROMPT, SAMPLED])), [Unknown], "something else was");
        assert_eq!(passed(Some(TOKEN), &tokens), [Unknown], "or more tokens");
        // A prompt and its first results, of which nobody knew that they end anything.
        let mut patterns = patterns();
        for stretch in [PROMPT, TOKEN] {
            stretch.iter().for_each(|what| patterns.launches(*what, false));
            patterns.wants();
        }
        launched(&mut patterns, TOKEN);
        let passed = [(); 3].map(|()| {
            launched(&mut patterns, TOKEN);
            patterns.passed()
        });
        assert_eq!(passed, [None, None, Some(Prompt(5))]);
    }

    #[test]
    fn a_pattern_after_another_goes_on_counting() {
        use PassedBefore::{Prompt, Repetitions};
        // A graph for longer contexts.
        let longer: &[u64] = &[11, 12, 13, 14, 15, 16];
        let tokens = [[TOKEN; 6], [longer; 6]].concat();
        assert_eq!(passed(None, &[&[PROMPT][..], &tokens].concat()), [Prompt(3), Repetitions(3)]);
    }

    const TOKEN: &[u64] = &[1, 2, 3, 4, 5, 6];
    const SAMPLED: &[u64] = &[7, 8];
    const PROMPT: &[u64] = &[1, 2, 30, 4, 50, 6, 9, 9];

    #[test]
    fn a_result_a_token_is_a_pattern_after_three() {
        let (found, patterns) = steps(&[PROMPT, TOKEN, TOKEN, TOKEN, TOKEN, TOKEN, PROMPT, TOKEN, TOKEN]);
        let of_token = Repeated(0);
        assert_eq!(found, [Other, Other, Other, Other, of_token, of_token, Beside, of_token, of_token]);
        assert_eq!(patterns.length(0), 1);
    }

    #[test]
    fn two_results_a_token_are_one_step() {
        let tokens = [TOKEN, SAMPLED].repeat(6);
        let (found, patterns) = steps(&[&[PROMPT][..], &tokens, &[PROMPT], &tokens[..4]].concat());
        assert_eq!(patterns.length(0), 2);
        // The prompt, three tokens in halves, and from the fourth on whole ones.
        let expected = [vec![Other; 7], vec![Repeated(0); 3], vec![Beside], vec![Repeated(0); 2]].concat();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_changes_slowly_is_alike_and_another_program_is_not() {
        // One of twenty kernels is another one in each step, in the end all are.
        let growing: Vec<Vec<u64>> = (0..40).map(|step| (step..step + 20).collect()).collect();
        let (found, patterns) = steps(&growing.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert!(found[3..].iter().all(|was| *was == Repeated(0)), "{found:?}");
        // 19 launches that both have, of 21.
        assert!((patterns.likeness() - 19.0 / 21.0).abs() < 1e-9, "{}", patterns.likeness());
        // What else repeats is a pattern of its own, and the first one stays known.
        let (found, patterns) = steps(&[&[TOKEN; 4][..], &[SAMPLED; 4], &[TOKEN, SAMPLED]].concat());
        assert_eq!(found[3..], [Repeated(0), Other, Other, Other, Repeated(1), Repeated(0), Repeated(1)]);
        assert!(patterns.is_known());
        let (found, patterns) = steps(&[&[1], &[2], &[3], &[4], &[5], &[6]]);
        assert!(found.iter().all(|was| *was == Other) && !patterns.is_known());
    }

    #[test]
    fn a_repetition_says_how_like_it_is_to_the_one_before() {
        let (_, mut patterns) = steps(&[TOKEN; 3]);
        assert_eq!((patterns.is_known(), patterns.likeness()), (true, 0.0), "nothing has repeated it so far");
        launched(&mut patterns, TOKEN);
        assert_eq!(patterns.likeness(), 1.0);
        // Of two results the one that is less like counts, and nothing that is no repetition.
        let halves = |last: &'static [u64]| [&[TOKEN, SAMPLED].repeat(4)[..], &[TOKEN, last]].concat();
        let (found, mut patterns) = steps(&halves(&[7, 8, 7, 8]));
        assert_eq!((found.last(), patterns.likeness()), (Some(&Other), 1.0), "two of four are another step");
        launched(&mut patterns, PROMPT);
        assert_eq!(patterns.likeness(), 1.0);
        let shorter: &[u64] = &[1, 2, 3, 4, 5];
        let (found, patterns) = steps(&[&[TOKEN; 4][..], &[shorter]].concat());
        assert_eq!((found.last(), patterns.likeness()), (Some(&Repeated(0)), 5.0 / 6.0));
    }

    #[test]
    fn small_repetitions_are_no_steps_of_a_large_model_and_a_graph_is_large() {
        let mut patterns = patterns();
        patterns.at_least(5);
        assert!((0..6).all(|_| launched(&mut patterns, SAMPLED) == Some(Other)));
        assert!(!patterns.is_known());
        (0..3).for_each(|_| _ = launched(&mut patterns, TOKEN));
        assert_eq!(launched(&mut patterns, TOKEN), Some(Repeated(0)));
        let mut replay = || {
            patterns.launches(99, true);
            patterns.fetched()
        };
        assert_eq!([replay(), replay(), replay()], [Some(Other); 3]);
        assert_eq!(replay(), Some(Repeated(1)));
        assert_eq!(launched(&mut patterns, PROMPT), Some(Beside));
    }

    /// A window opens in the middle of a token, or another range began there: what is left of the token is none, and no
    /// prompt.
    #[test]
    fn what_was_not_followed_from_its_beginning_is_like_nothing() {
        let (_, mut patterns) = steps(&[TOKEN; 4]);
        for left in [&TOKEN[3..], &TOKEN[1..], TOKEN, PROMPT] {
            TOKEN[..3].iter().for_each(|what| patterns.launches(*what, false));
            patterns.forget();
            assert_eq!(launched(&mut patterns, left), Some(Other));
            assert_eq!(launched(&mut patterns, TOKEN), Some(Repeated(0)), "the next one is whole");
        }
    }

    #[test]
    fn what_launches_no_kernels_of_its_own_is_no_prompt() {
        let (_, mut patterns) = steps(&[TOKEN; 4]);
        // A token whose end was fetched apart, and two whose result was not.
        assert_eq!(launched(&mut patterns, &TOKEN[..4]), Some(Other));
        assert_eq!(launched(&mut patterns, &[TOKEN, TOKEN].concat()), Some(Other));
        assert_eq!(launched(&mut patterns, PROMPT), Some(Beside));
        // A graph that is not known yet is none, either, nor are several that make a step together.
        (0..9).for_each(|graph| patterns.launches(1_000 + graph, true));
        assert_eq!(patterns.fetched(), Some(Other));
    }

    #[test]
    fn who_is_at_work_already_gets_nothing_and_no_panic() {
        thread_local! {
            static CELL: RefCell<Patterns> = const { RefCell::new(Patterns::new(&FOUND)) };
        }
        assert_eq!(with_patterns(&CELL, |_| with_patterns(&CELL, |_| ())), Some(None));
        assert_eq!(with_patterns(&CELL, |patterns| patterns.is_known()), Some(false));
    }

    #[test]
    fn threads_count_patterns_alike() {
        let found: &'static PatternTable = Box::leak(Box::new(PatternTable::new()));
        let learned = |stretches: &[&[u64]]| {
            let mut patterns = Patterns::new(found);
            stretches.iter().filter_map(|stretch| launched(&mut patterns, stretch)).last()
        };
        assert_eq!(learned(&[TOKEN; 4]), Some(Repeated(0)));
        assert_eq!(learned(&[PROMPT; 4]), Some(Repeated(1)), "another thread that does something else");
        assert_eq!(learned(&[TOKEN; 4]), Some(Repeated(0)), "and one that does the same");
    }
}
