//! Tables of a run, each declared once: `record!` makes the record of a row, the list of the table's columns,
//! and a macro through which writers and readers get the same list.
//!
//! A line of a declaration says what a row has: `field: Type => Kind`. Its doc comment is the column's meaning, in
//! `docs/run-format.md` and in SQL's table `columns` as well. The column is called as the field, or by the text behind
//! the kind. A [`kind`] says how values become columns; some kinds stand for several columns.

mod column;
mod columns;
mod declare;
pub mod kind;

pub use column::{Column, ColumnType};
pub use columns::columns;
pub(crate) use declare::record;
