//! A file of a run.

use candlescope_schema::RecordKind;
use std::path::PathBuf;

/// One readable Parquet file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Table it belongs to.
    pub kind: RecordKind,
    /// Where the file is: the run's directory, as it was opened, with the folder of the table.
    pub path: PathBuf,
    /// Rows by its footer.
    pub rows: u64,
    /// Size on disk in bytes.
    pub file_bytes: u64,
}
