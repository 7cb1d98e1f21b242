//! What all batches amount to: one aggregation, which Prometheus scrapes and OTLP sends.
//!
//! [`METRICS`] and [`SAMPLES`] name every metric with its labels. Labels are bounded: paths carry no ordinals and are limited in
//! number, requests have no ids.

mod aggregate;
mod catalogue;
#[cfg(feature = "otlp")]
mod otel_names;
mod requests;
mod samples;
mod session_stats;
mod utilisation;

pub(crate) use aggregate::Aggregate;
pub use catalogue::{Kind, METRICS, Metric, SAMPLES};
#[cfg(feature = "otlp")]
pub(crate) use otel_names::{attribute, otel_name};
pub(crate) use session_stats::Accountant;
pub use session_stats::SessionStats;

/// Paths that get series of their own unless told otherwise.
pub(crate) const DEFAULT_MAX_PATHS: usize = 500;
