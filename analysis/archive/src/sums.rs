//! What holds two copies of a table against each other: a count, and a sum for each column that does not depend on the order
//! of rows.

use super::ArchiveError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rows of a table and the sum of each of its columns. A column that is absent, and one that is null throughout, are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) rows: u64,
    columns: BTreeMap<String, u64>,
}

impl Sums {
    /// Adds rows; `run`, which says where they are from, does not count.
    pub(crate) fn add(&mut self, rows: &RecordBatch) -> Result<(), ArchiveError> {
        self.rows += rows.num_rows() as u64;
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            if field.name() == super::layout::RUN {
                continue;
            }
            let sum = sum(column)?;
            if sum != 0 {
                let of = self.columns.entry(field.name().clone()).or_default();
                *of = of.wrapping_add(sum);
            }
        }
        self.columns.retain(|_, sum| *sum != 0);
        Ok(())
    }

    /// Adds another's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        for (name, sum) in &other.columns {
            let of = self.columns.entry(name.clone()).or_default();
            *of = of.wrapping_add(*sum);
        }
        self.columns.retain(|_, sum| *sum != 0);
    }

    /// The first column in which they differ.
    pub(crate) fn differs(&self, other: &Self) -> Option<String> {
        if self.rows != other.rows {
            return Some(format!("{} rows and {}", self.rows, other.rows));
        }
        let names = self.columns.keys().chain(other.columns.keys());
        names
            .into_iter()
            .find(|name| self.columns.get(*name) != other.columns.get(*name))
            .map(|name| format!("column `{name}`"))
    }
}

/// The sum of the hashes of a column's values: two that are swapped, or one that changes, show.
fn sum(column: &dyn Array) -> Result<u64, ArchiveError> {
    fn each<T: Hash>(values: impl Iterator<Item = Option<T>>) -> u64 {
        values.flatten().fold(0u64, |sum, value| {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            // Never zero, so that a value is never as if absent.
            sum.wrapping_add(hasher.finish() | 1)
        })
    }
    Ok(match column.data_type() {
        DataType::Int64 => each(column.as_primitive::<Int64Type>().iter()),
        DataType::Int32 => each(column.as_primitive::<Int32Type>().iter().map(|value| value.map(i64::from))),
        DataType::Float64 => each(column.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits))),
        DataType::Utf8View => each(column.as_string_view().iter()),
        DataType::Utf8 => each(column.as_string::<i32>().iter()),
        other => return Err(ArchiveError::Kind(other.to_string())),
    })
}
