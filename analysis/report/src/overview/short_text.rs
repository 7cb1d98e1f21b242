//! Texts of others, harmless and short.

use super::super::format::{printable, tail};

/// The longest name.
pub(super) const NAME: usize = 80;
/// The longest sentence.
pub(super) const SENTENCE: usize = 260;

/// The end of a name: the last parts are the most telling.
pub(super) fn name(text: &str) -> String {
    tail(&printable(text), NAME)
}

/// The begin of a sentence.
pub(super) fn sentence(text: &str) -> String {
    super::super::format::head(&printable(text), SENTENCE)
}

/// A number to six digits: more say nothing, and take room.
pub(super) fn six_digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_stay() {
        assert_eq!(
            [123_456_789.0, -0.001_234_567_89, 0.0, 7.0].map(six_digits),
            [123_457_000.0, -0.001_234_57, 0.0, 7.0]
        );
        assert!(six_digits(f64::NAN).is_nan());
    }
}
