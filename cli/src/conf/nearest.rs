//! Names that somebody may have meant.

pub(super) use candlescope_core::nearest::suggest as suggestion;
