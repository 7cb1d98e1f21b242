//! The history of a gate: one line for each time that runs were held against the baseline.

use super::error::CompareFailed;
use candlescope_compare::Outcome;
use candlescope_core::files::{open_append, read_limited};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Name of the file.
pub const HISTORY_FILE: &str = "history.jsonl";
/// The largest one that is read, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// One line of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When the runs were held against the baseline, in Unix nanoseconds.
    pub time_ns: i64,
    /// Names of the runs.
    pub runs: Vec<String>,
    /// Time of a typical step, the median over the runs, in nanoseconds.
    pub step_ns: f64,
    /// All figures that a comparison judges, by name, as medians over the runs: later uses learn from them how much
    /// days differ. Empty in lines of older releases.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// What the gate said.
    pub outcome: Outcome,
}

/// Entries since `since_ns`, in order, and why there are none, where a history is there that cannot be read. A line that
/// a crash cut off is left out. A link is not followed, as none is written through.
pub(super) fn read(dir: &Path, since_ns: i64) -> (Vec<HistoryEntry>, Option<String>) {
    let path = dir.join(HISTORY_FILE);
    let read = match std::fs::symlink_metadata(&path) {
        Ok(there) if there.is_symlink() => Err("it is a symbolic link, and links are not followed".to_string()),
        _ => match read_limited(&path, MOST_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(|error| error.to_string()),
        },
    };
    let (bytes, not_read) = match read {
        Ok(bytes) => (bytes, None),
        Err(why) => (Vec::new(), Some(format!("{}: {why}", path.display()))),
    };
    let lines = bytes.split(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| serde_json::from_slice::<HistoryEntry>(line).ok());
    (entries.filter(|entry| entry.time_ns >= since_ns && entry.step_ns > 0.0).collect(), not_read)
}

/// Appends an entry.
pub(super) fn append(dir: &Path, entry: &HistoryEntry) -> Result<(), CompareFailed> {
    let path = dir.join(HISTORY_FILE);
    let write = || -> std::io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        // A line that a crash cut off must not take this one with it.
        line.insert(0, b'\n');
        line.push(b'\n');
        let mut file = open_append(&path)?;
        file.write_all(&line)?;
        file.sync_data()
    };
    write().map_err(|cause| CompareFailed::Write { path: path.clone(), cause })
}
