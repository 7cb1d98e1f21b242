//! The exporter: when segments begin, rotate and are deleted.

use super::encoding::chunk::ChunkWriter;
use super::file_system::{Disk, Files};
use super::parquet_config::ParquetConfig;
use super::segment::{SegmentError, TableWriter, WriterContext};
use super::store::RunDir;
use super::tables::{Kernels, Perturbations, Requests, RunColumns, Samples, Spans, StackSamples, Stacks, Steps};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, ExportError, Exporter, Ledger, RecordKind};
use parquet::errors::ParquetError;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Age of the very first segments.
const FIRST_ROTATION: Duration = Duration::from_secs(2);

/// Writes a run to disk; see the [module](super).
///
/// Memory is bounded by one row group per table. A full disk costs the open segments, which are dropped and counted;
/// the exporter then tries again with the records that follow.
pub struct ParquetExporter {
    config: ParquetConfig,
    files: Arc<dyn Files>,
    writer: Option<Writer>,
}

impl std::fmt::Debug for ParquetExporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetExporter").field("config", &self.config).finish_non_exhaustive()
    }
}

struct Writer {
    dir: RunDir,
    shared: WriterContext,
    spans: TableWriter<Spans>,
    steps: TableWriter<Steps>,
    requests: TableWriter<Requests>,
    samples: TableWriter<Samples>,
    kernels: TableWriter<Kernels>,
    stacks: TableWriter<Stacks>,
    stack_samples: TableWriter<StackSamples>,
    perturbations: TableWriter<Perturbations>,
    /// Number of the open segments, the same in every table.
    number: u32,
    /// When the open segments got their first row.
    opened: Option<Instant>,
}

/// Does the same for every table and returns the last error, if any: a failure of one table must not keep the others
/// from being written.
macro_rules! each_table {
    ($writer:expr, $table:ident => $action:expr) => {{
        let mut outcome: Result<(), SegmentError> = Ok(());
        {
            let $table = &mut $writer.spans;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.steps;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.requests;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.samples;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.kernels;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.stacks;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.stack_samples;
            outcome = $action.and(outcome);
        }
        {
            let $table = &mut $writer.perturbations;
            outcome = $action.and(outcome);
        }
        outcome
    }};
}

impl ParquetExporter {
    /// An exporter that will write to `config.run_dir`. Nothing is touched before [`start`](Exporter::start).
    pub fn new(config: ParquetConfig) -> Self {
        Self { config, files: Arc::new(Disk), writer: None }
    }

    #[cfg(test)]
    pub(super) fn with_files(config: ParquetConfig, files: Arc<dyn Files>) -> Self {
        Self { config, files, writer: None }
    }

    /// The run's directory, as it was given; of one in folders by day and machine, those of its start once it has
    /// begun.
    pub fn run_dir(&self) -> &Path {
        &self.config.run_dir
    }

    fn writer(&mut self) -> Result<&mut Writer, ExportError> {
        self.writer.as_mut().ok_or_else(|| ExportError::fatal("the Parquet exporter was used before it was started"))
    }

    /// Age at which the open segments are finished: short at first, so that a program killed after seconds leaves
    /// something to read, and twice as long each time until it is `rotate_interval`.
    fn rotate_after(&self) -> Duration {
        let finished = self.writer.as_ref().map_or(0, |w| w.number);
        FIRST_ROTATION.saturating_mul(1 << finished.min(16)).min(self.config.rotate_interval)
    }

    /// Begins the run in its directory.
    fn open(&mut self, dir: RunDir, run: &RunManifest) -> Result<(), ExportError> {
        dir.write_manifest(&RunManifest { complete: false, ended_ns: None, ..run.clone() })
            .map_err(|e| ExportError::fatal(e.to_string()))?;
        let writer = Writer::new(dir, &self.config, self.files.clone(), run).map_err(|e| {
            ExportError::fatal(format!(
                "Parquet settings are not usable: {e}: compression_level is {}, use 1 to 22",
                self.config.compression_level
            ))
        })?;
        self.writer = Some(writer);
        Ok(())
    }

    fn rotate_if_due(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let (rows, bytes, age) = (self.config.rotate_rows, self.config.segment_bytes(), self.rotate_after());
        let budget = self.config.disk_budget;
        let writer = self.writer()?;
        let due = writer.spans.open_rows() >= rows
            || writer.spans.open_bytes() >= bytes
            || writer.samples.open_bytes() >= bytes
            || writer.steps.open_bytes() >= bytes
            || writer.kernels.open_bytes() >= bytes
            || writer.stacks.open_bytes() >= bytes
            || writer.stack_samples.open_bytes() >= bytes
            || writer.opened.is_some_and(|opened| opened.elapsed() >= age);
        if due { writer.rotate(budget, ledger) } else { Ok(()) }
    }
}

impl Exporter for ParquetExporter {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        self.config.run_dir = self.config.dir_of(run.started_ns, &run.host);
        let dir =
            RunDir::create(&self.config.run_dir, self.files.clone()).map_err(|e| ExportError::fatal(e.to_string()))?;
        self.open(dir.clone(), run).inspect_err(|_| dir.remove())
    }

    fn abandon(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.dir.remove();
        }
    }

    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let manifest = RunManifest { complete: false, ended_ns: None, ..run.clone() };
        self.writer()?.dir.write_manifest(&manifest).map_err(|e| ExportError::new(e.to_string()))
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        let outcome = self.writer()?.take(batch, ledger);
        self.rotate_if_due(ledger).and(outcome)
    }

    fn flush(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let budget = self.config.disk_budget;
        self.writer()?.rotate(budget, ledger)
    }

    fn tick(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        self.rotate_if_due(ledger)
    }

    fn close(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let budget = self.config.disk_budget;
        let writer = self.writer()?;
        let outcome = writer.rotate(budget, ledger);
        writer.complete_tables(ledger).and(outcome)
    }

    fn finish(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let writer = self.writer()?;
        writer.dir.write_manifest(run).map_err(|e| {
            ExportError::fatal(format!(
                "{e} (the run's tables are whole; its manifest may still be the one written at the start)"
            ))
        })
    }
}

impl Writer {
    fn new(
        dir: RunDir,
        config: &ParquetConfig,
        files: Arc<dyn Files>,
        run: &RunManifest,
    ) -> Result<Self, ParquetError> {
        use candlescope_core::RecordKind::{Kernel, Perturbation, Request, Sample, Span, Stack, StackSample, Step};
        let columns = RunColumns {
            run_id: run.run_id.clone(),
            host: run.host.clone(),
            rank: i32::try_from(run.rank).unwrap_or(i32::MAX),
        };
        let level = config.compression_level;
        Ok(Self {
            spans: TableWriter::new(dir.table(Span), level, &columns)?,
            steps: TableWriter::new(dir.table(Step), level, &columns)?,
            requests: TableWriter::new(dir.table(Request), level, &columns)?,
            samples: TableWriter::new(dir.table(Sample), level, &columns)?,
            kernels: TableWriter::new(dir.table(Kernel), level, &columns)?,
            stacks: TableWriter::new(dir.table(Stack), level, &columns)?,
            stack_samples: TableWriter::new(dir.table(StackSample), level, &columns)?,
            perturbations: TableWriter::new(dir.table(Perturbation), level, &columns)?,
            shared: WriterContext {
                files,
                chunks: ChunkWriter::new(level)?,
                run: columns,
                row_group_rows: config.row_group_rows.max(1),
                max_buffer_bytes: config.max_buffer_bytes,
            },
            dir,
            number: 0,
            opened: None,
        })
    }

    fn take(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.opened.get_or_insert_with(Instant::now);
        let (number, shared) = (self.number, &mut self.shared);
        self.spans
            .take(&batch.spans, number, shared, ledger)
            .and(self.steps.take(&batch.steps, number, shared, ledger))
            .and(self.requests.take(&batch.requests, number, shared, ledger))
            .and(self.samples.take(&batch.samples, number, shared, ledger))
            .and(self.kernels.take(&batch.kernels, number, shared, ledger))
            .and(self.stacks.take(&batch.stacks, number, shared, ledger))
            .and(self.stack_samples.take(&batch.stack_samples, number, shared, ledger))
            .and(self.perturbations.take(&batch.perturbations, number, shared, ledger))
            .map_err(export_error)
    }

    /// Finishes the open segments of all tables and makes room.
    fn rotate(&mut self, budget: Option<u64>, ledger: &Ledger) -> Result<(), ExportError> {
        if self.opened.take().is_none() {
            return Ok(());
        }
        let (number, shared) = (self.number, &mut self.shared);
        let outcome = each_table!(self, table => table.finish(number, shared, ledger)).map_err(export_error);
        self.number += 1;
        match budget {
            Some(budget) => self.keep_within(budget, ledger).and(outcome),
            None => outcome,
        }
    }

    /// Gives every table at least one segment, but for those of stacks and experiments: of a run without them they say
    /// nothing, and the end of a run on a full disk needs the room.
    fn complete_tables(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let (number, shared) = (self.number, &mut self.shared);
        each_table!(self, table => match table.kind() {
            RecordKind::Stack | RecordKind::StackSample | RecordKind::Perturbation => Ok(()),
            _ => table.finish_empty(number, shared, ledger),
        })
        .map_err(export_error)
    }

    fn keep_within(&mut self, budget: u64, ledger: &Ledger) -> Result<(), ExportError> {
        loop {
            let total = self.spans.finished_bytes()
                + self.steps.finished_bytes()
                + self.requests.finished_bytes()
                + self.samples.finished_bytes()
                + self.kernels.finished_bytes()
                + self.stacks.finished_bytes()
                + self.stack_samples.finished_bytes()
                + self.perturbations.finished_bytes();
            if total <= budget {
                return Ok(());
            }
            // Never the last segment of a table: a run without its latest data is useless. Nor stacks, which any later
            // sample may name, and experiments; they are few.
            let deleted = if self.spans.finished() > 1 {
                self.spans.delete_oldest(ledger)
            } else if self.kernels.finished() > 1 {
                self.kernels.delete_oldest(ledger)
            } else if self.stack_samples.finished() > 1 {
                self.stack_samples.delete_oldest(ledger)
            } else if self.samples.finished() > 1 {
                self.samples.delete_oldest(ledger)
            } else if self.steps.finished() > 1 {
                self.steps.delete_oldest(ledger)
            } else if self.requests.finished() > 1 {
                self.requests.delete_oldest(ledger)
            } else {
                return Ok(());
            };
            deleted.map_err(|e| {
                ExportError::new("cannot delete the oldest segment to keep the disk budget").with_source(e)
            })?;
        }
    }
}

fn export_error(error: SegmentError) -> ExportError {
    ExportError::new(error.to_string())
}
