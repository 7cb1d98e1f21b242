//! What all batches amount to: one aggregation, which Prometheus scrapes and OTLP sends.
//!
//! [`METRICS`] and [`SAMPLES`] name every metric with its labels. Labels are bounded: paths carry no ordinals and are
//! limited in number, requests have no ids.
//!
//! **Figures of the device.** `candlescope_mfu_ratio`, `candlescope_mbu_ratio`, `candlescope_tokens_per_second` and
//! `candlescope_step_concurrency` are over the *union* of the steps of the last 15 seconds: what threads do at the
//! same time is added, the time they take is merged. `candlescope_gpu_busy_ratio` is the same of recorded kernels.
//! Steps do not say their device; MFU and MBU are the mean of as many devices as recorded kernels name, and take
//! everything as one device where there are none.
//!
//! **GPU time** carries the label `source`: `event` is elapsed on the stream, `cupti` the sum of the kernels, and
//! they are never added. Of `candlescope_span_duration_seconds{clock="gpu"}` the count is of the intervals that were
//! measured. The total of all intervals is mean × number of all, as in [`candlescope_core::estimate`]: `sum / count`
//! of the source × `count` of `clock="host"`.
//!
//! **Warm-up**, as many requests as the run's option `warmup` says, is counted apart and left out of the other
//! figures of steps, intervals, kernels and tokens. Three things a report does that live figures cannot: a step
//! around warm-up, such as a program's `main`, has it in its own time, as a histogram gives nothing back; intervals
//! of a warm-up step so long that they come before the step does are counted; and a run that ends while it warms up
//! has no other figures.

mod aggregate;
mod catalogue;
mod computed;
#[cfg(feature = "otlp")]
mod otel_names;
mod recent;
mod request_metrics;
mod sample_series;
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

/// Whether a request, or a step of it, only warms up: requests are numbered from 1, and the first `warmup` of them do.
fn warms_up(request: Option<u64>, warmup: u64) -> bool {
    request.is_some_and(|request| (1..=warmup).contains(&request))
}

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
