//! The exporter's contract: what a destination of records implements.

use crate::ledger::Ledger;
use crate::record::Batch;
use crate::run::RunManifest;
use crate::stats::SessionStats;

/// An exporter could not do what it was asked. The message names the file, service or option and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExportError {
    message: String,
    /// Whether nothing later can succeed either: the exporter gets no more batches.
    fatal: bool,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ExportError {
    /// A failure of one operation; later ones may succeed.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), fatal: false, source: None }
    }

    /// A failure after which the exporter cannot go on.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { message: message.into(), fatal: true, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Whether the exporter gets no more batches.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }
}

/// A destination of records: files, a service, a tool.
///
/// Each exporter runs on a thread of its own behind a bounded queue, so it may block as long as it likes: when it is
/// slow its queue fills, further batches are dropped *for this exporter only* and counted, and neither the application
/// nor another exporter notices. A panic ends the exporter, not the application.
///
/// **Accounting.** For every record of every batch passed to [`export`](Exporter::export) the exporter calls exactly
/// one of [`Ledger::exported`] (once it is where it should be) or [`Ledger::dropped`], at the latest in
/// [`close`](Exporter::close). The pipeline counts what is left over after `close` as dropped for reason `unaccounted`.
///
/// Calls come in this order: `attach`, `start`, then any mix of `update`, `export`, `flush` and `tick`, then `close`,
/// then `finish`; or `attach`, `start`, then `abandon`.
pub trait Exporter: Send + 'static {
    /// Short stable name, used in reports, metrics and thread names: `parquet`, `perfetto`, `otlp`, …
    fn name(&self) -> &'static str;

    /// Called right before `start`, with where to ask how the session stands: for exporters that show its own account,
    /// its losses and what became of the records of each exporter.
    fn attach(&mut self, session: &SessionStats) {
        let _ = session;
    }

    /// Called before any record comes, with the manifest as known at the start.
    ///
    /// # Errors
    /// When the destination cannot be used; the session then fails to start and names the reason. What `start` had made
    /// until then it takes back itself.
    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let _ = run;
        Ok(())
    }

    /// Called after a `start` that went well where the session could not start for another reason, such as a port that
    /// another exporter found in use: takes back what `start` made, and only that, so that it is not in the way of the
    /// next try. No other call follows.
    fn abandon(&mut self) {}

    /// Called when facts about the run became known after the start, such as the model that was loaded.
    ///
    /// # Errors
    /// As for `export`.
    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let _ = run;
        Ok(())
    }

    /// Takes one batch. May keep records back; see the accounting rule above.
    ///
    /// # Errors
    /// Logged at most once a minute and kept as the exporter's last error.
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError>;

    /// Makes everything taken so far durable, as far as that makes sense for the destination.
    ///
    /// # Errors
    /// As for `export`.
    fn flush(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let _ = ledger;
        Ok(())
    }

    /// Called about once a second while nothing comes in, for rotation by time and the like.
    ///
    /// # Errors
    /// As for `export`.
    fn tick(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let _ = ledger;
        Ok(())
    }

    /// No more batches come: everything kept back is exported or dropped now.
    ///
    /// # Errors
    /// As for `export`.
    fn close(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let _ = ledger;
        Ok(())
    }

    /// Called last, with the final manifest: counts, losses of all exporters, verdict.
    ///
    /// # Errors
    /// As for `export`.
    fn finish(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let _ = run;
        Ok(())
    }
}

/// An error with its causes on one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
