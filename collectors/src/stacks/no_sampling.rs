//! Where nothing can be sampled.

use super::stack_options::StackOptions;
use super::stacks_probe::StackProbe;
use candlescope_core::stacks::{StackError, StackSink};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sampling that never begins.
pub(super) enum Sampling {}

impl Sampling {
    pub(super) fn start(_: StackOptions) -> Result<Self, StackError> {
        Err(StackError("stacks are sampled on Linux on x86-64 and aarch64 only".to_string()))
    }

    pub(super) fn name(&self) -> &'static str {
        match *self {}
    }

    pub(super) fn describe(&self) -> BTreeMap<String, Value> {
        match *self {}
    }

    pub(super) fn pause(&self) -> Duration {
        match *self {}
    }

    pub(super) fn poll(&mut self, _: &mut StackSink) -> Result<(), StackError> {
        match *self {}
    }

    pub(super) fn stop(&mut self, _: &mut StackSink) {
        match *self {}
    }
}

/// There is no way.
pub(super) fn try_each() -> StackProbe {
    StackProbe::default()
}
