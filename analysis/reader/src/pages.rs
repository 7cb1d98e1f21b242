//! Checks the pages of a segment before they are decompressed: their sizes decide whether they are decoded, and how
//! many rows at a time.
//!
//! The sizes in the footer are not used, because a crafted file can claim anything there. The decoder reserves the
//! sizes in front of each page, and fails if a page turns out to be of another size; so these sizes bound its memory.

use super::footer::{Refusal, guarded};
use super::structs::{DATA_PAGE_HEADER, DATA_PAGE_HEADER_V2, DICTIONARY_PAGE_HEADER, Fields, PAGE_HEADER};
use super::thrift::{Thrift, nonsense};
use crate::limits::{Limit, ReadLimits};
use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

/// Target for the bytes of texts that one batch of one column holds beside whole pages.
const TEXT_BYTES: u64 = 16 << 20;

/// Encodings of texts whose pages contain counts of their own, by their numbers in the format.
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;

/// The parts of a page's header that are needed.
#[derive(Debug, Default)]
struct Header {
    kind: i64,
    uncompressed: i64,
    compressed: i64,
    /// Values and their encoding, from the header's parts for a dictionary and for both versions of data pages.
    dictionary: (i64, i64),
    data: (i64, i64),
    data_v2: (i64, i64),
    /// Bytes of the header itself.
    length: u64,
}

const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// Decompressed bytes that any file may have, whatever its size.
const SMALL: u64 = 256 << 20;

/// What is known about the pages of one column of a row group.
#[derive(Debug, Default)]
struct Column {
    dictionary: u64,
    page: u64,
    /// Most bytes of texts for each row.
    bytes_a_row: u64,
    delta: bool,
    /// Bytes of all pages.
    all: u64,
}

/// How many rows, at most `rows`, can be decoded at a time within the memory limits.
///
/// # Errors
/// If the pages held at once exceed their limit, or make no sense.
pub(super) fn rows_at_a_time(
    file: &File,
    metadata: &Arc<ParquetMetaData>,
    wanted: &[usize],
    limits: &ReadLimits,
    rows: usize,
) -> Result<usize, Refusal> {
    let length = file.metadata()?.len();
    let mut rows = rows as u64;
    let (mut all, mut claimed) = (0u64, 0u64);
    for group in metadata.row_groups() {
        let mut held = 0u64;
        for &leaf in wanted {
            let Some(chunk) = group.columns().get(leaf) else {
                return Err(Refusal::Damaged("a row group lacks a column".to_string()));
            };
            // Each byte of the file may belong to one column of one row group only; otherwise a few pages could be
            // claimed and read many times.
            claimed = claimed.saturating_add(u64::try_from(chunk.compressed_size()).unwrap_or(u64::MAX));
            if claimed > length {
                let why = format!("its columns claim more than its {length} bytes: row groups share some");
                return Err(Refusal::Damaged(why));
            }
            let column = column(file, length, chunk)?;
            held = held.saturating_add(column.dictionary).saturating_add(column.page);
            rows = rows.min((TEXT_BYTES / column.bytes_a_row.max(1)).max(1));
            limits.check(Limit::PageBytes, held)?;
            all = all.saturating_add(column.all);
            limits.check(Limit::Expansion, all.saturating_sub(SMALL).div_ceil(length.max(1)))?;
            if column.delta {
                check_counts(file, chunk, group.num_rows())?;
            }
        }
    }
    Ok(rows as usize)
}

/// Walks over the page headers of one column of a row group.
fn column(file: &File, length: u64, chunk: &ColumnChunkMetaData) -> Result<Column, Refusal> {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let (start, size) = (u64::try_from(start).ok(), u64::try_from(chunk.compressed_size()).ok());
    let end = start.zip(size).and_then(|(start, size)| start.checked_add(size)).filter(|end| *end <= length);
    let (Some(mut at), Some(end)) = (start, end) else {
        return Err(Refusal::Damaged("a column lies beyond the file's end".to_string()));
    };
    let mut found = Column::default();
    while at < end {
        let header = header_at(file, at, end - at)?;
        let (values, encoding) = match header.kind {
            DATA => header.data,
            DATA_V2 => header.data_v2,
            _ => header.dictionary,
        };
        let size = |n: i64| u64::try_from(n).map_err(|_| nonsense("a page has a negative size"));
        let (bytes, compressed, values) = (size(header.uncompressed)?, size(header.compressed)?, size(values)?);
        let next = at.checked_add(header.length).and_then(|at| at.checked_add(compressed)).filter(|at| *at <= end);
        at = next.ok_or_else(|| nonsense("a page lies beyond its column's end"))?;
        // An uncompressed page is as large as it is on disk, whatever it claims.
        let held = bytes.max(compressed);
        found.all = found.all.saturating_add(held).saturating_add(header.length);
        match header.kind {
            DICTIONARY => {
                if values > bytes {
                    return Err(nonsense("a dictionary claims more values than it has bytes").into());
                }
                // The values, and for each one a view of 16 bytes or a number of 8.
                found.dictionary = found.dictionary.max(held.saturating_add(values.saturating_mul(16)));
            }
            DATA | DATA_V2 => {
                found.page = found.page.max(held);
                let is_delta = matches!(encoding, DELTA_LENGTH_BYTE_ARRAY | DELTA_BYTE_ARRAY);
                found.delta |= is_delta && chunk.column_type() == PhysicalType::BYTE_ARRAY;
                let each = match encoding {
                    // Each text may repeat the whole text before it.
                    DELTA_BYTE_ARRAY => held,
                    _ => held / values.max(1),
                };
                if chunk.column_type() == PhysicalType::BYTE_ARRAY {
                    found.bytes_a_row = found.bytes_a_row.max(each);
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn header_at(mut file: &File, at: u64, most: u64) -> io::Result<Header> {
    file.seek(SeekFrom::Start(at))?;
    // Most headers take about 30 bytes.
    let mut input = Thrift::new(BufReader::with_capacity(256, file.take(most)), most);
    let mut header = Header::default();
    let mut last = 0;
    while let Some(field) = input.field(PAGE_HEADER, &mut last)? {
        match field.id {
            1 => header.kind = input.int32()?,
            2 => header.uncompressed = input.int32()?,
            3 => header.compressed = input.int32()?,
            5 => header.data = values(&mut input, DATA_PAGE_HEADER, 2)?,
            7 => header.dictionary = values(&mut input, DICTIONARY_PAGE_HEADER, 2)?,
            8 => header.data_v2 = values(&mut input, DATA_PAGE_HEADER_V2, 4)?,
            _ => input.pass(&field)?,
        }
    }
    header.length = input.position();
    Ok(header)
}

/// How many values a page has, and their encoding, which is in the field `encoding`.
fn values<R: Read>(input: &mut Thrift<R>, fields: &Fields, encoding: i16) -> io::Result<(i64, i64)> {
    let (mut found, mut last) = ((0, 0), 0);
    while let Some(field) = input.field(fields, &mut last)? {
        match field.id {
            1 => found.0 = input.int32()?,
            id if id == encoding => found.1 = input.int32()?,
            _ => input.pass(&field)?,
        }
    }
    Ok(found)
}

/// Pages of texts whose lengths are delta-encoded contain the number of texts in their compressed part, and the decoder
/// reserves memory for that number: so they are decompressed here and checked first.
fn check_counts(file: &File, chunk: &ColumnChunkMetaData, rows: i64) -> Result<(), Refusal> {
    let optional = chunk.column_descr().max_def_level() > 0;
    let file = Arc::new(file.try_clone()?);
    guarded("one of its pages", || {
        let rows = usize::try_from(rows).unwrap_or(0);
        let mut pages = SerializedPageReader::new(file, chunk, rows, None)?;
        while let Some(page) = pages.get_next_page()? {
            let lists = match page.encoding() {
                Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
                Encoding::DELTA_BYTE_ARRAY => 2,
                _ => continue,
            };
            let levels = match &page {
                Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                    u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len)
                }
                _ if optional => levels_of(page.buffer()),
                _ => 0,
            };
            let values = usize::try_from(levels).ok().and_then(|at| page.buffer().get(at..));
            let counted = values.and_then(|mut bytes| {
                (0..lists).try_for_each(|_| pass_differences(&mut bytes, u64::from(page.num_values())))
            });
            if counted.is_none() {
                return Err(Refusal::Damaged("a page claims more texts than it has rows".to_string()));
            }
        }
        Ok(())
    })
}

/// Length of the levels in front of a page's values, which tell which rows have a value.
fn levels_of(page: &[u8]) -> u64 {
    let length = page.first_chunk().map_or(u32::MAX, |length| u32::from_le_bytes(*length));
    4 + u64::from(length)
}

/// Skips delta-encoded numbers, of which there may be `most`. `None` if there are more, or if they cannot be read.
fn pass_differences(bytes: &mut &[u8], most: u64) -> Option<()> {
    let block = varint(bytes)?;
    let parts = varint(bytes)?;
    let count = varint(bytes)?;
    let _first = varint(bytes)?;
    if count > most || parts == 0 || parts > block || block > 1 << 20 || !block.is_multiple_of(parts) {
        return None;
    }
    let in_part = block / parts;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let _smallest = varint(bytes)?;
        let widths = bytes.split_off(..usize::try_from(parts).ok()?)?;
        for width in widths {
            if left > 0 {
                bytes.split_off(..usize::try_from(u64::from(*width) * in_part / 8).ok()?)?;
            }
            left = left.saturating_sub(in_part);
        }
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ArrowReaderMetadata;

    #[test]
    fn row_groups_do_not_share_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..4096).map(|i| i * i * 7919)));
        let rows = RecordBatch::try_from_iter([("a", numbers)]).unwrap();
        let mut writer = ArrowWriter::try_new(&mut file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let found = ArrowReaderMetadata::load(&file, Default::default()).unwrap();
        let limits = ReadLimits::default();
        let with_groups = |count: usize| {
            let group = found.metadata().row_group(0).clone();
            let metadata = ParquetMetaData::new(found.metadata().file_metadata().clone(), vec![group; count]);
            rows_at_a_time(&file, &Arc::new(metadata), &[0], &limits, 1024)
        };
        assert_eq!(with_groups(1).unwrap(), 1024);
        let Err(Refusal::Damaged(why)) = with_groups(3) else { panic!("three groups of the same bytes") };
        assert!(why.contains("row groups share"), "{why}");
    }
}
