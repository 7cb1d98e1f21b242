//! Writes synthetic runs with arrow directly, not with the project's own writer, so that the reader is tested against
//! the format and not against one implementation of it.
#![allow(dead_code, unused_imports, unreachable_pub)]

pub mod tables;

pub use candlescope_testkit::records::{T0, kernel, manifest, path, request, span, step, thread};
pub use candlescope_testkit::scenario;

use candlescope_schema::Batch;
use candlescope_schema::run::RunManifest;
use std::path::Path;

/// Writes a whole run, `rows` rows to a segment.
pub fn write_run(dir: &Path, batch: &Batch, manifest: &RunManifest, rows: usize) {
    std::fs::create_dir_all(dir).expect("a directory for the run");
    tables::write_all(dir, batch, &manifest.run_id, rows);
    let text = serde_json::to_string_pretty(manifest).expect("a manifest is JSON");
    std::fs::write(dir.join(candlescope_schema::run::MANIFEST_FILE), text).expect("run.json is written");
}
