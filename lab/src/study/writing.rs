//! Writes a study's tables.

use super::journal::Records;
use super::table::Table;
use super::{Study, StudyError};
use candlescope_core::files::write_whole;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::json;
use std::io;
use std::path::Path;

/// Writes `results.parquet`, `results.csv` and `results.json`.
pub(super) fn write_tables(study: &Study, table: &Table, records: &Records) -> Result<(), StudyError> {
    let path = study.dir().join("results.parquet");
    parquet(&path, table).map_err(|cause| StudyError::Write { path, cause })?;
    study.write("results.csv", table.csv().as_bytes())?;
    let object = json!({
        "study": study.manifest().study,
        "state": study.manifest().state,
        "damaged_lines": records.damaged,
        "rows": table.json(),
    });
    study.write("results.json", object.to_string().as_bytes()).map(drop)
}

fn parquet(path: &Path, table: &Table) -> io::Result<()> {
    let batch = table.arrow().map_err(io::Error::other)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    write_whole(path, |file| {
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).map_err(io::Error::other)?;
        writer.write(&batch).map_err(io::Error::other)?;
        writer.close().map(drop).map_err(io::Error::other)
    })
}
