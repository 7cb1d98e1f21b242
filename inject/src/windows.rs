//! Windows of kernels by time: for programs whose steps are known in windows only.

use crate::recording::started;
use candlescope_core::injected::Windows;
use candlescope_core::{Handle, KernelsRefused};
use std::time::Duration;

/// How often steps are looked at that fetch nothing.
const SECOND: Duration = Duration::from_secs(1);

/// Opens windows for as long as the process lives. Without a thread there are none, as the run then shows.
pub(crate) fn open(handle: Handle, windows: Windows) {
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
            started().into_iter().for_each(|recording| recording.own.tick());
        }
    };
    let _ = std::thread::Builder::new().name("cs-inject-windows".into()).spawn(work);
}
