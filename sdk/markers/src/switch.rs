//! What markers do, in two forms with the same names: nothing, or spans. The types that programs see are defined once
//! around these, so that switching them on takes nothing away.

#[cfg(not(feature = "enabled"))]
mod off;
#[cfg(feature = "enabled")]
mod on;

#[cfg(not(feature = "enabled"))]
pub(crate) use off::*;
#[cfg(feature = "enabled")]
pub(crate) use on::*;
