//! Windows of kernels by time: for programs whose steps are known in windows only.

use candlescope_core::injected::Windows;
use candlescope_core::{Handle, KernelsRefused};
use std::time::Duration;

/// How often steps are looked at that fetch nothing.
const SECOND: Duration = Duration::from_secs(1);

/// Opens windows for as long as the process lives, and calls `tick` each second. Without a thread there are none, as the run then shows.
pub(crate) fn open(handle: Handle, windows: Windows, tick: fn()) {
    let work = move || {
        for second in 0_u64.. {
            let is_due = second.is_multiple_of(windows.every_s);
            // One that is open still, because the program does little, goes on.
            if is_due
                && matches!(
                    handle.capture_kernels(windows.steps),
                    Err(KernelsRefused::NoRecorder | KernelsRefused::Failed)
                )
            {
                return;
            }
            std::thread::sleep(SECOND);
            tick();
        }
    };
    let _ = std::thread::Builder::new().name("cs-inject-windows".into()).spawn(work);
}
