//! The columns of tables: columns of numbers, and columns of keys with their dictionary.

use crate::parquet::encoding::chunk::{ColumnData, KeySource};
use crate::parquet::encoding::column::{KeyColumn, NULL, ValueColumn};
use crate::parquet::encoding::dictionary::{PathDict, TextDict, ThreadDict, ValueDict};
use candlescope_core::{
    DType, GpuSource, KernelKind, MOST_TEXT_BYTES, Outcome, PathInfo, Phase, Ran, Shape, Side, ThreadInfo, ThreadState,
    TraceId, cut_text,
};
use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

/// One column of a table, or several adjacent ones.
pub(super) trait Columns {
    /// Appends the columns.
    fn data<'a>(&'a self, out: &mut Vec<ColumnData<'a>>);

    /// Removes the rows and keeps the memory.
    fn clear(&mut self);

    /// Bytes of memory that the rows take.
    fn memory(&self) -> usize;
}

/// Varied integers.
pub(super) type Ints = ValueColumn<i64>;
/// Varied numbers.
pub(super) type Floats = ValueColumn<f64>;
/// Integers of few distinct values.
pub(super) type FewInts = DictionaryColumn<ValueDict<i64>>;
/// Values that are written as text: words of a vocabulary, hex digits, dimensions.
pub(super) type Words<T> = DictionaryColumn<ValueDict<T>>;
/// Any texts.
pub(super) type Texts = DictionaryColumn<TextDict>;
/// Names of threads.
pub(super) type Threads = DictionaryColumn<ThreadDict>;
/// Paths.
pub(super) type Paths = DictionaryColumn<PathDict>;

macro_rules! numbers {
    ($type:ty, $data:ident) => {
        impl Columns for ValueColumn<$type> {
            fn data<'a>(&'a self, out: &mut Vec<ColumnData<'a>>) {
                out.push(ColumnData::$data(self));
            }

            fn clear(&mut self) {
                ValueColumn::clear(self);
            }

            fn memory(&self) -> usize {
                ValueColumn::memory(self)
            }
        }
    };
}
numbers!(i64, Int64);
numbers!(f64, Float64);

/// Three dimensions.
impl Columns for [Ints; 3] {
    fn data<'a>(&'a self, out: &mut Vec<ColumnData<'a>>) {
        self.iter().for_each(|side| side.data(out));
    }

    fn clear(&mut self) {
        self.iter_mut().for_each(ValueColumn::clear);
    }

    fn memory(&self) -> usize {
        self.iter().map(ValueColumn::memory).sum()
    }
}

/// The values of keys.
pub(super) trait Dictionary: Default {
    /// Appends the column of these keys, and those that follow from it.
    fn data<'a>(&'a self, keys: &'a KeyColumn, out: &mut Vec<ColumnData<'a>>);

    fn clear(&mut self);

    /// Bytes of memory taken, as far as they grow with rows.
    fn memory(&self) -> usize {
        0
    }
}

/// Keys and their values.
#[derive(Default)]
pub(super) struct DictionaryColumn<D> {
    keys: KeyColumn,
    dict: D,
}

impl<D: Dictionary> Columns for DictionaryColumn<D> {
    fn data<'a>(&'a self, out: &mut Vec<ColumnData<'a>>) {
        self.dict.data(&self.keys, out);
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.dict.clear();
    }

    fn memory(&self) -> usize {
        self.keys.memory() + self.dict.memory()
    }
}

impl<T: Copy + Eq + Hash> DictionaryColumn<ValueDict<T>> {
    /// Adds a value, which is probably the last one of its `slot`.
    #[inline]
    pub(super) fn push(&mut self, slot: u32, value: Option<T>) {
        self.keys.push(self.dict.key(slot, value));
    }
}

impl Texts {
    pub(super) fn push(&mut self, text: &Arc<str>) {
        self.keys.push(self.dict.key(text));
    }
}

impl Threads {
    #[inline]
    pub(super) fn push(&mut self, thread: &ThreadInfo) {
        self.keys.push(self.dict.key(thread));
    }
}

impl Paths {
    pub(super) fn push_opt(&mut self, path: Option<&Arc<PathInfo>>) {
        self.keys.push(path.map_or(NULL, |path| self.dict.key(path)));
    }
}

impl Texts {
    pub(super) fn push_opt(&mut self, text: Option<&Arc<str>>) {
        self.keys.push(text.map_or(NULL, |text| self.dict.key(text)));
    }
}

/// Values that are written as text.
trait Word: Copy + Eq + Hash + ToString {}
impl Word for TraceId {}
impl Word for Phase {}
impl Word for Ran {}
impl Word for Outcome {}
impl Word for GpuSource {}
impl Word for DType {}
impl Word for Shape {}
impl Word for KernelKind {}
impl Word for ThreadState {}
impl Word for Side {}
impl Word for &'static str {}

impl<T: Word> Dictionary for ValueDict<T> {
    fn data<'a>(&'a self, keys: &'a KeyColumn, out: &mut Vec<ColumnData<'a>>) {
        let words = self.values().iter().map(|v| Cow::Owned(v.to_string())).collect();
        out.push(ColumnData::Text(KeySource::Kept(keys), words));
    }

    fn clear(&mut self) {
        ValueDict::clear(self);
    }

    fn memory(&self) -> usize {
        ValueDict::memory(self)
    }
}

impl Dictionary for ValueDict<i64> {
    fn data<'a>(&'a self, keys: &'a KeyColumn, out: &mut Vec<ColumnData<'a>>) {
        out.push(ColumnData::Int64Keys(keys, self.values()));
    }

    fn clear(&mut self) {
        ValueDict::clear(self);
    }

    fn memory(&self) -> usize {
        ValueDict::memory(self)
    }
}

impl Dictionary for ValueDict<i32> {
    fn data<'a>(&'a self, keys: &'a KeyColumn, out: &mut Vec<ColumnData<'a>>) {
        out.push(ColumnData::Int32(KeySource::Kept(keys), self.values().to_vec()));
    }

    fn clear(&mut self) {
        ValueDict::clear(self);
    }
}

fn texts<'a>(keys: KeySource<'a>, values: impl Iterator<Item = &'a str>) -> ColumnData<'a> {
    // Two that are the same once they are cut stand twice in the dictionary, which readers accept.
    ColumnData::Text(keys, values.map(|text| cut_text(text, MOST_TEXT_BYTES)).collect())
}

macro_rules! texts {
    ($dictionary:ty) => {
        impl Dictionary for $dictionary {
            fn data<'a>(&'a self, keys: &'a KeyColumn, out: &mut Vec<ColumnData<'a>>) {
                out.push(texts(KeySource::Kept(keys), self.values()));
            }

            fn clear(&mut self) {
                <$dictionary>::clear(self);
            }

            fn memory(&self) -> usize {
                <$dictionary>::memory(self)
            }
        }
    };
}
texts!(TextDict);
texts!(ThreadDict);
texts!(PathDict);

/// Paths with the names, targets and modules that follow from them, four columns.
#[derive(Default)]
pub(super) struct NamedPaths(PathDict);

impl DictionaryColumn<NamedPaths> {
    /// Adds a path and returns its key.
    #[inline]
    pub(super) fn push(&mut self, path: &Arc<PathInfo>) -> u32 {
        let key = self.dict.0.key(path);
        self.keys.push(key);
        key
    }
}

impl Dictionary for NamedPaths {
    fn data<'a>(&'a self, keys: &'a KeyColumn, out: &mut Vec<ColumnData<'a>>) {
        let PathDict { name_of, target_of, module_of, names, targets, modules, .. } = &self.0;
        self.0.data(keys, out);
        out.push(texts(KeySource::Made(keys.mapped(name_of)), names.values()));
        out.push(texts(KeySource::Made(keys.mapped(target_of)), targets.values()));
        out.push(texts(KeySource::Made(keys.mapped(module_of)), modules.values()));
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The same key in all rows.
pub(super) fn constant(rows: usize) -> KeySource<'static> {
    KeySource::Made(KeyColumn::constant(0, rows))
}
