//! Finds a run's segments and checks each footer: which are readable, and findings about the rest.

use super::columns::missing_columns;
use super::file_findings::{short, unfinished};
use super::footer::{self, Refusal};
use super::open_error::OpenError;
use super::segment::Segment;
use crate::limits::{Limit, ReadLimits};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Code, Finding, IN_PROGRESS_SUFFIX, MANIFEST_FILE, Place, columns};
use std::path::{Path, PathBuf};

/// Rows that a table may have whatever the size of its files.
const FEW_ROWS: u64 = 1_000_000;

/// Findings about single files of one run that are kept; the others are counted.
pub(super) const MOST_FINDINGS: usize = 100;

/// The contents of a run's folders.
pub(super) struct RunFiles {
    /// Segments with a valid footer and the right columns.
    pub(super) readable: Vec<Segment>,
    /// Files that are or should be segments.
    pub(super) files: usize,
}

/// All segments of all tables, in the order they were written.
pub(super) fn segments(dir: &Path, limits: &ReadLimits, findings: &mut Vec<Finding>) -> Result<RunFiles, OpenError> {
    let mut found = RunFiles { readable: Vec::new(), files: 0 };
    let mut said: Vec<Finding> = Vec::new();
    let mut unsaid = 0u64;
    let mut say = |finding| if said.len() < MOST_FINDINGS { said.push(finding) } else { unsaid += 1 };
    for kind in RecordKind::ALL {
        let folder = dir.join(kind.table());
        if !folder.is_dir() {
            continue;
        }
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        let list = |cause| OpenError::List { dir: folder.clone(), cause };
        for entry in std::fs::read_dir(&folder).map_err(list)? {
            if limits.check(Limit::Files, files.len() as u64 + 1).is_err() {
                let effect = "the files listed after them are left out";
                let finding = limits.reached(Limit::Files).finding(&format!("`{}`", folder.display()), effect);
                say(finding.at(Place::Table, kind.table()));
                break;
            }
            let entry = entry.map_err(list)?;
            let path = entry.path();
            // `metadata` follows links; a dangling link counts as a file that cannot be read.
            let size = std::fs::metadata(&path).map(|m| m.len()).unwrap_or(0);
            if !path.is_dir() {
                files.push((path, size));
            }
        }
        files.sort_by_cached_key(|(path, _)| file_key(path));
        let (mut rows_before, mut bytes_before) = (0u64, 0u64);
        for (path, file_bytes) in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(IN_PROGRESS_SUFFIX) {
                found.files += 1;
                say(unfinished(&path.display().to_string(), file_bytes));
            } else if name.ends_with(".parquet") {
                found.files += 1;
                let inspected = inspect(&path, kind, limits).and_then(|rows| {
                    let sums = (rows_before.saturating_add(rows), bytes_before.saturating_add(file_bytes));
                    plausible(kind, sums.0, sums.1, limits, &path)?;
                    // Files that are left out do not count, or they would use up the limit for the files after them.
                    (rows_before, bytes_before) = sums;
                    Ok(rows)
                });
                match inspected {
                    Ok(rows) => found.readable.push(Segment { kind, path, rows, file_bytes }),
                    Err(finding) => say(finding),
                }
            }
        }
    }
    findings.append(&mut said);
    findings.extend(more_segments(unsaid));
    Ok(found)
}

/// The finding about files beyond those that are named.
pub(super) fn more_segments(count: u64) -> Option<Finding> {
    let finding = Finding::new(
        Code::MoreSegments,
        "{files:raw} more files of the run cannot be read, or not as a whole",
        "Copy the run again from where it was made",
    );
    (count > 0).then(|| finding.count("files", count))
}

/// Rows for each byte, those that any file may have left out.
pub(super) fn rows_per_byte(rows: u64, bytes: u64) -> u64 {
    rows.saturating_sub(FEW_ROWS).div_ceil(bytes.max(1))
}

/// As how many bytes those of a table count against its rows: values of samples repeat.
pub(super) fn bytes_for_rows(bytes: u64, is_samples: bool) -> u64 {
    bytes.saturating_mul(if is_samples { 16 } else { 1 })
}

/// Checks the number of rows against the size of the file. Identical rows take almost no space, but those of a run
/// differ: each has a number and a time of its own.
fn plausible(kind: RecordKind, rows: u64, bytes: u64, limits: &ReadLimits, path: &Path) -> Result<(), Finding> {
    let per_byte = rows_per_byte(rows, bytes_for_rows(bytes, kind == RecordKind::Sample));
    let place = format!("`{}`, with the files before it,", path.display());
    limits.check(Limit::RowsPerByte, per_byte).map_err(|exceeded| {
        exceeded.finding(&place, "its rows are left out").at(Place::File, path.display().to_string())
    })
}

/// Rows of a segment by its footer, or what is wrong with it.
fn inspect(path: &Path, kind: RecordKind, limits: &ReadLimits) -> Result<u64, Finding> {
    let (_, metadata) = footer::open(path, limits).map_err(|refusal| match refusal {
        Refusal::Limit(exceeded) => exceeded
            .finding(&format!("`{}`", path.display()), "its rows are missing")
            .at(Place::File, path.display().to_string()),
        Refusal::Damaged(why) => Finding::new(
            Code::SegmentCorrupt,
            "`{file}` is not a readable Parquet file ({why}); its rows are missing",
            "Copy the file again from where the run was made, or delete it to accept the loss",
        )
        .at(Place::File, path.display().to_string())
        .text("why", short(&why)),
    })?;
    let missing = missing_columns(metadata.schema(), columns(kind));
    if !missing.is_empty() {
        let finding = Finding::new(
            Code::SegmentForeign,
            "`{file}` is a Parquet file but not one of table `{table}`: {missing}; it is left out",
            "Move files that are not part of the run out of its folders",
        );
        let finding = finding.at(Place::File, path.display().to_string()).at(Place::Table, kind.table());
        return Err(finding.text("missing", missing.join(", ")));
    }
    let groups = metadata.metadata().row_groups();
    // The decoder goes by the row groups, whatever total the footer claims.
    let rows = groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).fold(0, u64::saturating_add);
    Ok(rows)
}

/// The number of runs directly inside `dir`, and the newest by name: for the error's remedy.
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

fn file_key(path: &Path) -> Vec<(String, u64)> {
    natural_key(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// Orders `part-2` before `part-10`: runs of digits compare as numbers, the text before them first.
#[doc(hidden)]
pub fn natural_key(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
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
        names.sort_by_key(|p| file_key(p));
        assert_eq!(names, ["part-1.parquet", "part-2.parquet", "part-10.parquet"].map(PathBuf::from));
    }
}
