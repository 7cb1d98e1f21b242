//! A baseline: what runs took that later ones are held against. It keeps their figures, not the runs.

use super::error::CompareFailed;
use candlescope_compare::{RunFacts, Side};
use candlescope_core::HostNs;
use candlescope_core::files::{read_limited, write_whole};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Name of the file.
pub const BASELINE_FILE: &str = "baseline.json";
/// Version of its form.
const SCHEMA: u32 = 1;
/// The largest one that is read, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// Figures of runs that later ones are held against, as `baseline.json` keeps them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// Version of its form.
    pub schema: u32,
    /// When it was saved, Unix nanoseconds.
    pub saved_ns: i64,
    /// Facts about each run, as they were when it was saved; one without runs is not read.
    pub runs: Vec<RunFacts>,
}

impl Baseline {
    /// A baseline of runs, saved now.
    pub fn of(side: &Side) -> Self {
        Self { schema: SCHEMA, saved_ns: HostNs::now().0, runs: side.runs.clone() }
    }

    /// Writes it into the directory `dir`, in place of one that is there, and returns the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> Result<PathBuf, CompareFailed> {
        let path = dir.join(BASELINE_FILE);
        let failed = |cause| CompareFailed::Write { path: path.clone(), cause };
        let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        std::fs::create_dir_all(dir).map_err(failed)?;
        write_whole(&path, |file| file.write_all(&text)).map_err(failed)?;
        Ok(path)
    }

    /// Reads the baseline in the directory `dir`.
    ///
    /// # Errors
    /// When there is none, or it was saved by a newer release.
    pub fn read(dir: &Path) -> Result<Self, CompareFailed> {
        let none = |reason: String| CompareFailed::NoBaseline { path: dir.to_path_buf(), reason };
        let bytes = read_limited(&dir.join(BASELINE_FILE), MOST_BYTES)
            .map_err(|error| none(format!("{BASELINE_FILE}: {error}")))?;
        let baseline: Self =
            serde_json::from_slice(&bytes).map_err(|error| none(format!("{BASELINE_FILE}: {error}")))?;
        if baseline.schema > SCHEMA {
            return Err(CompareFailed::NewerBaseline {
                path: dir.to_path_buf(),
                found: baseline.schema,
                known: SCHEMA,
            });
        }
        if baseline.runs.is_empty() {
            return Err(none(format!("{BASELINE_FILE} has no runs")));
        }
        Ok(baseline)
    }

    /// As a side of a comparison.
    pub fn side(&self, dir: &Path) -> Side {
        Side { name: format!("baseline {}", dir.display()), runs: self.runs.clone() }
    }
}
