//! A table of named columns, as all of a study's tables are written from.

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use candlescope_core::csv_field;
use candlescope_core::files::write_whole;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::{Map, Value};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The values of a column; absent ones are `None`.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Texts in UTF-8, such as names and reasons.
    Text(Vec<Option<String>>),
    /// Whole numbers of 64 bits with a sign, such as counts, bytes and nanoseconds.
    Int(Vec<Option<i64>>),
    /// 64-bit floats; those that are not finite become null in JSON.
    Float(Vec<Option<f64>>),
    /// Booleans, which CSV has as `true` and `false`.
    Bool(Vec<Option<bool>>),
}

impl Column {
    fn arrow(&self) -> (DataType, ArrayRef) {
        match self {
            Self::Text(values) => (DataType::Utf8, Arc::new(StringArray::from_iter(values.iter()))),
            Self::Int(values) => (DataType::Int64, Arc::new(Int64Array::from_iter(values.iter().copied()))),
            Self::Float(values) => (DataType::Float64, Arc::new(Float64Array::from_iter(values.iter().copied()))),
            Self::Bool(values) => (DataType::Boolean, Arc::new(BooleanArray::from_iter(values.iter().copied()))),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
            Self::Bool(values) => values.len(),
        }
    }

    fn json(&self, row: usize) -> Value {
        match self {
            Self::Text(values) => values.get(row).cloned().flatten().into(),
            Self::Int(values) => values.get(row).copied().flatten().into(),
            Self::Float(values) => values.get(row).copied().flatten().into(),
            Self::Bool(values) => values.get(row).copied().flatten().into(),
        }
    }

    fn text(&self, row: usize) -> String {
        match self {
            Self::Text(values) => {
                values.get(row).and_then(Option::as_deref).map(csv_field).unwrap_or_default().into_owned()
            }
            Self::Int(values) => values.get(row).copied().flatten().map(|value| value.to_string()).unwrap_or_default(),
            Self::Float(values) => {
                values.get(row).copied().flatten().map(|value| value.to_string()).unwrap_or_default()
            }
            Self::Bool(values) => values.get(row).copied().flatten().map(|value| value.to_string()).unwrap_or_default(),
        }
    }
}

/// Columns of equal lengths, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    columns: Vec<(String, Column)>,
}

impl Table {
    /// Adds a column at the end, with as many values as the others have.
    #[must_use]
    pub fn column(mut self, name: impl Into<String>, column: Column) -> Self {
        self.columns.push((name.into(), column));
        self
    }

    /// Names of the columns, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// The first column called `name`; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(known, _)| known == name).map(|(_, column)| column)
    }

    /// Number of rows, which is that of the values in the first column; 0 without columns.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// The table for Arrow. Every column may be null.
    ///
    /// # Errors
    /// When columns differ in length.
    pub fn arrow(&self) -> Result<RecordBatch, ArrowError> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = self
            .columns
            .iter()
            .map(|(name, column)| {
                let (kind, array) = column.arrow();
                (Field::new(name, kind, true), array)
            })
            .unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }

    /// Writes the table as a file of Parquet.
    pub(super) fn write_parquet(&self, path: &Path) -> io::Result<()> {
        let batch = self.arrow().map_err(io::Error::other)?;
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
        write_whole(path, |file| {
            let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).map_err(io::Error::other)?;
            writer.write(&batch).map_err(io::Error::other)?;
            writer.close().map(drop).map_err(io::Error::other)
        })
    }

    /// The table as CSV [RFC 4180, with line feeds]. Absent values are empty.
    pub fn csv(&self) -> String {
        let mut text: String = self.names().map(csv_field).collect::<Vec<_>>().join(",") + "\n";
        for row in 0..self.rows() {
            let fields: Vec<String> = self.columns.iter().map(|(_, column)| column.text(row)).collect();
            text += &fields.join(",");
            text.push('\n');
        }
        text
    }

    /// An object for each row. Absent values are null.
    pub fn json(&self) -> Vec<Value> {
        let object = |row| -> Map<String, Value> {
            self.columns.iter().map(|(name, column)| (name.clone(), column.json(row))).collect()
        };
        (0..self.rows()).map(|row| Value::Object(object(row))).collect()
    }
}
