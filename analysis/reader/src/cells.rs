//! What each kind of cell is to the reader: the columns of a batch, and how a row's value is made of them.

use super::columns::{FloatColumn, IntColumn, TextColumn, time, times};
use super::intern::{Interner, forever};
use arrow_array::RecordBatch;
use candlescope_schema::table::kind::{
    Axes, Gpu, Int, Label, Launcher, Lines, Names, Narrow, Real, Repeated, Several, StepPath, Text, Thread, Word, axes,
};
use candlescope_schema::{
    DType, GpuSource, GpuTime, HostNs, KernelKind, Outcome, PathInfo, Phase, Ran, Served, Shape, Side, SpanId,
    ThreadInfo, ThreadState, TraceId, UnrecordedStep,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How a kind of cell is read as a value of type `T`.
pub(super) trait Load<T> {
    /// Its columns in a batch.
    type Column;

    /// The columns of the field called `name`; all null where the batch has none.
    fn of(batch: &RecordBatch, name: &str, interner: &mut Interner) -> Self::Column;

    /// A row's value; `None` if the row lacks what every row of the table must have. What is impossible in a cell that
    /// may be null reads as null.
    fn get(column: &mut Self::Column, row: usize, interner: &mut Interner) -> Option<T>;
}

/// Whole numbers: how they are read of a column, in cells that must have them and in those that may.
macro_rules! ints {
    ($Kind:ident: $($ty:ty, $must:expr, $may:expr;)*) => {
        $(
            impl Load<$ty> for $Kind {
                type Column = IntColumn;

                fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> IntColumn {
                    IntColumn::of(batch, name)
                }

                #[inline]
                fn get(column: &mut IntColumn, row: usize, _: &mut Interner) -> Option<$ty> {
                    $must(column, row)
                }
            }

            impl Load<Option<$ty>> for $Kind {
                type Column = IntColumn;

                fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> IntColumn {
                    IntColumn::of(batch, name)
                }

                #[inline]
                fn get(column: &mut IntColumn, row: usize, _: &mut Interner) -> Option<Option<$ty>> {
                    Some($may(column, row))
                }
            }
        )*
    };
}
#[inline]
fn span_id(column: &IntColumn, row: usize) -> Option<SpanId> {
    column.get(row).map(|id| SpanId(id as u64))
}
#[inline]
fn moment(column: &IntColumn, row: usize) -> Option<HostNs> {
    column.get(row).and_then(time)
}
ints! {
    Int:
    u64, IntColumn::unsigned, IntColumn::unsigned;
    u32, |column: &IntColumn, row| Some(column.small(row).unwrap_or(0)), IntColumn::small;
    // A span id of zero is none.
    SpanId, |column: &IntColumn, row| Some(span_id(column, row).unwrap_or(SpanId(0))),
        |column: &IntColumn, row| span_id(column, row).filter(|id| id.0 != 0);
    HostNs, moment, moment;
}
ints! {
    Repeated:
    u64, IntColumn::unsigned, IntColumn::unsigned;
    u32, |column: &IntColumn, row| Some(column.small(row).unwrap_or(0)), IntColumn::small;
}
#[inline]
fn short(column: &IntColumn, row: usize) -> Option<u16> {
    column.get(row).and_then(|n| u16::try_from(n).ok())
}
#[inline]
fn flag(column: &IntColumn, row: usize) -> Option<bool> {
    column.get(row).map(|n| n != 0)
}
ints! {
    Narrow:
    u16, |column: &IntColumn, row| Some(short(column, row).unwrap_or(0)), short;
    bool, |column: &IntColumn, row| Some(flag(column, row).unwrap_or(false)), flag;
}

impl Load<f64> for Real {
    type Column = FloatColumn;

    fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> FloatColumn {
        FloatColumn::of(batch, name)
    }

    fn get(column: &mut FloatColumn, row: usize, _: &mut Interner) -> Option<f64> {
        column.get(row)
    }
}

impl Load<Option<f64>> for Real {
    type Column = FloatColumn;

    fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> FloatColumn {
        FloatColumn::of(batch, name)
    }

    fn get(column: &mut FloatColumn, row: usize, _: &mut Interner) -> Option<Option<f64>> {
        Some(column.get(row))
    }
}

/// A column of texts, each distinct one made into its value once a batch.
pub(super) struct MappedTexts<T> {
    text: TextColumn,
    values: Vec<T>,
}

impl<T: Clone> MappedTexts<T> {
    fn of(batch: &RecordBatch, name: &str, value: impl FnMut(&str) -> T) -> Self {
        let text = TextColumn::of(batch, name);
        let values = text.map_values(value);
        Self { text, values }
    }

    #[inline]
    fn get(&self, row: usize) -> Option<T> {
        self.values.get(self.text.id(row) as usize).cloned()
    }
}

/// Words: how a text is read as one, and what stands for a missing one in a cell that must have it.
macro_rules! words {
    ($($ty:ty, $of:expr, $missing:expr;)*) => {
        $(
            impl Load<$ty> for Word {
                type Column = MappedTexts<Option<$ty>>;

                fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> Self::Column {
                    MappedTexts::of(batch, name, $of)
                }

                #[inline]
                fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<$ty> {
                    column.get(row).flatten().or($missing)
                }
            }

            impl Load<Option<$ty>> for Word {
                type Column = MappedTexts<Option<$ty>>;

                fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> Self::Column {
                    MappedTexts::of(batch, name, $of)
                }

                #[inline]
                fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<Option<$ty>> {
                    Some(column.get(row).flatten())
                }
            }
        )*
    };
}
words! {
    TraceId, |text: &str| u128::from_str_radix(text, 16).ok().map(TraceId), Some(TraceId(0));
    Phase, Phase::from_word, None;
    Ran, Ran::from_word, None;
    Outcome, Outcome::from_word, None;
    DType, |word: &str| Some(DType::from_word(word).unwrap_or(DType::Other)), None;
    Shape, |text: &str| text.parse::<Shape>().ok(), None;
    KernelKind, KernelKind::from_word, None;
    ThreadState, ThreadState::from_word, None;
    Side, Side::from_word, None;
    &'static str, |text: &str| Some(forever(text)), None;
}

impl Load<Arc<str>> for Text {
    type Column = MappedTexts<Arc<str>>;

    fn of(batch: &RecordBatch, name: &str, interner: &mut Interner) -> Self::Column {
        MappedTexts::of(batch, name, |text| interner.word(text))
    }

    #[inline]
    fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<Arc<str>> {
        column.get(row)
    }
}

impl Load<Option<Arc<str>>> for Text {
    type Column = MappedTexts<Arc<str>>;

    fn of(batch: &RecordBatch, name: &str, interner: &mut Interner) -> Self::Column {
        MappedTexts::of(batch, name, |text| interner.word(text))
    }

    #[inline]
    fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<Option<Arc<str>>> {
        Some(column.get(row))
    }
}

impl Load<Arc<str>> for Label {
    type Column = MappedTexts<Arc<str>>;

    fn of(batch: &RecordBatch, name: &str, interner: &mut Interner) -> Self::Column {
        MappedTexts::of(batch, name, |text| interner.word(text))
    }

    #[inline]
    fn get(column: &mut Self::Column, row: usize, interner: &mut Interner) -> Option<Arc<str>> {
        Some(column.get(row).unwrap_or_else(|| interner.word("")))
    }
}

impl Load<u64> for Several {
    type Column = IntColumn;

    fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> IntColumn {
        IntColumn::of(batch, name)
    }

    #[inline]
    fn get(column: &mut IntColumn, row: usize, _: &mut Interner) -> Option<u64> {
        Some(column.unsigned(row).unwrap_or(1))
    }
}

impl Load<Vec<Served>> for Lines {
    /// Steps one after the other often serve the same requests.
    type Column = MappedTexts<Vec<Served>>;

    fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> Self::Column {
        MappedTexts::of(batch, name, Served::from_text)
    }

    #[inline]
    fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<Vec<Served>> {
        Some(column.get(row).unwrap_or_default())
    }
}

impl Load<Option<Vec<UnrecordedStep>>> for Lines {
    type Column = TextColumn;

    fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> TextColumn {
        TextColumn::of(batch, name)
    }

    fn get(column: &mut TextColumn, row: usize, _: &mut Interner) -> Option<Option<Vec<UnrecordedStep>>> {
        Some(column.get(row).map(UnrecordedStep::of_text))
    }
}

impl Load<Arc<ThreadInfo>> for Thread {
    type Column = MappedTexts<Arc<ThreadInfo>>;

    fn of(batch: &RecordBatch, name: &str, interner: &mut Interner) -> Self::Column {
        MappedTexts::of(batch, name, |name| interner.thread(name))
    }

    #[inline]
    fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<Arc<ThreadInfo>> {
        column.get(row)
    }
}

/// The columns of a path, and the paths met in them.
pub(super) struct PathColumns {
    path: TextColumn,
    name: TextColumn,
    target: TextColumn,
    module: TextColumn,
    /// By the path's number: the numbers of name, target and module that it had last.
    last: Vec<Option<([u32; 3], Arc<PathInfo>)>>,
    met: FxHashMap<[u32; 4], Arc<PathInfo>>,
}

impl PathColumns {
    fn of(batch: &RecordBatch) -> Self {
        let text = |name| TextColumn::of(batch, name);
        let (path, name, target, module) = (text("path"), text("name"), text("target"), text("module"));
        let last = path.map_values(|_| None);
        Self { path, name, target, module, last, met: FxHashMap::default() }
    }

    /// The row's path. Without a name of its own the last element is it, and `own` says what of that.
    #[inline]
    fn get(&mut self, row: usize, interner: &mut Interner, own: fn(&str) -> &str) -> Arc<PathInfo> {
        let Self { path, name, target, module, last, met } = self;
        let (id, others) = (path.id(row), [name.id(row), target.id(row), module.id(row)]);
        let last = last.get_mut(id as usize);
        if let Some(Some((known, info))) = &last
            && *known == others
        {
            return info.clone();
        }
        let make = || {
            let path = path.get(row).unwrap_or_default();
            let name = name.get(row).unwrap_or_else(|| own(path.rsplit('/').next().unwrap_or_default()));
            interner.path(path, name, target.get(row).unwrap_or_default(), module.get(row))
        };
        let info = met.entry([id, others[0], others[1], others[2]]).or_insert_with(make).clone();
        if let Some(last) = last {
            *last = Some((others, info.clone()));
        }
        info
    }
}

impl Load<Arc<PathInfo>> for Names {
    type Column = PathColumns;

    fn of(batch: &RecordBatch, _: &str, _: &mut Interner) -> PathColumns {
        PathColumns::of(batch)
    }

    #[inline]
    fn get(column: &mut PathColumns, row: usize, interner: &mut Interner) -> Option<Arc<PathInfo>> {
        Some(column.get(row, interner, |name| name))
    }
}

impl Load<Arc<PathInfo>> for StepPath {
    type Column = PathColumns;

    fn of(batch: &RecordBatch, _: &str, _: &mut Interner) -> PathColumns {
        PathColumns::of(batch)
    }

    #[inline]
    fn get(column: &mut PathColumns, row: usize, interner: &mut Interner) -> Option<Arc<PathInfo>> {
        Some(column.get(row, interner, |name| name))
    }
}

impl Load<Option<Arc<PathInfo>>> for Launcher {
    type Column = PathColumns;

    fn of(batch: &RecordBatch, _: &str, _: &mut Interner) -> PathColumns {
        // A kernel's table has a `name`, which is the kernel's.
        let path = PathColumns::of(batch);
        PathColumns { name: TextColumn::of(batch, ""), target: TextColumn::of(batch, ""), ..path }
    }

    #[inline]
    fn get(column: &mut PathColumns, row: usize, interner: &mut Interner) -> Option<Option<Arc<PathInfo>>> {
        if column.path.get(row).is_none() {
            return Some(None);
        }
        Some(Some(column.get(row, interner, |name| name.split('[').next().unwrap_or_default())))
    }
}

impl Load<Option<GpuTime>> for Gpu {
    type Column = (IntColumn, IntColumn, MappedTexts<Option<GpuSource>>);

    fn of(batch: &RecordBatch, _: &str, _: &mut Interner) -> Self::Column {
        let int = |name| IntColumn::of(batch, name);
        (int("gpu_start_ns"), int("gpu_dur_ns"), MappedTexts::of(batch, "gpu_source", GpuSource::from_word))
    }

    #[inline]
    fn get((start, dur, source): &mut Self::Column, row: usize, _: &mut Interner) -> Option<Option<GpuTime>> {
        // Impossible times are not a measurement; the row is kept without them.
        let time = || {
            let (start, dur_ns) = times(start.get(row)?, dur.unsigned(row)?)?;
            Some(GpuTime { start, dur_ns, source: source.get(row).flatten()? })
        };
        Some(time())
    }
}

impl Load<Option<[u32; 3]>> for Axes {
    type Column = [IntColumn; 3];

    fn of(batch: &RecordBatch, name: &str, _: &mut Interner) -> Self::Column {
        axes(name).map(|name| IntColumn::of(batch, name))
    }

    #[inline]
    fn get(column: &mut Self::Column, row: usize, _: &mut Interner) -> Option<Option<[u32; 3]>> {
        let axes = || Some([column[0].small(row)?, column[1].small(row)?, column[2].small(row)?]);
        Some(axes())
    }
}
