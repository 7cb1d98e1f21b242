//! The file's schema and encodings, derived from the run format: [`candlescope_core::run::columns`] is the only list.

use arrow_schema::{DataType, Field, Schema};
use candlescope_core::RecordKind;
use candlescope_core::run::{Column, ColumnType, SCHEMA_VERSION, columns};
use parquet::arrow::{ArrowSchemaConverter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::schema::types::{ColumnPath, SchemaDescriptor};
use std::sync::Arc;

/// The table's Arrow schema. Texts are `Dictionary<Int32, Utf8>`.
pub fn arrow_schema(kind: RecordKind) -> Schema {
    Schema::new(columns(kind).iter().map(arrow_field).collect::<Vec<_>>())
}

fn arrow_field(column: &Column) -> Field {
    let kind = match column.kind {
        ColumnType::Int64 => DataType::Int64,
        ColumnType::Int32 => DataType::Int32,
        ColumnType::Float64 => DataType::Float64,
        ColumnType::Utf8 => DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
    };
    Field::new(column.name, kind, column.nullable)
}

/// What a writer of one table needs.
#[derive(Debug, Clone)]
pub(super) struct TableSchema {
    pub(super) parquet: SchemaDescriptor,
    pub(super) properties: WriterPropertiesPtr,
}

impl TableSchema {
    pub(super) fn new(kind: RecordKind, level: i32, run_id: &str) -> Result<Self> {
        let arrow = arrow_schema(kind);
        let parquet = ArrowSchemaConverter::new().schema_root("run").convert(&arrow)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("candlescope ", env!("CARGO_PKG_VERSION")).to_string())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(level)?))
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            // Our own chunks have no page index, and a partial index is useless.
            .set_offset_index_disabled(true)
            .set_write_batch_size(8192)
            .set_data_page_row_count_limit(usize::MAX)
            .set_key_value_metadata(Some(vec![
                KeyValue::new("candlescope.schema_version".to_string(), SCHEMA_VERSION.to_string()),
                KeyValue::new("candlescope.run_id".to_string(), run_id.to_string()),
            ]));
        for column in columns(kind) {
            let path = ColumnPath::from(column.name);
            match column.kind {
                // Numbers that grow or stay in a range. Bytes per value on spans of SmolLM2's shape, with ZSTD: starts
                // 2.24 (plain 2.68, byte-stream split 2.69), parents 0.26 (0.61, 0.30), durations 2.96 (2.77, 2.26).
                // Splitting would save on durations, but readers learned it for integers only recently.
                ColumnType::Int64 => properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
                // Few distinct values at a low rate: not worth a special encoding.
                ColumnType::Float64 | ColumnType::Int32 | ColumnType::Utf8 => {}
            }
        }
        let mut properties = properties.build();
        add_encoded_arrow_schema_to_metadata(&arrow, &mut properties);
        Ok(Self { parquet, properties: Arc::new(properties) })
    }
}
