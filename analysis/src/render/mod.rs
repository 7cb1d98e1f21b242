//! Renderers turn figures into text: terminal, Markdown, JSON, HTML. None of them computes.

pub mod facts;
pub mod figures;
pub mod format;
mod gpu;
pub mod html;
pub mod json;
mod kernel_name;
pub mod markdown;
mod nsys;
mod sheet;
pub mod terminal;
