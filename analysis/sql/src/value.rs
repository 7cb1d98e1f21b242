//! Values and rows.

use candlescope_schema::run::Finding;
use rusqlite::types::ValueRef;
use serde::Serialize;
use std::collections::HashSet;

/// A value of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SqlValue {
    /// Absent.
    Null,
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text; bytes as hex digits.
    Text(String),
}

impl From<ValueRef<'_>> for SqlValue {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(value) => Self::Int(value),
            // Not a number is no value, as in every table of a run.
            ValueRef::Real(value) if value.is_finite() => Self::Float(value),
            ValueRef::Real(_) => Self::Null,
            ValueRef::Text(text) => Self::Text(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Blob(bytes) => Self::Text(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}

impl SqlValue {
    /// Bytes that it takes.
    pub(super) fn held(&self) -> usize {
        let text = if let Self::Text(text) = self { text.capacity() } else { 0 };
        size_of::<Self>() + text
    }
}

/// What a query returned.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Answer {
    /// Names of the columns, each once.
    pub columns: Vec<String>,
    /// The rows, a value for each column.
    pub rows: Vec<Vec<SqlValue>>,
    /// Whether there are more rows than were asked for.
    pub truncated: bool,
    pub(super) findings: Vec<Finding>,
}

/// The names with a number behind those that came before.
pub(super) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut own = |name: String| {
        let numbered = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}_{n}")));
        let free = numbered.into_iter().find(|name| !seen.contains(name)).unwrap_or(name);
        seen.insert(free.clone());
        free
    };
    names.into_iter().map(&mut own).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_made_distinct() {
        let names = |list: &[&str]| super::distinct(list.iter().map(|name| (*name).to_string()).collect());
        assert_eq!(names(&["a", "b", "a", "a_2", "a"]), ["a", "b", "a_2", "a_2_2", "a_3"]);
    }
}
