//! What the command says when it dies of a signal: which one, on which thread, doing what, the stack, and where the data
//! is that was recorded until then.
//!
//! Only the command does this. A library must not take a host's signals.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod sys;

use std::path::Path;

/// What the command is doing, for a report: one of a few fixed words.
pub(crate) fn doing(phase: &'static str) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    sys::doing(phase);
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = phase;
}

/// Which run is being written.
pub(crate) fn writing(run: &Path) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    sys::writing(run);
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = run;
}

/// Makes crashes tell where they were, on systems where that can be found out.
pub(crate) fn install() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    sys::install();
}
