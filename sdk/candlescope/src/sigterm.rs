//! SIGTERM, which is how services are ended. Only programs that ask for it get a handler.

use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Mutex;

/// Whether a thread of this process waits for the signal.
static WAITS: Mutex<bool> = Mutex::new(false);

/// From now on SIGTERM ends all runs, and then the process, as it would have. In a program that handles the signal
/// already, or sets an action of its own later, what was recorded is made durable, and the rest is the program's. What
/// it registers later with this copy of `signal-hook` is not seen: the action stays.
pub(crate) fn watch() -> io::Result<()> {
    let mut waits = WAITS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *waits {
        return Ok(());
    }
    let is_handled = crate::sys::has_term_handler();
    crate::sys::spare_forked_children()?;
    let mut signals = Signals::new([SIGTERM])?;
    let ours = crate::sys::term_handler();
    let wait = move || {
        for _ in signals.forever() {
            // One that came later, and calls this one as the one before: a copy of signal-hook or tokio that is not ours.
            let is_replaced = crate::sys::term_handler() != ours;
            if is_handled || is_replaced {
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
