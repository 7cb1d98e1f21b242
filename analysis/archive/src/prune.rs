//! Removes the oldest days of an archive.

use super::days::days_of;
use super::disk::Disk;
use super::journal::Journal;
use super::{ArchiveError, index, layout, lock, now_ns, recover};
use candlescope_reader::ReadLimits;
use candlescope_schema::RecordKind;
use candlescope_schema::numbers::day;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// What is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// Days that ended less than so many nanoseconds ago.
    Younger(i64),
    /// The youngest days that take at most so many bytes together.
    Bytes(u64),
}

impl FromStr for Keep {
    type Err = ArchiveError;

    fn from_str(text: &str) -> Result<Self, ArchiveError> {
        let wrong = || ArchiveError::Keep(text.to_string());
        let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: i64 = text[..at].parse().map_err(|_| wrong())?;
        let of = |unit: i64| number.checked_mul(unit).ok_or_else(wrong);
        let bytes = |unit: i64| of(unit).map(|bytes| Self::Bytes(bytes.unsigned_abs()));
        match text[at..].to_ascii_lowercase().as_str() {
            "h" => of(DAY / 24).map(Self::Younger),
            "d" => of(DAY).map(Self::Younger),
            "w" => of(7 * DAY).map(Self::Younger),
            "mb" => bytes(1_000_000),
            "gb" => bytes(1_000_000_000),
            "tb" => bytes(1_000_000_000_000),
            _ => Err(wrong()),
        }
    }
}

/// What was removed, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// Days (UTC) on which the runs began whose files are removed, as `2026-11-27`, oldest first.
    pub days: Vec<String>,
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of the files that stay.
    pub kept_bytes: u64,
}

/// Removes whole days, the oldest first, until what is to be kept is left. With `dry_run`, only says which.
///
/// # Errors
/// When `root` is no archive, or it cannot be changed.
pub fn prune(root: &Path, keep: Keep, dry_run: bool, limits: &ReadLimits, disk: &Disk) -> Result<Pruned, ArchiveError> {
    if !root.join(layout::INDEX).is_file() && Journal::read(root)?.is_none() {
        return Err(ArchiveError::NoArchive(root.to_path_buf()));
    }
    // Who only looks needs no right to write.
    let _lock = if dry_run { None } else { Some(lock(root)?) };
    // A change that was stopped is part of what is there.
    if !dry_run {
        recover(root, limits, disk)?;
    }
    let mut days: BTreeMap<String, Vec<(PathBuf, u64)>> = BTreeMap::new();
    for kind in RecordKind::ALL {
        for (day, files) in days_of(root, kind)? {
            days.entry(day).or_default().extend(files);
        }
    }
    let bytes = |files: &[(PathBuf, u64)]| files.iter().map(|(_, bytes)| *bytes).sum::<u64>();
    let mut pruned = Pruned { kept_bytes: days.values().map(|files| bytes(files)).sum(), ..Pruned::default() };
    let oldest = match keep {
        // A day is as old as its end.
        Keep::Younger(ns) => day(now_ns().saturating_sub(ns)),
        Keep::Bytes(_) => String::new(),
    };
    let mut removes = Vec::new();
    for (day, files) in days {
        let goes = match keep {
            Keep::Younger(_) => day < oldest,
            Keep::Bytes(most) => pruned.kept_bytes > most,
        };
        if !goes {
            break;
        }
        pruned.bytes += bytes(&files);
        pruned.kept_bytes -= bytes(&files);
        pruned.days.push(day);
        removes.extend(files.into_iter().map(|(path, _)| path));
    }
    let Some(index) = index::read(root, limits)? else { return Ok(pruned) };
    let (names, started) = (index::texts(&index, layout::RUN), index::texts(&index, "started_day"));
    // A run without rows has no files, and goes with its day all the same.
    let last = pruned.days.last().cloned().unwrap_or_default();
    let goes = |day: &str| day < oldest.as_str() || day <= last.as_str();
    let goes: Vec<bool> = started.iter().map(|day| day.is_some_and(goes)).collect();
    pruned.runs =
        names.iter().zip(&goes).filter(|(_, goes)| **goes).filter_map(|(name, _)| name.map(str::to_string)).collect();
    if dry_run || (pruned.days.is_empty() && pruned.runs.is_empty()) {
        return Ok(pruned);
    }
    let stays = arrow_array::BooleanArray::from_iter(goes.iter().map(|goes| Some(!goes)));
    let left = arrow_select::filter::filter_record_batch(&index, &stays).map_err(ArchiveError::arrow)?;
    let beside = index::write(root, &left, disk)?;
    let journal = Journal { removes, renames: vec![(beside, PathBuf::from(layout::INDEX))], sources: Vec::new() };
    journal.write(root, disk)?;
    journal.apply(root, limits, disk)?;
    Ok(pruned)
}
