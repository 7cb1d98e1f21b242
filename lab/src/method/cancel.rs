//! A flag that stops a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a measurement between two repetitions; what was taken stays. Clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag. Safe to call from a handler of Ctrl-C.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
