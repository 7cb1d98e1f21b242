//! Panics of libraries on files of others, which become errors.
//!
//! Rust's panic hook runs before a panic is caught, and prints it. [`is_caught_here`] lets a program's own hook leave out
//! those that are no failure of the program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs `work` and turns a panic into its message, on one line. Whatever `work` was making is dropped.
///
/// # Errors
/// The message of a panic.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let _inside = CaughtDepth::enter();
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into());
        text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
    })
}

/// Whether a panic of this thread would become an error of [`caught`] now.
pub fn is_caught_here() -> bool {
    DEPTH.try_with(Cell::get).is_ok_and(|depth| depth > 0)
}

struct CaughtDepth;

impl CaughtDepth {
    fn enter() -> Self {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for CaughtDepth {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_its_message_and_known_while_it_is_caught() {
        assert_eq!(caught(is_caught_here), Ok(true));
        assert_eq!(caught(|| panic!("at {}", "last")), Err::<(), _>("at last".into()));
        assert_eq!(caught(|| std::panic::panic_any(1)), Err::<(), _>("no message".into()));
        assert!(!is_caught_here());
    }
}
