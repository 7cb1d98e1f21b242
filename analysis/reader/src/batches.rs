//! Streams a run's records in batches of bounded size, so that a run of any length is read in constant memory.

use super::columns::TextColumn;
use super::discover::{MOST_FINDINGS, more_segments};
use super::file_findings::short;
use super::footer::{self, Refusal, guarded};
use super::intern::{Interner, OTHER};
use super::long_texts::LongTexts;
use super::pages::rows_at_a_time;
use super::segment::Segment;
use super::tables::FromColumns;
use crate::limits::{ExceededLimit, Limit, ReadLimits};
use arrow_array::RecordBatch;
use candlescope_schema::run::{Code, Finding, Place, columns};
use candlescope_schema::{Batch, RecordKind};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use std::collections::BTreeMap;

/// Rows decoded at a time: large enough that the work per batch does not matter, small enough to stay in cache.
const ROWS: usize = 8192;

/// Names of other runs that are remembered.
const OTHER_RUNS: usize = 8;

/// Iterator over a run's records; made by [`Run::batches`](crate::Run::batches) and [`Run::table`](crate::Run::table).
///
/// It never fails: reading of a damaged segment stops at the damage, which [`findings`](Batches::findings) reports
/// afterwards, with what opening the run showed.
#[derive(Debug)]
pub struct Batches<'a> {
    /// Segments to come, in reverse.
    queue: Vec<&'a Segment>,
    open: Option<OpenSegment<'a>>,
    limits: &'a ReadLimits,
    /// What opening the run showed.
    opened: &'a [Finding],
    /// Whether the caller holds the records, so that their number is limited.
    held: bool,
    /// Columns that are not read.
    left_out: Vec<(RecordKind, Vec<&'static str>)>,
    interner: Interner,
    long_texts: LongTexts,
    run_id: Option<String>,
    /// Names of some other runs, and the number of rows of all of them.
    other_runs: (Vec<String>, u64),
    malformed: BTreeMap<RecordKind, u64>,
    read: BTreeMap<RecordKind, u64>,
    findings: Vec<Finding>,
    /// Findings beyond the limit, which are only counted.
    unsaid: u64,
}

#[derive(Debug)]
struct OpenSegment<'a> {
    segment: &'a Segment,
    reader: ParquetRecordBatchReader,
    rows: u64,
}

impl<'a> Batches<'a> {
    /// Of these segments, in their order, which are those of the run of this name, if a manifest has one. Opening the
    /// run showed `opened`.
    pub(super) fn new(
        segments: impl Iterator<Item = &'a Segment>,
        run_id: Option<String>,
        limits: &'a ReadLimits,
        opened: &'a [Finding],
    ) -> Self {
        let mut queue: Vec<_> = segments.collect();
        queue.reverse();
        Self {
            queue,
            open: None,
            limits,
            opened,
            held: false,
            left_out: Vec::new(),
            interner: Interner::new(limits),
            long_texts: LongTexts::default(),
            run_id,
            other_runs: (Vec::new(), 0),
            malformed: BTreeMap::new(),
            read: BTreeMap::new(),
            findings: Vec::new(),
            unsaid: 0,
        }
    }

    /// The same for a caller that holds the records: it yields no more requests, steps and samples than [`ReadLimits`]
    /// allows to be held, and [`findings`](Self::findings) says so. Of kernels whoever holds them counts.
    #[must_use]
    pub fn held(self) -> Self {
        Self { held: true, ..self }
    }

    /// The same without reading these columns of a table: they come as if they were null, or zero where a record has no
    /// place for null. A column without which a row is malformed must not be among them.
    #[must_use]
    pub fn without(mut self, kind: RecordKind, columns: Vec<&'static str>) -> Self {
        self.left_out.push((kind, columns));
        self
    }

    /// The same of some tables only.
    #[must_use]
    pub fn of_tables(mut self, kinds: &[RecordKind]) -> Self {
        self.queue.retain(|segment| kinds.contains(&segment.kind));
        self
    }

    /// Takes all records of these tables, before those of all others.
    pub fn take_tables(&mut self, kinds: &[RecordKind], mut take: impl FnMut(Batch)) {
        let queue = std::mem::take(&mut self.queue).into_iter();
        let (now, later) = queue.partition(|segment| kinds.contains(&segment.kind));
        self.queue = now;
        while let Some(batch) = self.advance() {
            take(batch);
        }
        self.queue = later;
    }

    /// Records read so far.
    pub fn records(&self, kind: RecordKind) -> u64 {
        self.read.get(&kind).copied().unwrap_or(0)
    }

    /// What is wrong with the run's files: first what opening the run showed ([`Run::findings`](crate::Run::findings)),
    /// whatever tables are read, then what was noticed while reading; complete once the iterator has ended.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = [self.opened, &self.findings].concat();
        findings.extend(more_segments(self.unsaid));
        findings.extend(self.long_texts.finding(self.limits));
        for met in self.interner.met() {
            findings.push(met.finding("the run", &format!("what comes after them reads as `{OTHER}`")));
        }
        let (names, rows) = &self.other_runs;
        if *rows > 0 {
            let names: Vec<_> = names.iter().take(3).map(|name| format!("`{}`", short(name))).collect();
            let finding = Finding::new(
                Code::RowsOfOtherRuns,
                "{rows:raw} rows belong to other runs ({names}) than `{run}` and are left out",
                "Keep one run to a directory",
            );
            let finding = finding.count("rows", *rows).text("names", names.join(", "));
            findings.push(finding.text("run", self.run_id.as_deref().unwrap_or_default()));
        }
        for (kind, rows) in &self.malformed {
            let finding = Finding::new(
                Code::RowsMalformed,
                "{rows:raw} rows of table `{table}` lack a start, duration, thread or number, or have an impossible one; \
                 they are left out",
                "Write runs with candlescope's Parquet exporter",
            );
            findings.push(finding.at(Place::Table, kind.table()).count("rows", *rows));
        }
        findings
    }

    fn advance(&mut self) -> Option<Batch> {
        loop {
            let Some(mut open) = self.open.take() else {
                self.open_next()?;
                continue;
            };
            let (kind, limits, long_texts) = (open.segment.kind, self.limits, &mut self.long_texts);
            let next = guarded("one of its pages", || {
                let Some(rows) = open.reader.next().transpose().map_err(parquet::errors::ParquetError::from)? else {
                    return Ok(None);
                };
                let rows = long_texts.cut(rows, limits, &open.segment.path);
                Ok(Some(rows.map_err(parquet::errors::ParquetError::from)?))
            });
            match next {
                Ok(None) => {}
                Ok(Some(mut rows)) => {
                    open.rows += rows.num_rows() as u64;
                    let room = self.room(kind);
                    if rows.num_rows() as u64 > room {
                        let queued = self.queue.iter().filter(|segment| segment.kind == kind);
                        let left = queued.map(|segment| segment.rows).fold(rows.num_rows() as u64, u64::saturating_add);
                        let here = open.segment.rows.saturating_sub(open.rows);
                        self.full(kind, self.records(kind).saturating_add(left).saturating_add(here));
                        rows = rows.slice(0, room as usize);
                    } else {
                        self.open = Some(open);
                    }
                    let batch = self.convert(kind, &rows);
                    if !batch.is_empty() {
                        return Some(batch);
                    }
                }
                Err(why) => self.refused(open.segment, open.rows, &why),
            }
        }
    }

    fn open_next(&mut self) -> Option<()> {
        let segment = self.queue.pop()?;
        let left_out = self.left_out.iter().filter(|(kind, _)| *kind == segment.kind);
        let left_out: Vec<&str> = left_out.flat_map(|(_, names)| names.iter().copied()).collect();
        match open(segment, self.limits, &left_out) {
            Ok(reader) => self.open = Some(OpenSegment { segment, reader, rows: 0 }),
            Err(why) => self.refused(segment, 0, &why),
        }
        Some(())
    }

    fn refused(&mut self, segment: &Segment, rows: u64, why: &Refusal) {
        let missing = segment.rows.saturating_sub(rows);
        if self.findings.len() >= MOST_FINDINGS {
            self.unsaid += 1;
            return;
        }
        let path = segment.path.display().to_string();
        self.findings.push(match why {
            Refusal::Limit(exceeded) => {
                exceeded.finding(&format!("`{path}`"), &format!("{missing} of its {} rows are missing", segment.rows))
            }
            Refusal::Damaged(why) => Finding::new(
                Code::SegmentCorrupt,
                "`{file}` is damaged ({why}): {missing:raw} of its {rows:raw} rows are missing",
                "Copy the file again from where the run was made, or delete it to accept the loss",
            )
            .at(Place::File, path)
            .text("why", short(why))
            .count("missing", missing)
            .count("rows", segment.rows),
        });
    }

    /// How many more rows of a table may be held.
    fn room(&self, kind: RecordKind) -> u64 {
        match held_limit(kind).filter(|_| self.held) {
            Some(limit) => self.limits.get(limit).saturating_sub(self.records(kind)),
            None => u64::MAX,
        }
    }

    /// Skips the rest of a table, of which no more may be held.
    fn full(&mut self, kind: RecordKind, table_rows: u64) {
        let Some(limit) = held_limit(kind) else { return };
        self.findings.push(left_out(self.limits, limit, kind, table_rows));
        self.queue.retain(|segment| segment.kind != kind);
    }

    /// Which rows belong to this run. Without a manifest that names the run, the first row decides.
    fn keep(&mut self, rows: &RecordBatch) -> Vec<bool> {
        let ids = TextColumn::of(rows, "run_id");
        if rows.num_rows() == 0 {
            return Vec::new();
        }
        let own = self.run_id.get_or_insert_with(|| ids.get(0).unwrap_or_default().to_string());
        // Each value is compared once, not in each row.
        let (is_own, no_name_is_own) = (ids.map_values(|id| id == own), own.is_empty());
        let is_own = |row| is_own.get(ids.id(row) as usize).copied().unwrap_or(no_name_is_own);
        let keep: Vec<bool> = (0..rows.num_rows()).map(is_own).collect();
        let (names, others) = &mut self.other_runs;
        for (row, _) in keep.iter().enumerate().filter(|(_, own)| !**own) {
            let id = ids.get(row).unwrap_or_default();
            *others += 1;
            if names.len() < OTHER_RUNS && !names.iter().any(|name| name == id) {
                names.push(id.to_string());
            }
        }
        keep
    }

    fn convert(&mut self, kind: RecordKind, rows: &RecordBatch) -> Batch {
        let keep = self.keep(rows);
        let interner = &mut self.interner;
        let mut batch = Batch::default();
        let malformed = match kind {
            RecordKind::Span => FromColumns::rows(rows, interner, &keep, &mut batch.spans),
            RecordKind::Step => FromColumns::rows(rows, interner, &keep, &mut batch.steps),
            RecordKind::Request => FromColumns::rows(rows, interner, &keep, &mut batch.requests),
            RecordKind::Sample => FromColumns::rows(rows, interner, &keep, &mut batch.samples),
            RecordKind::Kernel => FromColumns::rows(rows, interner, &keep, &mut batch.kernels),
            RecordKind::Stack => FromColumns::rows(rows, interner, &keep, &mut batch.stacks),
            RecordKind::StackSample => FromColumns::rows(rows, interner, &keep, &mut batch.stack_samples),
            RecordKind::Perturbation => FromColumns::rows(rows, interner, &keep, &mut batch.perturbations),
        };
        *self.read.entry(kind).or_default() += batch.count(kind);
        if malformed > 0 {
            *self.malformed.entry(kind).or_default() += malformed;
        }
        batch
    }
}

/// Of a table of so many rows, those beyond a limit are left out.
pub fn left_out(limits: &ReadLimits, limit: Limit, kind: RecordKind, rows: u64) -> Finding {
    let allowed = limits.get(limit);
    let exceeded = ExceededLimit { limit, found: Some(rows).filter(|n| *n > allowed), allowed };
    let table = kind.table();
    let effect = format!(
        "further rows are left out. Figures of {table} cover only this part, and figures that relate another table, such as \
         intervals of the whole run, to {table} are inconsistent"
    );
    exceeded.finding(&format!("table `{table}`"), &effect)
}

/// The limit on held rows of a table. There is none for intervals, because passes do not keep them, and for kernels, which
/// each pass keeps in its own way.
fn held_limit(kind: RecordKind) -> Option<Limit> {
    match kind {
        RecordKind::Step => Some(Limit::Steps),
        RecordKind::Request => Some(Limit::Requests),
        RecordKind::Sample => Some(Limit::Samples),
        RecordKind::Stack => Some(Limit::Stacks),
        RecordKind::StackSample => Some(Limit::StackSamples),
        RecordKind::Perturbation => Some(Limit::Perturbations),
        RecordKind::Kernel | RecordKind::Span => None,
    }
}

fn open(segment: &Segment, limits: &ReadLimits, left_out: &[&str]) -> Result<ParquetRecordBatchReader, Refusal> {
    let (file, metadata) = footer::open(&segment.path, limits)?;
    guarded("its footer", || {
        let wanted: Vec<_> =
            columns(segment.kind).iter().map(|c| c.name).filter(|name| !left_out.contains(name)).collect();
        let schema = metadata.parquet_schema();
        let leaves: Vec<_> =
            (0..schema.num_columns()).filter(|&i| wanted.contains(&schema.get_column_root(i).name())).collect();
        let rows = rows_at_a_time(&file, metadata.metadata(), &leaves, limits, ROWS)?;
        let mask = ProjectionMask::leaves(schema, leaves);
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
        Ok(builder.with_projection(mask).with_batch_size(rows).build()?)
    })
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        self.advance()
    }
}
