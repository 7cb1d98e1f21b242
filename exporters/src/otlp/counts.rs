//! Numbers of records by kind, which are settled together.

use candlescope_core::{DropReason, Ledger, RecordKind};
use std::ops::AddAssign;

/// Numbers of records by kind, for the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) spans: u64,
    pub(super) steps: u64,
    pub(super) requests: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.spans += other.spans;
        self.steps += other.steps;
        self.requests += other.requests;
    }
}

impl Counts {
    pub(super) fn exported(self, ledger: &Ledger) {
        ledger.exported(RecordKind::Span, self.spans);
        ledger.exported(RecordKind::Step, self.steps);
        ledger.exported(RecordKind::Request, self.requests);
    }

    pub(super) fn dropped(self, ledger: &Ledger, reason: DropReason) {
        ledger.dropped(RecordKind::Span, reason, self.spans);
        ledger.dropped(RecordKind::Step, reason, self.steps);
        ledger.dropped(RecordKind::Request, reason, self.requests);
    }
}
