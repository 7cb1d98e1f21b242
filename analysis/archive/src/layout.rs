//! Where things are in an archive.
//!
//! ```text
//! ROOT/runs.parquet                                             the index, a row a run
//! ROOT/<table>/date=2026-11-27/machine=gpu-07/runs-….parquet       rows of runs that began on that day on that host
//! ROOT/journal.json                                             a change that is decided and not yet done
//! ROOT/.lock                                                    held by who changes something
//! ```
//!
//! The folders are Hive's, so that every engine that reads Parquet skips days and machines by itself. None is called as
//! a column of the files: some engines refuse that (Sail 0.7: "duplicate column names"). A file that is being written
//! begins with a dot, which engines that list folders skip, and ends in `.inprogress`, which no pattern for Parquet
//! matches.

use candlescope_schema::RecordKind;
use candlescope_schema::hive;
use candlescope_schema::run::IN_PROGRESS_SUFFIX;
use std::path::{Path, PathBuf};

/// The column that names a run, in every table.
pub(crate) const RUN: &str = "run";
/// The index: one row a run, and where its rows are.
pub(crate) const INDEX: &str = candlescope_reader::ARCHIVE_INDEX;
/// A change that is decided.
pub(crate) const JOURNAL: &str = candlescope_sql::ARCHIVE_JOURNAL;
/// Held by who changes something.
pub(crate) const LOCK: &str = ".lock";

/// The folder of rows of a table from one day and machine, below the root.
pub(crate) fn partition(kind: RecordKind, started_ns: i64, host: &str) -> PathBuf {
    Path::new(kind.table()).join(hive::folders(started_ns, host))
}

/// The day that a folder below a table is of.
pub(crate) fn day_of(folder: &str) -> Option<&str> {
    folder.strip_prefix(hive::DATE)
}

/// The name of a file while it is written.
pub(crate) fn in_progress(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(IN_PROGRESS_SUFFIX);
    path.with_file_name(name)
}
