//! What happens by time: windows of kernels, for programs whose steps are known in windows only, and what is looked at
//! each second.

use candlescope_core::injected::Windows;
use candlescope_core::{Handle, KernelsRefused};
use std::time::Duration;

/// How often `tick` is called.
const SECOND: Duration = Duration::from_secs(1);

/// Calls `tick` each second for as long as the process lives, and opens `windows`, if there are to be any. Without a
/// thread there are none, as the run then shows.
pub(crate) fn every_second(handle: Handle, windows: Option<Windows>, tick: fn()) {
    let work = move || {
        let mut windows = windows;
        for second in 0_u64.. {
            // One that is open still, because the program does little, goes on.
            if let Some(due) = windows.filter(|windows| second.is_multiple_of(windows.every_s))
                && matches!(handle.capture_kernels(due.steps), Err(KernelsRefused::NoRecorder | KernelsRefused::Failed))
            {
                windows = None;
            }
            std::thread::sleep(SECOND);
            tick();
        }
    };
    let _ = std::thread::Builder::new().name("cs-inject-seconds".into()).spawn(work);
}
