//! Asks once, when the layer has come into a subscriber, whether a filter hides the model's spans from it.

use super::threads;
use crate::shared::SessionState;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end of a session waits for an answer.
const PATIENCE: Duration = Duration::from_millis(200);

/// Who asks, if somebody does.
#[derive(Debug, Default)]
pub(crate) struct FilterQuery(Option<JoinHandle<()>>);

impl FilterQuery {
    /// Asks if there is news. On a thread of its own, because filters may keep what they answered for the next event of
    /// the thread. At the end it waits for the answer for a short time.
    pub(crate) fn ask(&mut self, shared: &Arc<SessionState>, end: bool) {
        if let Some(place) = shared.visible.to_ask() {
            let shared = shared.clone();
            let ask = move || {
                // None if the subscriber is gone: it was a short one.
                if let Some(finding) = place.upgrade().and_then(|dispatch| shared.visible.answer(&dispatch)) {
                    shared.notices.add(finding);
                }
            };
            // Without a thread nobody asks: what is missing shows at the end.
            self.0 = threads::spawn("cs-filters", ask).ok();
        }
        let deadline = Instant::now() + PATIENCE;
        while end && self.0.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
