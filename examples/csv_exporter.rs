//! A complete exporter that writes a line of CSV for each step. CONTRIBUTING.md walks through it.

use candlescope::llm::{self, Tokens};
use candlescope::run::RunManifest;
use candlescope::sdk::{Batch, DropReason, ExportError, Exporter, Ledger, RecordKind};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

/// Writes steps, and no other records, into a file.
struct CsvExporter {
    path: PathBuf,
    /// Made in `start`.
    file: Option<File>,
}

impl CsvExporter {
    fn failed(&self, cause: std::io::Error) -> ExportError {
        let message = format!("cannot write {}: name a new file where there is space", self.path.display());
        ExportError::fatal(message).with_source(cause)
    }
}

/// The conversion, separate from the file. Unknown values stay empty.
fn lines(batch: &Batch) -> String {
    let mut text = String::new();
    for step in &batch.steps {
        let phase = step.phase.map_or("", |phase| phase.as_str());
        let gpu = step.gpu.map_or(String::new(), |gpu| gpu.dur_ns.to_string());
        let _ = writeln!(text, "{},{phase},{},{},{gpu}", step.step, step.host_start.0, step.host_dur_ns);
    }
    text
}

impl Exporter for CsvExporter {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn start(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        // An existing file is not overwritten.
        let mut file = File::create_new(&self.path).map_err(|e| self.failed(e))?;
        let head = file.write_all(b"step,phase,host_start_ns,host_dur_ns,gpu_dur_ns\n");
        self.file = Some(file);
        head.map_err(|e| self.failed(e))
    }

    fn abandon(&mut self) {
        // The session could not start for another reason: remove what `start` made.
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(lines(batch).as_bytes()));
        // The rule: every record is settled once, as exported or as dropped.
        for kind in RecordKind::ALL {
            match (kind, &written) {
                (RecordKind::Step, Ok(())) => ledger.exported(kind, batch.count(kind)),
                (RecordKind::Step, Err(_)) => ledger.dropped(kind, DropReason::Io, batch.count(kind)),
                _ => ledger.dropped(kind, DropReason::NotTaken, batch.count(kind)),
            }
        }
        written.map_err(|e| self.failed(e))
    }
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "steps.csv".to_string());
    let csv = CsvExporter { path: path.into(), file: None };
    let scope = candlescope::builder().exporter(csv).install()?;
    for position in 1..=3 {
        let _step = llm::decode(Tokens::new(1).context(position));
        tracing::trace_span!("linear").in_scope(|| std::hint::black_box((0..1_000).sum::<u64>()));
    }
    if let Some(manifest) = scope.finish() {
        println!("{:?}", manifest.exporters);
    }
    Ok(())
}
