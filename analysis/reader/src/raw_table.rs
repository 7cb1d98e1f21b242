//! Columns of a table as they are, for queries: every row, whatever run it belongs to and whatever it lacks.

use super::Run;
use super::columns::{FloatColumn, IntColumn, TextColumn};
use super::discover::{rows_per_byte, short};
use super::footer::{self, Refusal, guarded};
use super::long_texts::LongTexts;
use super::pages::rows_at_a_time;
use crate::limits::{Limit, ReadLimits};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Code, Finding, Place};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::path::{Path, PathBuf};

/// Rows decoded at a time.
const ROWS: usize = 8192;

/// Values of one column.
pub enum RawColumn {
    /// Whole numbers, and yes or no as 1 or 0.
    Int(IntColumn),
    /// Other numbers.
    Float(FloatColumn),
    /// Text.
    Text(TextColumn),
}

/// Some columns of Parquet files, batch by batch. Reading of a damaged file stops at the damage, which becomes a
/// finding.
pub struct RawTable<'a> {
    names: Vec<String>,
    /// Files to come, in reverse.
    queue: Vec<PathBuf>,
    limits: &'a ReadLimits,
    /// Whether the number of rows is not yet held against the size of the file.
    is_new: bool,
    open: Option<(PathBuf, ParquetRecordBatchReader)>,
    findings: Vec<Finding>,
    long_texts: LongTexts,
}

impl<'a> RawTable<'a> {
    /// The columns `names` of a table of a run.
    pub fn of_run(run: &'a Run, kind: RecordKind, names: &[&str]) -> Self {
        let files = run.segments().iter().filter(|segment| segment.kind == kind).map(|segment| segment.path.clone());
        // A run's were checked when it was opened.
        Self::new(files.rev().collect(), names, run.limits(), false)
    }

    /// The columns `names` of a file.
    pub fn of_file(file: &Path, names: &[&str], limits: &'a ReadLimits) -> Self {
        Self::new(vec![file.to_path_buf()], names, limits, true)
    }

    fn new(queue: Vec<PathBuf>, names: &[&str], limits: &'a ReadLimits, is_new: bool) -> Self {
        let names = names.iter().map(|name| (*name).to_string()).collect();
        Self { names, queue, limits, is_new, open: None, findings: Vec::new(), long_texts: LongTexts::default() }
    }

    /// Names of the columns of a file that can be read; none if it cannot be opened.
    pub fn columns_of(file: &Path, limits: &ReadLimits) -> Vec<String> {
        let fields = |schema: &SchemaRef| -> Vec<String> {
            let flat = schema.fields().iter().filter(|field| !field.data_type().is_nested());
            flat.map(|field| field.name().clone()).collect()
        };
        footer::open(file, limits).map(|(_, metadata)| fields(metadata.schema())).unwrap_or_default()
    }

    /// Names of the columns, in the order of each batch.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What was noticed.
    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.extend(self.long_texts.finding(self.limits));
        self.findings
    }

    /// The next rows: how many, and their columns. A column that the file does not have is all null.
    pub fn next_batch(&mut self) -> Option<(usize, Vec<RawColumn>)> {
        loop {
            let Some((file, mut reader)) = self.open.take() else {
                let file = self.queue.pop()?;
                match self.reader(&file) {
                    Ok(reader) => self.open = Some((file, reader)),
                    Err(why) => self.refused(&file, why),
                }
                continue;
            };
            let (limits, long_texts) = (self.limits, &mut self.long_texts);
            let next = guarded("one of its pages", || {
                let Some(rows) = reader.next().transpose().map_err(parquet::errors::ParquetError::from)? else {
                    return Ok(None);
                };
                let rows = long_texts.cut(rows, limits, &file);
                Ok(Some(rows.map_err(parquet::errors::ParquetError::from)?))
            });
            match next {
                Ok(Some(rows)) => {
                    let columns = self.names.iter().map(|name| column(&rows, name)).collect();
                    self.open = Some((file, reader));
                    return Some((rows.num_rows(), columns));
                }
                Ok(None) => {}
                Err(why) => self.refused(&file, why),
            }
        }
    }

    fn reader(&self, file: &Path) -> Result<ParquetRecordBatchReader, Refusal> {
        let (file, metadata) = footer::open(file, self.limits)?;
        if self.is_new {
            let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(u64::MAX);
            self.limits.check(Limit::RowsPerByte, rows_per_byte(rows, file.metadata()?.len()))?;
        }
        guarded("its footer", || {
            let schema = metadata.parquet_schema();
            let wanted = |at: &usize| self.names.iter().any(|name| name == schema.get_column_root(*at).name());
            let leaves: Vec<usize> = (0..schema.num_columns()).filter(wanted).collect();
            let rows = rows_at_a_time(&file, metadata.metadata(), &leaves, self.limits, ROWS)?;
            let mask = ProjectionMask::leaves(schema, leaves);
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
            Ok(builder.with_projection(mask).with_batch_size(rows).build()?)
        })
    }

    fn refused(&mut self, file: &Path, why: Refusal) {
        self.findings.push(refused(file, why));
    }
}

/// What is told of a file of which rows are missing.
pub(super) fn refused(file: &Path, why: Refusal) -> Finding {
    let path = file.display().to_string();
    match why {
        Refusal::Limit(exceeded) => exceeded.finding(&format!("`{path}`"), "rows of it are missing"),
        Refusal::Damaged(why) => Finding::new(
            Code::SegmentCorrupt,
            "`{file}` is damaged ({why}): rows of it are missing",
            "Copy the file again from where the run was made, or delete it to accept the loss",
        )
        .at(Place::File, path)
        .text("why", short(&why)),
    }
}

fn column(rows: &RecordBatch, name: &str) -> RawColumn {
    let kind = rows.column_by_name(name).map(|array| array.data_type().clone());
    match kind {
        Some(DataType::Float64 | DataType::Float32) => RawColumn::Float(FloatColumn::of(rows, name)),
        Some(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..)) => {
            RawColumn::Text(TextColumn::of(rows, name))
        }
        _ => RawColumn::Int(IntColumn::of(rows, name)),
    }
}
