//! Turns records into the columns of a row group. Which fields a record has and which columns they become is declared
//! with the record; [`cells`] says how each kind of cell is stored. Pure: nothing here depends on files.

mod cells;
mod columns;

use super::encoding::chunk::ColumnData;
use candlescope_core::table::kind::*;
use candlescope_core::*;
use cells::Store;
use columns::{Columns, constant};
use std::borrow::Cow;
use std::sync::Arc;

/// Rows collected for the next row group of one table.
pub(super) trait Table: Send + Default {
    /// The record of a row.
    type Record;
    /// Which table of a run it is.
    const KIND: RecordKind;

    /// Takes another record into the row group.
    fn push(&mut self, record: &Self::Record);

    /// How many rows are collected so far.
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

/// Makes a table's row group of the list of a record's fields.
macro_rules! rows {
    ($Record:ident, $Kind:ident, $Rows:ident; $($field:ident: $ty:ty => $cells:ident ($($column:literal)?),)*) => {
        #[doc = concat!("Rows of [`", stringify!($Record), "`]s for the next row group.")]
        #[derive(Default)]
        pub(super) struct $Rows {
            rows: usize,
            $($field: <$cells as Store<$ty>>::Column,)*
        }

        impl Table for $Rows {
            type Record = $Record;
            const KIND: RecordKind = RecordKind::$Kind;

            #[inline]
            fn push(&mut self, record: &$Record) {
                let mut slot = 0;
                $(<$cells as Store<$ty>>::push(&mut self.$field, &record.$field, &mut slot);)*
                let _ = slot;
                self.rows += 1;
            }

            fn rows(&self) -> usize {
                self.rows
            }

            fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>> {
                let mut columns = run.columns(self.rows);
                $(self.$field.data(&mut columns);)*
                columns
            }

            fn clear(&mut self) {
                self.rows = 0;
                $(self.$field.clear();)*
            }

            fn memory(&self) -> usize {
                0 $(+ self.$field.memory())*
            }
        }
    };
}
each_span!(rows);
each_step!(rows);
each_request!(rows);
each_sample!(rows);
each_kernel!(rows);
each_stack!(rows);
each_stack_sample!(rows);
each_perturbation!(rows);
