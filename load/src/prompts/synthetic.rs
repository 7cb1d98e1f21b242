//! Synthetic texts of a given number of tokens, without the model's tokenizer: words are drawn from a list, and how
//! many tokens they have is known from what the server counted in two first requests.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Short common words: most tokenizers have a token for each of them with the blank before it.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "that", "for", "was", "on", "are", "with", "as", "his", "they", "be", "at",
    "one", "have", "this", "from", "or", "had", "by", "but", "some", "what", "there", "we", "can", "out", "other",
    "were", "all", "your", "when", "up", "use", "word", "how", "said", "an", "each", "she", "which", "do", "their",
    "time", "if", "will", "way", "about", "many", "then", "them", "would", "write", "like", "so", "these", "her",
    "long", "make", "thing", "see", "him", "two", "has", "look", "more", "day", "could", "go", "come", "did", "my",
    "sound", "no", "most", "number", "who", "over", "know", "water", "than", "call", "first", "people", "may", "down",
    "side", "been", "now", "find", "any", "new", "work", "part", "take", "get", "place", "made", "live", "where",
    "after", "back", "little", "only", "round", "man", "year", "came", "show", "every", "good", "me", "give", "our",
    "under", "name", "very", "through", "just", "form", "much", "great", "think", "say", "help", "low", "line",
];

/// A text of `words` words; each `id` has another one.
pub(crate) fn text(seed: u64, id: u64, words: u64) -> String {
    // Neighbouring seeds give unrelated streams: the generator mixes them itself.
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ id);
    let mut text = String::with_capacity(words as usize * 5);
    for n in 0..words {
        if n > 0 {
            text.push(' ');
        }
        text.push_str(WORDS[random.random_range(0..WORDS.len())]);
    }
    text
}

/// How many words give the tokens that are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Length {
    pub(crate) wanted: u64,
    /// Tokens of a word, and those that every prompt has besides; absent before the server has counted.
    pub(crate) counted: Option<(f64, f64)>,
}

impl Length {
    pub(crate) fn guess(wanted: u64) -> Self {
        Self { wanted, counted: None }
    }

    /// From two prompts: their words, and the tokens that the server counted. Nothing is learned from counts that do
    /// not grow with the words.
    pub(crate) fn learn(&mut self, short: (u64, u64), long: (u64, u64)) {
        let words = long.0 as f64 - short.0 as f64;
        let per_word = (long.1 as f64 - short.1 as f64) / words;
        if words > 0.0 && per_word > 0.1 {
            self.counted = Some((per_word, short.1 as f64 - per_word * short.0 as f64));
        }
    }

    pub(crate) fn words(&self) -> u64 {
        let (per_word, besides) = self.counted.unwrap_or((1.0, 0.0));
        (((self.wanted as f64 - besides) / per_word).round() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_and_repeat() {
        assert_eq!(text(1, 5, 40), text(1, 5, 40));
        assert_ne!(text(1, 5, 40), text(1, 6, 40));
        assert_ne!(text(1, 5, 40), text(2, 5, 40));
        assert_eq!(text(1, 5, 40).split(' ').count(), 40);
    }

    #[test]
    fn lengths_follow_what_the_server_counts() {
        let mut length = Length::guess(512);
        assert_eq!(length.words(), 512);
        // 11 tokens of a template, and 1.25 of each word.
        length.learn((16, 31), (512, 651));
        assert_eq!(length.words(), 401);
        length.wanted = 3;
        assert_eq!(length.words(), 1, "a prompt has at least a word");
        let before = length;
        length.learn((16, 31), (512, 31));
        assert_eq!(length, before, "a server that cuts prompts, or counts nothing");
    }
}
