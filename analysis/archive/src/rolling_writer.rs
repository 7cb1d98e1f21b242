//! Writes rows into one file after another, each of a good size.

use super::ArchiveError;
use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::fs::File;
use std::path::PathBuf;

/// Rows of a row group: what DuckDB works with.
const ROWS_OF_A_GROUP: usize = 122_880;
/// Bytes at which a file is closed and another begun.
const BYTES_OF_A_FILE: usize = 256 << 20;

/// Settings of every file of an archive.
pub(crate) fn settings() -> ArrowWriterOptions {
    let level = ZstdLevel::try_new(3).unwrap_or_default();
    let properties = WriterProperties::builder()
        .set_created_by(concat!("candlescope ", env!("CARGO_PKG_VERSION")).to_string())
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(ROWS_OF_A_GROUP))
        .set_statistics_enabled(EnabledStatistics::Page)
        .build();
    // Without the writer's own schema, which some readers take for theirs.
    ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true)
}

/// Rows on their way into files: has the one that is open, and closes it when it is full. Whoever has the rows makes the
/// files.
#[derive(Default)]
pub(crate) struct RollingWriter {
    open: Option<OpenFile>,
}

/// A file while it is written.
struct OpenFile {
    writer: ArrowWriter<File>,
    /// What is named if it cannot be written.
    place: PathBuf,
}

impl RollingWriter {
    /// Writes rows, all of one schema, into the file that is open; where none is, into a new one of `next`, with the
    /// place that is named if it cannot be written.
    pub(crate) fn write(
        &mut self,
        rows: &RecordBatch,
        next: impl FnOnce() -> Result<(File, PathBuf), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let (file, place) = next()?;
                let writer = ArrowWriter::try_new_with_options(file, rows.schema(), settings());
                self.open.insert(OpenFile { writer: writer.map_err(ArchiveError::writing(&place))?, place })
            }
        };
        open.writer.write(rows).map_err(ArchiveError::writing(&open.place))?;
        if open.writer.bytes_written() + open.writer.in_progress_size() > BYTES_OF_A_FILE {
            self.close()?;
        }
        Ok(())
    }

    /// Ends the file that is open: it is durable then, but for its directory.
    pub(crate) fn close(&mut self) -> Result<(), ArchiveError> {
        let Some(OpenFile { writer, place }) = self.open.take() else { return Ok(()) };
        let file = writer.into_inner().map_err(ArchiveError::writing(&place))?;
        file.sync_all().map_err(ArchiveError::at(&place))
    }
}
