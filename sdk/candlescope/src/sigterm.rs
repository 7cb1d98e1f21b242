//! SIGTERM, which is how services are ended. Only programs that ask for it get a handler.

use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Mutex;

/// Whether a thread of this process waits for the signal.
static WAITS: Mutex<bool> = Mutex::new(false);

/// From now on SIGTERM ends all runs, and then the process, as it would have. In a program that handles the signal
/// already, what was recorded is made durable, and the rest is the program's.
pub(crate) fn watch() -> io::Result<()> {
    let mut waits = WAITS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *waits {
        return Ok(());
    }
    let is_handled = crate::sys::has_term_handler();
    crate::sys::spare_forked_children()?;
    let mut signals = Signals::new([SIGTERM])?;
    let wait = move || {
        for _ in signals.forever() {
            if is_handled {
                crate::exit::flush_all();
            } else {
                crate::exit::end_all();
                let _ = signal_hook::low_level::emulate_default_handler(SIGTERM);
            }
        }
    };
    std::thread::Builder::new().name("cs-sigterm".into()).spawn(wait)?;
    *waits = true;
    Ok(())
}
