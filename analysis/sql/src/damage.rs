//! Files that cannot be read as a whole: the rest is asked all the same, and the damage told.

use candlescope_reader::{ARCHIVE_INDEX, ReadLimits, checked};
use candlescope_schema::run::{Code, Finding, Place};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names of columns that are decoded.
pub(super) type DecodedColumns = Arc<HashSet<String>>;

/// What is known about damaged files of a query.
#[derive(Debug, Default)]
pub(super) struct Damage {
    files: Mutex<BTreeMap<PathBuf, DamagedFile>>,
    /// Files of this machine that were opened, with the columns that were to be decoded.
    opened: Mutex<BTreeMap<PathBuf, Vec<DecodedColumns>>>,
    /// Whether a file that was listed was gone when it was opened.
    has_moved: AtomicBool,
    /// Whether that is told as damage: what is there is not listed again.
    is_last_try: bool,
}

#[derive(Debug)]
struct DamagedFile {
    /// Row groups that can be decoded, if it was tried.
    readable: Option<Vec<bool>>,
    finding: Finding,
}

impl Damage {
    /// That of a try after which there is no other.
    pub(super) fn of_last_try() -> Self {
        Self { is_last_try: true, ..Self::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PathBuf, DamagedFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A damaged file of which nothing is read.
    pub(super) fn tell(&self, file: &Path, finding: Finding) {
        self.note(file, of_damage(file, finding));
    }

    fn note(&self, file: &Path, finding: Finding) {
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
        self.note(file, finding.at(Place::File, path).text("why", why));
    }

    /// A folder of an archive that cannot be listed.
    pub(super) fn unlisted(&self, folder: &Path, why: &io::Error) {
        let path = folder.display().to_string();
        let finding = Finding::new(
            Code::SegmentCorrupt,
            "`{file}` cannot be listed ({why}): rows in it are missing",
            "Give the right to read it, or put it back from a copy",
        );
        self.note(folder, finding.at(Place::File, path).text("why", why.to_string()));
    }

    /// An archive whose files were listed while somebody changed it, or was stopped while changing it.
    pub(super) fn unsettled(&self, root: &str) {
        let finding = Finding::new(
            Code::SegmentUnfinished,
            "a change of the archive `{file}` was stopped in the middle, or is being made: rows may be missing until \
             `candlescope archive --to {file}` has finished it",
            "Ask again then",
        );
        self.note(Path::new(root), finding.at(Place::File, root));
    }

    /// Whether a file is not there any more although it was listed, and what is there can be listed again: then that is
    /// what to do.
    pub(super) fn is_moved(&self, file: &Path) -> bool {
        let is_moved = !self.is_last_try && matches!(file.try_exists(), Ok(false));
        if is_moved {
            self.note_moved();
        }
        is_moved
    }

    /// What was listed is not what is there.
    pub(super) fn note_moved(&self) {
        self.has_moved.store(!self.is_last_try, Ordering::Relaxed);
    }

    /// Whether nothing is listed again.
    pub(super) fn is_last_try(&self) -> bool {
        self.is_last_try
    }

    /// Whether what is there is to be listed again.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved.load(Ordering::Relaxed)
    }

    /// A file of this machine is opened for these columns.
    pub(super) fn open(&self, file: &Path, columns: &DecodedColumns) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let of_file = opened.entry(file.to_path_buf()).or_default();
        if !of_file.iter().any(|known| Arc::ptr_eq(known, columns)) {
            of_file.push(Arc::clone(columns));
        }
    }

    /// Which row groups of a file can be decoded, where some cannot.
    pub(super) fn readable(&self, file: &Path) -> Option<Vec<bool>> {
        self.all().get(file).and_then(|found| found.readable.clone())
    }

    /// Tries every row group of the files that were opened, in the columns that were to be decoded, one file after the
    /// other while there is time; whether there is damage that was not known.
    pub(super) fn look(&self, limits: &ReadLimits, is_time: &dyn Fn() -> bool) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut is_new = false;
        for (file, columns) in opened.into_iter().take_while(|_| is_time()) {
            if self.all().contains_key(&file) {
                continue;
            }
            let is_decoded = |name: &str| columns.iter().any(|of| of.contains(name));
            if let (readable, Some(finding)) = checked::row_groups(&file, &is_decoded, limits) {
                is_new = true;
                let readable = Some(readable).filter(|groups| !groups.is_empty());
                let finding = of_damage(&file, finding);
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

/// What is told of a damaged file. Other files may be deleted to accept the loss; without its index the rows of an
/// archive are there, and nobody can ask them.
fn of_damage(file: &Path, finding: Finding) -> Finding {
    let is_index = file.file_name().is_some_and(|name| name == ARCHIVE_INDEX);
    if !is_index || finding.code != Code::SegmentCorrupt {
        return finding;
    }
    let mut of_index = Finding::new(
        Code::SegmentCorrupt,
        "`{file}` is damaged[ ({why})]: rows of it are missing",
        "It is the index of an archive: put it back from a copy, and do not delete it. Without it, nothing says which \
         runs the archive has",
    );
    (of_index.place, of_index.evidence) = (finding.place, finding.evidence);
    of_index
}
