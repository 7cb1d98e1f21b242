//! Guards. They are the same types whether markers are switched on or not, and none may leave its thread.

use crate::switch;
use std::marker::PhantomData;
use std::sync::MutexGuard;

/// Not `Send`, but `Sync`, as guards of `tracing` are.
type StaysOnThread = PhantomData<MutexGuard<'static, ()>>;

/// A phase, a step or a module that runs on this thread until this is dropped. No bytes while markers are off.
#[must_use = "it ends when the guard is dropped"]
pub struct Entered {
    #[cfg_attr(not(feature = "enabled"), allow(dead_code))]
    inner: switch::Entered,
    _stays: StaysOnThread,
    _like: switch::LikeASpan,
}

impl Entered {
    pub(crate) fn new(inner: switch::Entered) -> Self {
        Self { inner, _stays: PhantomData, _like: PhantomData }
    }
}

/// A [`Request`](crate::Request) or a [`Module`](crate::Module) that this thread works for until this is dropped. No
/// bytes while markers are off.
#[must_use = "it ends when the guard is dropped"]
pub struct Inside<'a> {
    _inner: switch::Inside<'a>,
    _stays: StaysOnThread,
    _like: switch::LikeASpan,
}

impl<'a> Inside<'a> {
    pub(crate) fn new(inner: switch::Inside<'a>) -> Self {
        Self { _inner: inner, _stays: PhantomData, _like: PhantomData }
    }
}

/// With the feature `enabled`: the span, to record further fields.
#[cfg(feature = "enabled")]
impl std::ops::Deref for Entered {
    type Target = tracing::Span;

    fn deref(&self) -> &tracing::Span {
        &self.inner
    }
}

#[cfg(feature = "enabled")]
impl Entered {
    /// With the feature `enabled`: leaves the span and returns it.
    pub fn exit(self) -> tracing::Span {
        self.inner.exit()
    }
}

impl std::fmt::Debug for Entered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Inside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}
