//! A comparison as text for a terminal and as a page.

mod flames;
mod html;
mod tables;
mod terminal;
mod words;

pub use html::{page, page_of_cases};
pub use terminal::{text, text_of_cases};
pub use words::{before_times, conclusion, conclusion_of_cases, floor_source};
