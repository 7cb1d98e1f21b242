//! What a user decides about a run on disk.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the [`ParquetExporter`](super::ParquetExporter).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ParquetConfig {
    /// The run's directory. Created where missing; one that already holds files is refused, because two runs in one
    /// directory cannot be told apart by a reader that scans it.
    pub run_dir: PathBuf,
    /// Spans after which the open segments of all tables are finished.
    ///
    /// Together with `rotate_bytes` and `rotate_interval` this bounds what a `kill -9` or a power failure costs: the open
    /// segments and nothing else. All tables rotate at the same moment, so after a crash the steps that can be read
    /// are those whose intervals can be read.
    pub rotate_rows: u64,
    /// Bytes written to the open segment of a table after which all segments are finished.
    pub rotate_bytes: u64,
    /// Age of the open segments at which they are finished.
    pub rotate_interval: Duration,
    /// Limit of the finished segments' size together. When it is exceeded the *oldest* segments are deleted and their records
    /// booked as dropped for [`DiskBudget`](candlescope_core::DropReason::DiskBudget): of a run that goes on for days
    /// the end is worth more than the beginning. Intervals go first, being nearly all of the data; steps, requests and
    /// samples only when no interval is left but the newest segment's. `None`: no limit.
    pub disk_budget: Option<u64>,
    /// ZSTD level, 1 to 22. Encodings have done most of the work before: higher levels cost far more than they save.
    pub compression_level: i32,
    /// Rows collected in memory and written together. Larger groups compress better, cost more memory (about 100 bytes a
    /// row) and are the grain of parallel reading; DuckDB's own are 122,880.
    pub row_group_rows: usize,
    /// Memory that collected rows may take before they are written early.
    pub max_buffer_bytes: usize,
}

impl ParquetConfig {
    /// The defaults for a run in `run_dir`.
    pub fn new(run_dir: impl Into<PathBuf>) -> Self {
        Self {
            run_dir: run_dir.into(),
            rotate_rows: 4_000_000,
            rotate_bytes: 64 << 20,
            rotate_interval: Duration::from_secs(30),
            disk_budget: None,
            compression_level: 1,
            row_group_rows: 122_880,
            max_buffer_bytes: 64 << 20,
        }
    }

    /// The segment size that rotation goes by: with a budget, small enough that deleting one segment is a small step.
    pub(super) fn segment_bytes(&self) -> u64 {
        match self.disk_budget {
            Some(budget) => self.rotate_bytes.min((budget / 8).max(1)),
            None => self.rotate_bytes,
        }
    }
}
