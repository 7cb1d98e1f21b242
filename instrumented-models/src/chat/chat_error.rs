//! Why a conversation could not be rendered.

use serde::{Deserialize, Serialize};

/// Most bytes of an error's text, which a template can determine.
const MAX_ERROR: usize = 1 << 10;

/// Why a conversation could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChatError {
    /// The template is invalid, refuses the conversation, or exceeds the limits.
    #[error("the model's chat template failed: {0}; pass the prompt without a chat template")]
    Template(String),
    /// This program or machine cannot render it.
    #[error("the model's chat template cannot be rendered: {0}")]
    Host(String),
}

impl ChatError {
    /// An error of the template, with its text cut to a readable length.
    pub(super) fn template(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > MAX_ERROR {
            text.truncate(text.floor_char_boundary(MAX_ERROR));
            text.push('…');
        }
        Self::Template(text)
    }
}
