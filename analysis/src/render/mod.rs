//! Renderers turn figures into text: terminal, Markdown, JSON, HTML. None of them computes.

pub mod facts;
pub mod figures;
pub mod format;
pub mod html;
pub mod json;
pub mod markdown;
mod nsys;
pub mod terminal;
