//! One table a file: from records to the columns of a row group. Pure: nothing here knows of files.

mod kernels;
mod requests;
mod samples;
mod spans;
mod steps;

pub(super) use kernels::Kernels;
pub(super) use requests::Requests;
pub(super) use samples::Samples;
pub(super) use spans::Spans;
pub(super) use steps::Steps;

use super::chunk::{ColumnData, KeySource};
use super::column::KeyColumn;
use super::dictionary::ValueDict;
use candlescope_core::RecordKind;
use std::borrow::Cow;
use std::hash::Hash;

/// Rows collected for the next row group of one table.
pub(super) trait Table: Send + Default {
    /// What a row is made of.
    type Record;
    /// The table.
    const KIND: RecordKind;

    /// Adds one row.
    fn push(&mut self, record: &Self::Record);

    /// Rows held.
    fn rows(&self) -> usize;

    /// The columns in the order of the run contract.
    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>>;

    /// Forgets the rows and keeps the memory.
    fn clear(&mut self);

    /// Bytes of memory held.
    fn memory(&self) -> usize;
}

/// The columns every table begins with, constant over a run.
#[derive(Debug, Clone, Default)]
pub(super) struct RunColumns {
    pub(super) run_id: String,
    pub(super) host: String,
    pub(super) rank: i32,
}

impl RunColumns {
    fn columns(&self, rows: usize) -> Vec<ColumnData<'_>> {
        vec![
            ColumnData::Text(constant(rows), vec![Cow::Borrowed(self.run_id.as_str())]),
            ColumnData::Text(constant(rows), vec![Cow::Borrowed(self.host.as_str())]),
            ColumnData::Int32(constant(rows), vec![self.rank]),
        ]
    }
}

fn constant(rows: usize) -> KeySource<'static> {
    KeySource::Made(KeyColumn::constant(0, rows))
}

fn text<'a>(keys: &'a KeyColumn, values: impl Iterator<Item = &'a str>) -> ColumnData<'a> {
    ColumnData::Text(KeySource::Kept(keys), values.map(Cow::Borrowed).collect())
}

/// Texts rendered from the dictionary's values: hex digits of trace ids, dimensions of shapes, words of vocabularies.
fn rendered<'a, T: Copy + Eq + Hash + ToString>(keys: &'a KeyColumn, dict: &ValueDict<T>) -> ColumnData<'a> {
    ColumnData::Text(KeySource::Kept(keys), dict.values().iter().map(|v| Cow::Owned(v.to_string())).collect())
}
