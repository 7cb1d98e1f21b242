//! Files that another reader of Parquet reads: their claims are checked as if this one did.

use super::columns::missing_columns;
use super::discover::{bytes_for_rows, rows_per_byte};
use super::file_findings::damaged;
use super::footer;
use super::footer::{Refusal, guarded};
use super::pages::rows_at_a_time;
use crate::limits::{Limit, ReadLimits};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Finding, columns};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;
use std::path::Path;
use std::sync::Arc;

/// Rows decoded at a time.
const ROWS: usize = 8192;

/// The footer of a file, checked; so are the headers of the pages of the columns that `is_wanted` names.
///
/// # Errors
/// What is wrong with it: damage, or a limit that it reaches.
pub fn metadata(
    path: &Path,
    is_wanted: &dyn Fn(&str) -> bool,
    limits: &ReadLimits,
) -> Result<Arc<ParquetMetaData>, Finding> {
    checked(path, is_wanted, limits)
        .map(|(_, metadata, _)| Arc::clone(metadata.metadata()))
        .map_err(|why| refused(path, why))
}

/// The columns of a file, texts as views.
///
/// # Errors
/// What is wrong with its footer.
pub fn schema(path: &Path, limits: &ReadLimits) -> Result<SchemaRef, Finding> {
    footer::open(path, limits).map(|(_, metadata)| Arc::clone(metadata.schema())).map_err(|why| refused(path, why))
}

/// Which row groups of a file can be decoded, in the columns that `is_wanted` names, and what is wrong with the first that
/// cannot.
pub fn row_groups(path: &Path, is_wanted: &dyn Fn(&str) -> bool, limits: &ReadLimits) -> (Vec<bool>, Option<Finding>) {
    let (file, metadata, rows) = match checked(path, is_wanted, limits) {
        Ok(found) => found,
        Err(why) => return (Vec::new(), Some(refused(path, why))),
    };
    let schema = metadata.parquet_schema();
    let leaves = (0..schema.num_columns()).filter(|at| is_wanted(schema.get_column_root(*at).name()));
    let mask = ProjectionMask::leaves(schema, leaves);
    let mut first = None;
    let readable = (0..metadata.metadata().num_row_groups()).map(|group| {
        let read = guarded("one of its pages", || {
            let file = file.try_clone()?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
            let builder = builder.with_projection(mask.clone()).with_row_groups(vec![group]).with_batch_size(rows);
            for rows in builder.build()? {
                rows.map_err(parquet::errors::ParquetError::from)?;
            }
            Ok(())
        });
        read.map_err(|why| first.get_or_insert_with(|| refused(path, why)).clone()).is_ok()
    });
    (readable.collect(), first)
}

/// Why a file was not read to its end.
#[derive(Debug)]
pub enum ReadError<E> {
    /// The file is damaged, or goes beyond a limit.
    File(Finding),
    /// Whoever was given its rows.
    Other(E),
}

/// Gives every row of a file to `take`, in pieces, texts as views. Unlike a report, this stops at damage.
///
/// # Errors
/// What is wrong with the file, and what `take` returns.
pub fn each_batch<E>(
    path: &Path,
    limits: &ReadLimits,
    take: &mut dyn FnMut(&RecordBatch) -> Result<(), E>,
) -> Result<(), ReadError<E>> {
    let told = |why| ReadError::File(refused(path, why));
    let (file, metadata, rows) = checked(path, &|_| true, limits).map_err(told)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata).with_batch_size(rows);
    let mut reader = guarded("its footer", || Ok(builder.build()?)).map_err(told)?;
    loop {
        let next = guarded("one of its pages", || {
            Ok(reader.next().transpose().map_err(parquet::errors::ParquetError::from)?)
        });
        match next.map_err(told)? {
            Some(rows) => take(&rows).map_err(ReadError::Other)?,
            None => return Ok(()),
        }
    }
}

/// What is told of a file of which rows are missing.
fn refused(file: &Path, why: Refusal) -> Finding {
    let path = file.display().to_string();
    match why {
        Refusal::Limit(exceeded) => exceeded.finding(&format!("`{path}`"), "rows of it are missing"),
        Refusal::Damaged(why) => damaged(&path, &why),
    }
}

type CheckedFile = (std::fs::File, ArrowReaderMetadata, usize);

fn checked(path: &Path, is_wanted: &dyn Fn(&str) -> bool, limits: &ReadLimits) -> Result<CheckedFile, Refusal> {
    let (file, metadata) = footer::open(path, limits)?;
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(u64::MAX);
    // A file of an archive says by its columns alone of what table it is.
    let is_samples = missing_columns(metadata.schema(), columns(RecordKind::Sample)).is_empty();
    let bytes = bytes_for_rows(file.metadata()?.len(), is_samples);
    limits.check(Limit::RowsPerByte, rows_per_byte(rows, bytes))?;
    let rows = guarded("its footer", || {
        let schema = metadata.parquet_schema();
        let wanted = |at: &usize| is_wanted(schema.get_column_root(*at).name());
        let leaves: Vec<usize> = (0..schema.num_columns()).filter(wanted).collect();
        rows_at_a_time(&file, metadata.metadata(), &leaves, limits, ROWS)
    })?;
    Ok((file, metadata, rows))
}
