//! One table on disk: its open segment and its finished ones.

use super::encoding::chunk::ChunkWriter;
use super::file_system::{Files, SegmentFile};
use super::schema::TableSchema;
use super::store::remedy;
use super::tables::{RunColumns, Table};
use candlescope_core::run::IN_PROGRESS_SUFFIX;
use candlescope_core::{DropReason, Ledger, RecordKind};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// A segment could not be written. Its records are dropped, the finished segments stay.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {what} {}: {source}; {lost} {} dropped, finished segments are kept: {}",
    path.display(), kind.table(), advice(source)
)]
pub(super) struct SegmentError {
    what: &'static str,
    path: PathBuf,
    kind: RecordKind,
    lost: u64,
    source: ParquetError,
}

fn advice(error: &ParquetError) -> &'static str {
    match error {
        ParquetError::External(cause) => match cause.downcast_ref::<io::Error>() {
            Some(cause) => remedy(cause),
            None => "choose another directory",
        },
        _ => "this is a bug, please report it",
    }
}

/// What all tables' writers share.
pub(super) struct WriterContext {
    pub(super) files: Arc<dyn Files>,
    pub(super) chunks: ChunkWriter,
    pub(super) run: RunColumns,
    pub(super) row_group_rows: usize,
    pub(super) max_buffer_bytes: usize,
}

/// A segment that will not change any more.
#[derive(Debug)]
struct FinishedSegment {
    path: PathBuf,
    rows: u64,
    bytes: u64,
}

struct OpenSegment {
    writer: SerializedFileWriter<Box<dyn SegmentFile>>,
    temporary: PathBuf,
    path: PathBuf,
    /// Rows in row groups already written.
    rows: u64,
}

/// Writes one table.
pub(super) struct TableWriter<T: Table> {
    dir: PathBuf,
    schema: TableSchema,
    /// The row group being collected.
    rows: T,
    open: Option<OpenSegment>,
    finished: VecDeque<FinishedSegment>,
}

impl<T: Table> TableWriter<T> {
    pub(super) fn new(dir: PathBuf, level: i32, run: &RunColumns) -> Result<Self, ParquetError> {
        let schema = TableSchema::new(T::KIND, level, &run.run_id)?;
        Ok(Self { dir, schema, rows: T::default(), open: None, finished: VecDeque::new() })
    }

    /// Takes rows; writes row groups as they fill. Continues after errors and returns the last one.
    pub(super) fn take(
        &mut self,
        records: &[T::Record],
        number: u32,
        shared: &mut WriterContext,
        ledger: &Ledger,
    ) -> Result<(), SegmentError> {
        let mut outcome = Ok(());
        if self.open.is_none() && !records.is_empty() {
            // The file exists from the first row on, so that something is seen to be missing after a crash. If this
            // fails, it fails again when there is something to write, and is reported then.
            let _ = self.open(number, shared);
        }
        for record in records {
            self.rows.push(record);
            if self.rows.rows() >= shared.row_group_rows {
                outcome = self.write_group(number, shared, ledger).and(outcome);
            }
        }
        if self.rows.memory() >= shared.max_buffer_bytes {
            outcome = self.write_group(number, shared, ledger).and(outcome);
        }
        outcome
    }

    /// Rows in the open segment, written or collected.
    pub(super) fn open_rows(&self) -> u64 {
        self.rows.rows() as u64 + self.open.as_ref().map_or(0, |o| o.rows)
    }

    /// Bytes of the open segment on disk.
    pub(super) fn open_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |o| o.writer.bytes_written() as u64)
    }

    /// Finishes the open segment: its rows count as exported from here on.
    pub(super) fn finish(
        &mut self,
        number: u32,
        shared: &mut WriterContext,
        ledger: &Ledger,
    ) -> Result<(), SegmentError> {
        if self.open_rows() == 0 {
            return Ok(());
        }
        self.write_group(number, shared, ledger)?;
        let outcome = self.seal(shared);
        self.settle(outcome, number, ledger)?;
        self.make_durable(number, shared)
    }

    /// Writes a segment without rows if there is no other, so that a reader of the table's folder finds its columns.
    pub(super) fn finish_empty(
        &mut self,
        number: u32,
        shared: &mut WriterContext,
        ledger: &Ledger,
    ) -> Result<(), SegmentError> {
        if !self.finished.is_empty() || self.open.is_some() {
            return Ok(());
        }
        let outcome = self.open(number, shared).and_then(|()| self.seal(shared));
        self.settle(outcome, number, ledger)?;
        self.make_durable(number, shared)
    }

    /// Records of the table.
    pub(super) fn kind(&self) -> RecordKind {
        T::KIND
    }

    /// Finished segments.
    pub(super) fn finished(&self) -> usize {
        self.finished.len()
    }

    /// Bytes of the finished segments.
    pub(super) fn finished_bytes(&self) -> u64 {
        self.finished.iter().map(|s| s.bytes).sum()
    }

    /// Deletes the oldest finished segment.
    pub(super) fn delete_oldest(&mut self, ledger: &Ledger) -> io::Result<()> {
        let Some(oldest) = self.finished.front() else { return Ok(()) };
        match fs::remove_file(&oldest.path) {
            // The file was deleted by someone else, which also frees space.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        ledger.take_back(T::KIND, DropReason::DiskBudget, oldest.rows);
        self.finished.pop_front();
        Ok(())
    }

    fn open(&mut self, number: u32, shared: &WriterContext) -> Result<(), ParquetError> {
        let path = segment_path(&self.dir, number);
        let temporary = temporary_path(&path);
        let file = shared.files.create(&temporary)?;
        let schema = self.schema.parquet.root_schema_ptr();
        let writer = SerializedFileWriter::new(file, schema, self.schema.properties.clone())?;
        self.open = Some(OpenSegment { writer, temporary, path, rows: 0 });
        Ok(())
    }

    fn write_group(&mut self, number: u32, shared: &mut WriterContext, ledger: &Ledger) -> Result<(), SegmentError> {
        if self.rows.rows() == 0 {
            return Ok(());
        }
        let outcome = self.try_write_group(number, shared);
        let written = self.settle(outcome, number, ledger)?;
        if let Some(open) = &mut self.open {
            open.rows += written;
        }
        Ok(())
    }

    fn try_write_group(&mut self, number: u32, shared: &mut WriterContext) -> Result<u64, ParquetError> {
        if self.open.is_none() {
            self.open(number, shared)?;
        }
        let rows = self.rows.rows() as u64;
        if let Some(open) = &mut self.open {
            let mut group = open.writer.next_row_group()?;
            for (descr, column) in self.schema.parquet.columns().iter().zip(self.rows.columns(&shared.run)) {
                shared.chunks.write(&mut group, descr, column)?;
            }
            group.close()?;
            self.rows.clear();
        }
        Ok(rows)
    }

    /// Footer, sync, rename.
    fn seal(&mut self, shared: &WriterContext) -> Result<FinishedSegment, ParquetError> {
        let Some(open) = &mut self.open else {
            return Err(ParquetError::General("no segment is open".to_string()));
        };
        open.writer.finish()?;
        open.writer.inner().sync()?;
        let bytes = open.writer.bytes_written() as u64;
        shared.files.rename(&open.temporary, &open.path)?;
        Ok(FinishedSegment { path: open.path.clone(), rows: open.rows, bytes })
    }

    /// Syncs the table's folder, so that a finished segment keeps its name. If that fails the segment still exists, and
    /// nothing is lost unless the machine fails too.
    fn make_durable(&self, number: u32, shared: &WriterContext) -> Result<(), SegmentError> {
        shared.files.sync_dir(&self.dir).map_err(|source| SegmentError {
            what: "sync the folder of",
            path: segment_path(&self.dir, number),
            kind: T::KIND,
            lost: 0,
            source: source.into(),
        })
    }

    /// After a failure the open segment and the collected rows are given up: the contents of the file cannot be
    /// trusted, and keeping rows in memory until the disk has room again would be unbounded.
    fn settle<R: SettleRows>(
        &mut self,
        outcome: Result<R, ParquetError>,
        number: u32,
        ledger: &Ledger,
    ) -> Result<u64, SegmentError> {
        match outcome {
            Ok(done) => Ok(done.settle(self, ledger)),
            Err(source) => {
                let lost = self.open_rows();
                ledger.dropped(T::KIND, DropReason::Io, lost);
                self.rows.clear();
                let path = segment_path(&self.dir, number);
                self.open = None;
                let _ = fs::remove_file(temporary_path(&path));
                Err(SegmentError { what: "write", path, kind: T::KIND, lost, source })
            }
        }
    }
}

/// How a success is entered into the account.
trait SettleRows {
    fn settle<T: Table>(self, table: &mut TableWriter<T>, ledger: &Ledger) -> u64;
}

/// Rows written to the open segment: nothing is durable yet.
impl SettleRows for u64 {
    fn settle<T: Table>(self, _: &mut TableWriter<T>, _: &Ledger) -> u64 {
        self
    }
}

/// A finished segment: its rows have arrived.
impl SettleRows for FinishedSegment {
    fn settle<T: Table>(self, table: &mut TableWriter<T>, ledger: &Ledger) -> u64 {
        let rows = self.rows;
        ledger.exported(T::KIND, rows);
        table.open = None;
        table.finished.push_back(self);
        rows
    }
}

fn segment_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("part-{number:05}.parquet"))
}

fn temporary_path(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(IN_PROGRESS_SUFFIX);
    PathBuf::from(name)
}
