//! Prompts from files: JSONL, ShareGPT's JSON, plain text, images, and directories of them.
//!
//! `docs/configuration.md` describes the forms.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod directory;
mod forms;

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Component, Path, PathBuf};

pub use forms::jsonl;

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
    /// What it says.
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

/// The prompts of a data set cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// It cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line or an entry is not what it should be.
    #[error("{}, {place}: {why}", .path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Line or number of the entry.
        place: String,
        /// What is wrong, and what it should be.
        why: String,
    },
    /// There is nothing in it.
    #[error("{} has no prompts: {why}", .path.display())]
    Empty {
        /// The file or directory.
        path: PathBuf,
        /// What was looked for.
        why: String,
    },
    /// A variant has to be named, or does not exist.
    #[error("{} has the variants {}: {why}", .path.display(), .variants.join(", "))]
    Variant {
        /// The directory.
        path: PathBuf,
        /// Those there are.
        variants: Vec<String>,
        /// What to do.
        why: String,
    },
    /// It has texts and images.
    #[error(
        "{} mixes texts and images: {text} is a text, {image} an image; keep them in two data sets, or in two variants \
         of one",
        .path.display()
    )]
    Mixed {
        /// The file or directory.
        path: PathBuf,
        /// A text.
        text: String,
        /// An image.
        image: String,
    },
}

/// The prompts of the file or directory at `path`, in order. `variant` chooses among those of a directory.
///
/// # Errors
/// If it cannot be read, has no prompts, has an entry that is none (named by its line), or mixes texts and images; or
/// if a variant has to be named.
pub fn read(path: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    if path.is_dir() {
        return directory::read(path, variant);
    }
    if let Some(variant) = variant {
        return Err(empty(path, format!("it is a file, which has no variant {variant}")));
    }
    forms::file(path, None)
}

fn empty(path: &Path, why: impl Into<String>) -> DatasetError {
    DatasetError::Empty { path: path.to_path_buf(), why: why.into() }
}

/// Whether a file is an image, by its extension.
fn is_image(path: &Path) -> bool {
    matches!(extension(path).as_str(), "png" | "jpg" | "jpeg" | "webp" | "bmp" | "gif")
}

/// `file` in `folder`; refused if it lies elsewhere, because a data set may come from anywhere.
fn within(folder: &Path, file: &Path) -> Result<PathBuf, String> {
    let inside = file.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let refused = || format!("{} lies outside of the data set's folder: name a file in it", file.display());
    inside.then(|| folder.join(file)).ok_or_else(refused)
}

fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}
