//! `--json`: what is printed in place of text.

use crate::output::say;
use anyhow::Result;
use candlescope_document::{Document, json};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// For commands that show a document.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct JsonArg {
    /// Print JSON on standard output instead of text: the figures or, as --json=document, all that text and pages show
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "figures", hide_possible_values = true)]
    json: Option<Json>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Json {
    /// Figures under names of their own; --json alone
    Figures,
    /// What text and pages show: headings, tables, charts, notes
    Document,
}

impl JsonArg {
    /// For text.
    pub(crate) const TEXT: Self = Self { json: None };

    /// Whether JSON is printed in place of text.
    pub(crate) fn is_json(self) -> bool {
        self.json.is_some()
    }

    /// Whether it is the document.
    pub(crate) fn is_document(self) -> bool {
        self.json == Some(Json::Document)
    }

    /// Prints the JSON that was asked for, and returns whether any was.
    pub(crate) fn say(self, figures: &impl Serialize, document: impl FnOnce() -> Document) -> Result<bool> {
        match self.json {
            None => return Ok(false),
            Some(Json::Figures) => say(&serde_json::to_string(figures)?)?,
            Some(Json::Document) => say(&json::draw(&document()).to_string())?,
        }
        Ok(true)
    }
}
