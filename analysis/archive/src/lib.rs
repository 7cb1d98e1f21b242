//! Many runs as one data set: finished runs are moved into an archive, which every engine reads. A part of
//! candlescope, which may change with every release.
//!
//! A change is made in three parts. New files are written beside those that are there, and held against what they were
//! made of. Then the change is decided, by a journal. Then it is done: files get their names, the index is replaced,
//! and the directories of the runs are removed. Whoever is stopped before the second part has changed nothing; after
//! it, the next one who changes the archive finishes first. One lock keeps all others out meanwhile.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod archive_error;
mod days;
pub mod disk;
mod index;
mod journal;
mod layout;
mod prune;
mod restore;
mod rolling_writer;
mod sums;
mod table;

pub use archive_error::ArchiveError;
pub use prune::{Keep, PruneOutcome, prune};
pub use restore::{RestoredRun, restore};

use candlescope_reader::{Limit, ReadLimits, Run, checked};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Code, IN_PROGRESS_SUFFIX, MANIFEST_FILE, columns};
use candlescope_sql::{Sources, each_batch};
use disk::Disk;
use index::Identity;
use journal::{Journal, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use sums::Sums;

/// A file below this is written together with new rows.
const SMALL: u64 = 32 << 20;
/// Runs of one change, unless told otherwise: whoever is killed among ten thousand has all but the last of them.
const RUNS_AT_ONCE: usize = 200;
/// Bytes of runs from which a change is made: until then there are two of each.
const BYTES_AT_ONCE: u64 = 4 << 30;
/// Files of runs from which a change is made: the journal names them.
const FILES_AT_ONCE: usize = 100_000;

/// Codes of what a run's analysis found, by commas.
pub type Findings<'a> = &'a dyn Fn(&Run) -> Option<String>;

/// What became of runs that were to be archived.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ArchiveOutcome {
    /// Directories of runs that are in the archive now, with the name that each has there.
    pub runs: Vec<(PathBuf, String)>,
    /// Rows that were written for them.
    pub rows: u64,
    /// Runs that were there before: an attempt before this one had not removed their directories, or another archiver took
    /// them while this one waited for it.
    pub known: Vec<PathBuf>,
    /// Runs that are left where they are, and why.
    pub left: Vec<(PathBuf, String)>,
    /// Files that commands had made of these runs, such as reports and timelines, and that went with their directories.
    pub made_of_runs: u64,
    /// Whether a change that had been stopped was finished first.
    pub finished_another: bool,
}

/// Settings of [`archive`]. By default sources are removed, and runs that were not closed in order stay.
#[derive(Default)]
#[non_exhaustive]
pub struct Options<'a> {
    /// What reading may take.
    pub limits: ReadLimits,
    /// Keeps the directories of the runs.
    pub keep_source: bool,
    /// Takes runs that were not closed in order. Those that are still being written must not be among them.
    pub incomplete: bool,
    /// Says what is wrong with a run.
    pub findings: Option<Findings<'a>>,
    /// Runs of one change; 200 if it is 0.
    pub runs_at_once: usize,
    /// What is changed; for tests.
    pub disk: Disk,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("keep_source", &self.keep_source).field("incomplete", &self.incomplete).finish()
    }
}

/// Moves the runs in these directories into the archive at `root`, which is made where there is none.
///
/// A run that is not finished, that is damaged, or that other files lie beside is left where it is, and told of. Files
/// that commands make of runs are counted, and go with the directory.
///
/// Many runs are several changes, one after the other: what an earlier one moved is in the archive, whatever comes
/// later.
///
/// # Errors
/// When the archive cannot be written or read, or what was written differs from what it was made of. Nothing is lost then,
/// and what was half written is removed: it may be what filled the disk.
pub fn archive(dirs: &[PathBuf], root: &Path, options: &Options<'_>) -> Result<ArchiveOutcome, ArchiveError> {
    let disk = &options.disk;
    let absolute = std::path::absolute(root).map_err(ArchiveError::at(root))?;
    if let Some(run) = absolute.ancestors().find(|dir| dir.join(MANIFEST_FILE).is_file()) {
        return Err(ArchiveError::InsideRun(root.to_path_buf(), run.to_path_buf()));
    }
    let limits = of_archiving(&options.limits);
    // Before the lock: while this one waits for it, another archiver may move some of them.
    let before: Vec<Option<Identity>> = dirs.iter().map(|dir| Identity::at(dir, &limits)).collect();
    disk.make_directory(root).map_err(ArchiveError::at(root))?;
    let _lock = lock(root)?;
    let done = ArchiveOutcome { finished_another: recover(root, &limits, disk)?, ..ArchiveOutcome::default() };
    move_into(root, dirs, before, options, limits.clone(), done).inspect_err(|_| {
        // What went wrong is said by the caller, whatever comes of this.
        let _ = recover(root, &limits, disk);
    })
}

/// Moves the runs `dirs`, of which `before` says what they were before the lock was taken, into the archive.
fn move_into(
    root: &Path,
    dirs: &[PathBuf],
    before: Vec<Option<Identity>>,
    options: &Options<'_>,
    limits: ReadLimits,
    mut done: ArchiveOutcome,
) -> Result<ArchiveOutcome, ArchiveError> {
    let index = index::read(root, &limits)?;
    if index.is_none()
        && let Some(file) = days::any_file(root)?
    {
        return Err(ArchiveError::NoIndex(root.to_path_buf(), file));
    }
    let known: BTreeMap<Identity, String> = index
        .iter()
        .flat_map(|index| {
            let names = index::texts(index, layout::RUN).into_iter().map(|name| name.unwrap_or_default().to_string());
            Identity::all(index).into_iter().zip(names)
        })
        .collect();
    let mut taken: BTreeSet<String> = known.values().cloned().collect();
    let rows = index.into_iter().collect();
    let mut change = Change { root, options, limits, rows, moved: Vec::new(), sources: Vec::new() };
    let mut seen: BTreeSet<Identity> = BTreeSet::new();
    for (dir, before) in dirs.iter().zip(before) {
        let (run, source, identity) = match change.admit(dir) {
            Ok(admitted) => admitted,
            // Moved meanwhile: by whoever held the lock, or just now, as the end of a change that had been stopped.
            Err(_) if !dir.exists() => {
                match before {
                    Some(identity) if known.contains_key(&identity) => done.known.push(dir.clone()),
                    Some(_) => {
                        let why = "it was moved or removed meanwhile, and this archive does not have it";
                        done.left.push((dir.clone(), why.into()));
                    }
                    None => done.left.push((dir.clone(), "it was moved or removed meanwhile".into())),
                }
                continue;
            }
            Err(why) => {
                done.left.push((dir.clone(), why));
                continue;
            }
        };
        if let Some(name) = known.get(&identity) {
            // All that is left to do is to remove it: if it is what was archived.
            match change.holds(name, &run)? {
                None => {
                    change.sources.push(source);
                    done.known.push(dir.clone());
                }
                Some(why) => done.left.push((
                    dir.clone(),
                    format!("the archive has a run of this name and start, `{name}`, that differs: {why}"),
                )),
            }
        } else if !seen.insert(identity) {
            done.left.push((dir.clone(), "another directory of these is a copy of it".into()));
        } else {
            let name = index::name(&run, &taken);
            match change.prepare(run, name.clone()) {
                Ok(()) => {
                    taken.insert(name.clone());
                    done.runs.push((dir.clone(), name));
                    change.sources.push(source);
                }
                Err(why) => done.left.push((dir.clone(), why)),
            }
        }
        if change.is_large() {
            change.make(&mut done)?;
        }
    }
    change.make(&mut done)?;
    Ok(done)
}

/// Limits without those of questions: a run may have more rows, and take more time, than somebody wants to wait for
/// one.
fn of_archiving(limits: &ReadLimits) -> ReadLimits {
    let of_questions = [Limit::QueryRows, Limit::QuerySeconds, Limit::QuerySpill];
    of_questions.into_iter().fold(limits.clone(), |limits, limit| limits.with(limit, u64::MAX))
}

/// Nanoseconds since the Unix epoch.
fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Waits until nobody else changes the archive.
fn lock(root: &Path) -> Result<File, ArchiveError> {
    let path = root.join(layout::LOCK);
    let open = File::options().create(true).truncate(false).write(true).open(&path).map_err(ArchiveError::at(&path))?;
    open.lock().map_err(ArchiveError::at(&path))?;
    Ok(open)
}

/// Finishes what another was stopped in, and removes what it had not decided. Whether there was a change to finish.
fn recover(root: &Path, limits: &ReadLimits, disk: &Disk) -> Result<bool, ArchiveError> {
    let journal = Journal::read(root)?;
    if let Some(journal) = &journal {
        journal.apply(root, limits, disk)?;
    }
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(ArchiveError::at(&folder))?.flatten() {
            let path = entry.path();
            let of_us = |name: &std::ffi::OsStr| RecordKind::ALL.iter().any(|kind| name == kind.table());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && (folder != root || of_us(&entry.file_name())) => folders.push(path),
                // Programs that write runs into the same folders call their files `part-…`.
                Ok(kind) if kind.is_file() && is_ours(&entry.file_name()) => {
                    disk.remove(&path).map_err(ArchiveError::at(&path))?;
                }
                _ => {}
            }
        }
    }
    Ok(journal.is_some())
}

/// Whether an archiver left a file that it had not decided.
fn is_ours(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(".runs") && name.ends_with(IN_PROGRESS_SUFFIX))
}

/// A run that goes into the archive.
struct MovedRun {
    /// It alone, to be asked.
    alone: Sources,
    name: String,
    /// What its tables add up to, read by another reader than the one that copies them.
    sums: BTreeMap<&'static str, Sums>,
}

impl MovedRun {
    fn run(&self) -> &Run {
        &self.alone.runs()[0]
    }
}

/// A change while it is prepared.
struct Change<'a> {
    root: &'a Path,
    options: &'a Options<'a>,
    limits: ReadLimits,
    /// Rows of the index: what was there, and a row for each new run.
    rows: Vec<arrow_array::RecordBatch>,
    moved: Vec<MovedRun>,
    sources: Vec<Source>,
}

impl Change<'_> {
    /// Opens a run that can be archived; why it cannot.
    fn admit(&self, dir: &Path) -> Result<(Run, Source, Identity), String> {
        // The files before the rows: one that comes later keeps the directory.
        let source = Source::of(dir).map_err(|error| error.to_string())?;
        let run = Run::open_within(dir, self.limits.clone()).map_err(|error| error.to_string())?;
        let Some(manifest) = run.manifest() else { return Err("it has no readable run.json".into()) };
        if !manifest.complete && !self.options.incomplete {
            return Err("it is not finished, or was not closed in order (--incomplete takes it)".into());
        }
        if let Some(finding) = run.findings().iter().find(|found| found.code != Code::SegmentUnfinished) {
            return Err(finding.message());
        }
        if let Some(path) = source.somebodys().filter(|_| !self.options.keep_source) {
            return Err(format!(
                "`{}` in it is no part of a run, and would be lost (--keep-source copies)",
                path.display()
            ));
        }
        // A directory that is still being copied, or that lacks a table, says by its manifest how much is missing.
        for report in manifest.exporters.iter().filter(|report| manifest.complete && report.name == "parquet") {
            for kind in RecordKind::ALL {
                let (wrote, has) = (report.exported.get(kind.table()).copied().unwrap_or(0), run.rows(kind));
                if has < wrote {
                    return Err(format!("it has {has} of the {wrote} rows of `{}` that were written", kind.table()));
                }
            }
        }
        let identity = Identity::of(manifest);
        Ok((run, source, identity))
    }

    /// Reads a run that is new, so that nothing that is wrong with it comes up later. Why it cannot be archived.
    fn prepare(&mut self, run: Run, name: String) -> Result<(), String> {
        let mut sums = BTreeMap::new();
        for kind in RecordKind::ALL {
            for segment in run.segments().iter().filter(|segment| segment.kind == kind) {
                let schema = checked::schema(&segment.path, &self.limits).map_err(|finding| finding.message())?;
                let is_known = |name: &str| columns(kind).iter().any(|column| column.name == name);
                if let Some(field) = schema.fields().iter().find(|field| !is_known(field.name())) {
                    return Err(format!(
                        "`{}` has a column `{}` that this version does not know, and would be lost: archive it with the \
                         version that recorded it",
                        kind.table(),
                        field.name()
                    ));
                }
            }
            sums.insert(kind.table(), source_sums(&run, kind, &self.limits).map_err(ArchiveError::of_a_run)?);
        }
        let findings = self.options.findings.and_then(|of| of(&run));
        let alone = Sources::of(run);
        let row = index::row(&alone, &name, findings, now_ns(), &self.limits).map_err(ArchiveError::of_a_run)?;
        self.rows.push(row);
        self.moved.push(MovedRun { alone, name, sums });
        Ok(())
    }

    /// How a run differs from what the archive has of it.
    fn holds(&self, name: &str, run: &Run) -> Result<Option<String>, ArchiveError> {
        if self.rows.first().and_then(|index| index::manifest(index, name)) != index::description(run) {
            return Ok(Some(format!("{MANIFEST_FILE} is another")));
        }
        for kind in RecordKind::ALL {
            let ours = match source_sums(run, kind, &self.limits) {
                Ok(sums) => sums,
                Err(error) => return Ok(Some(error.of_a_run())),
            };
            let folder = self.folder(run, kind);
            let found = table::sums_by_run(days::files_in(&self.root.join(folder))?, &self.limits)?;
            let theirs = found.get(&Some(name.to_string())).cloned().unwrap_or_default();
            if let Some(why) = ours.differs(&theirs) {
                return Ok(Some(format!("{}: {why}", kind.table())));
            }
        }
        Ok(None)
    }

    fn folder(&self, run: &Run, kind: RecordKind) -> PathBuf {
        let (started, host) = run.manifest().map_or((0, ""), |manifest| (manifest.started_ns, manifest.host.as_str()));
        layout::partition(kind, started, host)
    }

    /// Whether it is time to make it, before more runs come to it.
    fn is_large(&self) -> bool {
        let files = || self.sources.iter().flat_map(|source| &source.files);
        let runs = if self.options.runs_at_once == 0 { RUNS_AT_ONCE } else { self.options.runs_at_once };
        self.sources.len() >= runs
            || files().count() >= FILES_AT_ONCE
            || files().map(|(_, bytes)| *bytes).sum::<u64>() >= BYTES_AT_ONCE
    }

    /// Writes everything, checks it, decides, and does it, and is empty then. Directories that could not be removed are
    /// told of.
    fn make(&mut self, done: &mut ArchiveOutcome) -> Result<(), ArchiveError> {
        if self.moved.is_empty() && self.sources.is_empty() {
            return Ok(());
        }
        let mut journal = Journal::default();
        let change = format!("{:x}-{:x}", now_ns(), std::process::id());
        for kind in RecordKind::ALL {
            let mut folders: BTreeMap<PathBuf, Vec<&MovedRun>> = BTreeMap::new();
            for moved in self.moved.iter().filter(|moved| moved.run().rows(kind) > 0) {
                folders.entry(self.folder(moved.run(), kind)).or_default().push(moved);
            }
            for (folder, mut runs) in folders {
                runs.sort_by(|a, b| a.name.cmp(&b.name));
                let (written, replaced, rows) = self.write(kind, &folder, &runs, &change)?;
                done.rows += rows;
                journal.renames.extend(written.into_iter().map(|path| (layout::in_progress(&path), path)));
                journal.removes.extend(replaced);
            }
        }
        if !self.moved.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            if let Some(index) = index::together(&rows)? {
                let beside = index::write(self.root, &index, &self.options.disk)?;
                journal.renames.push((beside, PathBuf::from(layout::INDEX)));
                self.rows.push(index);
            }
        }
        self.moved.clear();
        let sources = std::mem::take(&mut self.sources);
        if !self.options.keep_source {
            journal.sources = sources;
        }
        journal.write(self.root, &self.options.disk)?;
        let kept = journal.apply(self.root, &self.limits, &self.options.disk)?;
        let gone = journal.sources.iter().filter(|source| !kept.iter().any(|place| source.is_at(place)));
        done.made_of_runs += gone.map(Source::made).sum::<u64>();
        let why = "it is in the archive, and cannot be removed, or other files came to lie in it";
        done.left.extend(kept.into_iter().map(|place| (place, why.to_string())));
        Ok(())
    }

    /// Writes rows of a table from one day and host: files below the root under their names to be, those that they take the
    /// place of, and the number of new rows.
    fn write(
        &self,
        kind: RecordKind,
        folder: &Path,
        runs: &[&MovedRun],
        change: &str,
    ) -> Result<(Vec<PathBuf>, Vec<PathBuf>, u64), ArchiveError> {
        let limits = &self.limits;
        let there = days::files_in(&self.root.join(folder))?;
        let is_small = |path: &PathBuf| path.metadata().is_ok_and(|found| found.len() < SMALL);
        let mut small: Vec<PathBuf> = Vec::new();
        for path in there.into_iter().filter(is_small) {
            // A file of another version stays as it is: copied, it would lose what this one does not know.
            if table::is_of_this_version(&path, kind, limits)? {
                small.push(path);
            }
        }
        let mut files =
            table::Files::new(self.root, folder.to_path_buf(), change.to_string(), kind, &self.options.disk);
        for path in &small {
            checked::each_batch(path, limits, &mut |rows| files.copy(rows))?;
        }
        let mut expected = table::sums_by_run(small.iter().cloned(), limits)?;
        let mut rows = 0;
        let names: Vec<String> = columns(kind).iter().map(|column| format!("\"{}\"", column.name)).collect();
        let order = table::order_of(kind).map_or_else(String::new, |name| format!(" ORDER BY \"{name}\""));
        let sql = format!("SELECT {} FROM {}{order}", names.join(", "), kind.table());
        for MovedRun { alone, name, sums } in runs.iter().copied() {
            each_batch(&sql, alone, limits, &mut |batch| files.write(name, &batch))?;
            let sums = sums.get(kind.table()).cloned().unwrap_or_default();
            rows += sums.rows;
            expected.entry(Some(name.clone())).or_default().merge(&sums);
        }
        let written = files.finish()?;
        // What lies on the disk now, read again, against what it was made of.
        let beside = written.iter().map(|path| layout::in_progress(&self.root.join(path)));
        let found = table::sums_by_run(beside, limits)?;
        let names: BTreeSet<&Option<String>> = expected.keys().chain(found.keys()).collect();
        for name in names {
            let of = |sums: &BTreeMap<Option<String>, Sums>| sums.get(name).cloned().unwrap_or_default();
            if let Some(why) = of(&expected).differs(&of(&found)) {
                let run = name.clone().unwrap_or_default();
                return Err(ArchiveError::Differs { table: kind.table(), run, why });
            }
        }
        let replaced = small.iter().filter_map(|path| path.strip_prefix(self.root).ok().map(Path::to_path_buf));
        Ok((written, replaced.collect(), rows))
    }
}

/// Sums of a table of a run, read by another reader than the one that copies it.
fn source_sums(run: &Run, kind: RecordKind, limits: &ReadLimits) -> Result<Sums, ArchiveError> {
    let files = run.segments().iter().filter(|segment| segment.kind == kind).map(|segment| segment.path.clone());
    let found = table::sums_by_run(files, limits)?;
    Ok(found.into_values().fold(Sums::default(), |mut all, sums| {
        all.merge(&sums);
        all
    }))
}
