//! Files that cannot be read as a whole: the rest is asked all the same, and the damage told.

use candlescope_reader::{ReadLimits, checked};
use candlescope_schema::run::{Code, Finding, Place};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What is known about damaged files of a query.
#[derive(Debug, Default)]
pub(super) struct Damage(Mutex<BTreeMap<PathBuf, DamagedFile>>);

#[derive(Debug)]
struct DamagedFile {
    /// Row groups that can be decoded, if it was tried.
    readable: Option<Vec<bool>>,
    finding: Finding,
}

impl Damage {
    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, DamagedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of which nothing is read.
    pub(super) fn tell(&self, file: &Path, finding: Finding) {
        self.all().entry(file.to_path_buf()).or_insert(DamagedFile { readable: None, finding });
    }

    /// A file that cannot be found again.
    pub(super) fn gone(&self, file: &Path, why: &str) {
        let path = file.display().to_string();
        let finding = Finding::new(
            Code::SegmentCorrupt,
            "`{file}` cannot be read ({why}): its rows are missing",
            "Ask again: the run may have been moved while it was read",
        );
        self.tell(file, finding.at(Place::File, path).text("why", why));
    }

    /// Which row groups of a file can be decoded, where some cannot.
    pub(super) fn readable(&self, file: &Path) -> Option<Vec<bool>> {
        self.all().get(file).and_then(|found| found.readable.clone())
    }

    /// Tries every row group of these files; whether there is damage that was not known.
    pub(super) fn look(&self, files: impl IntoIterator<Item = PathBuf>, limits: &ReadLimits) -> bool {
        let mut is_new = false;
        for file in files {
            if self.all().contains_key(&file) {
                continue;
            }
            if let (readable, Some(finding)) = checked::row_groups(&file, &|_| true, limits) {
                is_new = true;
                let readable = Some(readable).filter(|groups| !groups.is_empty());
                self.all().insert(file, DamagedFile { readable, finding });
            }
        }
        is_new
    }

    /// What is told of them.
    pub(super) fn findings(&self) -> Vec<Finding> {
        self.all().values().map(|found| found.finding.clone()).collect()
    }
}
