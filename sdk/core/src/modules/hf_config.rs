//! The text of a `config.json` of Hugging Face.

use serde::Deserialize;

/// What it says, whatever the architecture calls its fields.
#[derive(Deserialize)]
pub(super) struct HfConfig {
    pub(super) model_type: String,
    #[serde(flatten)]
    pub(super) rest: serde_json::Map<String, serde_json::Value>,
}

impl HfConfig {
    pub(super) fn has(&self, name: &str) -> bool {
        self.rest.get(name).is_some_and(|value| !value.is_null())
    }

    /// The first of these that is a number: some models have lists under the names that others have numbers.
    pub(super) fn number(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.rest.get(*name)?.as_u64())
    }
}
