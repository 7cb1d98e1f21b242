//! One table per file: turns records into the columns of a row group. Pure: nothing here depends on files.

mod columns;
mod kernels_table;
mod requests_table;
mod samples_table;
mod spans_table;
mod steps_table;

pub(super) use kernels_table::Kernels;
pub(super) use requests_table::Requests;
pub(super) use samples_table::Samples;
pub(super) use spans_table::Spans;
pub(super) use steps_table::Steps;

use super::encoding::chunk::ColumnData;
use candlescope_core::RecordKind;
use columns::constant;
use std::borrow::Cow;

/// Rows collected for the next row group of one table.
pub(super) trait Table: Send + Default {
    /// The record of a row.
    type Record;
    /// The table.
    const KIND: RecordKind;

    /// Adds one row.
    fn push(&mut self, record: &Self::Record);

    /// Rows held.
    fn rows(&self) -> usize;

    /// The columns in the order of the run format.
    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>>;

    /// Removes the rows and keeps the memory.
    fn clear(&mut self);

    /// Bytes of memory that the rows take: not what is kept for those to come, which writing early does not free.
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

/// Defines a table by its columns, in the order of the run format; every row has the first of them. How a record
/// becomes a row is the table's `add`.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident: $record:ident, $kind:ident {
        $first:ident: $first_type:ty,
        $($column:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(in crate::parquet) struct $name {
            $first: $first_type,
            $($column: $type,)*
        }

        impl super::Table for $name {
            type Record = $record;
            const KIND: candlescope_core::RecordKind = candlescope_core::RecordKind::$kind;

            #[inline]
            fn push(&mut self, record: &$record) {
                self.add(record);
            }

            fn rows(&self) -> usize {
                self.$first.rows()
            }

            fn columns<'a>(&'a self, run: &'a super::RunColumns) -> Vec<super::ColumnData<'a>> {
                let mut columns = run.columns(self.rows());
                self.$first.data(&mut columns);
                $(self.$column.data(&mut columns);)*
                columns
            }

            fn clear(&mut self) {
                self.$first.clear();
                $(self.$column.clear();)*
            }

            fn memory(&self) -> usize {
                self.$first.memory() $(+ self.$column.memory())*
            }
        }
    };
}
use table;
