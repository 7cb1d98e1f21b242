//! Writes a column in memory as a column chunk of a row group.
//!
//! Varied numbers go through the library's typed writers (delta encoding). Columns of keys are written here, page by
//! page: the keys are known, so nothing is hashed, and a constant column takes a few bytes.

use super::column::{KeyColumn, Keys, NULL, Presence, ValueColumn};
use super::hybrid;
use parquet::basic::{Compression, Encoding, EncodingMask, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::borrow::Cow;
use std::io::Write;

/// One column of a row group, ready to be written.
pub(in crate::parquet) enum ColumnData<'a> {
    /// Keys into texts, which become the column's dictionary.
    Text(KeySource<'a>, Vec<Cow<'a, str>>),
    /// Keys into 32-bit integers.
    Int32(KeySource<'a>, Vec<i32>),
    /// Keys into 64-bit integers.
    Int64Keys(&'a KeyColumn, &'a [i64]),
    /// 64-bit integers, value by value: delta-encoded.
    Int64(&'a ValueColumn<i64>),
    /// 64-bit floats, value by value, without an encoding of their own.
    Float64(&'a ValueColumn<f64>),
}

/// Keys that are stored, or made when needed.
pub(in crate::parquet) enum KeySource<'a> {
    Kept(&'a KeyColumn),
    Made(KeyColumn),
}

impl KeySource<'_> {
    fn column(&self) -> &KeyColumn {
        match self {
            KeySource::Kept(column) => column,
            KeySource::Made(column) => column,
        }
    }
}

/// With more distinct values, a dictionary of integers is larger than delta-encoded integers.
const MAX_INT_DICTIONARY: usize = 1 << 14;

/// Values of an unsigned count as the signed integers of the file.
#[inline]
pub(in crate::parquet) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Writes column chunks. Keeps its compression context and buffers.
pub(in crate::parquet) struct ChunkWriter {
    zstd: zstd::bulk::Compressor<'static>,
    level: ZstdLevel,
    page: Vec<u8>,
    scratch: Vec<u32>,
}

impl ChunkWriter {
    pub(in crate::parquet) fn new(level: i32) -> Result<Self> {
        Ok(Self {
            zstd: zstd::bulk::Compressor::new(level)?,
            level: ZstdLevel::try_new(level)?,
            page: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Writes one column as the next one of `group`.
    pub(in crate::parquet) fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        descr: &ColumnDescPtr,
        data: ColumnData<'_>,
    ) -> Result<()> {
        match data {
            ColumnData::Text(keys, values) => {
                let mut dictionary = Vec::new();
                for value in &values {
                    dictionary.extend_from_slice(&(value.len() as u32).to_le_bytes());
                    dictionary.extend_from_slice(value.as_bytes());
                }
                let bound = |v: Option<&Cow<'_, str>>| v.map(|v| v.as_ref().into());
                let (min, max) = (bound(values.iter().min()), bound(values.iter().max()));
                self.write_keys(group, descr, keys.column(), &dictionary, values.len(), |nulls| {
                    Statistics::byte_array(min, max, None, Some(nulls), false)
                })
            }
            ColumnData::Int32(keys, values) => {
                let dictionary: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let (min, max) = (values.iter().min().copied(), values.iter().max().copied());
                self.write_keys(group, descr, keys.column(), &dictionary, values.len(), |nulls| {
                    Statistics::int32(min, max, None, Some(nulls), false)
                })
            }
            ColumnData::Int64Keys(keys, values) if values.len() > MAX_INT_DICTIONARY => {
                let mut plain = ValueColumn::default();
                match keys.keys() {
                    Keys::Uniform(key, len) => (0..len).for_each(|_| plain.push_opt(values.get(key as usize).copied())),
                    Keys::Mixed(keys) => keys.iter().for_each(|k| plain.push_opt(values.get(*k as usize).copied())),
                }
                self.write_values::<Int64Type, W>(group, descr, &plain)
            }
            ColumnData::Int64Keys(keys, values) => {
                let dictionary: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let (min, max) = (values.iter().min().copied(), values.iter().max().copied());
                self.write_keys(group, descr, keys, &dictionary, values.len(), |nulls| {
                    Statistics::int64(min, max, None, Some(nulls), false)
                })
            }
            ColumnData::Int64(column) => self.write_values::<Int64Type, W>(group, descr, column),
            ColumnData::Float64(column) => self.write_values::<DoubleType, W>(group, descr, column),
        }
    }

    /// Values through the library's writer, which applies the encoding the properties name.
    fn write_values<D: DataType, W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        descr: &ColumnDescPtr,
        column: &ValueColumn<D::T>,
    ) -> Result<()>
    where
        D::T: Copy,
    {
        const STRIDE: usize = 8192;
        static ONES: [i16; STRIDE] = [1; STRIDE];
        let nullable = descr.max_def_level() > 0;
        if let (Presence::None, true) = (column.presence(), column.len() > 0) {
            return self.write_nulls(group, descr, column.len());
        }
        let Some(mut writer) = group.next_column()? else {
            return Err(ParquetError::General("more columns than the schema has".to_string()));
        };
        let typed = writer.typed::<D>();
        match column.presence() {
            Presence::Some(levels) => {
                typed.write_batch(column.values(), Some(levels), None)?;
            }
            _ if nullable => {
                for values in column.values().chunks(STRIDE) {
                    typed.write_batch(values, Some(&ONES[..values.len()]), None)?;
                }
            }
            _ => {
                typed.write_batch(column.values(), None, None)?;
            }
        }
        writer.close()
    }

    fn write_nulls<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        descr: &ColumnDescPtr,
        rows: usize,
    ) -> Result<()> {
        self.page.clear();
        put_levels(&mut self.page, |out| hybrid::put_run(out, 0, rows, 1));
        let mut chunk = ChunkBuilder::new(self.level);
        chunk.data_page(&mut self.zstd, &self.page, rows, Encoding::PLAIN)?;
        chunk.append(group, descr, rows, None)
    }

    fn write_keys<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        descr: &ColumnDescPtr,
        column: &KeyColumn,
        dictionary: &[u8],
        entries: usize,
        statistics: impl FnOnce(u64) -> Statistics,
    ) -> Result<()> {
        let nullable = descr.max_def_level() > 0;
        let width = hybrid::bit_width(entries);
        self.page.clear();
        let (rows, nulls) = match column.keys() {
            Keys::Uniform(NULL, rows) if rows > 0 => return self.write_nulls(group, descr, rows),
            Keys::Uniform(key, rows) => {
                if nullable {
                    put_levels(&mut self.page, |out| hybrid::put_run(out, 1, rows, 1));
                }
                self.page.push(width);
                hybrid::put_run(&mut self.page, key, rows, width);
                (rows, 0)
            }
            Keys::Mixed(keys) => {
                let nulls = if nullable { keys.iter().filter(|k| **k == NULL).count() } else { 0 };
                if nullable {
                    let levels = &mut self.scratch;
                    levels.clear();
                    levels.extend(keys.iter().map(|k| u32::from(*k != NULL)));
                    put_levels(&mut self.page, |out| hybrid::put_values(out, levels, 1));
                }
                self.page.push(width);
                if nulls == 0 {
                    hybrid::put_values(&mut self.page, keys, width);
                } else {
                    self.scratch.clear();
                    self.scratch.extend(keys.iter().filter(|k| **k != NULL));
                    hybrid::put_values(&mut self.page, &self.scratch, width);
                }
                (keys.len(), nulls)
            }
        };
        let mut chunk = ChunkBuilder::new(self.level);
        chunk.dictionary_page(&mut self.zstd, dictionary, entries)?;
        chunk.data_page(&mut self.zstd, &self.page, rows, Encoding::RLE_DICTIONARY)?;
        chunk.append(group, descr, rows, Some(statistics(nulls as u64)))
    }
}

/// Version 1 data pages begin with the levels and their length in bytes.
fn put_levels(page: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let at = page.len();
    page.extend_from_slice(&[0; 4]);
    put(page);
    let length = (page.len() - at - 4) as u32;
    page[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// Pages of one chunk, in memory until the chunk is spliced into its row group.
struct ChunkBuilder {
    sink: TrackedWrite<Vec<u8>>,
    level: ZstdLevel,
    compressed: i64,
    uncompressed: i64,
    dictionary_at: Option<i64>,
    data_at: i64,
    encoding: Encoding,
}

impl ChunkBuilder {
    fn new(level: ZstdLevel) -> Self {
        Self {
            sink: TrackedWrite::new(Vec::new()),
            level,
            compressed: 0,
            uncompressed: 0,
            dictionary_at: None,
            data_at: 0,
            encoding: Encoding::PLAIN,
        }
    }

    fn dictionary_page(&mut self, zstd: &mut zstd::bulk::Compressor<'_>, body: &[u8], entries: usize) -> Result<()> {
        let page = Page::DictionaryPage {
            buf: zstd.compress(body)?.into(),
            num_values: entries as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        self.dictionary_at = Some(self.page(page, body.len())?);
        Ok(())
    }

    fn data_page(
        &mut self,
        zstd: &mut zstd::bulk::Compressor<'_>,
        body: &[u8],
        rows: usize,
        encoding: Encoding,
    ) -> Result<()> {
        let page = Page::DataPage {
            buf: zstd.compress(body)?.into(),
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        self.data_at = self.page(page, body.len())?;
        self.encoding = encoding;
        Ok(())
    }

    /// Writes the page and returns where it begins.
    fn page(&mut self, page: Page, uncompressed: usize) -> Result<i64> {
        let spec = SerializedPageWriter::new(&mut self.sink).write_page(CompressedPage::new(page, uncompressed))?;
        self.compressed += spec.compressed_size as i64;
        self.uncompressed += spec.uncompressed_size as i64;
        Ok(spec.offset as i64)
    }

    fn append<W: Write + Send>(
        self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        descr: &ColumnDescPtr,
        rows: usize,
        statistics: Option<Statistics>,
    ) -> Result<()> {
        let encodings = [Encoding::RLE, Encoding::PLAIN, self.encoding];
        let mut metadata = ColumnChunkMetaData::builder(descr.clone())
            .set_compression(Compression::ZSTD(self.level))
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_total_compressed_size(self.compressed)
            .set_total_uncompressed_size(self.uncompressed)
            .set_num_values(rows as i64)
            .set_data_page_offset(self.data_at)
            .set_dictionary_page_offset(self.dictionary_at);
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: self.compressed as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        let bytes = bytes::Bytes::from(self.sink.into_inner()?);
        group.append_column(&bytes, close)
    }
}
