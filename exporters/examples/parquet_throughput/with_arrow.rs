//! The same table through arrow's own writer, from dictionary arrays: repeated values are keys already when it gets
//! them. Columns, encodings, compression and the size of row groups are those of the exporter. It writes spans only,
//! into a single file.

use arrow_array::builder::{ArrayBuilder, Int32Builder, Int64Builder};
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use candlescope_core::run::{ColumnType, columns};
use candlescope_core::{DType, GpuSource, Phase, RecordKind, Shape, SpanRecord};
use candlescope_exporters::parquet::arrow_schema;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

const ROW_GROUP: usize = 122_880;

/// Integers of few distinct values, for which the exporter has dictionaries.
const FEW: [&str; 7] = ["flops", "bytes", "tokens", "context_len", "batch", "flops_executed", "io_bytes"];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Texts by key. A repeated value is not hashed again.
struct Texts<K> {
    keys: Int32Builder,
    values: Vec<String>,
    known: HashMap<K, i32>,
    last: Option<(K, i32)>,
}

impl<K> Default for Texts<K> {
    fn default() -> Self {
        Self { keys: Int32Builder::new(), values: Vec::new(), known: HashMap::new(), last: None }
    }
}

impl<K: Copy + Eq + Hash> Texts<K> {
    fn push(&mut self, value: Option<K>, text: impl FnOnce() -> String) {
        let Some(value) = value else { return self.keys.append_null() };
        let key = match self.last {
            Some((last, key)) if last == value => key,
            _ => *self.known.entry(value).or_insert_with(|| {
                self.values.push(text());
                self.values.len() as i32 - 1
            }),
        };
        self.last = Some((value, key));
        self.keys.append_value(key);
    }

    fn take(&mut self) -> ArrayRef {
        let values = StringArray::from(std::mem::take(&mut self.values));
        (self.known, self.last) = (HashMap::new(), None);
        Arc::new(DictionaryArray::<Int32Type>::new(self.keys.finish(), Arc::new(values)))
    }
}

#[derive(Default)]
struct Columns {
    run_id: Texts<()>,
    host: Texts<()>,
    rank: Int32Builder,
    seq: Int64Builder,
    parent_seq: Int64Builder,
    trace_id: Texts<u128>,
    span_id: Int64Builder,
    step: Int64Builder,
    phase: Texts<Phase>,
    /// By the path's number.
    key_of: Vec<Option<i32>>,
    path: Texts<u32>,
    name: Texts<u32>,
    target: Texts<u32>,
    /// Of the runs measured here all null.
    module: Texts<u32>,
    depth: Int32Builder,
    thread: Texts<u32>,
    host_start: Int64Builder,
    host_dur: Int64Builder,
    gpu_start: Int64Builder,
    gpu_dur: Int64Builder,
    gpu_source: Texts<GpuSource>,
    flops: Int64Builder,
    bytes: Int64Builder,
    tokens: Int64Builder,
    context_len: Int64Builder,
    batch: Int64Builder,
    dtype: Texts<DType>,
    shape: Texts<Shape>,
    flops_executed: Int64Builder,
    io_bytes: Int64Builder,
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Columns {
    fn push(&mut self, span: &SpanRecord) {
        self.run_id.push(Some(()), || "2025-10-09T08-53-20-bench".to_string());
        self.host.push(Some(()), || "bench".to_string());
        self.rank.append_value(0);
        self.seq.append_value(int(span.seq));
        self.parent_seq.append_option(span.parent_seq.map(int));
        self.trace_id.push(Some(span.trace_id.0), || span.trace_id.to_string());
        self.span_id.append_value(span.span_id.0 as i64);
        self.step.append_option(span.step.map(int));
        self.phase.push(span.phase, || span.phase.map(|p| p.to_string()).unwrap_or_default());
        let key = self.path_key(span);
        for column in [&mut self.path, &mut self.name, &mut self.target] {
            column.keys.append_value(key);
        }
        self.module.push(None, String::new);
        self.depth.append_value(i32::from(span.depth));
        self.thread.push(Some(span.thread.index), || span.thread.name.to_string());
        self.host_start.append_value(span.host_start.0);
        self.host_dur.append_value(int(span.host_dur_ns));
        self.gpu_start.append_option(span.gpu.map(|g| g.start.0));
        self.gpu_dur.append_option(span.gpu.map(|g| int(g.dur_ns)));
        let source = span.gpu.map(|g| g.source);
        self.gpu_source.push(source, || source.map(|s| s.to_string()).unwrap_or_default());
        self.flops.append_option(span.flops.map(int));
        self.bytes.append_option(span.bytes.map(int));
        self.tokens.append_option(span.tokens.map(i64::from));
        self.context_len.append_option(span.context_len.map(i64::from));
        self.batch.append_option(span.batch.map(i64::from));
        self.dtype.push(span.dtype, || span.dtype.map(|d| d.to_string()).unwrap_or_default());
        self.shape.push(span.shape, || span.shape.map(|s| s.to_string()).unwrap_or_default());
        self.flops_executed.append_option(span.flops_executed.map(int));
        self.io_bytes.append_option(span.io_bytes.map(int));
    }

    /// The key of a path, and of its name and target, by the path's number.
    fn path_key(&mut self, span: &SpanRecord) -> i32 {
        let id = span.path.id as usize;
        if self.key_of.len() <= id {
            self.key_of.resize(id + 1, None);
        }
        *self.key_of[id].get_or_insert_with(|| {
            self.path.values.push(span.path.path.clone());
            self.name.values.push(span.path.name.to_string());
            self.target.values.push(span.path.target.to_string());
            self.path.values.len() as i32 - 1
        })
    }

    fn take(&mut self) -> Vec<ArrayRef> {
        self.key_of.clear();
        let int = |builder: &mut Int64Builder| Arc::new(builder.finish()) as ArrayRef;
        vec![
            self.run_id.take(),
            self.host.take(),
            Arc::new(self.rank.finish()),
            int(&mut self.seq),
            int(&mut self.parent_seq),
            self.trace_id.take(),
            int(&mut self.span_id),
            int(&mut self.step),
            self.phase.take(),
            self.path.take(),
            self.name.take(),
            self.target.take(),
            self.module.take(),
            Arc::new(self.depth.finish()),
            self.thread.take(),
            int(&mut self.host_start),
            int(&mut self.host_dur),
            int(&mut self.gpu_start),
            int(&mut self.gpu_dur),
            self.gpu_source.take(),
            int(&mut self.flops),
            int(&mut self.bytes),
            int(&mut self.tokens),
            int(&mut self.context_len),
            int(&mut self.batch),
            self.dtype.take(),
            self.shape.take(),
            int(&mut self.flops_executed),
            int(&mut self.io_bytes),
        ]
    }
}

/// Writes spans with arrow's writer.
pub(crate) struct WithArrow {
    writer: ArrowWriter<File>,
    schema: SchemaRef,
    columns: Columns,
}

impl WithArrow {
    pub(crate) fn create(file: &Path) -> Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_max_row_group_row_count(Some(ROW_GROUP));
        for column in columns(RecordKind::Span) {
            let path = ColumnPath::from(column.name);
            if column.kind == ColumnType::Int64 && !FEW.contains(&column.name) {
                properties = properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
            }
        }
        let schema = Arc::new(arrow_schema(RecordKind::Span));
        let writer = ArrowWriter::try_new(File::create(file)?, schema.clone(), Some(properties.build()))?;
        Ok(Self { writer, schema, columns: Columns::default() })
    }

    pub(crate) fn take(&mut self, spans: &[SpanRecord]) -> Result<()> {
        for span in spans {
            self.columns.push(span);
            if self.columns.rank.len() == ROW_GROUP {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), self.columns.take())?;
        Ok(self.writer.write(&batch)?)
    }

    pub(crate) fn close(mut self) -> Result<()> {
        self.write()?;
        self.writer.close()?;
        Ok(())
    }
}
