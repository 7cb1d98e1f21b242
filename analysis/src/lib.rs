//! Reads runs on disk and answers questions about them.
//!
//! [`Run`] opens a directory in whatever state it is and streams its records; [`passes`] turn records into figures; [`render`]
//! turns figures into text, Markdown, JSON and HTML; [`write_report`] does all three.

mod reader;

pub use reader::{Batches, OpenError, Run, Segment};
pub mod passes;

pub use passes::Analysis;
pub mod definitions;
pub mod render;
