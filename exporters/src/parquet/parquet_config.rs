//! The user's settings for a run on disk.

use candlescope_core::{HostNs, hive, host_name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of the [`ParquetExporter`](super::ParquetExporter).
///
/// Rotation bounds the loss after `kill -9` or a power failure: only the open segments are lost. All tables rotate at
/// the same moment, so after a crash the steps that can be read are those whose intervals can be read.
#[derive(Debug, Clone)]
#[must_use]
pub struct ParquetConfig {
    pub(super) run_dir: PathBuf,
    /// Of a run in folders by day and machine: what they lie in, and the directory's name in them.
    pub(super) by_day: Option<(PathBuf, String)>,
    pub(super) rotate_rows: u64,
    pub(super) rotate_bytes: u64,
    pub(super) rotate_interval: Duration,
    pub(super) disk_budget: Option<u64>,
    pub(super) compression_level: i32,
    pub(super) row_group_rows: usize,
    pub(super) max_buffer_bytes: usize,
}

impl ParquetConfig {
    /// The defaults for a run in `run_dir`. It is created if missing; one that already holds files is refused, because
    /// two runs in one directory cannot be told apart by a reader that scans it.
    pub fn new(run_dir: impl Into<PathBuf>) -> Self {
        Self {
            run_dir: run_dir.into(),
            by_day: None,
            rotate_rows: 4_000_000,
            rotate_bytes: 64 << 20,
            rotate_interval: Duration::from_secs(30),
            disk_budget: None,
            compression_level: 1,
            row_group_rows: 122_880,
            max_buffer_bytes: 64 << 20,
        }
    }

    /// The same for a run in a directory of this name in the folders `date=…/machine=…/` of `root`: those of its start
    /// and its host, which are known when it starts.
    #[doc(hidden)]
    pub fn by_day_and_machine(root: impl AsRef<Path>, name: &str) -> Self {
        let by_day = (root.as_ref().to_path_buf(), name.to_string());
        let likely = in_folders(&by_day, HostNs::now().0, &host_name());
        Self { by_day: Some(by_day), ..Self::new(likely) }
    }

    /// Where a run that began at this time on this host lies.
    pub(super) fn dir_of(&self, started_ns: i64, host: &str) -> PathBuf {
        self.by_day.as_ref().map_or_else(|| self.run_dir.clone(), |by_day| in_folders(by_day, started_ns, host))
    }

    /// Spans after which the open segments of all tables are finished, 4 million by default.
    pub fn rotate_rows(mut self, spans: u64) -> Self {
        self.rotate_rows = spans;
        self
    }

    /// Bytes written to the open segment of a table after which all segments are finished, 64 MiB by default.
    pub fn rotate_bytes(mut self, bytes: u64) -> Self {
        self.rotate_bytes = bytes;
        self
    }

    /// Age of the open segments at which they are finished, 30 s by default.
    pub fn rotate_interval(mut self, age: Duration) -> Self {
        self.rotate_interval = age;
        self
    }

    /// Limit of the finished segments' size together, in bytes; none by default. When it is exceeded the *oldest*
    /// segments are deleted and their records booked as dropped for
    /// [`DiskBudget`](candlescope_core::DropReason::DiskBudget): in a run that goes on for days the end is worth more
    /// than the beginning. Intervals are deleted first, because they are nearly all of the data; steps, requests and
    /// samples only when only the newest segment of intervals is left.
    pub fn disk_budget(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.disk_budget = bytes.into();
        self
    }

    /// ZSTD level, 1 to 22; 1 by default. The encodings already do most of the work: higher levels cost far more than
    /// they save.
    pub fn compression_level(mut self, level: i32) -> Self {
        self.compression_level = level;
        self
    }

    /// Rows collected in memory and written together, 122,880 by default as in DuckDB. Larger groups compress better,
    /// cost more memory (about 100 bytes a row) and give less parallelism when reading.
    pub fn row_group_rows(mut self, rows: usize) -> Self {
        self.row_group_rows = rows;
        self
    }

    /// Memory that collected rows may take before they are written early, 64 MiB by default.
    pub fn max_buffer_bytes(mut self, bytes: usize) -> Self {
        self.max_buffer_bytes = bytes;
        self
    }

    /// The segment size at which segments rotate: with a budget, small enough that deleting one segment is a small
    /// step.
    pub(super) fn segment_bytes(&self) -> u64 {
        match self.disk_budget {
            Some(budget) => self.rotate_bytes.min((budget / 8).max(1)),
            None => self.rotate_bytes,
        }
    }
}

fn in_folders((root, name): &(PathBuf, String), started_ns: i64, host: &str) -> PathBuf {
    root.join(hive::folders(started_ns, host)).join(name)
}
