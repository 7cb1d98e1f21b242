//! What a report shows is data: a [`Document`] of sections, each with tables, lists, facts, notices and charts. A
//! drawer for each form draws all of it: [`terminal`], [`markdown`], [`html`], [`json`]. To add a table to every form,
//! make a [`Table`] and put it into a section. A part of candlescope, which may change with every release.
//!
//! Prose holds names of others between backticks, which each form shows as code. Whatever a text holds, no drawer lets it
//! move a cursor, end a cell or become markup, and links lead to files beside the document only; SVG in [`Block::Pictures`],
//! [`Block::Html`] and the documents of [`Block::Frames`], which we make, are taken as they are.

mod document;
mod forms;
pub mod html;
pub mod json;
pub mod markdown;
mod narrow;
mod part;
mod picture;
mod quantity;
mod table;
pub mod terminal;
pub mod text;

pub use document::{Block, Document, Fact, Frame, Heat, HeatCell, Mark, Notice, Section, Verdict};
pub use forms::Forms;
pub use part::Part;
pub use picture::{Picture, Plot, PlotLine, PlotPoint};
pub use table::{
    Bar, Cell, Column, MostRows, Row, Table, cell, column, figure, maybe, missing, of_several, sentences, sorted, wide,
    words,
};
