//! The index: a row a run, with what is asked of many runs at once.

use super::ArchiveError;
use super::disk::Disk;
use super::layout::{INDEX, RUN, in_progress};
use super::rolling_writer::settings;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{Field, Schema};
use candlescope_reader::checked::ReadError;
use candlescope_reader::{Limit, ReadLimits, Run, checked};
use candlescope_schema::RecordKind;
use candlescope_schema::beside_run::CRASH;
use candlescope_schema::files::read_limited;
use candlescope_schema::run::{MANIFEST_FILE, RunManifest};
use candlescope_sql::{Sources, SqlValue, query};
use parquet::arrow::ArrowWriter;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The column with `run.json`.
pub(crate) const MANIFEST: &str = "manifest";
/// The column with what is said of a crash, mostly nothing.
pub(crate) const CRASH_REPORT: &str = "crash_report";
/// The most bytes of that.
const MOST_OF_A_CRASH: u64 = 1 << 20;

/// The rows of an index; none before the first run.
pub(crate) fn read(root: &Path, limits: &ReadLimits) -> Result<Option<RecordBatch>, ArchiveError> {
    let path = root.join(INDEX);
    if !path.exists() {
        return Ok(None);
    }
    let mut parts = Vec::new();
    let read = checked::each_batch(&path, limits, &mut |rows| {
        parts.push(rows.clone());
        Ok::<_, ArchiveError>(())
    });
    read.map_err(|error| match error {
        ReadError::File(finding) => ArchiveError::Index(finding.message()),
        ReadError::Other(error) => error,
    })?;
    together(&parts)
}

/// Rows of several versions: a column that one lacks is null there.
pub(crate) fn together(parts: &[RecordBatch]) -> Result<Option<RecordBatch>, ArchiveError> {
    let mut fields: Vec<Arc<Field>> = Vec::new();
    for field in parts.iter().flat_map(|part| part.schema_ref().fields()) {
        if !fields.iter().any(|known| known.name() == field.name()) {
            fields.push(Arc::new(Field::new(field.name(), field.data_type().clone(), true)));
        }
    }
    if fields.is_empty() {
        return Ok(None);
    }
    let rows = parts.iter().map(RecordBatch::num_rows).sum::<usize>();
    let columns = fields.iter().map(|field| {
        let of = |part: &RecordBatch| match part.column_by_name(field.name()) {
            Some(column) if column.data_type() == field.data_type() => Arc::clone(column),
            _ => arrow_array::new_null_array(field.data_type(), part.num_rows()),
        };
        let arrays: Vec<ArrayRef> = parts.iter().map(of).collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        arrow_select::concat::concat(&arrays).map_err(ArchiveError::arrow)
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    debug_assert!(columns.iter().all(|column| column.len() == rows));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map(Some).map_err(ArchiveError::arrow)
}

/// Texts of a column of an index.
pub(crate) fn texts<'a>(index: &'a RecordBatch, name: &str) -> Vec<Option<&'a str>> {
    match index.column_by_name(name).and_then(|column| column.as_string_view_opt()) {
        Some(column) => column.iter().collect(),
        None => vec![None; index.num_rows()],
    }
}

/// Whole numbers of a column of an index.
pub(crate) fn numbers(index: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    match index.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>()) {
        Some(column) => column.iter().collect(),
        None => vec![None; index.num_rows()],
    }
}

/// What makes a run itself: no two have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    run_id: String,
    host: String,
    rank: i64,
    started_ns: i64,
}

impl Identity {
    /// That of a run.
    pub(crate) fn of(manifest: &RunManifest) -> Self {
        let (run_id, host) = (manifest.run_id.clone(), manifest.host.clone());
        Self { run_id, host, rank: manifest.rank.into(), started_ns: manifest.started_ns }
    }

    /// That of the run in a directory; none where its description cannot be read.
    pub(crate) fn at(dir: &Path, limits: &ReadLimits) -> Option<Self> {
        let bytes = read_limited(&dir.join(MANIFEST_FILE), limits.get(Limit::ManifestBytes)).ok()?;
        serde_json::from_slice(&bytes).ok().map(|manifest| Self::of(&manifest))
    }

    /// Those of the rows of an index.
    pub(crate) fn all(index: &RecordBatch) -> Vec<Self> {
        let (ids, hosts) = (texts(index, "run_id"), texts(index, "host"));
        let (ranks, starts) = (numbers(index, "rank"), numbers(index, "started_ns"));
        let text = |text: Option<&str>| text.unwrap_or_default().to_string();
        let row = |row: usize| Self {
            run_id: text(ids[row]),
            host: text(hosts[row]),
            rank: ranks[row].unwrap_or_default(),
            started_ns: starts[row].unwrap_or_default(),
        };
        (0..index.num_rows()).map(row).collect()
    }
}

/// The row of a run, the only one of these sources, that is archived as `name`.
pub(crate) fn row(
    alone: &Sources,
    name: &str,
    findings: Option<String>,
    now_ns: i64,
    limits: &ReadLimits,
) -> Result<RecordBatch, ArchiveError> {
    let run = &alone.runs()[0];
    let facts = candlescope_sql::facts(alone).map_err(ArchiveError::arrow)?;
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    for (field, column) in facts.schema_ref().fields().iter().zip(facts.columns()) {
        let is_name = field.name() == RUN;
        columns.push((field.name().clone(), if is_name { text(Some(name)) } else { Arc::clone(column) }));
    }
    columns.push(("source".into(), text(run.dir().to_str())));
    columns.push(("archived_ns".into(), Arc::new(Int64Array::from(vec![now_ns]))));
    columns.push(("findings".into(), text(findings.as_deref())));
    // As it was written: with what this version does not know of it.
    let manifest = read_limited(&run.dir().join(MANIFEST_FILE), limits.get(Limit::ManifestBytes))
        .map_err(ArchiveError::at(&run.dir().join(MANIFEST_FILE)))?;
    columns.push((MANIFEST.into(), text(std::str::from_utf8(&manifest).ok())));
    // Nothing makes it again.
    let crash = read_limited(&run.dir().join(CRASH), MOST_OF_A_CRASH).ok();
    columns.push((CRASH_REPORT.into(), text(crash.as_deref().and_then(|text| std::str::from_utf8(text).ok()))));
    for kind in RecordKind::ALL {
        let rows = i64::try_from(run.rows(kind)).ok();
        columns.push((format!("rows_{}", kind.table()), Arc::new(Int64Array::from(vec![rows]))));
    }
    let answer = query("SELECT * FROM headlines", alone, limits, 0);
    let answer = answer.map_err(|error| ArchiveError::Query(error.to_string()))?;
    for (at, name) in answer.columns.iter().enumerate().filter(|(_, name)| *name != RUN) {
        let value = match answer.rows.first().and_then(|row| row.get(at)) {
            Some(SqlValue::Int(value)) => Some(*value as f64),
            Some(SqlValue::Float(value)) => Some(*value),
            _ => None,
        };
        columns.push((name.clone(), Arc::new(Float64Array::from(vec![value]))));
    }
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(name, column.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(ArchiveError::arrow)
}

/// The description that the index has of a run.
pub(crate) fn manifest(index: &RecordBatch, name: &str) -> Option<Value> {
    let at = texts(index, RUN).iter().position(|of| *of == Some(name))?;
    described(texts(index, MANIFEST)[at]?)
}

/// The description of a run now.
pub(crate) fn description(run: &Run) -> Option<Value> {
    described(&std::fs::read_to_string(run.dir().join(MANIFEST_FILE)).ok()?)
}

/// What of a description makes a run: indexes of older versions have no more.
fn described(text: &str) -> Option<Value> {
    serde_json::to_value(serde_json::from_str::<RunManifest>(text).ok()?).ok()
}

fn text(text: Option<&str>) -> ArrayRef {
    Arc::new(StringViewArray::from(vec![text]))
}

/// A name for a run that none of these has.
pub(crate) fn name(run: &Run, taken: &BTreeSet<String>) -> String {
    let manifest = run.manifest();
    let id = manifest.map(|manifest| manifest.run_id.clone()).filter(|id| !id.is_empty());
    let id = id.unwrap_or_else(|| run.dir().file_name().unwrap_or_default().to_string_lossy().into_owned());
    // Separators are what tells directories from runs of an archive, and runs of several archives from each other.
    let id = id.replace(['/', '\\'], "_");
    let rank = manifest.map_or(0, |manifest| manifest.rank);
    let first = if rank > 0 { format!("{id}.r{rank}") } else { id };
    let more = (2u32..).map(|n| format!("{first}~{n}"));
    std::iter::once(first.clone()).chain(more).find(|name| !taken.contains(name)).unwrap_or(first)
}

/// Writes an index beside the one that is there, and returns its name below the root.
pub(crate) fn write(root: &Path, index: &RecordBatch, disk: &Disk) -> Result<PathBuf, ArchiveError> {
    let path = in_progress(&root.join(INDEX));
    let file = disk.create(&path).map_err(ArchiveError::at(&path))?;
    let mut writer =
        ArrowWriter::try_new_with_options(file, index.schema(), settings()).map_err(ArchiveError::writing(&path))?;
    writer.write(index).map_err(ArchiveError::writing(&path))?;
    let file = writer.into_inner().map_err(ArchiveError::writing(&path))?;
    file.sync_all().map_err(ArchiveError::at(&path))?;
    Ok(in_progress(Path::new(INDEX)))
}
