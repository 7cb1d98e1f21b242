//! Renderers turn figures into text: terminal, Markdown, JSON, HTML. None of them computes.
//!
//! What several renderers show is prepared as data: `headline_figures`, `head_facts`, the sheets (`sheet`,
//! `gpu_sheets`), the table of a profile (`nsys_table`), the conclusion. Each renderer draws these in its own way, and
//! none depends on another.

pub mod account;
pub mod advice;
pub mod compare;
mod conclusion;
mod format;
pub mod full;
mod full_front;
mod gpu_sheets;
mod head_facts;
mod headline_figures;
pub mod html;
pub mod inputs;
pub mod json;
mod kernel_name;
pub mod markdown;
pub mod ncu;
mod nsys_table;
mod peak_columns;
mod plain_changes;
mod plain_paths;
#[cfg(feature = "roofline")]
pub mod roofline;
mod sheet;
mod shown_definitions;
mod slow_requests;
mod stakeholder_facts;
pub mod terminal;
mod text_table;
pub mod what_if;
