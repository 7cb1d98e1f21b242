//! Findings with gains: their words, and how each kind of report shows them.

mod json;
mod terminal;
mod words;

pub use json::json;
pub use terminal::text;
pub(super) use words::{DISTURBED, Row as Ranked, abstentions, gain, rows, steps, together};
