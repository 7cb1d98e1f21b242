//! What holds two copies of a table against each other: a count, a sum for each column, and one of the rows. None depends on
//! the order of rows.

use super::ArchiveError;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use candlescope_schema::splitmix;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Rows of a table, the sum of each of its columns, and that of its rows: values that were mixed up between rows show there.
/// A column that is absent, and one that is null throughout, are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) rows: u64,
    columns: BTreeMap<String, u64>,
    of_rows: u64,
}

impl Sums {
    /// Adds rows; `run`, which says where they are from, does not count.
    pub(crate) fn add(&mut self, rows: &RecordBatch) -> Result<(), ArchiveError> {
        self.rows += rows.num_rows() as u64;
        let mut of_rows = vec![0u64; rows.num_rows()];
        for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            if field.name() == super::layout::RUN {
                continue;
            }
            let seed = hash_of(field.name());
            let mut sum = 0u64;
            each(column, |row, hash| {
                sum = sum.wrapping_add(hash);
                of_rows[row] = of_rows[row].wrapping_add(splitmix::next(hash ^ seed));
            })?;
            if sum != 0 {
                let of = self.columns.entry(field.name().clone()).or_default();
                *of = of.wrapping_add(sum);
            }
        }
        self.of_rows = of_rows.into_iter().fold(self.of_rows, |sum, row| sum.wrapping_add(splitmix::next(row)));
        self.columns.retain(|_, sum| *sum != 0);
        Ok(())
    }

    /// Adds the sums of further rows of the same table.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.of_rows = self.of_rows.wrapping_add(other.of_rows);
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
        let mut names = self.columns.keys().chain(other.columns.keys());
        match names.find(|name| self.columns.get(*name) != other.columns.get(*name)) {
            Some(name) => Some(format!("column `{name}`")),
            None if self.of_rows != other.of_rows => Some("values of its rows are mixed up".to_string()),
            None => None,
        }
    }
}

/// The hash of each value of a column that is there, with its row.
fn each(column: &dyn Array, mut take: impl FnMut(usize, u64)) -> Result<(), ArchiveError> {
    fn all<T>(values: impl Iterator<Item = Option<T>>, hash: impl Fn(T) -> u64, take: &mut impl FnMut(usize, u64)) {
        // Never zero, so that a value is never as if absent.
        let present = values.enumerate().filter_map(|(row, value)| Some((row, hash(value?) | 1)));
        present.for_each(|(row, hash)| take(row, hash));
    }
    let take = &mut take;
    match column.data_type() {
        DataType::Int64 => all(column.as_primitive::<Int64Type>().iter(), |value| splitmix::next(value as u64), take),
        DataType::Int32 => {
            all(column.as_primitive::<Int32Type>().iter(), |value| splitmix::next(i64::from(value) as u64), take)
        }
        DataType::Float64 => {
            all(column.as_primitive::<Float64Type>().iter(), |value| splitmix::next(value.to_bits()), take)
        }
        DataType::Utf8View => all(column.as_string_view().iter(), hash_of, take),
        DataType::Utf8 => all(column.as_string::<i32>().iter(), hash_of, take),
        other => return Err(ArchiveError::Kind(other.to_string())),
    }
    Ok(())
}

fn hash_of(text: impl AsRef<str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.as_ref().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, StringViewArray};
    use std::sync::Arc;

    fn sums(numbers: &[Option<i64>], texts: &[&str]) -> Sums {
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
        let mut sums = Sums::default();
        sums.add(&RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap())
            .unwrap();
        sums
    }

    #[test]
    fn what_differs_shows_and_order_does_not() {
        let one = sums(&[Some(1), None, Some(3)], &["a", "b", "c"]);
        assert_eq!(one.differs(&sums(&[Some(3), Some(1), None], &["c", "a", "b"])), None);
        assert_eq!(
            one.differs(&sums(&[Some(3), None, Some(1)], &["a", "b", "c"])).unwrap(),
            "values of its rows are mixed up"
        );
        assert_eq!(one.differs(&sums(&[Some(1), Some(0), Some(3)], &["a", "b", "c"])).unwrap(), "column `n`");
        let mut merged = sums(&[Some(1), None], &["a", "b"]);
        merged.merge(&sums(&[Some(3)], &["c"]));
        assert_eq!(merged, one);
    }
}
