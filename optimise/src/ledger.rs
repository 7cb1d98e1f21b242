//! Promises of this machine, remembered.

use crate::account::{Phase, Verdict};
use crate::facts::Facts;
use candlescope_core::HostNs;
use candlescope_findings::ledger::{Ledger, LedgerEntry};
use std::path::Path;

/// Keeps a promise that was put to the test, with what was obtained.
pub(crate) fn keep(path: &Path, phase: &Phase, facts: &Facts) {
    let (Some(promised), Some(obtained), Some(_)) = (&phase.promised, phase.obtained, phase.came_true()) else {
        return;
    };
    // What must not be done keeps no promise.
    if phase.verdict == Verdict::Refused {
        return;
    }
    let words = phase.change.words();
    let kept = LedgerEntry {
        time_ns: HostNs::now().0,
        device: facts.hardware.clone(),
        model: facts.model.clone(),
        low: promised.low,
        mid: promised.mid,
        high: promised.high,
        obtained: obtained.gain,
        obtained_low: obtained.low,
        obtained_high: obtained.high,
        ..LedgerEntry::new(
            &promised.code,
            if words.is_empty() { phase.told_by.as_deref().unwrap_or(&phase.title) } else { &words },
        )
    };
    // The study has it as well.
    let _ = Ledger::append(path, &[kept]);
}
