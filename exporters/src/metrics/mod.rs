//! What all batches amount to: one aggregation for every exporter of metrics.
//!
//! [`METRICS`] and [`SAMPLES`] name every metric with its labels. Labels are bounded: paths carry no ordinals and are limited in
//! number, requests have no ids.

mod aggregate;
mod catalogue;
mod requests;
mod samples;
mod session_stats;
mod utilisation;

pub(crate) use aggregate::Aggregate;
pub use catalogue::{Kind, METRICS, Metric, SAMPLES};
pub(crate) use session_stats::Accountant;
pub use session_stats::SessionStats;

/// Paths that get series of their own unless told otherwise.
pub(crate) const DEFAULT_MAX_PATHS: usize = 500;
