//! The files of an archive's tables.

use super::ArchiveError;
use super::layout;
use candlescope_schema::RecordKind;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A file of a table, if there is any.
pub(crate) fn first_file(root: &Path, kind: RecordKind) -> Option<PathBuf> {
    days_of(root, kind).ok()?.into_values().flatten().map(|(path, _)| path).next()
}

pub(crate) type Days = BTreeMap<String, Vec<(PathBuf, u64)>>;

/// Files of a table by day, below the root, with their sizes.
pub(crate) fn days_of(root: &Path, kind: RecordKind) -> Result<Days, ArchiveError> {
    let mut days = Days::new();
    let table = root.join(kind.table());
    for of_day in std::fs::read_dir(&table).into_iter().flatten().flatten() {
        let name = of_day.file_name();
        let Some(day) = name.to_str().and_then(layout::day_of) else { continue };
        let hosts = std::fs::read_dir(of_day.path()).map_err(ArchiveError::at(&of_day.path()))?;
        for host in hosts.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            for path in files_in(&host.path()) {
                let bytes = path.metadata().map_err(ArchiveError::at(&path))?.len();
                let below = path.strip_prefix(root).map(Path::to_path_buf).unwrap_or_default();
                days.entry(day.to_string()).or_default().push((below, bytes));
            }
        }
    }
    Ok(days)
}

/// The files of a folder, in order.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|of| of == "parquet")).collect();
    files.sort();
    files
}
