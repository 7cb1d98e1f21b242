//! The files of an archive's tables.

use super::ArchiveError;
use super::layout;
use candlescope_schema::RecordKind;
use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};

/// A file of any table, if there is one.
pub(crate) fn any_file(root: &Path) -> Result<Option<PathBuf>, ArchiveError> {
    for kind in RecordKind::ALL {
        if let Some((path, _)) = days_of(root, kind)?.into_values().flatten().next() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

pub(crate) type Days = BTreeMap<String, Vec<(PathBuf, u64)>>;

/// Files of a table by day, below the root, with their sizes. What is removed meanwhile is left out: who only looks
/// holds no lock. What cannot be listed is an error: whoever goes by what is there must not take it for nothing.
pub(crate) fn days_of(root: &Path, kind: RecordKind) -> Result<Days, ArchiveError> {
    let mut days = Days::new();
    for of_day in entries(&root.join(kind.table()))? {
        let name = of_day.file_name();
        let Some(day) = name.to_str().and_then(layout::day_of) else { continue };
        for machine in entries(&of_day.path())? {
            if !machine.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            for path in files_in(&machine.path())? {
                let Some(bytes) = there(path.metadata(), &path)?.map(|found| found.len()) else { continue };
                let below = path.strip_prefix(root).map(Path::to_path_buf).unwrap_or_default();
                days.entry(day.to_string()).or_default().push((below, bytes));
            }
        }
    }
    Ok(days)
}

/// What lies in a folder: nothing if it is not there.
fn entries(folder: &Path) -> Result<Vec<DirEntry>, ArchiveError> {
    let Some(entries) = there(std::fs::read_dir(folder), folder)? else { return Ok(Vec::new()) };
    entries.collect::<io::Result<_>>().map_err(ArchiveError::at(folder))
}

/// What was found at a path; none where there is nothing any more.
fn there<T>(found: io::Result<T>, path: &Path) -> Result<Option<T>, ArchiveError> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(ArchiveError::at(path)),
    }
}

/// The files of a folder, in order; none if it is not there.
pub(crate) fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let paths = entries(folder)?.into_iter().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|of| of == "parquet")).collect();
    files.sort();
    Ok(files)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A link to nothing is listed and cannot be found, like what is removed between the one and the other.
    #[test]
    fn what_is_removed_while_somebody_looks_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let machine = root.path().join("spans/date=2026-05-01/machine=gpu-1");
        fs::create_dir_all(&machine).unwrap();
        fs::write(machine.join("runs-1.parquet"), "1234").unwrap();
        symlink("removed", machine.join("runs-2.parquet")).unwrap();
        symlink("removed", root.path().join("spans/date=2026-05-02")).unwrap();
        let days = days_of(root.path(), RecordKind::Span).unwrap();
        let file = PathBuf::from("spans/date=2026-05-01/machine=gpu-1/runs-1.parquet");
        assert_eq!(days, Days::from([("2026-05-01".to_string(), vec![(file, 4)])]));
        // What cannot be read is an error still.
        fs::write(root.path().join("spans/date=2026-05-03"), "a file").unwrap();
        assert!(days_of(root.path(), RecordKind::Span).is_err());
        // The folder of a table as well: to the superuser too, one that is a link to itself.
        symlink("steps", root.path().join("steps")).unwrap();
        let error = days_of(root.path(), RecordKind::Step).unwrap_err().to_string();
        assert!(error.contains("/steps` cannot be read"), "{error}");
        assert!(days_of(root.path(), RecordKind::Sample).unwrap().is_empty());
    }
}
