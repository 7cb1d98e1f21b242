//! Opens a run directory and yields its records, whatever state the directory is in. A part of candlescope, which may
//! change with every release.
//!
//! A reader is most needed when something went wrong: the process was killed, a disk filled, somebody copied a file
//! into the wrong place. So damage to one file becomes a [`Finding`] that names it, and the rest is still read.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod batches;
mod cells;
pub mod checked;
mod columns;
mod discover;
pub mod file_findings;
mod footer;
mod intern;
pub mod limits;
mod long_texts;
mod manifest;
mod open_error;
mod pages;
mod segment;
mod structs;
mod tables;
mod thrift;

pub use batches::{Batches, left_out};
#[doc(hidden)]
pub use discover::natural_key;
pub use limits::{Limit, LimitError, ReadLimits};
pub use manifest::manifest_of;
pub use open_error::OpenError;
pub use segment::Segment;

use candlescope_schema::RecordKind;
use candlescope_schema::run::{Finding, MANIFEST_FILE, RunManifest};
use std::path::{Path, PathBuf};

/// The order in which all tables are read.
const ORDER: [RecordKind; RecordKind::ALL.len()] = {
    use RecordKind::{Kernel, Perturbation, Request, Sample, Span, Stack, StackSample, Step};
    [Request, Step, Perturbation, Sample, Kernel, Stack, StackSample, Span]
};

/// The index of an archive: one row a run. Where it lies, its folder is an archive.
pub const ARCHIVE_INDEX: &str = "runs.parquet";

/// A run on disk, opened: its manifest, its readable segments, and what is wrong with it.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    manifest: Option<RunManifest>,
    segments: Vec<Segment>,
    findings: Vec<Finding>,
    limits: ReadLimits,
}

impl Run {
    /// Opens the run in `dir`. Reads the manifest and every segment's footer, no rows.
    ///
    /// # Errors
    /// When there is nothing to read or the run's schema is newer than this release. Damage to single files is not an
    /// error: see [`findings`](Run::findings).
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_within(dir, ReadLimits::default())
    }

    /// The same with the caller's limits, which also apply to everything that is read of the run later.
    ///
    /// # Errors
    /// Those of [`open`](Run::open).
    pub fn open_within(dir: impl AsRef<Path>, limits: ReadLimits) -> Result<Self, OpenError> {
        let dir = dir.as_ref().to_path_buf();
        if !dir.exists() {
            return Err(OpenError::NotFound(dir));
        }
        if !dir.is_dir() {
            return Err(OpenError::NotADirectory(dir));
        }
        let mut findings = Vec::new();
        let manifest = manifest::read(&dir, &limits, &mut findings)?;
        let found = discover::segments(&dir, &limits, &mut findings)?;
        if manifest.is_none() && found.readable.is_empty() {
            let (count, first) = discover::runs_inside(&dir);
            // A program may write its runs into the folder that is their archive: one of these can be named then.
            if first.is_none() && dir.join(ARCHIVE_INDEX).is_file() {
                return Err(OpenError::Archive(dir));
            }
            // A run.json that says nothing is one all the same, unless it lies among runs.
            if found.files > 0 || first.is_none() && dir.join(MANIFEST_FILE).is_file() {
                return Err(OpenError::nothing_readable(dir, &findings));
            }
            return Err(match first {
                None => OpenError::NotARun(dir),
                Some(first) => OpenError::DirectoryOfRuns { dir, count, first },
            });
        }
        Ok(Self { dir, manifest, segments: found.readable, findings, limits })
    }

    /// The run's directory, as it was given to [`open`](Run::open).
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `run.json`, if there is a readable one.
    pub fn manifest(&self) -> Option<&RunManifest> {
        self.manifest.as_ref()
    }

    /// The same, to be added to: what is told here stands in everything that is made of the run afterwards, and the file
    /// stays as it is.
    pub fn manifest_mut(&mut self) -> Option<&mut RunManifest> {
        self.manifest.as_mut()
    }

    /// The readable segments, by table and then in order of writing.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The limits on reading it.
    pub fn limits(&self) -> &ReadLimits {
        &self.limits
    }

    /// What was noticed on opening: missing or unreadable files, segments left unfinished. Whoever reads rows gets
    /// these with what reading shows: [`Batches::findings`].
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Rows the readable segments of a table hold.
    pub fn rows(&self, kind: RecordKind) -> u64 {
        self.segments.iter().filter(|s| s.kind == kind).map(|s| s.rows).sum()
    }

    /// Bytes on disk of a table's readable segments.
    pub fn bytes(&self, kind: RecordKind) -> u64 {
        self.segments.iter().filter(|s| s.kind == kind).map(|s| s.file_bytes).sum()
    }

    /// Streams every record: requests and steps first, so that it is known what spans belong to, and stacks before the
    /// samples that have them.
    pub fn batches(&self) -> Batches<'_> {
        self.batches_of(&ORDER)
    }

    /// Streams the records of one table alone, segment by segment in order of writing.
    pub fn table(&self, kind: RecordKind) -> Batches<'_> {
        self.batches_of(&[kind])
    }

    fn batches_of(&self, kinds: &[RecordKind]) -> Batches<'_> {
        let in_order = kinds.iter().flat_map(|kind| self.segments.iter().filter(|s| s.kind == *kind));
        let run_id = self.manifest.as_ref().map(|m| m.run_id.clone()).filter(|id| !id.is_empty());
        Batches::new(in_order, run_id, &self.limits, &self.findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read() {
        assert!(RecordKind::ALL.iter().all(|kind| ORDER.contains(kind)));
    }
}
