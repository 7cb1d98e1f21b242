//! How a `config.json` is read.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The text of a `config.json` of Hugging Face.
#[derive(Deserialize)]
pub(super) struct HfConfig {
    pub(super) model_type: String,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// A `config.json` that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the model's configuration is not what config.json of Hugging Face holds: {0}; give the file's text as it is")]
pub struct ConfigUnreadable(#[from] serde_json::Error);
