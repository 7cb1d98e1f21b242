//! Writes tables of a run, with arbitrary values.

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use candlescope_core::RecordKind;
use candlescope_core::run::{ColumnType, columns};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A row as any reader accepts it.
fn int(name: &str, row: usize) -> i64 {
    match name {
        "host_start_ns" | "gpu_start_ns" | "time_ns" => 1_769_860_800_000_000_000,
        "host_dur_ns" | "gpu_dur_ns" | "intervals" => 1,
        "seq" | "request" | "step" | "span_id" => row as i64,
        _ => 0,
    }
}

fn text(name: &str) -> Option<String> {
    Some(match name {
        "run_id" => "bomb".to_string(),
        "trace_id" => "0".repeat(32),
        "kind" => "kernel".to_string(),
        "dtype" | "shape" | "phase" | "gpu_source" | "module" => return None,
        name => name.to_string(),
    })
}

/// What is unusual about a table.
pub(crate) struct Table {
    pub(crate) kind: RecordKind,
    pub(crate) rows: usize,
    /// Numbers that are the same in every row, as texts then have to be.
    pub(crate) constant: bool,
    /// Replaces the text of a column and row.
    pub(crate) text: fn(&str, usize) -> Option<String>,
    pub(crate) settings: fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder,
}

impl Table {
    pub(crate) fn new(kind: RecordKind, rows: usize) -> Self {
        Self { kind, rows, constant: false, text: |_, _| None, settings: |builder| builder }
    }

    /// Writes the table as the first segment of the run in `dir`, which is made if it is missing.
    pub(crate) fn write(&self, dir: &Path) -> PathBuf {
        std::fs::create_dir_all(dir.join(self.kind.table())).unwrap();
        std::fs::write(dir.join("run.json"), r#"{"schema_version": 1, "run_id": "bomb"}"#).unwrap();
        let path = dir.join(self.kind.table()).join("part-00000.parquet");
        let level = Compression::ZSTD(ZstdLevel::try_new(3).unwrap());
        let builder = WriterProperties::builder().set_compression(level).set_max_row_group_row_count(None);
        let settings = (self.settings)(builder).build();
        let chunk = self.rows.min(250_000);
        let first = self.chunk(0, chunk);
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), first.schema(), Some(settings)).unwrap();
        writer.write(&first).unwrap();
        let mut at = chunk;
        while at < self.rows {
            let rows = chunk.min(self.rows - at);
            // Rows that are all the same are made once.
            let next = if self.constant { first.slice(0, rows) } else { self.chunk(at, rows) };
            writer.write(&next).unwrap();
            at += rows;
        }
        writer.close().unwrap();
        let bytes = std::fs::metadata(&path).unwrap().len();
        eprintln!("{} rows of {} in {bytes} bytes", self.rows, self.kind.table());
        path
    }

    fn chunk(&self, from: usize, rows: usize) -> RecordBatch {
        let fields = columns(self.kind).iter().map(|column| {
            let name = column.name;
            let array: ArrayRef = match column.kind {
                ColumnType::Utf8 if (self.text)(name, 0).is_some() => {
                    Arc::new(StringArray::from_iter((from..from + rows).map(|row| (self.text)(name, row))))
                }
                ColumnType::Utf8 => {
                    let value = text(name);
                    let keys = Int32Array::from(vec![value.is_some().then_some(0i32); rows]);
                    let values = Arc::new(StringArray::from(vec![value.unwrap_or_default()]));
                    Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
                }
                ColumnType::Float64 => Arc::new(Float64Array::from(vec![1.0; rows])),
                ColumnType::Int64 | ColumnType::Int32 => {
                    let row = |row| int(name, if self.constant { 0 } else { row });
                    Arc::new(Int64Array::from_iter_values((from..from + rows).map(row)))
                }
            };
            (name, array, true)
        });
        RecordBatch::try_from_iter_with_nullable(fields).unwrap()
    }
}
