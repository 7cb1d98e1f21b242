//! Rows of a run's tables as records. Which columns a field has is declared with the record; [`cells`](super::cells) says
//! how each kind of cell is read.

use super::cells::Load;
use super::columns::times;
use super::intern::Interner;
use arrow_array::RecordBatch;
use candlescope_schema::table::kind::*;
use candlescope_schema::*;
use std::sync::Arc;

/// A record that is read.
pub(super) trait FromColumns: Sized {
    /// Adds the rows of a batch that `keep` selects; returns how many lack the values that such a record must have, or
    /// have impossible ones.
    fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<Self>) -> u64;
}

/// Whether start and duration of a record can be those of one thing.
trait RowRules {
    fn is_possible(&self) -> bool;
}

macro_rules! possible {
    ($($Record:ident: $start:ident $dur:ident),*) => {
        $(
            impl RowRules for $Record {
                fn is_possible(&self) -> bool {
                    times(self.$start.0, self.$dur).is_some()
                }
            }
        )*
    };
}
possible! {
    SpanRecord: host_start host_dur_ns,
    StepRecord: host_start host_dur_ns,
    RequestRecord: host_start host_dur_ns,
    KernelRecord: gpu_start gpu_dur_ns,
    StackSampleRecord: time weight_ns,
    PerturbationRecord: host_start host_dur_ns
}

impl RowRules for StackRecord {
    /// Callers have smaller numbers, so that walks to the outermost frame end.
    fn is_possible(&self) -> bool {
        self.parent.is_none_or(|parent| parent < self.stack)
    }
}

impl RowRules for SampleRecord {
    fn is_possible(&self) -> bool {
        true
    }
}

/// Reads a table by the list of its record's fields.
macro_rules! read {
    ($Record:ident, $Kind:ident, $Rows:ident; $($field:ident: $ty:ty => $cells:ident ($($column:literal)?),)*) => {
        impl FromColumns for $Record {
            fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<Self>) -> u64 {
                $(let mut $field = <$cells as Load<$ty>>::of(batch, candlescope_schema::column!($field $($column)?), interner);)*
                let mut row = |row: usize| {
                    Some(Self::of_fields($(<$cells as Load<$ty>>::get(&mut $field, row, interner)?,)*))
                };
                let mut malformed = 0;
                into.reserve(keep.iter().filter(|keep| **keep).count());
                for (at, _) in keep.iter().enumerate().filter(|(_, keep)| **keep) {
                    match row(at).filter(RowRules::is_possible) {
                        Some(record) => into.push(record),
                        None => malformed += 1,
                    }
                }
                malformed
            }
        }
    };
}
each_span!(read);
each_step!(read);
each_request!(read);
each_sample!(read);
each_kernel!(read);
each_stack!(read);
each_stack_sample!(read);
each_perturbation!(read);
