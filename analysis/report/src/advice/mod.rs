//! Findings with gains: their words, and how each kind of report shows them.

mod advice_on_terminal;
mod diagnosis;
mod json;
mod sentence;
mod words;

pub use advice_on_terminal::text;
pub use diagnosis::remedy_in_words;
pub(super) use diagnosis::{Row as Ranked, abstentions, gain, nothing_found, rows, steps, together, worded};
pub use json::json;
pub(super) use sentence::{DISTURBED, Sentence};
pub(super) use words::plain;
