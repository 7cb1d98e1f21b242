//! Finds a run's segments and looks at each footer: what is readable, and what is to be said about the rest.

use super::columns::missing_columns;
use super::{OpenError, Segment, finding};
use candlescope_core::RecordKind;
use candlescope_core::run::{Finding, IN_PROGRESS_SUFFIX, MANIFEST_FILE, Severity, columns};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What a run's folders hold.
pub(super) struct Found {
    /// Segments with a valid footer and the right columns.
    pub(super) readable: Vec<Segment>,
    /// Files that are or should be segments.
    pub(super) files: usize,
}

/// All segments of all tables, in the order they were written.
pub(super) fn segments(dir: &Path, findings: &mut Vec<Finding>) -> Result<Found, OpenError> {
    let mut found = Found { readable: Vec::new(), files: 0 };
    for kind in RecordKind::ALL {
        let folder = dir.join(kind.table());
        if !folder.is_dir() {
            continue;
        }
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        let list = |cause| OpenError::List { dir: folder.clone(), cause };
        for entry in std::fs::read_dir(&folder).map_err(list)? {
            let entry = entry.map_err(list)?;
            let path = entry.path();
            // `metadata` follows links; a dangling one counts as a file that cannot be read.
            let size = std::fs::metadata(&path).map(|m| m.len()).unwrap_or(0);
            if !path.is_dir() {
                files.push((path, size));
            }
        }
        files.sort_by_key(|(path, _)| natural_key(path));
        for (path, file_bytes) in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(IN_PROGRESS_SUFFIX) {
                found.files += 1;
                findings.push(finding(
                    Severity::Warning,
                    "segment_unfinished",
                    format!(
                        "`{}` was not finished: its rows are lost ({file_bytes} bytes on disk), those of earlier segments are not",
                        path.display()
                    ),
                    "The process was killed or is still running. Rotate segments more often to lose less",
                ));
            } else if name.ends_with(".parquet") {
                found.files += 1;
                match inspect(&path, kind) {
                    Ok(rows) => found.readable.push(Segment { kind, path, rows, file_bytes }),
                    Err(finding) => findings.push(finding),
                }
            }
        }
    }
    Ok(found)
}

/// Rows of a segment by its footer, or what is wrong with it.
fn inspect(path: &Path, kind: RecordKind) -> Result<u64, Finding> {
    let corrupt = |why: String| {
        finding(
            Severity::Error,
            "segment_corrupt",
            format!("`{}` is not a readable Parquet file ({why}); its rows are missing", path.display()),
            "Copy the file again from where the run was made, or delete it to accept the loss",
        )
    };
    let file = File::open(path).map_err(|error| corrupt(error.to_string()))?;
    // The parquet crate reports damage as errors, but has had panics on crafted footers: neither may end a report.
    let opened = catch_unwind(AssertUnwindSafe(|| ParquetRecordBatchReaderBuilder::try_new(file)));
    let builder = match opened {
        Ok(Ok(builder)) => builder,
        Ok(Err(error)) => return Err(corrupt(short(&error.to_string()))),
        Err(_) => return Err(corrupt("its footer makes no sense".to_string())),
    };
    let missing = missing_columns(builder.schema(), columns(kind));
    if !missing.is_empty() {
        return Err(finding(
            Severity::Error,
            "segment_foreign",
            format!(
                "`{}` is a Parquet file but not one of table `{}`: {}; it is left out",
                path.display(),
                kind.table(),
                missing.join(", ")
            ),
            "Move files that are not part of the run out of its folders",
        ));
    }
    Ok(u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0))
}

/// The newest run (by name) directly inside `dir`, and how many there are: for the error's remedy.
pub(super) fn runs_inside(dir: &Path) -> (usize, Option<PathBuf>) {
    let mut runs: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(MANIFEST_FILE).is_file() || path.join(RecordKind::Span.table()).is_dir())
        .collect();
    runs.sort();
    (runs.len(), runs.pop())
}

/// First line of an error, cut to a readable length: some of parquet's carry a dump.
pub(super) fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

/// Orders `part-2` before `part-10`: runs of digits compare as numbers, the text before them first.
fn natural_key(path: &Path) -> Vec<(String, u64)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut key = Vec::new();
    let mut rest = name.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |len| start + len);
        key.push((rest[..start].to_string(), rest[start..end].parse().unwrap_or(u64::MAX)));
        rest = &rest[end..];
    }
    key.push((rest.to_string(), 0));
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_sort_by_number() {
        let mut names: Vec<_> = ["part-10.parquet", "part-2.parquet", "part-1.parquet"].map(PathBuf::from).to_vec();
        names.sort_by_key(|p| natural_key(p));
        assert_eq!(names, ["part-1.parquet", "part-2.parquet", "part-10.parquet"].map(PathBuf::from));
    }

    #[test]
    fn long_errors_are_cut_at_a_character() {
        let text = "é".repeat(500);
        assert_eq!(short(&text).chars().count(), 161);
        assert_eq!(short("one\ntwo"), "one");
    }
}
