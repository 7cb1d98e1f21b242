//! What is said in a conversation.

use serde::{Deserialize, Serialize};

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said, before the chat template puts the model's marks around it.
    pub content: String,
}

impl Message {
    /// A turn; whether the role is one that the model knows only its chat template says.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_string(), content: content.to_string() }
    }
}
