//! Typed access to the columns of a record batch, whatever their encoding.
//!
//! Strings may be plain or dictionary-encoded, integers of any width: DuckDB, Polars and Spark write types of their own
//! when they copy a run, and such a copy is still a run.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Schema, TimeUnit};
use candlescope_schema::HostNs;
use candlescope_schema::run::{Column, ColumnType};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// The columns that keep a file with `schema` from being a table with `columns`: names of absent or mistyped ones.
/// Empty if it is such a table.
///
/// A nullable column may be absent altogether: its values are then unknown, which is what null means.
pub(super) fn missing_columns(schema: &Schema, columns: &[Column]) -> Vec<String> {
    let mut wrong = Vec::new();
    for column in columns {
        match schema.field_with_name(column.name) {
            Err(_) if column.nullable => {}
            Err(_) => wrong.push(format!("no column `{}`", column.name)),
            Ok(field) if !readable(field.data_type(), column.kind) => {
                wrong.push(format!("column `{}` has type {}", column.name, field.data_type()));
            }
            Ok(_) => {}
        }
    }
    let more = wrong.len().saturating_sub(4);
    if more > 0 {
        wrong.truncate(4);
        wrong.push(format!("and {more} more"));
    }
    wrong
}

fn readable(found: &DataType, wanted: ColumnType) -> bool {
    match wanted {
        ColumnType::Int64 | ColumnType::Int32 => {
            found.is_integer() || matches!(found, DataType::Null | DataType::Timestamp(TimeUnit::Nanosecond, _))
        }
        ColumnType::Float64 => {
            matches!(found, DataType::Float64 | DataType::Float32 | DataType::Null) || found.is_integer()
        }
        ColumnType::Utf8 => match found {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => true,
            DataType::Dictionary(_, values) => {
                matches!(**values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
            }
            _ => false,
        },
    }
}

/// An integer column. The types that our own writer uses are read where they lie.
pub(super) enum IntColumn {
    Wide(Int64Array),
    Narrow(Int32Array),
    Other(Vec<Option<i64>>),
    Absent,
}

impl IntColumn {
    /// The column `name`; all null where the batch has none.
    pub(super) fn of(batch: &RecordBatch, name: &str) -> Self {
        let Some(array) = batch.column_by_name(name) else { return Self::Absent };
        macro_rules! widen {
            ($t:ty) => {
                Self::Other(array.as_primitive::<$t>().iter().map(|v| v.and_then(|v| i64::try_from(v).ok())).collect())
            };
        }
        match array.data_type() {
            DataType::Int64 => Self::Wide(array.as_primitive::<Int64Type>().clone()),
            DataType::Int32 => Self::Narrow(array.as_primitive::<Int32Type>().clone()),
            DataType::Int16 => widen!(Int16Type),
            DataType::Int8 => widen!(Int8Type),
            DataType::UInt64 => widen!(UInt64Type),
            DataType::UInt32 => widen!(UInt32Type),
            DataType::UInt16 => widen!(UInt16Type),
            DataType::UInt8 => widen!(UInt8Type),
            DataType::Boolean => Self::Other(array.as_boolean().iter().map(|v| v.map(i64::from)).collect()),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => {
                Self::Other(array.as_primitive::<arrow_array::types::TimestampNanosecondType>().iter().collect())
            }
            _ => Self::Absent,
        }
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<i64> {
        match self {
            Self::Wide(array) => array.is_valid(row).then(|| array.value(row)),
            Self::Narrow(array) => array.is_valid(row).then(|| i64::from(array.value(row))),
            Self::Other(values) => values[row],
            Self::Absent => None,
        }
    }

    /// The value as an unsigned number; null if it is negative, which counts and durations never are.
    #[inline]
    pub(super) fn unsigned(&self, row: usize) -> Option<u64> {
        self.get(row).and_then(|v| u64::try_from(v).ok())
    }

    /// The value as a small unsigned number; null if it does not fit.
    #[inline]
    pub(super) fn small(&self, row: usize) -> Option<u32> {
        self.get(row).and_then(|v| u32::try_from(v).ok())
    }
}

/// A plausible start and duration: from 1970 on, with an end that fits the type. Otherwise a flipped bit in a page that
/// still decodes would outweigh everything else in the run.
#[inline]
pub(super) fn times(start: i64, dur: u64) -> Option<(HostNs, u64)> {
    let end = start.checked_add(i64::try_from(dur).ok()?)?;
    (start >= 0 && end < LATEST_NS).then_some((HostNs(start), dur))
}

/// A point in time that [`times`] accepts.
#[inline]
pub(super) fn time(at: i64) -> Option<HostNs> {
    times(at, 0).map(|(at, _)| at)
}

/// The year 2200, in Unix nanoseconds.
const LATEST_NS: i64 = 7_258_118_400_000_000_000;

/// A floating-point column.
pub(super) struct FloatColumn(Vec<Option<f64>>);

impl FloatColumn {
    /// The column `name`; all null if the batch has no such column. Infinities and NaN read as null.
    pub(super) fn of(batch: &RecordBatch, name: &str) -> Self {
        let Some(array) = batch.column_by_name(name) else { return Self(vec![None; batch.num_rows()]) };
        let values: Vec<Option<f64>> = match array.data_type() {
            DataType::Float64 => array.as_primitive::<Float64Type>().iter().collect(),
            DataType::Float32 => array.as_primitive::<Float32Type>().iter().map(|v| v.map(f64::from)).collect(),
            _ => {
                let ints = IntColumn::of(batch, name);
                (0..batch.num_rows()).map(|row| ints.get(row).map(|v| v as f64)).collect()
            }
        };
        Self(values.into_iter().map(|v| v.filter(|v| v.is_finite())).collect())
    }

    pub(super) fn get(&self, row: usize) -> Option<f64> {
        self.0[row]
    }
}

/// A string column as indices into a list of distinct values, so that interning is done once per value, not once per
/// row.
pub(super) struct TextColumn {
    ids: Vec<u32>,
    values: Vec<String>,
}

const NULL: u32 = u32::MAX;

/// Views whose numbers are at hand.
const RECENT: usize = 512;

impl TextColumn {
    /// The column `name`; all null where the batch has none.
    pub(super) fn of(batch: &RecordBatch, name: &str) -> Self {
        let rows = batch.num_rows();
        let Some(array) = batch.column_by_name(name) else { return Self { ids: vec![NULL; rows], values: Vec::new() } };
        match array.data_type() {
            DataType::Utf8View => Self::viewed(array.as_string_view()),
            DataType::Dictionary(key, _) => match **key {
                DataType::Int8 => Self::dictionary::<Int8Type>(array),
                DataType::Int16 => Self::dictionary::<Int16Type>(array),
                DataType::Int32 => Self::dictionary::<Int32Type>(array),
                DataType::Int64 => Self::dictionary::<Int64Type>(array),
                DataType::UInt8 => Self::dictionary::<UInt8Type>(array),
                DataType::UInt16 => Self::dictionary::<UInt16Type>(array),
                DataType::UInt32 => Self::dictionary::<UInt32Type>(array),
                _ => Self::dictionary::<UInt64Type>(array),
            },
            _ => Self::plain(plain_values(array)),
        }
    }

    fn dictionary<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Self {
        let array = array.as_dictionary::<K>();
        // A dictionary may repeat a value or hold nulls; going through `plain` numbers distinct values once.
        let values = Self::plain(plain_values(array.values()));
        let ids = (0..array.len()).map(|row| array.key(row).map_or(NULL, |key| values.ids[key])).collect();
        Self { ids, values: values.values }
    }

    /// Rows with the same dictionary entry have the same view, which is cheaper to compare than the text. Most views were
    /// seen shortly before: they are looked up at a place of their own first.
    fn viewed(array: &StringViewArray) -> Self {
        if let ([first, rest @ ..], None) = (&**array.views(), array.nulls())
            && rest.iter().all(|view| view == first)
        {
            return Self { ids: vec![0; array.len()], values: vec![array.value(0).to_string()] };
        }
        let mut recent = [(0u128, NULL); RECENT];
        let mut by_view: FxHashMap<u128, u32> = FxHashMap::default();
        let mut seen: HashMap<&str, u32> = HashMap::new();
        let mut values = Vec::new();
        // Many columns say the same in row after row.
        let mut last = (0u128, NULL);
        let mut number = |row: usize, view: u128| {
            if view == last.0 && last.1 != NULL {
                return last.1;
            }
            let mixed = (view as u64 ^ (view >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let place = &mut recent[(mixed >> 32) as usize % RECENT];
            if place.1 == NULL || place.0 != view {
                let id = *by_view.entry(view).or_insert_with(|| {
                    let text = array.value(row);
                    *seen.entry(text).or_insert_with(|| {
                        values.push(text.to_string());
                        (values.len() - 1) as u32
                    })
                });
                *place = (view, id);
            }
            last = *place;
            place.1
        };
        let views = array.views().iter().enumerate();
        let ids = match array.nulls() {
            None => views.map(|(row, view)| number(row, *view)).collect(),
            Some(nulls) => {
                views.map(|(row, view)| if nulls.is_null(row) { NULL } else { number(row, *view) }).collect()
            }
        };
        Self { ids, values }
    }

    fn plain(texts: Vec<Option<&str>>) -> Self {
        let mut seen: HashMap<&str, u32> = HashMap::new();
        let mut values = Vec::new();
        let ids = texts
            .into_iter()
            .map(|text| match text {
                None => NULL,
                Some(text) => *seen.entry(text).or_insert_with(|| {
                    values.push(text.to_string());
                    (values.len() - 1) as u32
                }),
            })
            .collect();
        Self { ids, values }
    }

    /// Number of the row's value in this column; equal values have equal numbers, null is `u32::MAX`.
    #[inline]
    pub(super) fn id(&self, row: usize) -> u32 {
        self.ids[row]
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&str> {
        self.values.get(self.ids[row] as usize).map(String::as_str)
    }

    /// One `T` for each distinct value, for lookup by [`id`](Self::id).
    pub(super) fn map_values<T>(&self, f: impl FnMut(&str) -> T) -> Vec<T> {
        self.values.iter().map(String::as_str).map(f).collect()
    }
}

/// Bytes of the longest text of a batch as it was read, if it may be more than `most`; else 0.
pub(super) fn longest_text(batch: &RecordBatch, most: u64) -> u64 {
    let texts = batch.columns().iter().filter_map(|array| array.as_string_view_opt());
    // What is longer than a view lies in a buffer.
    let may_be_long = |array: &&StringViewArray| {
        most < size_of::<u128>() as u64 || array.data_buffers().iter().any(|buffer| buffer.len() as u64 > most)
    };
    // The lowest 32 bits of a view are its length.
    let longest = |array: &StringViewArray| array.views().iter().map(|view| *view as u32).max();
    texts.filter(may_be_long).filter_map(longest).max().map_or(0, u64::from)
}

fn plain_values(array: &ArrayRef) -> Vec<Option<&str>> {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().collect(),
        DataType::Utf8View => array.as_string_view().iter().collect(),
        _ => vec![None; array.len()],
    }
}
