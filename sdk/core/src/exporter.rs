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
    /// Whether nothing later can succeed either; the exporter then gets no more batches.
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

    /// Adds the error that caused this one, for [`source`](std::error::Error::source).
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
/// Each exporter runs on a thread of its own behind a bounded queue, so it may block as long as it likes. If it is too
/// slow, its queue fills and further batches are dropped *for this exporter only* and counted; neither the application
/// nor another exporter is affected. A panic ends the exporter, not the application.
///
/// **Accounting.** For every record of every batch passed to [`export`](Exporter::export) the exporter calls exactly
/// one of [`Ledger::exported`] (once the record is at its destination) and [`Ledger::dropped`], at the latest in
/// [`close`](Exporter::close). What is left over after `close` is counted by the pipeline as dropped for the reason
/// `unaccounted`.
///
/// Calls come in this order: `attach`, `start`, then any mix of `update`, `export`, `flush` and `tick`, then `close`,
/// then `finish`; or `attach`, `start`, then `abandon`.
pub trait Exporter: Send + 'static {
    /// Short stable name, used in reports, metrics and thread names: `parquet`, `perfetto`, `otlp`, …
    fn name(&self) -> &'static str;

    /// Called right before `start`. `session` gives the state of the session at any time: for exporters that show the
    /// session's account, its losses and what became of the records of each exporter.
    fn attach(&mut self, session: &SessionStats) {
        let _ = session;
    }

    /// Called before any record comes, with the manifest as it is known at the start.
    ///
    /// # Errors
    /// If the destination cannot be used; the session then fails to start and gives the reason. An exporter whose
    /// `start` fails removes what it had made so far itself.
    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let _ = run;
        Ok(())
    }

    /// Called after a successful `start` if the session cannot start for another reason, such as a port that another
    /// exporter found in use. It removes what `start` made, and nothing else, so that the next try does not find it in
    /// its way. No other call follows.
    fn abandon(&mut self) {}

    /// Called when something about the run became known after the start, such as the model that was loaded.
    ///
    /// # Errors
    /// As for `export`.
    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let _ = run;
        Ok(())
    }

    /// Takes one batch. The exporter may keep records back; see the accounting rule above.
    ///
    /// # Errors
    /// An error is reported at most once a minute, and kept as the exporter's last error.
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError>;

    /// Makes everything taken so far durable, as far as the destination allows.
    ///
    /// # Errors
    /// As for `export`.
    fn flush(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let _ = ledger;
        Ok(())
    }

    /// Called about once a second while no batches come, for rotation by time and the like.
    ///
    /// # Errors
    /// As for `export`.
    fn tick(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let _ = ledger;
        Ok(())
    }

    /// No more batches come: every record kept back must be exported or dropped now.
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

/// An error and its causes on one line.
#[doc(hidden)]
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
