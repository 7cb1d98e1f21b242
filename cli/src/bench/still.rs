//! What is told while a single repetition lasts: of a slow model that may be minutes.

use crate::output::note;
use candlescope_lab::method::CaseId;
use indicatif::ProgressBar;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a repetition is looked at: a thread that wakes up once in this time takes nothing from what is measured.
const EVERY: Duration = Duration::from_secs(10);

/// The repetition under way.
struct RunningRepetition {
    case: CaseId,
    first: bool,
    since: Instant,
}

#[derive(Default)]
struct State {
    running: Option<RunningRepetition>,
    over: bool,
}

/// Looks at the repetition that is under way, from a thread of its own.
pub(super) struct StillWatch {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl StillWatch {
    /// Tells on `bar` if that is on a terminal, else in lines; without it, nothing.
    pub(super) fn new(bar: Option<(ProgressBar, bool)>) -> Self {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        if let Some((bar, on_terminal)) = bar {
            let shared = shared.clone();
            let look = move || {
                let (state, changed) = &*shared;
                loop {
                    let over = |state: &mut State| !state.over;
                    let waited = changed.wait_timeout_while(lock(state), EVERY, over);
                    let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                    if state.over {
                        return;
                    }
                    let text = state.running.as_ref().and_then(|running| words(running, running.since.elapsed()));
                    // Whoever measures never waits for what is written here.
                    drop(state);
                    match text {
                        Some(text) if on_terminal => bar.set_message(text),
                        Some(text) => note(&format!("progress: {text}")),
                        None => {}
                    }
                }
            };
            // Where there is no thread for it, nothing is told.
            let _ = std::thread::Builder::new().name("cs-still".into()).spawn(look);
        }
        Self { shared }
    }

    /// A repetition begins.
    pub(super) fn begins(&self, case: &CaseId, first: bool) {
        lock(&self.shared.0).running = Some(RunningRepetition { case: case.clone(), first, since: Instant::now() });
    }

    /// It ended.
    pub(super) fn ended(&self) {
        lock(&self.shared.0).running = None;
    }

    /// Nothing is under way any more, and nothing will be.
    pub(super) fn end(&self) {
        lock(&self.shared.0).over = true;
        self.shared.1.notify_all();
    }
}

impl Drop for StillWatch {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `still in the first repetition of CASE, 60 s`; nothing of one that has not been under way for long.
fn words(running: &RunningRepetition, lasts: Duration) -> Option<String> {
    let which = if running.first { "the first" } else { "a" };
    (lasts >= EVERY).then(|| format!("still in {which} repetition of {}, {} s", running.case.key(), lasts.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_repetition_is_told() {
        let case = CaseId::new("seqlen").param("prompt_tokens", 1000);
        let running = RunningRepetition { case: case.clone(), first: true, since: Instant::now() };
        assert_eq!(words(&running, Duration::from_secs(3)), None);
        let text = words(&running, Duration::from_secs(60)).unwrap();
        assert_eq!(text, format!("still in the first repetition of {}, 60 s", case.key()));
        // Nobody waits for the thread at the end.
        let still = StillWatch::new(Some((ProgressBar::hidden(), false)));
        still.begins(&case, false);
        assert!(lock(&still.shared.0).running.is_some());
        still.ended();
        assert!(lock(&still.shared.0).running.is_none());
        still.end();
        assert!(lock(&still.shared.0).over);
    }
}
