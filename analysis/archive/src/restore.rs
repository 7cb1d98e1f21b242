//! Writes a run of an archive back as a directory of its own, which every command reads.

use super::disk::sync_directory;
use super::rolling_writer::RollingWriter;
use super::sums::Sums;
use super::{ArchiveError, days, index, layout, table};
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use candlescope_reader::ReadLimits;
use candlescope_schema::RecordKind;
use candlescope_schema::beside_run::CRASH;
use candlescope_schema::run::MANIFEST_FILE;
use candlescope_sql::{ARCHIVE_ASIDE, Sources, each_batch, fields};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A run that was written back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoredRun {
    /// Its name in the archive.
    pub run: String,
    /// Rows of all its tables.
    pub rows: u64,
}

/// Writes the run that the archive at `root` has under the name `run`, or with this `run_id`, into the directory `to`,
/// which is made. The archive keeps it. What commands had made of the run is not in an archive.
///
/// # Errors
/// When there is no such run, `to` exists, or what was written differs from what the archive has. Then `to` is not
/// made.
pub fn restore(root: &Path, run: &str, to: &Path, limits: &ReadLimits) -> Result<RestoredRun, ArchiveError> {
    let limits = super::of_archiving(limits);
    let Some(index) = index::read(root, &limits)? else { return Err(ArchiveError::NoArchive(root.to_path_buf())) };
    let row = row_of(&index, run, root)?;
    let name = index::texts(&index, layout::RUN)[row].unwrap_or_default().to_string();
    let no_manifest = || ArchiveError::Query(format!("the index has no {MANIFEST_FILE} of `{name}`"));
    let manifest = index::texts(&index, index::MANIFEST)[row].ok_or_else(no_manifest)?;
    if to.symlink_metadata().is_ok() {
        return Err(ArchiveError::Exists(to.to_path_buf()));
    }
    let absolute = std::path::absolute(to).map_err(ArchiveError::at(to))?;
    let (Some(parent), Some(last)) = (absolute.parent(), absolute.file_name()) else {
        return Err(ArchiveError::Exists(to.to_path_buf()));
    };
    fs::create_dir_all(parent).map_err(ArchiveError::at(parent))?;
    // Under a name that nobody takes for a run's, so that nobody finds half of one.
    let mut aside = std::ffi::OsString::from(".");
    aside.push(last);
    aside.push(format!(".{:x}{ARCHIVE_ASIDE}", std::process::id()));
    let aside = parent.join(aside);
    fs::create_dir(&aside).map_err(ArchiveError::at(&aside))?;
    let restored = || -> Result<RestoredRun, ArchiveError> {
        let started = index::numbers(&index, "started_ns")[row].unwrap_or_default();
        let host = index::texts(&index, "host")[row].unwrap_or_default();
        let sources = Sources::of_archive(root, &limits);
        let mut rows = 0;
        for kind in RecordKind::ALL {
            let partition = root.join(layout::partition(kind, started, host));
            rows += write_table(&sources, &name, kind, &partition, &aside, &limits)?;
        }
        let file = |name: &str, text: &str| {
            let path = aside.join(name);
            candlescope_schema::files::write_whole(&path, |out| io::Write::write_all(out, text.as_bytes()))
                .map_err(ArchiveError::at(&path))
        };
        if let Some(crash) = index::texts(&index, index::CRASH_REPORT)[row] {
            file(CRASH, crash)?;
        }
        file(MANIFEST_FILE, manifest)?;
        fs::rename(&aside, &absolute).map_err(ArchiveError::at(&absolute))?;
        sync_directory(parent).map_err(ArchiveError::at(parent))?;
        Ok(RestoredRun { run: name.clone(), rows })
    };
    restored().inspect_err(|_| {
        // It was made here.
        let _ = fs::remove_dir_all(&aside);
    })
}

/// The row of a run by its name, or by its `run_id` if no other has that.
fn row_of(index: &RecordBatch, run: &str, root: &Path) -> Result<usize, ArchiveError> {
    let names = index::texts(index, layout::RUN);
    if let Some(row) = names.iter().position(|name| *name == Some(run)) {
        return Ok(row);
    }
    let ids = index::texts(index, "run_id");
    let with_id: Vec<usize> = (0..ids.len()).filter(|row| ids[*row] == Some(run)).collect();
    match with_id[..] {
        [row] => Ok(row),
        [] => Err(ArchiveError::NoRun(run.to_string(), root.to_path_buf())),
        _ => {
            let named: Vec<&str> = with_id.iter().filter_map(|row| names[*row]).collect();
            Err(ArchiveError::SeveralRuns(run.to_string(), named.join(", ")))
        }
    }
}

/// Writes a table of a run, and holds it against what the archive has; how many rows it has.
fn write_table(
    sources: &Sources,
    run: &str,
    kind: RecordKind,
    partition: &Path,
    to: &Path,
    limits: &ReadLimits,
) -> Result<u64, ArchiveError> {
    let schema: SchemaRef = Arc::new(Schema::new(fields(kind).collect::<Vec<_>>()));
    let names: Vec<String> = schema.fields().iter().map(|field| format!("\"{}\"", field.name())).collect();
    let order = table::order_of(kind).map_or_else(String::new, |name| format!(" ORDER BY \"{name}\""));
    let named = run.replace('\'', "''");
    let sql = format!("SELECT {} FROM {} WHERE run = '{named}'{order}", names.join(", "), kind.table());
    let mut segments =
        Segments { folder: to.join(kind.table()), schema, writer: RollingWriter::default(), files: Vec::new() };
    // First, because what cannot be read is named by this, and by the engine of questions not.
    let of_run = table::sums_by_run(days::files_in(partition)?, limits)?;
    each_batch(&sql, sources, limits, &mut |rows| segments.write(&rows))?;
    let files = segments.finish()?;
    let expected = of_run.get(&Some(run.to_string())).cloned().unwrap_or_default();
    let found = table::sums_by_run(files, limits)?.into_values().fold(Sums::default(), |mut all, sums| {
        all.merge(&sums);
        all
    });
    match expected.differs(&found) {
        Some(why) => Err(ArchiveError::Differs { table: kind.table(), run: run.to_string(), why }),
        None => Ok(found.rows),
    }
}

/// Files of a table of a run, while they are written.
struct Segments {
    folder: PathBuf,
    schema: SchemaRef,
    writer: RollingWriter,
    files: Vec<PathBuf>,
}

impl Segments {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), ArchiveError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        // Columns as the table has them, whatever the engine says of nulls.
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), rows.columns().to_vec());
        let rows = rows.map_err(ArchiveError::arrow)?;
        self.writer.write(&rows, || {
            fs::create_dir_all(&self.folder).map_err(ArchiveError::at(&self.folder))?;
            let path = self.folder.join(format!("part-{:05}.parquet", self.files.len()));
            let file = File::create_new(&path).map_err(ArchiveError::at(&path))?;
            self.files.push(path);
            Ok((file, self.folder.clone()))
        })
    }

    fn finish(mut self) -> Result<Vec<PathBuf>, ArchiveError> {
        self.writer.close()?;
        Ok(self.files)
    }
}
