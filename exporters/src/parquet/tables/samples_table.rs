//! `RUN/samples`: one row per sample of a metric.

use super::columns::{Columns, Floats, Ints, Texts, Words};
use super::table;
use candlescope_core::SampleRecord;

table! {
    /// Samples of the next row group.
    Samples: SampleRecord, Sample {
        time: Ints,
        device: Texts,
        metric: Words<&'static str>,
        value: Floats,
        unit: Words<&'static str>,
    }
}

impl Samples {
    fn add(&mut self, sample: &SampleRecord) {
        self.time.push(sample.time.0);
        self.device.push(&sample.device);
        self.metric.push(0, Some(sample.metric));
        self.value.push(sample.value);
        self.unit.push(0, Some(sample.unit));
    }
}
