//! The numbers that findings rest on.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A number, or a word, that a finding rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// What it is called.
    pub name: Cow<'static, str>,
    /// How much, or which.
    pub value: EvidenceValue,
    /// `count`, `ratio`, `ns`, `bytes`, …, as in `metrics.json`; `text` of a word.
    pub unit: Cow<'static, str>,
}

/// The value of an [`Evidence`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EvidenceValue {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
    /// A word, a name, another program's message.
    Text(String),
}

impl EvidenceValue {
    /// The number, where it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            EvidenceValue::Whole(n) => Some(*n as f64),
            EvidenceValue::Real(n) => Some(*n),
            EvidenceValue::Text(_) => None,
        }
    }
}
