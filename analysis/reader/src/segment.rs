//! A file of a run.

use candlescope_schema::RecordKind;
use std::path::PathBuf;

/// One readable Parquet file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Table it belongs to.
    pub kind: RecordKind,
    /// The file.
    pub path: PathBuf,
    /// Rows by its footer.
    pub rows: u64,
    /// Size on disk in bytes.
    pub file_bytes: u64,
}
