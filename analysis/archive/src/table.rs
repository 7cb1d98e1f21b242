//! Writes rows of one table, day and host into files of a good size.

use super::ArchiveError;
use super::disk::{Disk, sync_directory};
use super::layout::{RUN, in_progress};
use super::rolling_writer::RollingWriter;
use super::sums::Sums;
use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use candlescope_reader::{ReadLimits, checked};
use candlescope_schema::RecordKind;
use candlescope_schema::run::columns;
use candlescope_sql::fields;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The columns of a table in an archive: its run first.
pub(crate) fn schema(kind: RecordKind) -> SchemaRef {
    let run = Field::new(RUN, DataType::Utf8View, false);
    Arc::new(Schema::new(std::iter::once(run).chain(fields(kind)).collect::<Vec<_>>()))
}

/// A column by which rows of a run are in order.
pub(crate) fn order_of(kind: RecordKind) -> Option<&'static str> {
    let times = ["host_start_ns", "time_ns", "gpu_start_ns", "start_ns", "stack"];
    times.into_iter().find(|name| columns(kind).iter().any(|column| column.name == *name))
}

/// Files of one table, day and host, while they are written.
pub(crate) struct Files<'a> {
    disk: &'a Disk,
    root: &'a Path,
    /// Below the root.
    folder: PathBuf,
    /// What distinguishes this change's files.
    change: String,
    schema: SchemaRef,
    writer: RollingWriter,
    written: Vec<PathBuf>,
}

impl<'a> Files<'a> {
    pub(crate) fn new(root: &'a Path, folder: PathBuf, change: String, kind: RecordKind, disk: &'a Disk) -> Self {
        Self { disk, root, folder, change, schema: schema(kind), writer: RollingWriter::default(), written: Vec::new() }
    }

    /// Writes rows of the run `name`; columns that they lack are null.
    pub(crate) fn write(&mut self, name: &str, rows: &RecordBatch) -> Result<(), ArchiveError> {
        let count = rows.num_rows();
        let run: ArrayRef = Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(name, count)));
        self.write_columns(rows, Some(run))
    }

    /// The same with rows that say which run they are of.
    pub(crate) fn copy(&mut self, rows: &RecordBatch) -> Result<(), ArchiveError> {
        self.write_columns(rows, None)
    }

    fn write_columns(&mut self, rows: &RecordBatch, run: Option<ArrayRef>) -> Result<(), ArchiveError> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let column = |field: &Arc<Field>| -> Result<ArrayRef, ArchiveError> {
            if let (RUN, Some(run)) = (field.name().as_str(), &run) {
                return Ok(Arc::clone(run));
            }
            match rows.column_by_name(field.name()) {
                Some(column) if column.data_type() == field.data_type() => Ok(Arc::clone(column)),
                Some(column) => Err(ArchiveError::Kind(format!("{} of `{}`", column.data_type(), field.name()))),
                None => Ok(arrow_array::new_null_array(field.data_type(), rows.num_rows())),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(ArchiveError::arrow)?;
        self.writer.write(&rows, || {
            let folder = self.root.join(&self.folder);
            self.disk.make_directory(&folder).map_err(ArchiveError::at(&folder))?;
            let path = self.folder.join(format!("runs-{}-{:04}.parquet", self.change, self.written.len()));
            let whole = self.root.join(&path);
            let beside = in_progress(&whole);
            let file = self.disk.create(&beside).map_err(ArchiveError::at(&beside))?;
            self.written.push(path);
            Ok((file, whole))
        })
    }

    /// The files, below the root, under the names that they will have.
    pub(crate) fn finish(mut self) -> Result<Vec<PathBuf>, ArchiveError> {
        self.writer.close()?;
        if !self.written.is_empty() {
            let folder = self.root.join(&self.folder);
            sync_directory(&folder).map_err(ArchiveError::at(&folder))?;
        }
        Ok(self.written)
    }
}

/// Whether a file of an archive has no columns but those that this version knows, of the types that it knows.
pub(crate) fn is_of_this_version(path: &Path, kind: RecordKind, limits: &ReadLimits) -> Result<bool, ArchiveError> {
    let (known, found) = (schema(kind), checked::schema(path, limits));
    let found = found.map_err(|finding| ArchiveError::Damaged(finding.message()))?;
    let is_known = |field: &Arc<Field>| {
        known.field_with_name(field.name()).is_ok_and(|known| known.data_type() == field.data_type())
    };
    Ok(found.fields().iter().all(is_known))
}

/// Sums of files by run; `None` where the files do not say the run.
pub(crate) fn sums_by_run(
    files: impl IntoIterator<Item = PathBuf>,
    limits: &ReadLimits,
) -> Result<BTreeMap<Option<String>, Sums>, ArchiveError> {
    let mut sums: BTreeMap<Option<String>, Sums> = BTreeMap::new();
    for file in files {
        checked::each_batch(&file, limits, &mut |rows| {
            for (run, part) in parts_by_run(rows) {
                sums.entry(run).or_default().add(&part)?;
            }
            Ok(())
        })?;
    }
    Ok(sums)
}

/// Rows in stretches of one run.
fn parts_by_run(rows: &RecordBatch) -> Vec<(Option<String>, RecordBatch)> {
    use arrow_array::cast::AsArray;
    let Some(names) = rows.column_by_name(RUN).and_then(|names| names.as_string_view_opt()) else {
        return vec![(None, rows.clone())];
    };
    let (mut parts, mut begin) = (Vec::new(), 0);
    while begin < rows.num_rows() {
        let name = names.value(begin);
        let length = (begin..rows.num_rows()).take_while(|row| names.value(*row) == name).count();
        parts.push((Some(name.to_string()), rows.slice(begin, length)));
        begin += length;
    }
    parts
}
