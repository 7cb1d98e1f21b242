//! The aggregation of all batches, which Prometheus scrapes and OTLP sends.
//!
//! [`METRICS`] and [`SAMPLES`] name every metric with its labels. Labels are bounded: paths carry no ordinals and are
//! limited in number, requests have no ids. So is their length, 256 bytes.
//!
//! **Figures of the device.** `candlescope_mfu_ratio`, `candlescope_mbu_ratio`, `candlescope_tokens_per_second` and
//! `candlescope_step_concurrency` are over the *union* of the steps of the last 15 seconds: the work of threads is
//! added up, and their overlapping time is merged. `candlescope_gpu_busy_ratio` is the same for recorded kernels. Steps
//! do not say which device they ran on; MFU and MBU are the mean over the devices that recorded kernels name, or treat
//! everything as one device if there are none.
//!
//! **GPU time** carries the label `source`: `event` is time elapsed in the stream, `cupti` the sum of the kernels, and
//! the two are never added up. The count of `candlescope_span_duration_seconds{clock="gpu"}` is that of the measured
//! intervals. The total of all intervals is mean × number of all, as in [`candlescope_core::estimate`]: `sum / count`
//! of the source × `count` of `clock="host"`.
//!
//! **Warm-up**, as many requests as the run's option `warmup` says, is counted apart and left out of the other figures
//! of steps, intervals, kernels and tokens. Live figures differ from reports in three ways: the time of a step around
//! warm-up, such as a program's `main`, includes the warm-up, because nothing can be subtracted from a histogram;
//! intervals of a very long warm-up step that come before the step itself are counted; and a run that ends while it
//! warms up has no other figures.

mod accountant;
mod aggregate;
mod catalogue;
mod computed;
#[cfg(feature = "otlp")]
mod otel_names;
mod recent;
mod request_metrics;
mod sample_series;
mod utilisation;

use candlescope_core::StepRecord;
use prometheus::Registry;
use prometheus::proto::MetricFamily;

pub(crate) use accountant::Accountant;
pub(crate) use aggregate::Aggregate;
pub use catalogue::{Kind, METRICS, Metric, SAMPLES};
#[cfg(feature = "otlp")]
pub(crate) use otel_names::{attribute, otel_name};

/// Paths that get series of their own by default.
pub(crate) const DEFAULT_MAX_PATHS: usize = 500;

/// Whether a request, or a step of it, only warms up: requests are numbered from 1, and the first `warmup` of them do.
fn warms_up(request: Option<u64>, warmup: u64) -> bool {
    request.is_some_and(|request| (1..=warmup).contains(&request))
}

/// Whether a step works only for requests that warm up.
fn step_warms_up(step: &StepRecord, warmup: u64) -> bool {
    let mut requests = step.requests().peekable();
    requests.peek().is_some() && requests.all(|request| warms_up(Some(request), warmup))
}

/// The longest label in bytes: a path of ten names, or the name of a model and where it is from. What is longer is cut.
/// Names may be what a client sent, and each label is sent with each scrape, in each of some twenty buckets.
pub(crate) const MAX_LABEL_BYTES: usize = 256;

/// Everything in `registry`, ready to be shown. A label with an empty value is left out, which for Prometheus is the
/// same.
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
