//! What all batches amount to: one aggregation, which Prometheus scrapes and OTLP sends.
//!
//! [`METRICS`] and [`SAMPLES`] name every metric with its labels. Labels are bounded: paths carry no ordinals and are limited in
//! number, requests have no ids.

mod aggregate;
mod catalogue;
mod computed;
#[cfg(feature = "otlp")]
mod otel_names;
mod recent;
mod requests;
mod samples;
mod session_stats;
mod utilisation;

use prometheus::Registry;
use prometheus::proto::MetricFamily;

pub(crate) use aggregate::Aggregate;
pub use catalogue::{Kind, METRICS, Metric, SAMPLES};
#[cfg(feature = "otlp")]
pub(crate) use otel_names::{attribute, otel_name};
pub(crate) use session_stats::Accountant;
pub use session_stats::SessionStats;

/// Paths that get series of their own unless told otherwise.
pub(crate) const DEFAULT_MAX_PATHS: usize = 500;

/// Everything in `registry`, ready to be shown. A label without a value says nothing and for Prometheus is none, so it
/// is left out.
pub(crate) fn gather(registry: &Registry) -> Vec<MetricFamily> {
    let mut families = registry.gather();
    for metric in families.iter_mut().flat_map(|family| family.mut_metric().iter_mut()) {
        if metric.get_label().iter().any(|label| label.value().is_empty()) {
            let mut labels = metric.take_label();
            labels.retain(|label| !label.value().is_empty());
            metric.set_label(labels);
        }
    }
    families
}
