//! What C libraries call does not unwind into them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what a call of a C library does; a panic becomes `otherwise`.
#[inline]
pub(super) fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}
