//! The directory with the results of a suite: its rows, files, charts and report.
//!
//! ```text
//! STUDY/study.json        what, on which machine, with which options, in which order, why each case stopped
//! STUDY/journal.jsonl     each sample, written before the next one is taken
//! STUDY/results.parquet   one row for each sample, made of the journal; results.csv and results.json have the same
//! STUDY/charts/           SVG and PNG
//! STUDY/report.html       what it means
//! STUDY/runs/CASE/        recorded runs, which `candlescope report` reads
//! ```
//!
//! Samples are appended to the journal as they are taken, so that an interrupt or a crash loses none of them; the
//! tables are made of it at the end, or by whoever goes on with the study.

mod bars;
mod begun_elsewhere;
mod chart;
mod journal;
mod manifest;
pub(crate) mod pages;
mod rows;
mod speedup;
mod study_error;
mod summary;
mod table;
mod told_once;

pub use bars::{Bar, Bars, Panel};
pub use candlescope_charts::{Chart, Line, Point};
pub use journal::{Facts, Journal, Records};
pub use manifest::{Manifest, ProcessStart, State};
pub use rows::{FIXED_COLUMNS, table};
pub(crate) use speedup::ratio;
pub use speedup::{Speedup, speedup};
pub use study_error::StudyError;
pub use summary::{CaseSummary, IntervalOf, summaries};
pub use table::{Column, Table};
pub use told_once::told_once;

use crate::method::CaseId;
use candlescope_core::files::{open_regular, read_limited, remove_unfinished, write_whole};
use candlescope_core::study_files::{JOURNAL_FILE, MANIFEST_FILE, RESULTS_FILE};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Largest `study.json`, in bytes.
const MAX_MANIFEST: u64 = 64 << 20;
/// As many bytes of `results.csv` show whether it has rows.
const CSV_START: u64 = 1 << 20;

/// A study: a directory with results.
#[derive(Debug)]
pub struct Study {
    dir: PathBuf,
    manifest: Manifest,
}

impl Study {
    /// Makes a study in the directory `dir`, which must be empty or absent.
    ///
    /// # Errors
    /// When the directory cannot be used, or two cases have one key.
    pub fn create(dir: impl Into<PathBuf>, manifest: Manifest) -> Result<Self, StudyError> {
        let dir = dir.into();
        check_cases(&manifest.cases)?;
        let failed = |cause| StudyError::Write { path: dir.clone(), cause };
        std::fs::create_dir_all(&dir).map_err(failed)?;
        // What is left of a study that was killed before its first file was whole.
        remove_unfinished(&dir.join(MANIFEST_FILE));
        if std::fs::read_dir(&dir).map_err(failed)?.next().is_some() {
            let there = dir.join(MANIFEST_FILE).exists();
            let resume = if there { ", or go on with the study in it with --resume" } else { "" };
            return Err(StudyError::NotEmpty { path: dir, resume });
        }
        let study = Self { dir, manifest };
        study.save()?;
        Ok(study)
    }

    /// Opens the study in `dir`.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, StudyError> {
        let dir = dir.into();
        let path = dir.join(MANIFEST_FILE);
        let none = |reason: String| StudyError::NoStudy { path: dir.clone(), reason };
        let text = read_limited(&path, MAX_MANIFEST).map_err(|error| none(format!("{MANIFEST_FILE}: {error}")))?;
        let manifest = serde_json::from_slice(&text).map_err(|error| none(format!("{MANIFEST_FILE}: {error}")))?;
        Ok(Self { dir, manifest })
    }

    /// Opens the study in `dir` to go on with it: it must be of the same cases, with the same options, and have its
    /// journal. What was measured has to be of the machine, the GPU and the build in the environment of `planned`.
    ///
    /// # Errors
    /// When there is none, it is of something else or was begun elsewhere, or its journal has not what its results have.
    /// Nothing is written then.
    pub fn resume(dir: impl Into<PathBuf>, planned: &Manifest) -> Result<Self, StudyError> {
        let dir = dir.into();
        // One that was killed before its first file was whole had measured nothing: it begins anew.
        let killed = !dir.join(MANIFEST_FILE).exists() && remove_unfinished(&dir.join(MANIFEST_FILE)) > 0;
        if killed && std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none()) {
            return Self::create(dir, planned.clone());
        }
        let mut study = Self::open(dir)?;
        if let Some(what) = study.manifest.differs(planned) {
            return Err(StudyError::Different { path: study.dir, what });
        }
        let records = study.whole_records()?;
        if records.samples.is_empty() && records.stopped.is_empty() {
            // Where nothing was measured, nothing can be mixed: it begins here.
            study.manifest.environment.extend(planned.environment.clone());
        } else if let Some(what) = study.manifest.begun_elsewhere(&records, planned) {
            return Err(StudyError::Elsewhere { path: study.dir, what });
        }
        Ok(study)
    }

    /// Removes a study in which nothing was measured: the files made by [`create`](Self::create) and the journal, and
    /// the directory if it is empty then. What somebody else put there stays. A file that cannot be removed is left.
    pub fn discard(self) {
        for name in [MANIFEST_FILE, JOURNAL_FILE] {
            let _ = std::fs::remove_file(self.dir.join(name));
        }
        let _ = std::fs::remove_dir(&self.dir);
    }

    /// The directory with its files, as it was given when the study was made or opened.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the study is.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Changes what `study.json` says, and writes it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn update(&mut self, change: impl FnOnce(&mut Manifest)) -> Result<(), StudyError> {
        change(&mut self.manifest);
        self.save()
    }

    fn save(&self) -> Result<(), StudyError> {
        let text = serde_json::to_string_pretty(&self.manifest).unwrap_or_default();
        self.write(MANIFEST_FILE, text.as_bytes()).map(drop)
    }

    /// Opens the journal to append to it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn journal(&self) -> Result<Journal, StudyError> {
        Journal::append(&self.dir.join(JOURNAL_FILE))
    }

    /// Reads the journal: everything that has been measured.
    ///
    /// # Errors
    /// When it cannot be read. A last line that was cut off by a crash is left out.
    pub fn records(&self) -> Result<Records, StudyError> {
        Records::read(&self.dir.join(JOURNAL_FILE))
    }

    /// What the journal holds, where it holds what the results were made of: results that are made of another one would
    /// lose it.
    fn whole_records(&self) -> Result<Records, StudyError> {
        let path = self.dir.join(JOURNAL_FILE);
        let lost = |reason| StudyError::NoJournal { path: path.clone(), reason };
        let is_there = match std::fs::symlink_metadata(&path) {
            Ok(there) if there.is_symlink() => return Err(lost("is a symbolic link, which is not followed")),
            Ok(there) if !there.is_file() => return Err(lost("is no regular file")),
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(cause) => return Err(StudyError::Read { path, cause }),
        };
        let records = self.records()?;
        if records.samples.is_empty() && records.stopped.is_empty() && self.has_results() {
            return Err(lost(if is_there { "holds no sample" } else { "is not there" }));
        }
        Ok(records)
    }

    /// Whether its files tell of something that was measured.
    fn has_results(&self) -> bool {
        let mut start = Vec::new();
        let read = open_regular(&self.dir.join("results.csv")).and_then(|f| f.take(CSV_START).read_to_end(&mut start));
        let has_rows = match read {
            // One line is the names of columns.
            Ok(_) => start.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).nth(1).is_some(),
            Err(_) => [RESULTS_FILE, "results.json"].iter().any(|name| self.dir.join(name).exists()),
        };
        has_rows || self.manifest.stops.iter().any(|stopped| stopped.samples > 0)
    }

    /// Writes a file of the study, whole or not at all, and returns its path. Folders in `name` are made.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf, StudyError> {
        let path = self.dir.join(name);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        match written.and_then(|()| write_whole(&path, |file| file.write_all(contents))) {
            Ok(()) => Ok(path),
            Err(cause) => Err(StudyError::Write { path, cause }),
        }
    }

    /// Makes `results.parquet`, `results.csv` and `results.json` of the journal and notes in `study.json` how the study
    /// ended. Returns what the journal holds.
    ///
    /// # Errors
    /// When a file cannot be written, or the journal has not what the results have. These are left as they are then.
    pub fn finish(&mut self, state: State) -> Result<Records, StudyError> {
        let records = self.whole_records()?;
        self.update(|manifest| manifest.end(state, &records))?;
        let table = rows::table(&self.manifest, &records)?;
        let path = self.dir.join(RESULTS_FILE);
        table.write_parquet(&path).map_err(|cause| StudyError::Write { path, cause })?;
        self.write("results.csv", table.csv().as_bytes())?;
        let object = json!({
            "study": self.manifest.study,
            "state": self.manifest.state,
            "damaged_lines": records.damaged,
            "rows": table.json(),
        });
        self.write("results.json", object.to_string().as_bytes())?;
        Ok(records)
    }
}

fn check_cases(cases: &[CaseId]) -> Result<(), StudyError> {
    let mut seen = BTreeSet::new();
    match cases.iter().map(CaseId::key).find(|key| !seen.insert(key.clone())) {
        Some(key) => Err(StudyError::Twice(format!("the case {key} stands in the study"))),
        None => Ok(()),
    }
}
