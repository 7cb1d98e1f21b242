//! The summary on a terminal: the most important figures, without opening a file.

use super::report;
use candlescope_document::Document;
use candlescope_document::terminal::{Layout, draw};
use candlescope_figures::Analysis;

/// How the terminal summary is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns it may take; at least 60.
    pub width: usize,
    /// Whether to colour headings and severities.
    pub color: bool,
    /// Rows of the tree.
    pub tree: usize,
    /// Rows of the operator table.
    pub operators: usize,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self { width: 100, color: false, tree: 24, operators: 12 }
    }
}

/// Every section that a terminal shows, below facts and verdict, with as many rows as `options` say.
pub fn summary(analysis: &Analysis, options: &TerminalOptions) -> String {
    drawn(&mut report::document(analysis, options.tree, options.operators), options)
}

/// A run's document on a terminal, where its verdict stands for the conclusion.
pub(crate) fn drawn(document: &mut Document, options: &TerminalOptions) -> String {
    let conclusion = std::mem::take(&mut document.conclusion);
    let text = draw(document, Layout { width: options.width, color: options.color });
    document.conclusion = conclusion;
    text
}
