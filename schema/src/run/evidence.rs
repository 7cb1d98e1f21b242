//! The numbers that findings are based on.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A number, or a word, that a finding is based on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Its name, by which templates refer to it.
    pub name: Cow<'static, str>,
    /// The number or word itself, in `unit`.
    pub value: EvidenceValue,
    /// `count`, `ratio`, `ns`, `bytes`, …, as in `metrics.json`; `text` for a word.
    pub unit: Cow<'static, str>,
}

/// The value of an [`Evidence`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EvidenceValue {
    /// A whole number: counts, bytes and nanoseconds.
    Whole(u64),
    /// Any other number, such as a ratio. [`Finding::number`](super::Finding::number) leaves out what is not finite.
    Real(f64),
    /// A word, a name, another program's message.
    Text(String),
}

impl EvidenceValue {
    /// The value as a number, if it is one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            EvidenceValue::Whole(n) => Some(*n as f64),
            EvidenceValue::Real(n) => Some(*n),
            EvidenceValue::Text(_) => None,
        }
    }
}
