//! Waits for a condition instead of for a fixed time.

use std::time::{Duration, Instant};

/// Longer than anything that a test waits for takes, even on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not hold within [`SOON`]; `what` says what was waited for.
#[track_caller]
pub fn wait_until(mut condition: impl FnMut() -> bool, what: &str) {
    wait_for(|| condition().then_some(()), what);
}

/// Waits until `look` finds something.
///
/// # Panics
/// If it finds nothing within [`SOON`]; `what` says what was waited for.
#[track_caller]
pub fn wait_for<T>(mut look: impl FnMut() -> Option<T>, what: &str) -> T {
    let began = Instant::now();
    // Often the condition holds at once. Later it is checked less often, because checking takes CPU time from what is
    // waited for.
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < SOON, "waited {SOON:?} in vain: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
