//! Words for shells, and shares for people.

pub use candlescope_core::numbers::gain;
use candlescope_core::numbers::signed_percent;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Name of the figure of requests that keep all limits, a second.
pub(crate) const GOODPUT: &str = "goodput";

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    // `--batch=2` needs no quotes, though a word such as `a=b` at the beginning of a command would.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_string(), |word| word.into_owned())
}

/// A figure by which requests decide, as a part of a sentence about its change.
pub(crate) fn of_requests(figure: &str) -> &str {
    match figure {
        "e2e_mean_ns" => "the mean request",
        "output_tps" => "the rate of output tokens",
        other => other,
    }
}

/// A change with its sign: `−12.3 %`, `+4.0 %`, and `±0.0 %` for what is too small to be shown.
pub(crate) fn signed(share: f64) -> String {
    if share.abs() < 5e-4 {
        return "±0.0 %".to_string();
    }
    signed_percent(share)
}

/// By which a text is told from others without having it.
pub(crate) fn told_by(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
