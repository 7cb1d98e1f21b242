//! The table `columns`: every column of every table, with its meaning.

use super::facts::FACTS;
use super::source::Sources;
use super::views::{ARCHIVED, RESULTS, RUNS};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{ColumnType, columns};
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use std::sync::Arc;

/// The rows of the table of columns, for these sources.
pub(super) fn rows(sources: &Sources) -> Result<RecordBatch> {
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut row = |table: &str, name: &str, kind: &str, meaning: &str| {
        rows.push([table, name, kind, meaning].map(str::to_string));
    };
    for kind in RecordKind::ALL {
        row(kind.table(), "run", TEXT, "Directory of the run");
        if columns(kind).iter().any(|column| column.name == "path") {
            row(kind.table(), "operator", TEXT, "Path without ordinals, or the step and the module without numbers");
        }
        for column in columns(kind) {
            let kind_of = match column.kind {
                ColumnType::Int64 => "BIGINT",
                ColumnType::Int32 => "INTEGER",
                ColumnType::Float64 => "DOUBLE",
                ColumnType::Utf8 => TEXT,
            };
            row(kind.table(), column.name, kind_of, column.doc);
        }
    }
    row(RUNS, "run", TEXT, "Directory of the run");
    FACTS.iter().for_each(|fact| row(RUNS, fact.name, sql_name(&fact.kind()), fact.meaning));
    for column in sources.result_columns() {
        row(RESULTS, column.name(), sql_name(column.data_type()), "From results.parquet");
    }
    for column in sources.index_columns() {
        row(ARCHIVED, column.name(), sql_name(column.data_type()), "From an archive's runs.parquet");
    }
    let column = |at: usize| Arc::new(StringViewArray::from_iter_values(rows.iter().map(|row| &row[at]))) as ArrayRef;
    let names = ["table_name", "column_name", "type", "meaning"];
    Ok(RecordBatch::try_from_iter(names.into_iter().enumerate().map(|(at, name)| (name, column(at))))?)
}

const TEXT: &str = "VARCHAR";

/// A type as SQL names it.
fn sql_name(kind: &DataType) -> &'static str {
    match kind {
        DataType::Boolean => "BOOLEAN",
        DataType::Float32 | DataType::Float64 => "DOUBLE",
        kind if kind.is_integer() => "BIGINT",
        _ => TEXT,
    }
}
