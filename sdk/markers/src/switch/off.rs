//! Switched off: types without bytes, functions without code.
//!
//! What ends with a value when markers are on has an empty `Drop` here, so that lifetimes and lints are the same.

use crate::{Outcome, Tokens};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

pub(crate) struct Entered;

impl Drop for Entered {
    #[inline(always)]
    fn drop(&mut self) {}
}

pub(crate) struct Inside<'a>(PhantomData<&'a ()>);

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {}
}

#[inline(always)]
pub(crate) fn prefill(_: Tokens) -> Entered {
    Entered
}

#[inline(always)]
pub(crate) fn decode(_: Tokens) -> Entered {
    Entered
}

#[inline(always)]
pub(crate) fn sample() -> Entered {
    Entered
}

#[inline(always)]
pub(crate) fn encode(_: Tokens) -> Entered {
    Entered
}

#[inline(always)]
pub(crate) fn vision(_: Tokens) -> Entered {
    Entered
}

#[inline(always)]
pub(crate) fn step(_: Tokens) -> Entered {
    Entered
}

#[derive(Clone)]
pub(crate) struct Module;

impl Drop for Module {
    #[inline(always)]
    fn drop(&mut self) {}
}

#[inline(always)]
pub(crate) fn module(_: &str) -> Module {
    Module
}

#[inline(always)]
pub(crate) fn layer(_: usize) -> Module {
    Module
}

#[inline(always)]
pub(crate) fn module_of_layer(_: usize, _: &str) -> Module {
    Module
}

impl Module {
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        Inside(PhantomData)
    }

    #[inline(always)]
    pub(crate) fn entered(self) -> Entered {
        Entered
    }
}

pub(crate) struct Request;

impl Drop for Request {
    #[inline(always)]
    fn drop(&mut self) {}
}

impl Request {
    #[inline(always)]
    pub(crate) fn new(_: &str, _: &str) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn prompt_tokens(&self, _: usize) {}

    #[inline(always)]
    pub(crate) fn batch(&self, _: usize) {}

    #[inline(always)]
    pub(crate) fn trace_id(&self, _: &str) {}

    #[inline(always)]
    pub(crate) fn traceparent(&self, _: &str) {}

    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        Inside(PhantomData)
    }

    #[inline(always)]
    pub(crate) fn instrument<F: Future>(&self, future: F) -> F {
        future
    }

    #[inline(always)]
    pub(crate) fn record_tokens(&self, _: usize) {}

    #[inline(always)]
    pub(crate) fn outcome(&self, _: Outcome) {}

    #[inline(always)]
    pub(crate) fn serve(&self, _: Tokens, _: usize) {}
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").finish_non_exhaustive()
    }
}
