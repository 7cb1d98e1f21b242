//! The columns of every table.

use super::{Column, ColumnType};
use crate::record::RecordKind;
use crate::{
    KernelRecord, PerturbationRecord, RequestRecord, SampleRecord, SpanRecord, StackRecord, StackSampleRecord,
    StepRecord,
};
use std::sync::OnceLock;

/// The columns that every table begins with.
const OF_RUN: [Column; 3] = [
    Column { name: "run_id", kind: ColumnType::Utf8, nullable: false, doc: "Unique name of the run" },
    Column { name: "host", kind: ColumnType::Utf8, nullable: false, doc: "Host name" },
    Column {
        name: "rank",
        kind: ColumnType::Int32,
        nullable: false,
        doc: "Rank of the process in a distributed run, 0 otherwise",
    },
];

/// Columns of the table of this kind of record.
pub fn columns(kind: RecordKind) -> &'static [Column] {
    static TABLES: [OnceLock<Vec<Column>>; RecordKind::ALL.len()] = [const { OnceLock::new() }; RecordKind::ALL.len()];
    TABLES[kind as usize].get_or_init(|| {
        let mut all = OF_RUN.to_vec();
        match kind {
            RecordKind::Span => SpanRecord::describe(&mut all),
            RecordKind::Step => StepRecord::describe(&mut all),
            RecordKind::Request => RequestRecord::describe(&mut all),
            RecordKind::Sample => SampleRecord::describe(&mut all),
            RecordKind::Kernel => KernelRecord::describe(&mut all),
            RecordKind::Stack => StackRecord::describe(&mut all),
            RecordKind::StackSample => StackSampleRecord::describe(&mut all),
            RecordKind::Perturbation => PerturbationRecord::describe(&mut all),
        }
        all
    })
}
