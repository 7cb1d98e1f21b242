//! A sample of a metric of the host or a device.

use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_sample
    /// One sample of a metric of the host or a device.
    SampleRecord, Sample, Samples {
        /// When the sample was taken, nanoseconds since the Unix epoch.
        time: HostNs => Int "time_ns",
        /// host, or a GPU's UUID.
        device: Arc<str> => Text,
        /// Name of the metric, in base units, for example process_resident_memory_bytes.
        metric: &'static str => Word,
        /// What was measured, in `unit`.
        value: f64 => Real,
        /// Unit of the value: bytes, ratio, watts, count, …
        unit: &'static str => Word,
    }
}

impl SampleRecord {
    /// A sample; `value` is in `unit`, `device` is `host` or a GPU's UUID.
    pub fn new(
        time: HostNs,
        device: impl Into<Arc<str>>,
        metric: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self { time, device: device.into(), metric, value, unit }
    }
}
