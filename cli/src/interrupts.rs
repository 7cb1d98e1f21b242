//! Ctrl-C and SIGTERM for commands that keep what they have.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Calls `first` at the first interrupt, and ends the program at the next one that comes more than `again_after` later:
/// a terminal interrupts every process of a command, some wrappers send the same signal twice, and a process may hand it
/// on to another, all of which is one interrupt.
///
/// # Errors
/// If there is a handler already, or the system refuses one.
pub(crate) fn on_interrupt(again_after: Duration, first: impl Fn() + Send + 'static) -> Result<(), ctrlc::Error> {
    let seen = OnceLock::<Instant>::new();
    ctrlc::set_handler(move || match seen.get() {
        None => {
            seen.get_or_init(Instant::now);
            first();
        }
        Some(at) if at.elapsed() > again_after => std::process::exit(130),
        Some(_) => {}
    })
}
