//! The scope, which keeps a session alive.

use crate::exit::Ending;
use candlescope_core::run::RunManifest;
use candlescope_core::{FlushError, Handle, Session};
use std::sync::Arc;
use std::time::Duration;

/// Keeps candlescope recording. Dropping it flushes and ends the session within the shutdown timeout.
///
/// It may be kept in a `static`, or until `std::process::exit`: the session then ends when the process exits, within the
/// same time limit. A process that aborts or is killed leaves the segments that were finished. For SIGTERM see
/// [`Builder::end_on_sigterm`](crate::Builder::end_on_sigterm).
#[must_use = "recording ends when this guard is dropped"]
#[derive(Debug)]
pub struct Scope {
    ending: Option<Arc<Ending>>,
}

impl Scope {
    /// A scope that records nothing.
    pub fn disabled() -> Self {
        Self { ending: None }
    }

    pub(crate) fn new(session: Session, report_at_end: bool, destinations: Vec<String>) -> Self {
        Self { ending: Some(Ending::new(session, report_at_end, destinations)) }
    }

    /// Whether there is a session.
    pub fn is_enabled(&self) -> bool {
        self.ending.is_some()
    }

    /// The handle, to start, stop, capture the next steps, or get statistics; `None` if nothing is recorded.
    pub fn handle(&self) -> Option<&Handle> {
        self.ending.as_ref().map(|ending| ending.handle())
    }

    /// Makes everything that was recorded so far durable.
    ///
    /// # Errors
    /// If that takes longer than `timeout`, or an exporter cannot flush.
    pub fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        self.handle().map_or(Ok(()), |handle| handle.flush(timeout))
    }

    /// Ends the session and returns its final manifest; `None` if nothing was recorded.
    pub fn finish(mut self) -> Option<RunManifest> {
        self.end()
    }

    fn end(&mut self) -> Option<RunManifest> {
        self.ending.take()?.end()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(handle) = self.handle()
        {
            handle.set_result(
                candlescope_core::run::result_key::ERROR.name(),
                "a panic unwound through the scope of candlescope's guard",
            );
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_run_that_a_panic_ended_is_not_ok() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let (layer, scope) = crate::builder().parquet(&run).layer().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _ends_here = scope;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        drop(layer);
        let manifest = std::fs::read_to_string(run.join("run.json")).unwrap();
        assert!(manifest.contains("a panic unwound") && manifest.contains("program_failed"), "{manifest}");
    }
}
