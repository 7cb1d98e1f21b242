//! Kinds of cells: how the value of a field becomes one column or several. A writer and a reader each say what a kind
//! means to them by a trait of their own; which columns there are is said here.

use super::{Column, ColumnType};
use crate::served::Served;
use crate::vocabulary::{DType, KernelKind, Outcome, Phase, Ran, Shape, Side, ThreadState};
use crate::{GpuTime, HostNs, PathInfo, SpanId, ThreadInfo, TraceId, UnrecordedStep};
use std::sync::Arc;

/// Which columns a kind has for a field of type `T`.
pub trait Describe<T> {
    /// Appends them: `name` and `doc` are the field's.
    fn describe(name: &'static str, doc: &'static str, columns: &mut Vec<Column>);
}

/// A whole number, 64 bits.
#[derive(Debug)]
pub struct Int;
/// The same, of few distinct values, which repeat wherever the path is the same.
#[derive(Debug)]
pub struct Repeated;
/// A whole number of few distinct values, 32 bits.
#[derive(Debug)]
pub struct Narrow;
/// A number of 64-bit floating point; null where it is not known.
#[derive(Debug)]
pub struct Real;
/// A word of a vocabulary, or another value of few distinct ones that is written as text.
#[derive(Debug)]
pub struct Word;
/// Any text; null where it is absent.
#[derive(Debug)]
pub struct Text;
/// Any text; a row that lacks it has an empty one.
#[derive(Debug)]
pub struct Label;
/// A number of at least one; a row that lacks it has one.
#[derive(Debug)]
pub struct Several;
/// A list as text, as its type's `to_text` writes it.
#[derive(Debug)]
pub struct Lines;
/// The name of a thread.
#[derive(Debug)]
pub struct Thread;
/// A path with the name, target and module of its last interval: four columns.
#[derive(Debug)]
pub struct Names;
/// A path of one element with its module and target: three columns.
#[derive(Debug)]
pub struct StepPath;
/// The path of the interval that launched something, with its module: two columns.
#[derive(Debug)]
pub struct Launcher;
/// Time on the device: start, duration and what measured it, three columns.
#[derive(Debug)]
pub struct Gpu;
/// Three dimensions, a column each.
#[derive(Debug)]
pub struct Axes;

macro_rules! one_column {
    ($Kind:ident, $type:ident: $($ty:ty),*) => {
        $(
            impl Describe<$ty> for $Kind {
                fn describe(name: &'static str, doc: &'static str, columns: &mut Vec<Column>) {
                    columns.push(Column { name, kind: ColumnType::$type, nullable: false, doc });
                }
            }
            impl Describe<Option<$ty>> for $Kind {
                fn describe(name: &'static str, doc: &'static str, columns: &mut Vec<Column>) {
                    columns.push(Column { name, kind: ColumnType::$type, nullable: true, doc });
                }
            }
        )*
    };
}
one_column!(Int, Int64: u64, u32, SpanId, HostNs);
one_column!(Repeated, Int64: u64, u32);
one_column!(Narrow, Int32: u16, bool);
one_column!(Real, Float64: f64);
one_column!(Word, Utf8: TraceId, Phase, Outcome, DType, Shape, KernelKind, ThreadState, Ran, Side, &'static str);
one_column!(Text, Utf8: Arc<str>);
one_column!(Label, Utf8: Arc<str>);
one_column!(Several, Int64: u64);
one_column!(Thread, Utf8: Arc<ThreadInfo>);

macro_rules! columns {
    ($($Kind:ident<$ty:ty>: $($name:literal $type:ident $nullable:literal $doc:literal),+;)*) => {
        $(
            impl Describe<$ty> for $Kind {
                fn describe(_: &'static str, _: &'static str, columns: &mut Vec<Column>) {
                    $(columns.push(Column { name: $name, kind: ColumnType::$type, nullable: $nullable, doc: $doc });)+
                }
            }
        )*
    };
}
columns! {
    Names<Arc<PathInfo>>:
        "path" Utf8 false "Names from the step down with sibling ordinals: decode/block[12]/attn/linear[2]",
        "name" Utf8 false "The interval's own name",
        "target" Utf8 false "tracing target of the span, usually its module path",
        "module" Utf8 true "Module of the model that the span stands for: model.layers.7.mlp.down_proj";
    StepPath<Arc<PathInfo>>:
        "path" Utf8 false "Name of the step's interval",
        "module" Utf8 true
            "Module of the model that the step's interval stands for, in a program that marks no phases",
        "target" Utf8 true "tracing target of the step's interval";
    Launcher<Option<Arc<PathInfo>>>:
        "path" Utf8 true "Path of that interval",
        "module" Utf8 true "Module of the model that interval stands for";
    Gpu<Option<GpuTime>>:
        "gpu_start_ns" Int64 true "Start on the device, nanoseconds since the Unix epoch",
        "gpu_dur_ns" Int64 true "Duration on the device, nanoseconds; see gpu_source",
        "gpu_source" Utf8 true "event (stream elapsed) or cupti (sum of kernels)";
}

macro_rules! lists {
    ($($ty:ty),*) => {
        $(
            impl Describe<$ty> for Lines {
                fn describe(name: &'static str, doc: &'static str, columns: &mut Vec<Column>) {
                    columns.push(Column { name, kind: ColumnType::Utf8, nullable: true, doc });
                }
            }
        )*
    };
}
lists!(Vec<Served>, Option<Vec<UnrecordedStep>>);

impl Describe<Option<[u32; 3]>> for Axes {
    fn describe(name: &'static str, doc: &'static str, columns: &mut Vec<Column>) {
        for name in axes(name) {
            columns.push(Column { name, kind: ColumnType::Int64, nullable: true, doc });
        }
    }
}

/// Names of the columns of three dimensions.
pub const fn axes(name: &str) -> [&'static str; 3] {
    match name.as_bytes() {
        b"grid" => ["grid_x", "grid_y", "grid_z"],
        b"block" => ["block_x", "block_y", "block_z"],
        _ => panic!("three columns must have their names here"),
    }
}
