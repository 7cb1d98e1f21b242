//! What each kind of cell is to the writer: the column that collects its values, and how a value gets there.

use super::columns::{Columns, DictionaryColumn, FewInts, Floats, Ints, NamedPaths, Paths, Texts, Threads, Words};
use crate::parquet::encoding::chunk::{ColumnData, signed};
use crate::parquet::encoding::dictionary::ValueDict;
use candlescope_core::table::kind::{
    Axes, Gpu, Int, Label, Launcher, Lines, Names, Narrow, Real, Repeated, Several, StepPath, Text, Thread, Word,
};
use candlescope_core::{
    DType, GpuSource, GpuTime, HostNs, KernelKind, Outcome, PathInfo, Phase, Ran, Served, Shape, Side, SpanId,
    ThreadInfo, ThreadState, TraceId, UnrecordedStep,
};
use std::sync::Arc;

/// How a kind of cell stores values of type `T`.
pub(super) trait Store<T> {
    /// What collects them.
    type Column: Columns + Default;

    /// Adds a value. Values of one `slot` are probably the same from row to row: a row's path sets it for the cells after
    /// it.
    fn push(column: &mut Self::Column, value: &T, slot: &mut u32);
}

macro_rules! ints {
    ($($ty:ty: $int:expr;)*) => {
        $(
            impl Store<$ty> for Int {
                type Column = Ints;
                #[inline]
                fn push(column: &mut Ints, value: &$ty, _: &mut u32) {
                    column.push($int(*value));
                }
            }
            impl Store<Option<$ty>> for Int {
                type Column = Ints;
                #[inline]
                fn push(column: &mut Ints, value: &Option<$ty>, _: &mut u32) {
                    column.push_opt(value.map($int));
                }
            }
        )*
    };
}
ints! {
    u64: signed;
    u32: i64::from;
    SpanId: |id: SpanId| id.0 as i64;
    HostNs: |at: HostNs| at.0;
}

impl Store<Option<u64>> for Repeated {
    type Column = FewInts;
    #[inline]
    fn push(column: &mut FewInts, value: &Option<u64>, slot: &mut u32) {
        column.push(*slot, value.map(signed));
    }
}

impl Store<Option<u32>> for Repeated {
    type Column = FewInts;
    #[inline]
    fn push(column: &mut FewInts, value: &Option<u32>, slot: &mut u32) {
        column.push(*slot, value.map(i64::from));
    }
}

impl Store<u16> for Narrow {
    type Column = DictionaryColumn<ValueDict<i32>>;
    #[inline]
    fn push(column: &mut Self::Column, value: &u16, slot: &mut u32) {
        column.push(*slot, Some(i32::from(*value)));
    }
}

impl Store<bool> for Narrow {
    type Column = DictionaryColumn<ValueDict<i32>>;
    fn push(column: &mut Self::Column, value: &bool, slot: &mut u32) {
        column.push(*slot, Some(i32::from(*value)));
    }
}

impl Store<Option<bool>> for Narrow {
    type Column = DictionaryColumn<ValueDict<i32>>;
    fn push(column: &mut Self::Column, value: &Option<bool>, slot: &mut u32) {
        column.push(*slot, value.map(i32::from));
    }
}

impl Store<f64> for Real {
    type Column = Floats;
    fn push(column: &mut Floats, value: &f64, _: &mut u32) {
        column.push(*value);
    }
}

impl Store<Option<f64>> for Real {
    type Column = Floats;
    fn push(column: &mut Floats, value: &Option<f64>, _: &mut u32) {
        column.push_opt(*value);
    }
}

macro_rules! words {
    ($($ty:ty),*) => {
        $(
            impl Store<$ty> for Word {
                type Column = Words<$ty>;
                #[inline]
                fn push(column: &mut Self::Column, value: &$ty, slot: &mut u32) {
                    column.push(*slot, Some(*value));
                }
            }
            impl Store<Option<$ty>> for Word {
                type Column = Words<$ty>;
                #[inline]
                fn push(column: &mut Self::Column, value: &Option<$ty>, slot: &mut u32) {
                    column.push(*slot, *value);
                }
            }
        )*
    };
}
words!(TraceId, Phase, Outcome, DType, Shape, KernelKind, ThreadState, Ran, Side, &'static str);

impl Store<Arc<str>> for Text {
    type Column = Texts;
    fn push(column: &mut Texts, value: &Arc<str>, _: &mut u32) {
        column.push(value);
    }
}

impl Store<Option<Arc<str>>> for Text {
    type Column = Texts;
    fn push(column: &mut Texts, value: &Option<Arc<str>>, _: &mut u32) {
        column.push_opt(value.as_ref());
    }
}

impl Store<Arc<str>> for Label {
    type Column = Texts;
    fn push(column: &mut Texts, value: &Arc<str>, _: &mut u32) {
        column.push(value);
    }
}

impl Store<u64> for Several {
    type Column = Ints;
    fn push(column: &mut Ints, value: &u64, _: &mut u32) {
        column.push(signed(*value));
    }
}

impl Store<Vec<Served>> for Lines {
    type Column = Texts;
    fn push(column: &mut Texts, value: &Vec<Served>, _: &mut u32) {
        column.push_opt(Served::to_text(value).map(Arc::from).as_ref());
    }
}

impl Store<Option<Vec<UnrecordedStep>>> for Lines {
    type Column = Texts;
    fn push(column: &mut Texts, value: &Option<Vec<UnrecordedStep>>, _: &mut u32) {
        column.push_opt(value.as_deref().map(|steps| UnrecordedStep::to_text(steps).into()).as_ref());
    }
}

impl Store<Arc<ThreadInfo>> for Thread {
    type Column = Threads;
    #[inline]
    fn push(column: &mut Threads, value: &Arc<ThreadInfo>, _: &mut u32) {
        column.push(value);
    }
}

impl Store<Arc<PathInfo>> for Names {
    type Column = DictionaryColumn<NamedPaths>;
    #[inline]
    fn push(column: &mut Self::Column, value: &Arc<PathInfo>, slot: &mut u32) {
        *slot = column.push(value);
    }
}

impl Store<Arc<PathInfo>> for StepPath {
    type Column = (Paths, Texts, Texts);
    fn push((path, module, target): &mut Self::Column, value: &Arc<PathInfo>, _: &mut u32) {
        path.push_opt(Some(value));
        module.push_opt(value.module.as_ref());
        target.push_opt(Some(&value.target).filter(|target| !target.is_empty()));
    }
}

impl Store<Option<Arc<PathInfo>>> for Launcher {
    type Column = (Paths, Texts);
    fn push((path, module): &mut Self::Column, value: &Option<Arc<PathInfo>>, _: &mut u32) {
        path.push_opt(value.as_ref());
        module.push_opt(value.as_ref().and_then(|path| path.module.as_ref()));
    }
}

impl Store<Option<GpuTime>> for Gpu {
    type Column = (Ints, Ints, Words<GpuSource>);
    #[inline]
    fn push((start, dur, source): &mut Self::Column, value: &Option<GpuTime>, _: &mut u32) {
        start.push_opt(value.map(|time| time.start.0));
        dur.push_opt(value.map(|time| signed(time.dur_ns)));
        source.push(0, value.map(|time| time.source));
    }
}

impl Store<Option<[u32; 3]>> for Axes {
    type Column = [Ints; 3];
    fn push(column: &mut Self::Column, value: &Option<[u32; 3]>, _: &mut u32) {
        for (axis, column) in column.iter_mut().enumerate() {
            column.push_opt(value.map(|sides| i64::from(sides[axis])));
        }
    }
}

/// Adjacent columns.
macro_rules! adjacent {
    ($($part:ident $at:tt),+) => {
        impl<$($part: Columns),+> Columns for ($($part,)+) {
            fn data<'a>(&'a self, out: &mut Vec<ColumnData<'a>>) {
                $(self.$at.data(out);)+
            }

            fn clear(&mut self) {
                $(self.$at.clear();)+
            }

            fn memory(&self) -> usize {
                0 $(+ self.$at.memory())+
            }
        }
    };
}
adjacent!(A 0, B 1);
adjacent!(A 0, B 1, C 2);
