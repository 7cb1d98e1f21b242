//! The collector's contract: a source of samples, called on a background thread.

use crate::HostNs;
use crate::record::SampleRecord;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A collector could not take its samples. It is called again later; the message becomes a finding of the run once.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CollectError(pub String);

/// A source of samples of the host or a device: memory, CPU use, power, clocks.
///
/// Collectors share one background thread, so `sample` should take much less than its period. A collector never runs on
/// the application's threads.
pub trait Collector: Send + 'static {
    /// Short stable name: `host`, `nvml`, …
    fn name(&self) -> &'static str;

    /// Time between two calls of [`sample`](Collector::sample).
    fn period(&self) -> Duration;

    /// What this collector knows about the machine, for `run.json`'s `environment`.
    fn describe(&mut self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::new()
    }

    /// Takes one round of samples. Absent metrics are left out, never reported as zero.
    ///
    /// # Errors
    /// If nothing could be read at all.
    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError>;

    /// Takes the session's last round; by default a round like any other.
    ///
    /// For collectors that do not read everything in every round: a counter whose difference over the run matters has
    /// to be read once more here. It delays the end of the session, so it should take a few milliseconds at most.
    ///
    /// # Errors
    /// As for [`sample`](Collector::sample).
    fn last(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        self.sample(out)
    }
}

/// Takes a collector's samples; all samples of one round have the same time.
#[derive(Debug)]
pub struct Samples<'a> {
    time: HostNs,
    into: &'a mut Vec<SampleRecord>,
}

impl<'a> Samples<'a> {
    /// Samples taken at `time`, appended to `into`.
    pub fn new(time: HostNs, into: &'a mut Vec<SampleRecord>) -> Self {
        Self { time, into }
    }

    /// Adds one sample. `device` is `host` or a GPU's UUID; `metric` is in base units.
    pub fn push(&mut self, device: &Arc<str>, metric: &'static str, value: f64, unit: &'static str) {
        if value.is_finite() {
            self.into.push(SampleRecord::new(self.time, device.clone(), metric, value, unit));
        }
    }
}
