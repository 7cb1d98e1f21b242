//! Tables of a run, each declared once: `record!` makes the record of a row, the list of the table's columns,
//! and a macro through which writers and readers get the same list.
//!
//! A line of a declaration says what a row has: `field: Type => Kind`. Its doc comment is the column's meaning, in
//! `docs/run-format.md` and in SQL's table `columns` as well. The column is called as the field, or by the text behind
//! the kind. A [`kind`] says how values become columns; some kinds stand for several columns.

pub mod kind;

use crate::record::RecordKind;
use crate::{KernelRecord, RequestRecord, SampleRecord, SpanRecord, StepRecord};
use std::sync::OnceLock;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// 64-bit signed integer.
    Int64,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit floating point.
    Float64,
    /// UTF-8 string, dictionary-encoded.
    Utf8,
}

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ColumnType,
    /// Whether values can be absent.
    pub nullable: bool,
    /// What it holds, with its unit.
    pub doc: &'static str,
}

/// The columns that every table begins with.
const OF_RUN: [Column; 3] = [
    Column { name: "run_id", kind: ColumnType::Utf8, nullable: false, doc: "Unique name of the run" },
    Column { name: "host", kind: ColumnType::Utf8, nullable: false, doc: "Host name" },
    Column {
        name: "rank",
        kind: ColumnType::Int32,
        nullable: false,
        doc: "Rank of the process in a distributed run, 0 otherwise",
    },
];

/// Columns of the table of this kind of record.
pub fn columns(kind: RecordKind) -> &'static [Column] {
    static TABLES: [OnceLock<Vec<Column>>; RecordKind::ALL.len()] = [const { OnceLock::new() }; 5];
    TABLES[kind as usize].get_or_init(|| {
        let mut all = OF_RUN.to_vec();
        match kind {
            RecordKind::Span => SpanRecord::describe(&mut all),
            RecordKind::Step => StepRecord::describe(&mut all),
            RecordKind::Request => RequestRecord::describe(&mut all),
            RecordKind::Sample => SampleRecord::describe(&mut all),
            RecordKind::Kernel => KernelRecord::describe(&mut all),
        }
        all
    })
}

/// Declares a table; see the [module](crate::table).
macro_rules! record {
    (
        [$d:tt] $each:ident
        $(#[$meta:meta])*
        $Record:ident, $Kind:ident, $Rows:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $ty:ty => $cells:ident $($column:literal)?,
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct $Record {
            $(
                $(#[doc = $doc])+
                pub $field: $ty,
            )*
        }

        impl $Record {
            /// A record of all its fields, in the order of their declaration: for readers made with the list.
            #[doc(hidden)]
            #[allow(clippy::too_many_arguments, reason = "called by macros that have the same list")]
            #[inline]
            pub fn of_fields($($field: $ty,)*) -> Self {
                Self { $($field,)* }
            }

            pub(crate) fn describe(columns: &mut Vec<$crate::table::Column>) {
                $(
                    <$crate::table::kind::$cells as $crate::table::kind::Describe<$ty>>::describe(
                        $crate::column!($field $($column)?),
                        concat!($($doc),+).trim().trim_end_matches('.'),
                        columns,
                    );
                )*
            }
        }

        #[doc = concat!(
            "Calls the macro `$do` with the fields of [`", stringify!($Record), "`]: \
             `Record, RecordKind, Rows; field: Type => Kind \"column\", …`."
        )]
        #[macro_export]
        macro_rules! $each {
            ($d do:ident) => {
                $d do! {
                    $Record, $Kind, $Rows;
                    $($field: $ty => $cells ($($column)?),)*
                }
            };
        }
    };
}
pub(crate) use record;

/// The name of a field's column: that of the field, if there is no other.
#[doc(hidden)]
#[macro_export]
macro_rules! column {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}
