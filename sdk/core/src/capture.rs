//! Captures: a run of the next steps, written while the session goes on.

use crate::exporter::{ExportError, describe};
use crate::run::RunManifest;
use crate::shared::SessionState;
use crossbeam_channel::Receiver;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A capture that is under way, from [`Handle::capture`](crate::Handle::capture). If it is dropped, the capture still
/// goes on to its end.
pub struct Capture {
    pub(crate) steps: Range<u64>,
    pub(crate) finished: Receiver<RunManifest>,
    pub(crate) ended: Arc<EndedAt>,
    pub(crate) shared: Arc<SessionState>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// The first step that is no more in a capture, once the user wants no more.
#[derive(Debug)]
pub(crate) struct EndedAt(AtomicU64);

impl EndedAt {
    pub(crate) fn not_yet() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|step| *step != u64::MAX)
    }
}

impl Capture {
    /// Numbers of the steps that are captured.
    pub fn steps(&self) -> Range<u64> {
        self.steps.clone()
    }

    /// Waits until the run is written, and returns its manifest; `None` if that takes longer than `timeout`, or if the
    /// manifest was returned before.
    pub fn wait(&self, timeout: Duration) -> Option<RunManifest> {
        self.finished.recv_timeout(timeout).ok()
    }

    /// Ends the capture with the steps that have begun, for example because no more will come. [`wait`](Capture::wait)
    /// then returns soon: once the device has answered for these steps, and at the latest when no step has come for five
    /// seconds, so that one that goes on does not hold it up.
    pub fn end(&self) {
        if self.shared.is_forked() {
            return;
        }
        self.shared.control.cut_window(&self.steps, |step| self.ended.0.store(step, Ordering::Release));
    }
}

/// Another window of steps is being captured already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a capture is under way, {remaining} more steps; ask again when it is done")]
pub struct CaptureBusy {
    /// Steps that the other window still needs.
    pub remaining: u64,
}

/// Why a capture could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// Another capture is under way.
    #[error(transparent)]
    Busy(#[from] CaptureBusy),
    /// The exporter could not start; its message names the file or service and the remedy.
    #[error("the {name} exporter cannot start: {}", describe(.cause))]
    Exporter {
        /// Name of the exporter.
        name: &'static str,
        /// What the exporter's `start` returned.
        cause: ExportError,
    },
    /// No steps were asked for.
    #[error("a capture of 0 steps would be empty: ask for at least one")]
    NoSteps,
    /// The session is over.
    #[error("the session has ended, nothing can be captured any more")]
    Ended,
}
