//! An exporter that keeps everything in memory, for tests and for programs that look at their own records.

use crate::exporter::{ExportError, Exporter};
use crate::ledger::Ledger;
use crate::record::Batch;
use crate::run::RunManifest;
use std::sync::{Arc, Mutex, PoisonError};

/// Collects every record. Clones share what was collected: keep one and give the other to the session.
///
/// It grows without limit: do not use it for long runs.
///
/// ```
/// # mod candlescope { pub use candlescope_core as sdk; }
/// use candlescope::sdk::{MemoryExporter, Session};
/// use tracing_subscriber::prelude::*;
/// let memory = MemoryExporter::new();
/// let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     let span = tracing::trace_span!("work");
///     for _ in 0..3 {
///         span.in_scope(|| ());
///     }
/// });
/// let manifest = session.finish();
/// assert_eq!(memory.batch().spans.len(), 3); // one interval for each enter/exit pair
/// assert_eq!(manifest.counts["spans"], 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryExporter {
    inner: Arc<Mutex<(Batch, Option<RunManifest>)>>,
}

impl MemoryExporter {
    /// An exporter that has collected nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of everything collected so far, in order of arrival.
    pub fn batch(&self) -> Batch {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The final manifest, once the session has ended.
    pub fn manifest(&self) -> Option<RunManifest> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }
}

impl Exporter for MemoryExporter {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.spans.extend_from_slice(&batch.spans);
        inner.0.steps.extend_from_slice(&batch.steps);
        inner.0.requests.extend_from_slice(&batch.requests);
        inner.0.samples.extend_from_slice(&batch.samples);
        inner.0.kernels.extend_from_slice(&batch.kernels);
        inner.0.stacks.extend_from_slice(&batch.stacks);
        inner.0.stack_samples.extend_from_slice(&batch.stack_samples);
        inner.0.perturbations.extend_from_slice(&batch.perturbations);
        ledger.exported_batch(batch);
        Ok(())
    }

    fn finish(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(run.clone());
        Ok(())
    }
}
