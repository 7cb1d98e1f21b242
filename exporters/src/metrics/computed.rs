//! Gauges that are computed when they are gathered, all at once: a reader never misses a value that was removed to be
//! updated, and values that are no longer known have no series.

use super::catalogue::Metric;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Error, GaugeVec, Opts, Registry};

/// Index of a metric of the group, the values of its labels in the catalogue's order, and its own.
pub(crate) type Value = (usize, Vec<String>, f64);

/// Some gauges of one source.
struct ComputedGauges<F> {
    metrics: &'static [Metric],
    /// Without values: they only describe the families.
    families: Vec<GaugeVec>,
    values: F,
}

fn family(metric: &Metric) -> Result<GaugeVec, Error> {
    GaugeVec::new(Opts::new(metric.name, metric.help), metric.labels)
}

/// Serves `metrics` with the result of `values` at each gathering.
pub(crate) fn register(
    registry: &Registry,
    metrics: &'static [Metric],
    values: impl Fn() -> Vec<Value> + Send + Sync + 'static,
) -> Result<(), Error> {
    let families = metrics.iter().map(family).collect::<Result<_, _>>()?;
    registry.register(Box::new(ComputedGauges { metrics, families, values }))
}

impl<F: Fn() -> Vec<Value> + Send + Sync> Collector for ComputedGauges<F> {
    fn desc(&self) -> Vec<&Desc> {
        self.families.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // New families for each reader, so that they contain nothing of another reader's.
        let Ok(families) = self.metrics.iter().map(family).collect::<Result<Vec<_>, _>>() else { return Vec::new() };
        for (metric, labels, value) in (self.values)() {
            if let Some(gauge) = families.get(metric).and_then(|f| f.get_metric_with_label_values(&labels).ok()) {
                gauge.set(value);
            }
        }
        families.iter().flat_map(Collector::collect).collect()
    }
}
