//! What markers do, in two forms with the same names: nothing, or spans. The types that programs see are defined once
//! around these, so that switching them on takes nothing away.

use std::marker::PhantomData;

/// What a span is to `catch_unwind`: not safe without `AssertUnwindSafe`, so that code that compiles while markers are off
/// does when they are on.
pub(crate) type LikeASpan = PhantomData<&'static (dyn Send + Sync)>;

#[cfg(not(feature = "enabled"))]
mod off;
#[cfg(feature = "enabled")]
mod on;

#[cfg(not(feature = "enabled"))]
pub(crate) use off::*;
#[cfg(feature = "enabled")]
pub(crate) use on::*;
