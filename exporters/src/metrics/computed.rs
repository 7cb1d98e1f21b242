//! Gauges that are worked out when they are gathered, all at once: a reader never meets a value that has been taken
//! away and is about to be put back, and what is not known any more has no series.

use super::catalogue::Metric;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, GaugeVec, Opts, Registry};

/// Index of a metric of the group, the values of its labels in the catalogue's order, and its own.
pub(crate) type Value = (usize, Vec<String>, f64);

/// Some gauges of one source.
struct Computed<F> {
    metrics: &'static [Metric],
    /// Never given a value: they are only what describes the families.
    families: Vec<GaugeVec>,
    values: F,
}

fn family(metric: &Metric) -> Result<GaugeVec, Error> {
    GaugeVec::new(Opts::new(metric.name, metric.help), metric.labels)
}

/// Serves `metrics` with what `values` says whenever somebody gathers.
pub(crate) fn register(
    registry: &Registry,
    metrics: &'static [Metric],
    values: impl Fn() -> Vec<Value> + Send + Sync + 'static,
) -> Result<(), Error> {
    let families = metrics.iter().map(family).collect::<Result<_, _>>()?;
    registry.register(Box::new(Computed { metrics, families, values }))
}

impl<F: Fn() -> Vec<Value> + Send + Sync> Collector for Computed<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.families.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Families of their own for each reader, so that nobody else's reading is in them.
        let Ok(families) = self.metrics.iter().map(family).collect::<Result<Vec<_>, _>>() else { return Vec::new() };
        for (metric, labels, value) in (self.values)() {
            if let Some(gauge) = families.get(metric).and_then(|f| f.get_metric_with_label_values(&labels).ok()) {
                gauge.set(value);
            }
        }
        families.iter().flat_map(Collector::collect).collect()
    }
}
