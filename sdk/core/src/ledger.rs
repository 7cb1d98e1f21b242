//! Conservation: every record that an exporter received is exported, or dropped for a reason.

use crate::DropReason;
use crate::record::{Batch, RecordKind};
use crate::run::ExporterReport;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const KINDS: usize = RecordKind::ALL.len();
const REASONS: usize = DropReason::ALL.len();

/// One exporter's account. It can be read cheaply from any thread.
#[derive(Debug, Default)]
pub struct Ledger {
    received: [AtomicU64; KINDS],
    exported: [AtomicU64; KINDS],
    dropped: [[AtomicU64; REASONS]; KINDS],
    last_error: Mutex<Option<String>>,
}

impl Ledger {
    /// An account in which nothing has been received.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `batch` was addressed to the exporter. Called by the pipeline.
    pub fn received(&self, batch: &Batch) {
        for kind in RecordKind::ALL {
            self.received[kind as usize].fetch_add(batch.count(kind), Ordering::Relaxed);
        }
    }

    /// `n` records of `kind` reached their destination.
    pub fn exported(&self, kind: RecordKind, n: u64) {
        self.exported[kind as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// All records of `batch` reached their destination.
    pub fn exported_batch(&self, batch: &Batch) {
        for kind in RecordKind::ALL {
            self.exported(kind, batch.count(kind));
        }
    }

    /// `n` records of `kind` were dropped.
    pub fn dropped(&self, kind: RecordKind, reason: DropReason, n: u64) {
        // After the subtraction in `take_back`: see `report_without_pending`.
        self.dropped[kind as usize][reason as usize].fetch_add(n, Ordering::Release);
    }

    /// All records of `batch` were dropped.
    pub fn dropped_batch(&self, batch: &Batch, reason: DropReason) {
        for kind in RecordKind::ALL {
            self.dropped(kind, reason, batch.count(kind));
        }
    }

    /// Moves `n` records from exported to dropped, because something that had been written was removed again.
    pub fn take_back(&self, kind: RecordKind, reason: DropReason, n: u64) {
        self.exported[kind as usize].fetch_sub(n, Ordering::Relaxed);
        self.dropped(kind, reason, n);
    }

    /// Records of `kind` received but neither exported nor dropped yet.
    pub fn pending(&self, kind: RecordKind) -> u64 {
        let k = kind as usize;
        let dropped: u64 = self.dropped[k].iter().map(|n| n.load(Ordering::Relaxed)).sum();
        let settled = self.exported[k].load(Ordering::Relaxed) + dropped;
        self.received[k].load(Ordering::Relaxed).saturating_sub(settled)
    }

    /// Books everything that is still pending as dropped.
    pub fn settle(&self, reason: DropReason) {
        for kind in RecordKind::ALL {
            let pending = self.pending(kind);
            if pending > 0 {
                self.dropped(kind, reason, pending);
            }
        }
    }

    /// Keeps the latest error for the report.
    pub fn note_error(&self, error: String) {
        if let Ok(mut last) = self.last_error.lock() {
            *last = Some(error);
        }
    }

    /// The account as it would be if everything pending were dropped now. It adds up even while the exporter still
    /// works.
    pub(crate) fn report_without_pending(&self, name: &str, reason: DropReason) -> ExporterReport {
        // Drops are read before exports, because records are moved from the one to the other (`take_back`): no record
        // may be seen twice, and one that is seen in neither counts as pending. No more records are received by then.
        let mut report = self.report(name);
        for kind in RecordKind::ALL {
            let count = |counts: &BTreeMap<String, u64>| counts.get(kind.table()).copied().unwrap_or(0);
            let settled = count(&report.exported) + report.dropped_total(kind);
            let pending = count(&report.received).saturating_sub(settled);
            if pending > 0 {
                let reasons = report.dropped.entry(kind.table().to_string()).or_default();
                *reasons.entry(reason.as_str().to_string()).or_default() += pending;
            }
        }
        report
    }

    /// The account so far.
    pub fn report(&self, name: &str) -> ExporterReport {
        let by_table = |counts: &[AtomicU64; KINDS]| -> BTreeMap<String, u64> {
            RecordKind::ALL
                .into_iter()
                .map(|k| (k.table().to_string(), counts[k as usize].load(Ordering::Relaxed)))
                .collect()
        };
        let mut dropped = BTreeMap::new();
        for kind in RecordKind::ALL {
            let reasons: BTreeMap<String, u64> = DropReason::ALL
                .into_iter()
                .map(|r| (r.as_str().to_string(), self.dropped[kind as usize][r as usize].load(Ordering::Acquire)))
                .filter(|(_, n)| *n > 0)
                .collect();
            if !reasons.is_empty() {
                dropped.insert(kind.table().to_string(), reasons);
            }
        }
        ExporterReport {
            name: name.to_string(),
            received: by_table(&self.received),
            exported: by_table(&self.exported),
            dropped,
            last_error: self.last_error.lock().ok().and_then(|e| e.clone()),
        }
    }
}
