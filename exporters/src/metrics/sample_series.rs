//! Turns samples into gauges and counters, which are made when they first occur.

use super::MAX_LABEL_BYTES;
use super::catalogue::{Kind, family};
use candlescope_core::{SampleRecord, cut_text};
use prometheus::{Counter, CounterVec, Gauge, GaugeVec, Opts, Registry};
use std::collections::HashMap;
use std::sync::Arc;

/// Most series for samples: about forty for each GPU, and those of the user's own collectors.
///
/// Overload policy: samples of further series are dropped and counted. A collector with an endless number of names must
/// not fill the database.
const MAX_SERIES: usize = 2_000;

#[derive(Debug)]
enum Family {
    Gauges(GaugeVec),
    Counters(CounterVec),
}

#[derive(Debug)]
enum Series {
    Gauge(Gauge),
    /// With the last sample. What the counter shows is a sum of differences and may miss it by a rounding error.
    Counter(Counter, f64),
}

/// The series made from samples.
#[derive(Debug)]
pub(crate) struct Samples {
    registry: Registry,
    /// By name and whether there is a device label.
    families: HashMap<(String, bool), Option<Family>>,
    /// By sample name and device.
    series: HashMap<&'static str, HashMap<Arc<str>, Series>>,
    count: usize,
}

impl Samples {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, families: HashMap::new(), series: HashMap::new(), count: 0 }
    }

    /// Updates the series of the sample. `false` if there is no room for it, or if its name is invalid in Prometheus.
    pub(crate) fn add(&mut self, sample: &SampleRecord) -> bool {
        let known = self.series.get_mut(sample.metric).and_then(|devices| devices.get_mut(&sample.device));
        if let Some(series) = known {
            series.set(sample.value);
            return true;
        }
        if self.count >= MAX_SERIES {
            return false;
        }
        let Some(mut series) = self.make(sample) else { return false };
        series.set(sample.value);
        self.count += 1;
        self.series.entry(sample.metric).or_default().insert(sample.device.clone(), series);
        true
    }

    fn make(&mut self, sample: &SampleRecord) -> Option<Series> {
        let of_host = &*sample.device == "host";
        let (name, kind, help, label) = match family(sample.metric) {
            Some((metric, value)) => {
                let label = value.zip(metric.labels.get(1).copied());
                (metric.name, metric.kind, metric.help.to_string(), label)
            }
            None => {
                let kind = if sample.metric.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
                (sample.metric, kind, format!("Sample of a collector, in {}", sample.unit), None)
            }
        };
        let device = cut_text(&sample.device, MAX_LABEL_BYTES);
        let mut labels = Vec::new();
        let mut values = Vec::new();
        if !of_host {
            labels.push("hw_id");
            values.push(&*device);
        }
        if let Some((value, label)) = label {
            labels.push(label);
            values.push(value);
        }
        let registry = &self.registry;
        let made = self.families.entry((name.to_string(), of_host)).or_insert_with(|| {
            // Refused if the name is invalid, or is used for both the host and a device: labels have to be the same.
            let opts = Opts::new(name, help);
            match kind {
                Kind::Counter => {
                    let family = CounterVec::new(opts, &labels).ok()?;
                    registry.register(Box::new(family.clone())).ok()?;
                    Some(Family::Counters(family))
                }
                _ => {
                    let family = GaugeVec::new(opts, &labels).ok()?;
                    registry.register(Box::new(family.clone())).ok()?;
                    Some(Family::Gauges(family))
                }
            }
        });
        Some(match made.as_ref()? {
            Family::Gauges(family) => Series::Gauge(family.get_metric_with_label_values(&values).ok()?),
            Family::Counters(family) => Series::Counter(family.get_metric_with_label_values(&values).ok()?, 0.0),
        })
    }
}

impl Series {
    fn set(&mut self, value: f64) {
        match self {
            Series::Gauge(gauge) => gauge.set(value),
            Series::Counter(counter, last) => {
                // Samples contain the counter's value. If it fell, the driver was reloaded, and our counter starts
                // again too.
                if value < *last {
                    counter.reset();
                    *last = 0.0;
                }
                // The crate panics on negative increments, and a collector may deliver any value.
                let step = value - *last;
                if step > 0.0 {
                    counter.inc_by(step);
                    *last = value;
                }
            }
        }
    }
}
