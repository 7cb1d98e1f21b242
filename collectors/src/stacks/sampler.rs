//! The sampler as programs name it.

use super::stack_options::StackOptions;
use candlescope_core::stacks::{StackError, StackSink, StackSource};
use serde_json::Value;
use std::collections::BTreeMap;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use super::sampling::Sampling;

/// Samples the call stacks of the process's threads, and tells what they do off the CPU. Linux on x86-64 and aarch64;
/// elsewhere it does not start.
pub struct StackSampler {
    options: StackOptions,
    sampling: Option<Sampling>,
}

impl StackSampler {
    /// A sampler that has not begun.
    pub fn new(options: StackOptions) -> Self {
        Self { options, sampling: None }
    }
}

impl std::fmt::Debug for StackSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackSampler").field("options", &self.options).finish_non_exhaustive()
    }
}

impl StackSource for StackSampler {
    /// `perf` or `signals` once it has started; `stacks` before.
    fn name(&self) -> &'static str {
        self.sampling.as_ref().map_or("stacks", Sampling::name)
    }

    fn start(&mut self) -> Result<(), StackError> {
        self.sampling = Some(Sampling::start(self.options.clone())?);
        Ok(())
    }

    fn describe(&mut self) -> BTreeMap<String, Value> {
        self.sampling.as_ref().map(Sampling::describe).unwrap_or_default()
    }

    fn poll(&mut self, into: &mut StackSink) -> Result<(), StackError> {
        self.sampling.as_mut().map_or(Ok(()), |sampling| sampling.poll(into))
    }

    fn stop(&mut self, into: &mut StackSink) {
        if let Some(mut sampling) = self.sampling.take() {
            sampling.stop(into);
        }
    }
}

/// Where nothing can be sampled: there is never one.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
enum Sampling {}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
impl Sampling {
    fn start(_: StackOptions) -> Result<Self, StackError> {
        Err(StackError("stacks are sampled on Linux on x86-64 and aarch64 only".to_string()))
    }

    fn name(&self) -> &'static str {
        match *self {}
    }

    fn describe(&self) -> BTreeMap<String, Value> {
        match *self {}
    }

    fn poll(&mut self, _: &mut StackSink) -> Result<(), StackError> {
        match *self {}
    }

    fn stop(&mut self, _: &mut StackSink) {
        match *self {}
    }
}
