//! Removes what is oldest in an archive.

use super::days::days_of;
use super::disk::Disk;
use super::journal::Journal;
use super::{ArchiveError, index, layout, lock, now_ns, recover};
use candlescope_reader::ReadLimits;
use candlescope_schema::numbers::{DAY_NS, day};
use candlescope_schema::{RecordKind, hive};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// What ended on days that ended less than so many nanoseconds ago.
    Younger(i64),
    /// What ended last, as far as it takes at most so many bytes together with the index.
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
            "h" => of(DAY_NS / 24).map(Self::Younger),
            "d" => of(DAY_NS).map(Self::Younger),
            "w" => of(7 * DAY_NS).map(Self::Younger),
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
pub struct PruneOutcome {
    /// Days (UTC) on which the runs began whose files are removed, as `2026-11-27`, oldest first.
    pub days: Vec<String>,
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of the files that stay, with the index.
    pub kept_bytes: u64,
}

/// A clock that says an earlier time was never set: 2020-01-01.
const PLAUSIBLE_NS: i64 = 1_577_836_800_000_000_000;

/// What lies in one folder of every table: rows of runs that began on one day on one machine.
#[derive(Debug, Default)]
struct Partition {
    files: Vec<(PathBuf, u64)>,
    /// Day on which the last of its runs ended; none of files of which the index has no run.
    last_day: Option<String>,
}

impl Partition {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| *bytes).sum()
    }
}

/// When a run ended: no later than it was archived, and then if its own clock cannot be right, or it does not say its
/// end. What nobody knows is as if it were now.
fn ended(ended_ns: Option<i64>, archived_ns: Option<i64>, now_ns: i64) -> i64 {
    let plausible = |ns: &i64| (PLAUSIBLE_NS..=now_ns).contains(ns);
    let (ended, archived) = (ended_ns.filter(plausible), archived_ns.filter(plausible));
    match (ended, archived) {
        (Some(ended), Some(archived)) => ended.min(archived),
        (ended, archived) => archived.or(ended).unwrap_or(now_ns),
    }
}

/// Removes what lies in whole folders of a day and a machine, those first whose last run ended first, until what is to
/// be kept is left. With `dry_run`, only says which.
///
/// # Errors
/// When `root` is no archive, or it cannot be changed.
pub fn prune(
    root: &Path,
    keep: Keep,
    dry_run: bool,
    limits: &ReadLimits,
    disk: &Disk,
) -> Result<PruneOutcome, ArchiveError> {
    if !root.join(layout::INDEX).is_file() && Journal::read(root)?.is_none() {
        return Err(ArchiveError::NoArchive(root.to_path_buf()));
    }
    // Who only looks needs no right to write.
    let _lock = if dry_run { None } else { Some(lock(root)?) };
    // A change that was stopped is part of what is there.
    if !dry_run {
        recover(root, limits, disk)?;
    }
    let Some(index) = index::read(root, limits)? else { return Ok(PruneOutcome::default()) };
    let (now, mut partitions) = (now_ns(), partitions_of(root)?);
    let mut of_runs: Vec<PathBuf> = Vec::new();
    let (names, hosts) = (index::texts(&index, layout::RUN), index::texts(&index, "host"));
    let [started, ends, archived] = ["started_ns", "ended_ns", "archived_ns"].map(|name| index::numbers(&index, name));
    for row in 0..index.num_rows() {
        let folder = hive::folders(started[row].unwrap_or_default(), hosts[row].unwrap_or_default());
        // A run without rows has no files, and goes with its folder all the same.
        let partition = partitions.entry(folder.clone()).or_default();
        let last = day(ended(ends[row], archived[row], now));
        partition.last_day = partition.last_day.take().max(Some(last));
        of_runs.push(folder);
    }
    // Files of which the index has no run are as old as their day.
    let age = |folder: &Path, partition: &Partition| partition.last_day.clone().or_else(|| day_in(folder));
    let mut by_age: Vec<(Option<String>, PathBuf, Partition)> =
        partitions.into_iter().map(|(folder, of)| (age(&folder, &of), folder, of)).collect();
    by_age.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    // The index stays.
    let of_index = root.join(layout::INDEX).metadata().map_or(0, |found| found.len());
    let files = by_age.iter().map(|(.., of)| of.bytes()).sum::<u64>();
    let mut pruned = PruneOutcome { kept_bytes: files + of_index, ..PruneOutcome::default() };
    let oldest = match keep {
        // A day is as old as its end.
        Keep::Younger(ns) => Some(day(now.saturating_sub(ns))),
        Keep::Bytes(_) => None,
    };
    let (mut removes, mut gone, mut days) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (last, folder, of) in by_age {
        let goes = match keep {
            Keep::Younger(_) => last < oldest,
            Keep::Bytes(most) => pruned.kept_bytes > most,
        };
        if !goes {
            break;
        }
        pruned.bytes += of.bytes();
        pruned.kept_bytes -= of.bytes();
        days.extend(day_in(&folder).filter(|_| !of.files.is_empty()));
        removes.extend(of.files.into_iter().map(|(path, _)| path));
        gone.insert(folder);
    }
    pruned.days = days.into_iter().collect();
    let goes: Vec<bool> = of_runs.iter().map(|folder| gone.contains(folder)).collect();
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

/// Files of all tables by the folder of their day and machine, below a table.
fn partitions_of(root: &Path) -> Result<BTreeMap<PathBuf, Partition>, ArchiveError> {
    let mut partitions: BTreeMap<PathBuf, Partition> = BTreeMap::new();
    for kind in RecordKind::ALL {
        for (path, bytes) in days_of(root, kind)?.into_values().flatten() {
            let folder = path.parent().and_then(|folder| folder.strip_prefix(kind.table()).ok());
            let folder = folder.map(Path::to_path_buf).unwrap_or_default();
            partitions.entry(folder).or_default().files.push((path, bytes));
        }
    }
    Ok(partitions)
}

/// The day of a folder of a day and machine.
fn day_in(folder: &Path) -> Option<String> {
    folder.iter().next()?.to_str().and_then(layout::day_of).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_as_old_as_its_end_and_no_clock_is_taken_at_its_word() {
        let days = |n: i64| PLAUSIBLE_NS + n * DAY_NS;
        let of = |ended_ns, archived_ns| (ended(ended_ns, archived_ns, days(100)) - PLAUSIBLE_NS) / DAY_NS;
        assert_eq!(of(Some(days(50)), Some(days(60))), 50);
        // A clock that is ahead, one that was never set, a run that was killed, and what nobody knows.
        assert_eq!(of(Some(days(70)), Some(days(60))), 60);
        assert_eq!(of(Some(5), Some(days(60))), 60);
        assert_eq!(of(Some(days(40_000)), Some(days(60))), 60);
        assert_eq!(of(None, Some(days(60))), 60);
        assert_eq!(of(Some(days(50)), None), 50);
        assert_eq!(of(Some(days(50)), Some(7)), 50);
        assert_eq!((of(None, None), of(Some(5), Some(7))), (100, 100));
    }
}
