//! What a report shows is data: a [`Document`] of sections, each with tables, lists, facts, notices and charts. A drawer for
//! each form draws all of it: [`terminal`], [`markdown`], [`html`]. To add a table to every form, make a [`Table`] and put
//! it into a section.
//!
//! Prose holds names of others between backticks, which each form shows as code. Whatever a text holds, no drawer lets it
//! move a cursor, end a cell or become markup; only [`Block::Pictures`] and [`Block::Html`] are taken as they are.

mod document;
pub mod html;
pub mod markdown;
mod table;
pub mod terminal;
pub mod text;

pub use document::{Block, Document, Fact, Forms, Frame, Heat, HeatCell, Mark, Notice, Part, Section, Verdict};
pub use table::{Bar, Cell, Column, Most, Row, Table, cell, column, maybe, missing, sentences, wide, words};
