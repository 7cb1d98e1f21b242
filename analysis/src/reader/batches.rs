//! Streams a run's records in batches of bounded size, so that a run of any length is read in constant memory.

use super::columns::TextColumn;
use super::discover::short;
use super::intern::Interner;
use super::{Run, Segment, finding, kernels, requests, samples, spans, steps};
use arrow_array::RecordBatch;
use candlescope_core::run::{Finding, Severity, columns};
use candlescope_core::{Batch, RecordKind};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Rows decoded at a time: large enough that per-batch work does not show, small enough to stay in cache.
const ROWS: usize = 8192;

/// Iterator over a run's records; made by [`Run::batches`] and [`Run::table`].
///
/// It never fails: a segment that turns out to be damaged is left at that point, which [`findings`](Batches::findings)
/// tells afterwards.
#[derive(Debug)]
pub struct Batches<'a> {
    /// Segments to come, in reverse.
    queue: Vec<&'a Segment>,
    open: Option<Open<'a>>,
    interner: Interner,
    run_id: Option<String>,
    other_runs: BTreeMap<String, u64>,
    malformed: BTreeMap<RecordKind, u64>,
    read: BTreeMap<RecordKind, u64>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct Open<'a> {
    segment: &'a Segment,
    reader: ParquetRecordBatchReader,
    rows: u64,
}

impl<'a> Batches<'a> {
    pub(super) fn new(run: &'a Run, kinds: &[RecordKind]) -> Self {
        let in_order = kinds.iter().flat_map(|kind| run.segments.iter().filter(|s| s.kind == *kind));
        let mut queue: Vec<_> = in_order.collect();
        queue.reverse();
        Self {
            queue,
            open: None,
            interner: Interner::default(),
            run_id: run.manifest.as_ref().map(|m| m.run_id.clone()).filter(|id| !id.is_empty()),
            other_runs: BTreeMap::new(),
            malformed: BTreeMap::new(),
            read: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    /// Records read so far.
    pub fn records(&self, kind: RecordKind) -> u64 {
        self.read.get(&kind).copied().unwrap_or(0)
    }

    /// What was noticed while reading, complete once the iterator has ended.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.findings.clone();
        if !self.other_runs.is_empty() {
            let rows: u64 = self.other_runs.values().sum();
            let names: Vec<_> = self.other_runs.keys().take(3).map(|name| format!("`{name}`")).collect();
            findings.push(finding(
                Severity::Warning,
                "rows_of_other_runs",
                format!(
                    "{rows} rows belong to other runs ({}) than `{}` and are left out",
                    names.join(", "),
                    self.run_id.as_deref().unwrap_or_default()
                ),
                "Keep one run to a directory",
            ));
        }
        for (kind, rows) in &self.malformed {
            findings.push(finding(
                Severity::Warning,
                "rows_malformed",
                format!("{rows} rows of table `{}` lack a start, duration, thread or number, or have an impossible one; they are left out", kind.table()),
                "Write runs with candlescope's Parquet exporter",
            ));
        }
        findings
    }

    fn open_next(&mut self) -> Option<()> {
        let segment = self.queue.pop()?;
        match open(segment) {
            Ok(reader) => self.open = Some(Open { segment, reader, rows: 0 }),
            Err(why) => self.damaged(segment, 0, &why),
        }
        Some(())
    }

    fn damaged(&mut self, segment: &Segment, rows: u64, why: &str) {
        self.findings.push(finding(
            Severity::Error,
            "segment_corrupt",
            format!(
                "`{}` is damaged ({}): {} of its {} rows are missing",
                segment.path.display(),
                short(why),
                segment.rows.saturating_sub(rows),
                segment.rows
            ),
            "Copy the file again from where the run was made, or delete it to accept the loss",
        ));
    }

    /// Which rows are this run's. The first row decides where no manifest names the run.
    fn keep(&mut self, rows: &RecordBatch) -> Vec<bool> {
        let ids = TextColumn::of(rows, "run_id");
        (0..rows.num_rows())
            .map(|row| {
                let id = ids.get(row).unwrap_or_default();
                let own = self.run_id.get_or_insert_with(|| id.to_string()) == id;
                if !own {
                    *self.other_runs.entry(id.to_string()).or_default() += 1;
                }
                own
            })
            .collect()
    }

    fn convert(&mut self, kind: RecordKind, rows: &RecordBatch) -> Batch {
        let keep = self.keep(rows);
        let interner = &mut self.interner;
        let mut batch = Batch::default();
        let kept = match kind {
            RecordKind::Span => unpack(spans::rows(rows, interner, &keep), &mut batch.spans),
            RecordKind::Step => unpack(steps::rows(rows, interner, &keep), &mut batch.steps),
            RecordKind::Request => unpack(requests::rows(rows, interner, &keep), &mut batch.requests),
            RecordKind::Sample => unpack(samples::rows(rows, interner, &keep), &mut batch.samples),
            RecordKind::Kernel => unpack(kernels::rows(rows, interner, &keep), &mut batch.kernels),
        };
        *self.read.entry(kind).or_default() += batch.count(kind);
        let malformed = kept - batch.count(kind);
        if malformed > 0 {
            *self.malformed.entry(kind).or_default() += malformed;
        }
        batch
    }
}

/// Moves the good rows over and returns how many there were of both kinds.
fn unpack<T>(rows: Vec<Option<T>>, into: &mut Vec<T>) -> u64 {
    let all = rows.len() as u64;
    into.extend(rows.into_iter().flatten());
    all
}

fn open(segment: &Segment) -> Result<ParquetRecordBatchReader, String> {
    let file = File::open(&segment.path).map_err(|error| error.to_string())?;
    guarded(|| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| error.to_string())?;
        let wanted: Vec<_> = columns(segment.kind).iter().map(|c| c.name).collect();
        let fields = builder.schema().fields().iter().enumerate();
        let roots: Vec<_> = fields.filter(|(_, f)| wanted.contains(&f.name().as_str())).map(|(i, _)| i).collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        builder.with_projection(mask).with_batch_size(ROWS).build().map_err(|error| error.to_string())
    })
}

/// Runs a decoder that may panic on crafted input: a report must survive any file.
fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err("its pages make no sense".to_string()))
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        loop {
            let Some(mut open) = self.open.take() else {
                self.open_next()?;
                continue;
            };
            let next = guarded(|| open.reader.next().transpose().map_err(|error| error.to_string()));
            match next {
                Ok(None) => {}
                Ok(Some(rows)) => {
                    open.rows += rows.num_rows() as u64;
                    let kind = open.segment.kind;
                    self.open = Some(open);
                    let batch = self.convert(kind, &rows);
                    if !batch.is_empty() {
                        return Some(batch);
                    }
                }
                Err(why) => self.damaged(open.segment, open.rows, &why),
            }
        }
    }
}
