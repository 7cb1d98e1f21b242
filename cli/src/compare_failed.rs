//! How `compare` and `gate` say that they failed.

/// The status of errors of `compare` and `gate`, whose 1 and 2 are outcomes.
pub(crate) const COMPARE_FAILED: u8 = 3;
