//! One prompt of a data set.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// What a prompt says.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A text to continue.
    Text(String),
    /// A conversation, as the chat endpoint takes it: objects with `role` and `content`.
    Messages(Vec<Value>),
    /// An image, and what is asked about it.
    Image {
        /// The file. It was there when the data set was read.
        path: PathBuf,
        /// The text beside it, if any.
        text: Option<String>,
    },
}

/// One prompt of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// Its number: the line or the place in the data set.
    pub id: u64,
    /// What is asked: a text, a conversation, or an image with the text beside it.
    pub content: Content,
    /// Most tokens of the answer, where the data set says so.
    pub max_tokens: Option<u64>,
}

impl Default for Prompt {
    fn default() -> Self {
        Self { id: 0, content: Content::Text(String::new()), max_tokens: None }
    }
}

impl Prompt {
    /// Characters of its text, or of what is said in all messages.
    pub fn characters(&self) -> usize {
        match &self.content {
            Content::Text(text) => text.chars().count(),
            Content::Messages(messages) => {
                let said = messages.iter().filter_map(|message| message.get("content")?.as_str());
                said.map(|text| text.chars().count()).sum()
            }
            Content::Image { text, .. } => text.as_ref().map_or(0, |text| text.chars().count()),
        }
    }

    /// SHA-256 of its text, or of its messages as JSON, in hexadecimal: tells whether two runs had the same prompt
    /// without the prompt itself. `None` for images, whose files are not read here.
    pub fn sha256(&self) -> Option<String> {
        match &self.content {
            Content::Text(text) => Some(sha256(text)),
            Content::Messages(messages) => serde_json::to_string(messages).ok().map(|text| sha256(&text)),
            Content::Image { .. } => None,
        }
    }
}

/// SHA-256 of a text, in hexadecimal.
pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
