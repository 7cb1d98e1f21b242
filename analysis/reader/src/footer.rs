//! Opens a Parquet file of unknown origin: the claims of its footer are checked against limits before it is decoded.
//!
//! The decoder reserves memory for as many row groups or columns as a list claims to hold, and follows the schema's
//! nesting by recursion. A few bytes with a false claim could end the process in a way that catching panics does not
//! prevent.

use super::structs::{FILE_META_DATA, Kind, SCHEMA_ELEMENT};
use super::thrift::{Thrift, nonsense};
use crate::limits::{ExceededLimit, Limit, ReadLimits};
use arrow_schema::{DataType, Field, Schema};
use candlescope_schema::caught::caught;
use candlescope_schema::files::open_regular;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// Most nested groups in a schema. A run's tables are flat.
const MOST_DEEP: usize = 64;

/// Why a segment is not read.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is not a Parquet file, or a damaged one.
    Damaged(String),
    /// A limit was met.
    Limit(ExceededLimit),
}

impl From<ExceededLimit> for Refusal {
    fn from(exceeded: ExceededLimit) -> Self {
        Self::Limit(exceeded)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl From<parquet::errors::ParquetError> for Refusal {
    fn from(error: parquet::errors::ParquetError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Runs a decoder that may panic on crafted input: a report must survive any file.
pub(super) fn guarded<T>(what: &str, f: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    caught(f).unwrap_or_else(|_| Err(Refusal::Damaged(format!("{what} makes no sense"))))
}

/// The file and its metadata. Texts are read as views into their pages: a row that repeats a long text of the
/// dictionary then costs 16 bytes, not the text.
pub(super) fn open(path: &Path, limits: &ReadLimits) -> Result<(File, ArrowReaderMetadata), Refusal> {
    let mut file = open_regular(path)?;
    check(&mut file, limits)?;
    guarded("its footer", || {
        // The file may also contain the writer's Arrow schema, which adds nothing to that of the columns.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let found = ArrowReaderMetadata::load(&file, options.clone())?;
        let fields = found.schema().fields().iter().map(|field| viewed(field)).collect::<Vec<_>>();
        let metadata = ArrowReaderMetadata::try_new(
            Arc::clone(found.metadata()),
            options.with_schema(Arc::new(Schema::new(fields))),
        )?;
        Ok((file, metadata))
    })
}

fn viewed(field: &Field) -> Field {
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => field.clone().with_data_type(DataType::Utf8View),
        _ => field.clone(),
    }
}

/// Checks the claims of a footer.
fn check(file: &mut File, limits: &ReadLimits) -> Result<(), Refusal> {
    let length = file.seek(SeekFrom::End(0))?;
    if length < 12 {
        return Err(Refusal::Damaged(format!("it has {length} bytes, less than the smallest Parquet file")));
    }
    let mut tail = [0u8; 8];
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut tail)?;
    let (size, magic) = tail.split_at(4);
    if magic != b"PAR1" {
        return Err(Refusal::Damaged("it does not end as a Parquet file does".to_string()));
    }
    let size = u64::from(u32::from_le_bytes(size.try_into().unwrap_or_default()));
    limits.check(Limit::FooterBytes, size)?;
    if size > length - 8 {
        return Err(Refusal::Damaged(format!("its footer claims {size} bytes of a file of {length}")));
    }
    file.seek(SeekFrom::Start(length - 8 - size))?;
    let mut footer = Thrift::new(BufReader::new(file.take(size)), size);
    let mut last = 0;
    while let Some(field) = footer.field(FILE_META_DATA, &mut last)? {
        match field.id {
            2 => schema(&mut footer, limits)?,
            // The number of row groups, for which the decoder reserves memory, is checked on the way.
            _ => footer.pass(&field)?,
        }
    }
    Ok(())
}

/// The schema is a tree written as a list: each element says how many of the following are its children.
fn schema<R: Read>(footer: &mut Thrift<R>, limits: &ReadLimits) -> Result<(), Refusal> {
    let elements = footer.list_of(Kind::Struct(SCHEMA_ELEMENT))?;
    limits.check(Limit::Columns, elements)?;
    // Children that are still to come, for each enclosing group.
    let mut groups: Vec<u64> = Vec::new();
    for element in 0..elements {
        let mut children = 0;
        let mut last = 0;
        while let Some(field) = footer.field(SCHEMA_ELEMENT, &mut last)? {
            match field.id {
                5 => children = u64::try_from(footer.int32()?).unwrap_or(u64::MAX),
                _ => footer.pass(&field)?,
            }
        }
        if children > elements - element - 1 || groups.len() > MOST_DEEP {
            return Err(nonsense("its schema claims more columns than it has").into());
        }
        while groups.pop_if(|left| *left == 0).is_some() {}
        if let Some(left) = groups.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            groups.push(children);
        }
    }
    Ok(())
}
