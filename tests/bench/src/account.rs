//! Checks that a run's accounts are conserved.

use anyhow::{Result, ensure};
use candlescope_core::run::RunManifest;

/// Checks that every interval the application made is a record or counted as lost, and every record is exported or
/// counted as dropped.
///
/// # Errors
/// If that is not so.
pub fn check_conserved(manifest: &RunManifest, entered: u64) -> Result<()> {
    let loss = &manifest.loss;
    ensure!(loss.emitted == entered, "{entered} intervals were left, {} were seen", loss.emitted);
    let records = manifest.counts.get("spans").copied().unwrap_or(0);
    ensure!(loss.emitted == records + loss.lost(), "{} emitted, {records} records, lost: {loss:?}", loss.emitted);
    for exporter in &manifest.exporters {
        ensure!(exporter.conserved(), "{exporter:?}");
        ensure!(exporter.received["spans"] == records, "{records} records, but {exporter:?}");
    }
    Ok(())
}

/// Intervals that did not reach an exporter's destination, for whatever reason.
pub fn lost(manifest: &RunManifest) -> u64 {
    let dropped = manifest.exporters.iter().filter_map(|e| e.dropped.get("spans")).flat_map(|r| r.values());
    manifest.loss.lost() + dropped.sum::<u64>()
}
