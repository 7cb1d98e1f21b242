//! The sampler as programs name it.

use super::stack_options::StackOptions;
use super::stacks_probe::StackProbe;
use candlescope_core::stacks::{StackError, StackSink, StackSource};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

here! {
    use super::mode::try_each;
    use super::sampling::Sampling;
}
elsewhere! {
    use super::no_sampling::{Sampling, try_each};
}

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

    fn pause(&self) -> Duration {
        self.sampling.as_ref().map_or(Duration::ZERO, Sampling::pause)
    }

    fn poll(&mut self, into: &mut StackSink) -> Result<(), StackError> {
        self.sampling.as_mut().map_or(Ok(()), |sampling| sampling.poll(into))
    }

    fn stop(&mut self, into: &mut StackSink) {
        if let Some(sampling) = &mut self.sampling {
            sampling.stop(into);
        }
    }
}

/// Tries each way. A signal's handler stays installed; nothing else remains. Elsewhere than on Linux there is no way.
pub fn probe() -> StackProbe {
    try_each()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn signals_are_to_be_had_and_what_is_lacking_has_a_cause() {
        let probe = probe();
        assert!(probe.sources.iter().all(|source| source.available == source.cause.is_none()), "{probe:?}");
        assert!(probe.sources.iter().any(|source| source.name == "signals" && source.available));
        assert!(probe.source().is_some() && probe.tick_ns.is_some_and(|tick| tick >= 1_000_000));
        assert_eq!(probe.to_json()["sources"].as_array().unwrap().len(), 3);
    }
}
