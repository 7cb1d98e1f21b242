//! How batches leave the drain.

use crate::pipeline::accounts::Accounts;
use crate::pipeline::capture_run::OpenCapture;
use crate::pipeline::fanout::Lane;
use crate::record::{Batch, RecordKind};
use std::sync::Arc;
use std::time::Instant;

/// Adds a batch to the accounts, gives it to a capture at once, and passes on what waits for no energy.
pub(super) fn send_batch(
    lanes: &[Lane],
    accounts: &mut Accounts,
    capture: &mut Option<OpenCapture>,
    mut batch: Batch,
    counts: &mut [u64; RecordKind::ALL.len()],
) {
    let now = Instant::now();
    accounts.add(&mut batch, now);
    if let Some(capture) = capture.as_mut().filter(|_| !batch.is_empty()) {
        // It waits for nothing: its requests have no energy.
        capture.take(&batch);
    }
    accounts.hold(&mut batch, now);
    pass_on(lanes, batch, counts);
}

/// Hands a batch to the exporters' lanes, and counts its records.
pub(super) fn pass_on(lanes: &[Lane], batch: Batch, counts: &mut [u64; RecordKind::ALL.len()]) {
    if batch.is_empty() {
        return;
    }
    let ready = Arc::new(batch);
    for kind in RecordKind::ALL {
        counts[kind as usize] += ready.count(kind);
    }
    for lane in lanes {
        lane.send(&ready);
    }
}
