//! Where things are in an archive.
//!
//! ```text
//! ROOT/runs.parquet                                             the index, a row a run
//! ROOT/<table>/date=2026-11-27/machine=gpu-07/runs-….parquet       rows of runs that began on that day on that host
//! ROOT/journal.json                                             a change that is decided and not yet done
//! ROOT/.lock                                                    held by who changes something
//! ```
//!
//! The folders are Hive's, so that every engine that reads Parquet skips days and machines by itself. None is called as a column
//! of the files: some engines refuse that (Sail 0.7: "duplicate column names"). A file that is being written begins with a dot,
//! which engines that list folders skip, and ends in `.inprogress`, which no pattern for Parquet matches.

use candlescope_schema::RecordKind;
use candlescope_schema::numbers::day;
use candlescope_schema::run::IN_PROGRESS_SUFFIX;
use std::path::{Path, PathBuf};

/// The column that names a run, in every table.
pub(crate) const RUN: &str = "run";
/// The index.
pub(crate) const INDEX: &str = candlescope_sql::ARCHIVE_INDEX;
/// A change that is decided.
pub(crate) const JOURNAL: &str = candlescope_sql::ARCHIVE_JOURNAL;
/// Held by who changes something.
pub(crate) const LOCK: &str = ".lock";

/// The folder of rows of a table from one day and machine, below the root.
pub(crate) fn partition(kind: RecordKind, started_ns: i64, host: &str) -> PathBuf {
    let host = if host.is_empty() { "unknown".to_string() } else { escaped(host) };
    Path::new(kind.table()).join(format!("date={}", day(started_ns))).join(format!("machine={host}"))
}

/// Bytes of a host's name in a path: of longer ones the rest does not count, and several may share a folder.
const LONGEST: usize = 120;

/// A host's name as Hive writes values in paths: what could mean something there as `%` and two digits.
fn escaped(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut escaped = String::new();
    for (at, c) in text.chars().enumerate() {
        if escaped.len() > LONGEST {
            break;
        }
        if plain(c) || (c == '.' && at > 0) {
            escaped.push(c);
        } else {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| escaped += &format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The day that a folder below a table is of.
pub(crate) fn day_of(folder: &str) -> Option<&str> {
    folder.strip_prefix("date=")
}

/// The name of a file while it is written.
pub(crate) fn in_progress(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(IN_PROGRESS_SUFFIX);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stay_within_their_folder() {
        let of = |host: &str| partition(RecordKind::Span, 0, host).display().to_string();
        assert_eq!(of("gpu-07.example"), "spans/date=1970-01-01/machine=gpu-07.example");
        assert_eq!(of("../../etc"), "spans/date=1970-01-01/machine=%2E.%2F..%2Fetc");
        assert!(of(&"é".repeat(300)).len() < 200);
        assert_eq!(of(""), "spans/date=1970-01-01/machine=unknown");
    }
}
