//! Values and rows.

use candlescope_schema::run::Finding;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serde::Serialize;
use std::collections::HashSet;

/// A value of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SqlValue {
    /// Absent: `NULL`, or a number that is not finite.
    Null,
    /// True or false, of a column of that type.
    Bool(bool),
    /// A whole number that 64 bits with a sign hold, from a column of integers or a sum of them.
    Int(i64),
    /// Any other number, always finite; whole numbers beyond 64 bits with a sign lose digits here.
    Float(f64),
    /// Text, and whatever else a value may be as text.
    Text(String),
}

/// A column of an answer.
enum Values {
    Bool(datafusion::arrow::array::BooleanArray),
    Int(datafusion::arrow::array::Int64Array),
    Float(datafusion::arrow::array::Float64Array),
    Text(datafusion::arrow::array::StringViewArray),
    /// `NULL` of no type.
    Absent,
    /// Times, lists and the like, as text.
    Other(datafusion::arrow::array::ArrayRef),
}

impl SqlValue {
    /// The rows of a batch.
    pub(super) fn rows(batch: &RecordBatch) -> impl Iterator<Item = Result<Vec<Self>, ArrowError>> {
        let columns: Result<Vec<Values>, ArrowError> = batch.columns().iter().map(Values::of).collect();
        let (columns, error) = match columns {
            Ok(columns) => (columns, None),
            Err(error) => (Vec::new(), Some(Err(error))),
        };
        let rows = if error.is_some() { 0 } else { batch.num_rows() };
        error.into_iter().chain((0..rows).map(move |row| columns.iter().map(|column| column.at(row)).collect()))
    }

    /// Bytes that it takes.
    pub(super) fn held(&self) -> usize {
        let text = if let Self::Text(text) = self { text.capacity() } else { 0 };
        size_of::<Self>() + text
    }
}

impl Values {
    fn of(array: &datafusion::arrow::array::ArrayRef) -> Result<Self, ArrowError> {
        let to = |kind: DataType| cast(array, &kind);
        Ok(match array.data_type() {
            DataType::Null => Self::Absent,
            DataType::Boolean => Self::Bool(array.as_boolean().clone()),
            // Whole numbers beyond 64 bits with a sign lose digits, as in JSON.
            DataType::UInt64 if wide(array) => {
                Self::Float(to(DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            kind if kind.is_integer() => Self::Int(to(DataType::Int64)?.as_primitive::<Int64Type>().clone()),
            // A sum of whole numbers, unless it is larger than any of them.
            DataType::Decimal128(_, 0) if to(DataType::Int64)?.null_count() == array.null_count() => {
                Self::Int(to(DataType::Int64)?.as_primitive::<Int64Type>().clone())
            }
            kind if kind.is_floating() || kind.is_decimal() => {
                Self::Float(to(DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) => {
                Self::Text(to(DataType::Utf8View)?.as_string_view().clone())
            }
            _ => Self::Other(array.clone()),
        })
    }

    fn at(&self, row: usize) -> Result<SqlValue, ArrowError> {
        Ok(match self {
            Self::Bool(values) if values.is_valid(row) => SqlValue::Bool(values.value(row)),
            Self::Int(values) if values.is_valid(row) => SqlValue::Int(values.value(row)),
            // Not a number is no value, as in every table of a run.
            Self::Float(values) if values.is_valid(row) && values.value(row).is_finite() => {
                SqlValue::Float(values.value(row))
            }
            Self::Text(values) if values.is_valid(row) => SqlValue::Text(values.value(row).to_string()),
            Self::Other(values) if values.is_valid(row) => {
                let formatter = ArrayFormatter::try_new(values, &FormatOptions::new())?;
                SqlValue::Text(formatter.value(row).try_to_string()?)
            }
            _ => SqlValue::Null,
        })
    }
}

fn wide(array: &datafusion::arrow::array::ArrayRef) -> bool {
    let values = array.as_primitive::<datafusion::arrow::datatypes::UInt64Type>();
    values.iter().flatten().any(|value| i64::try_from(value).is_err())
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

impl Answer {
    /// Damage to the files that were read.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

/// The names with a number behind those that came before.
pub(super) fn distinct(names: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.into_iter().map(|name| free(name, &mut seen)).collect()
}

/// A name, with a number behind it if it was seen before.
pub(super) fn free(name: String, seen: &mut HashSet<String>) -> String {
    let numbered = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}_{n}")));
    let free = numbered.into_iter().find(|name| !seen.contains(name)).unwrap_or(name);
    seen.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_made_distinct() {
        let names = |list: &[&str]| super::distinct(list.iter().map(|name| (*name).to_string()).collect());
        assert_eq!(names(&["a", "b", "a", "a_2", "a"]), ["a", "b", "a_2", "a_2_2", "a_3"]);
    }
}
