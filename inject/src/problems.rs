//! What went wrong in the recording: for the run and for `candlescope record`, and where there is no run in a line on
//! standard error, which else is the program's.

use candlescope_core::Handle;
use candlescope_core::Problem;
use candlescope_core::run::env_key;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Texts that are kept.
///
/// Overload policy: further ones are left out, because what is reported again and again differs by its figures alone.
const MOST: usize = 32;

static PROBLEMS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static HANDLE: OnceLock<Handle> = OnceLock::new();

/// This was reported.
pub(crate) fn reported(problem: &Problem) {
    let text = problem.to_string();
    let mut problems = PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner);
    if problems.len() < MOST && !problems.contains(&text) {
        problems.push(text);
        drop(problems);
        tell();
    }
}

/// The session to which they are told, with those from before it had begun.
pub(crate) fn told_to(handle: Handle) {
    let _ = HANDLE.set(handle);
    tell();
}

/// One line on standard error.
pub(crate) fn complain(text: &str) {
    candlescope_core::diagnostics::print(&format!("candlescope: {text}\n"));
}

/// At once, as what is reported while a session ends is in its last second.
fn tell() {
    let Some(handle) = HANDLE.get() else { return };
    let problems = PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if !problems.is_empty() {
        handle.set_environment(env_key::RECORDER_PROBLEMS.name(), problems);
    }
}
