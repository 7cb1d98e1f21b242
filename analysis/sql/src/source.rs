//! Which runs and studies are asked.

use super::left_out::LeftOut;
use super::place::{
    Archive, ArchiveLocation, ArchiveState, LocatedFile, MOST, RemoteRun, SourceError, Store, is_aside, is_run,
};
use super::remote;
use super::views::RUNS;
use candlescope_reader::limits::ReadLimits;
use candlescope_reader::{ARCHIVE_INDEX, OpenError, Run, checked};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Finding, Place, RunManifest};
use candlescope_schema::study_files::RESULTS_FILE;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Folders below a directory that are looked through for runs.
const DEEPEST: usize = 8;
/// The column of a study's directory.
pub(super) const DIR: &str = "dir";

/// Runs, studies and archives, opened.
#[derive(Debug, Default)]
pub struct Sources {
    pub(super) archives: Vec<Archive>,
    pub(super) runs: Vec<Run>,
    /// Runs in object stores.
    pub(super) remote: Vec<RemoteRun>,
    /// Directories of studies.
    pub(super) studies: Vec<PathBuf>,
    left_out: Vec<LeftOut>,
    /// Columns of the table of studies.
    columns: Vec<Field>,
    /// Columns of the indexes of archives.
    index_columns: Vec<Field>,
}

/// A path as runs are named by it: without what does not change where it leads, such as a slash at its end.
fn tidy(path: &Path) -> PathBuf {
    let tidy: PathBuf = path.components().collect();
    if tidy.as_os_str().is_empty() { path.to_path_buf() } else { tidy }
}

/// Leaves out what is there already under another name: a path through a link, or a relative one beside an absolute one.
fn dedup<T>(all: &mut Vec<T>, dir: impl Fn(&T) -> Option<&Path>) {
    let mut seen = HashSet::new();
    all.retain(|one| dir(one).is_none_or(|dir| seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf()))));
}

impl Sources {
    /// Opens what `paths` name: runs, studies with the runs in them, archives, and folders of these at any depth; in object
    /// stores as well (`s3://bucket/runs`).
    ///
    /// # Errors
    /// When one of them is neither, a run that was named cannot be opened, or no run of a folder can. Of other folders, what
    /// cannot be opened is left out: [`left_out`](Self::left_out).
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>, limits: &ReadLimits) -> Result<Self, SourceError> {
        let mut sources = Self::default();
        for path in paths {
            let path = path.as_ref();
            let (before, left_out_before) = (sources.found(), sources.left_out.len());
            match path.to_str().filter(|text| text.contains("://")) {
                Some(url) => {
                    let found = remote::open(url, limits)?;
                    sources.archives.extend(found.archives);
                    sources.remote.extend(found.runs);
                    sources.left_out.extend(found.left_out);
                }
                None => sources.open_local(&tidy(path), limits)?,
            }
            if before == sources.found() {
                let (place, left_out) = (path.to_path_buf(), &sources.left_out[left_out_before..]);
                return Err(match left_out.first() {
                    Some(first) => SourceError::NoneReadable { place, count: left_out.len(), first: first.why.clone() },
                    None => SourceError::Nothing(place),
                });
            }
        }
        // A run named twice would count twice.
        sources.runs.sort_by(|a, b| a.dir().cmp(b.dir()));
        dedup(&mut sources.runs, |run| Some(run.dir()));
        sources.studies.sort();
        dedup(&mut sources.studies, |dir| Some(dir));
        sources.archives.sort_by(|a, b| a.name.cmp(&b.name));
        dedup(&mut sources.archives, |archive| match &archive.place {
            ArchiveLocation::Local(root) => Some(root),
            ArchiveLocation::Remote { .. } => None,
        });
        sources.archives.dedup_by(|a, b| a.name == b.name);
        sources.remote.sort_by(|a, b| a.name.cmp(&b.name));
        sources.remote.dedup_by(|a, b| a.name == b.name);
        sources.left_out.sort();
        sources.left_out.dedup();
        if !sources.archives.is_empty() {
            // Names of runs in archives have no separators: those of directories have one then, so that no two are equal.
            for run in &mut sources.runs {
                if run.dir().components().count() == 1 && run.dir().is_relative() {
                    *run = Run::open_within(Path::new(".").join(run.dir()), limits.clone())?;
                }
            }
        }
        sources.name_columns(limits);
        Ok(sources)
    }

    fn open_local(&mut self, path: &Path, limits: &ReadLimits) -> Result<(), SourceError> {
        if path.join(ARCHIVE_INDEX).is_file() {
            return self.open_archive(path, limits, DEEPEST);
        }
        match Run::open_within(path, limits.clone()) {
            Ok(run) => self.runs.push(run),
            Err(OpenError::NotARun(_) | OpenError::DirectoryOfRuns { .. }) => self.look(path, limits, DEEPEST)?,
            // A damaged run.json may lie above runs.
            Err(why @ OpenError::NothingReadable { .. }) => {
                let before = self.found();
                self.look(path, limits, DEEPEST)?;
                if before == self.found() {
                    return Err(why.into());
                }
                self.left_out.push(LeftOut::new(path.display().to_string(), why.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// An archive, and runs that lie in its folder: where programs write into a folder that is its own archive.
    fn open_archive(&mut self, root: &Path, limits: &ReadLimits, depth: usize) -> Result<(), SourceError> {
        self.archives.push(Archive::local(root.to_path_buf()));
        self.look(root, limits, depth)
    }

    fn found(&self) -> [usize; 4] {
        [self.runs.len(), self.remote.len(), self.studies.len(), self.archives.len()]
    }

    /// A run that is open already, alone.
    pub fn of(run: Run) -> Self {
        Self { runs: vec![run], ..Self::default() }
    }

    /// The archive in a directory of this machine, alone: without runs that lie beside its tables.
    pub fn of_archive(root: &Path, limits: &ReadLimits) -> Self {
        let mut sources = Self { archives: vec![Archive::local(root.to_path_buf())], ..Self::default() };
        sources.name_columns(limits);
        sources
    }

    /// Runs of folders that cannot be read, and why.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The archives, and all runs that are in none.
    pub fn apart(self) -> (Option<Self>, Option<Self>) {
        let archives = Self { archives: self.archives, index_columns: self.index_columns, ..Self::default() };
        let others = Self { runs: self.runs, remote: self.remote, ..Self::default() };
        let some = |sources: Self| (sources.found() != [0; 4]).then_some(sources);
        (some(archives), some(others))
    }

    /// Names of archives that somebody is changing, or was stopped while changing: rows may be missing.
    pub fn changing_archives(&self) -> impl Iterator<Item = &str> {
        self.archives.iter().filter(|archive| archive.is_changing()).map(|archive| archive.name.as_str())
    }

    /// The archives as they are now.
    pub(super) fn archive_states(&self) -> Vec<ArchiveState> {
        self.archives.iter().map(Archive::state).collect()
    }

    /// Whether there may be more than one run.
    pub(super) fn has_several(&self) -> bool {
        !self.archives.is_empty() || self.runs.len() + self.remote.len() > 1
    }

    /// The runs of this machine that are no part of an archive.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// What opening the runs that are no part of an archive showed of these tables, of which `runs` has what `run.json`
    /// says: files that cannot be read or were not finished. Segments in object stores are opened when they are asked.
    pub fn damage(&self, of: impl Fn(&str) -> bool) -> impl Iterator<Item = &Finding> {
        let local = self.runs.iter().flat_map(|run| run.findings().iter().map(|finding| (run.dir(), finding)));
        let of_stores = self.remote.iter().map(|run| (Path::new(&run.name), &run.findings));
        let remote = of_stores.flat_map(|(dir, findings)| findings.iter().map(move |finding| (dir, finding)));
        let found = local.chain(remote);
        found.filter(move |(dir, finding)| table_of(dir, finding).is_none_or(&of)).map(|(_, finding)| finding)
    }

    /// What stands before the name of a run of this archive: names are only unique within one.
    pub(super) fn prefix(&self, archive: &Archive) -> Option<String> {
        (self.archives.len() > 1).then(|| format!("{}/", archive.name))
    }

    /// The stores that are asked, each once.
    pub(super) fn stores(&self) -> Vec<Store> {
        let mut stores: Vec<Store> = self.remote.iter().map(|run| run.store.clone()).collect();
        stores.extend(self.archives.iter().map(Archive::store).filter(|store| *store != Store::local()));
        stores.sort_by(|a, b| a.url.as_str().cmp(b.url.as_str()));
        stores.dedup();
        stores
    }

    /// Names and descriptions of the runs outside of archives.
    pub(super) fn described(&self) -> Vec<(String, Option<&RunManifest>)> {
        let local = self.runs.iter().map(|run| (run.dir().display().to_string(), run.manifest()));
        local.chain(self.remote.iter().map(|run| (run.name.clone(), run.manifest.as_ref()))).collect()
    }

    /// The directories of the studies.
    pub fn studies(&self) -> &[PathBuf] {
        &self.studies
    }

    /// Columns of the table of studies: all that any of them has. A column that is a whole number in one study and none in
    /// another is a number, and one that is text in some is text.
    pub(super) fn result_columns(&self) -> &[Field] {
        &self.columns
    }

    /// Columns of the indexes of archives, in the same way.
    pub(super) fn index_columns(&self) -> &[Field] {
        &self.index_columns
    }

    fn name_columns(&mut self, limits: &ReadLimits) {
        let studies: Vec<PathBuf> = self.studies.iter().map(|study| study.join(RESULTS_FILE)).collect();
        self.columns = all_columns(studies.iter().filter_map(|file| checked::schema(file, limits).ok()), Some(DIR));
        let mut indexes: Vec<SchemaRef> = Vec::new();
        for archive in &mut self.archives {
            let Some(schema) = schema_of(archive, limits) else { continue };
            archive.columns = schema.fields().iter().map(|field| (**field).clone()).collect();
            indexes.push(schema);
        }
        self.index_columns = all_columns(indexes.into_iter(), None);
    }

    fn look(&mut self, dir: &Path, limits: &ReadLimits, depth: usize) -> Result<(), SourceError> {
        if dir.join(RESULTS_FILE).is_file() {
            self.studies.push(dir.to_path_buf());
        }
        let listed = match std::fs::read_dir(dir) {
            Ok(listed) => listed,
            Err(cause) => {
                let why = OpenError::List { dir: dir.to_path_buf(), cause };
                self.left_out.push(LeftOut::new(dir.display().to_string(), why.to_string()));
                return Ok(());
            }
        };
        let mut inside: Vec<PathBuf> = listed
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .filter(|path| !is_aside(path) && !is_table(dir, path))
            .collect();
        inside.sort();
        for path in inside {
            if path.join(ARCHIVE_INDEX).is_file() {
                self.open_archive(&path, limits, depth.saturating_sub(1))?;
                continue;
            }
            if self.runs.len() >= MOST {
                return Err(SourceError::TooMany(dir.to_path_buf()));
            }
            if !is_run(&path) {
                if depth > 0 {
                    self.look(&path, limits, depth - 1)?;
                }
                continue;
            }
            match Run::open_within(&path, limits.clone()) {
                Ok(run) => self.runs.push(run),
                // Moved or removed meanwhile.
                Err(OpenError::NotFound(_)) => {}
                // A damaged run.json may lie among runs, or above folders that have them, here as well.
                Err(OpenError::DirectoryOfRuns { .. }) if depth > 0 => self.look(&path, limits, depth - 1)?,
                Err(why) => {
                    if depth > 0 && matches!(why, OpenError::NothingReadable { .. }) {
                        self.look(&path, limits, depth - 1)?;
                    }
                    self.left_out.push(LeftOut::new(path.display().to_string(), why.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Whether a path in a folder is a table of the archive that the folder is.
fn is_table(dir: &Path, path: &Path) -> bool {
    let is_named = |kind: RecordKind| path.file_name().is_some_and(|name| name == kind.table());
    RecordKind::ALL.into_iter().any(is_named) && dir.join(ARCHIVE_INDEX).is_file()
}

/// The table that a finding about a run's files is about; `None` where it may be any.
fn table_of<'a>(dir: &Path, finding: &'a Finding) -> Option<&'a str> {
    if let Some(table) = finding.place.get(&Place::Table) {
        return Some(table);
    }
    let inside = Path::new(finding.place.get(&Place::File)?).strip_prefix(dir).ok()?;
    match inside.parent()?.to_str()? {
        "" => Some(RUNS),
        table => Some(table),
    }
}

/// Columns of an archive's index. What cannot be read has none: that is told when its rows are asked for.
fn schema_of(archive: &Archive, limits: &ReadLimits) -> Option<SchemaRef> {
    match archive.index().first()? {
        LocatedFile::Local(path) => checked::schema(path, limits).ok(),
        LocatedFile::Remote(index) => remote::schema(&archive.store(), index),
    }
}

/// Columns that any of these files has, but for one that means something else. What cannot be read has none: that is told
/// when its rows are asked for.
fn all_columns(schemas: impl Iterator<Item = SchemaRef>, but: Option<&str>) -> Vec<Field> {
    let (mut columns, mut known): (Vec<Field>, HashMap<String, usize>) = Default::default();
    for schema in schemas {
        for field in schema.fields().iter().filter(|field| !field.data_type().is_nested()) {
            let lower = field.name().to_ascii_lowercase();
            if but == Some(lower.as_str()) {
                continue;
            }
            let at = *known.entry(lower).or_insert_with(|| {
                columns.push(Field::new(field.name(), plain(field.data_type()), true));
                columns.len() - 1
            });
            let both = wider(columns[at].data_type(), &plain(field.data_type()));
            columns[at].set_data_type(both);
        }
    }
    columns
}

/// The type that a column of a study has in a table.
fn plain(kind: &DataType) -> DataType {
    match kind {
        DataType::Boolean => DataType::Boolean,
        kind if kind.is_integer() => DataType::Int64,
        kind if kind.is_floating() => DataType::Float64,
        _ => DataType::Utf8View,
    }
}

fn wider(a: &DataType, b: &DataType) -> DataType {
    match (a, b) {
        (a, b) if a == b => a.clone(),
        (a, b) if a.is_numeric() && b.is_numeric() => DataType::Float64,
        _ => DataType::Utf8View,
    }
}
