//! Runs held against a baseline, and against how the history of such runs went.
//!
//! A change that is too small for one comparison can be clear in the history: many runs lie on the other side of it.

use super::baseline::Baseline;
use super::error::CompareFailed;
use super::history::{HistoryEntry, append, read};
use candlescope_analysis::compare::{
    ChangePoint, CompareOptions, Comparison, DecidedBy, MOST_VALUES, Outcome, Side, change_points, compare,
};
use candlescope_analysis::passes::stats::percentile_of;
use candlescope_core::HostNs;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Share of histories without a change in which one is seen.
const ALPHA: f64 = 0.01;

/// A change of level of the history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// Runs of the first entry after it.
    pub runs: Vec<String>,
    /// When that was, Unix nanoseconds.
    pub time_ns: i64,
    /// Median time of a step before it, in nanoseconds.
    pub before_ns: f64,
    /// Median time of a step from there on.
    pub after_ns: f64,
    /// `after_ns` ÷ `before_ns` − 1.
    pub change: f64,
    /// Share of random orders of the history with a change as clear.
    pub p: f64,
}

/// What a gate found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateResult {
    /// Version of this object.
    pub schema: u32,
    /// Whether it may pass.
    pub outcome: Outcome,
    /// Directory of the baseline.
    pub baseline: PathBuf,
    /// When the baseline was saved, Unix nanoseconds.
    pub saved_ns: i64,
    /// The comparison with the baseline.
    pub comparison: Comparison,
    /// Entries of the history since the baseline was saved, this one included.
    pub history: usize,
    /// Changes of its level.
    pub shifts: Vec<Shift>,
    /// Why this entry could not be kept in the history, if it could not.
    pub not_kept: Option<String>,
}

/// Saves runs as the baseline in `dir`, in place of the one there. The history stays, and begins anew for the gate.
///
/// # Errors
/// When the runs are not alike or have no steps, or the file cannot be written.
pub fn save(side: &Side, dir: &Path, options: &CompareOptions) -> Result<PathBuf, CompareFailed> {
    // What cannot be compared with itself is no baseline.
    compare(side, side, options)?;
    Baseline::of(side).write(dir)
}

/// Holds runs against the baseline in `dir`, and notes the result in its history.
///
/// # Errors
/// When there is no baseline, or it is of another machine, or the runs must not be compared with it.
pub fn gate(side: &Side, dir: &Path, options: &CompareOptions) -> Result<GateResult, CompareFailed> {
    let baseline = Baseline::read(dir)?;
    let before = baseline.side(dir);
    if let Some((saved, here)) = before.runs.first().zip(side.runs.first())
        && saved.fingerprint.machine != here.fingerprint.machine
    {
        return Err(CompareFailed::OtherMachine {
            path: dir.to_path_buf(),
            saved: saved.fingerprint.machine_name(),
            here: here.fingerprint.machine_name(),
        });
    }
    let mut comparison = compare(&before, side, options)?;
    let mut entries = read(dir, baseline.saved_ns);
    let mut entry = HistoryEntry {
        time_ns: HostNs::now().0,
        runs: side.runs.iter().map(|run| run.run_id.clone()).collect(),
        step_ns: step_of(side),
        outcome: comparison.outcome,
    };
    entries.push(entry.clone());
    let shifts = shifts(&before, baseline.saved_ns, &entries);
    let now = shifts.last().filter(|shift| shift.change > comparison.margin);
    if now.is_some() && matches!(comparison.outcome, Outcome::Equivalent | Outcome::Undecided) {
        (comparison.outcome, comparison.decided_by) = (Outcome::Worse, Some(DecidedBy::History));
    }
    entry.outcome = comparison.outcome;
    let not_kept = append(dir, &entry).err().map(|error| error.to_string());
    Ok(GateResult {
        schema: 1,
        outcome: comparison.outcome,
        baseline: dir.to_path_buf(),
        saved_ns: baseline.saved_ns,
        history: entries.len(),
        shifts,
        comparison,
        not_kept,
    })
}

/// Median over the runs of a side.
fn step_of(side: &Side) -> f64 {
    let steps: Vec<f64> = side.runs.iter().filter_map(|run| Some(run.step_ns.as_ref()?.value)).collect();
    percentile_of(&steps, 0.5).unwrap_or(0.0)
}

/// Changes of level among the baseline and the entries since.
fn shifts(baseline: &Side, saved_ns: i64, entries: &[HistoryEntry]) -> Vec<Shift> {
    let first =
        HistoryEntry { time_ns: saved_ns, runs: Vec::new(), step_ns: step_of(baseline), outcome: Outcome::Equivalent };
    let all: Vec<&HistoryEntry> = std::iter::once(&first).chain(entries).collect();
    let all = &all[all.len().saturating_sub(MOST_VALUES)..];
    let logs: Vec<f64> = all.iter().map(|entry| entry.step_ns.ln()).collect();
    let shift = |point: ChangePoint| Shift {
        runs: all[point.at].runs.clone(),
        time_ns: all[point.at].time_ns,
        before_ns: point.before.exp(),
        after_ns: point.after.exp(),
        change: (point.after - point.before).exp_m1(),
        p: point.p,
    };
    change_points(&logs, ALPHA).into_iter().map(shift).collect()
}
