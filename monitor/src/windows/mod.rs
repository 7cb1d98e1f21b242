//! A live server's figures in windows of time, from a Prometheus that scrapes it.
//!
//! ```text
//! options ─ plan (pure: which windows) ─ queries (pure: PromQL) ─ prometheus (HTTP) ─ answer (pure: JSON) ─► reading
//! ```

mod answer;
mod plan;
mod prometheus;
mod prometheus_error;
mod queries;
mod window_options;
mod window_reading;

pub use plan::{Plan, Span};
pub use prometheus_error::PrometheusError;
pub use window_options::{EarlierWindows, WindowOptions};
pub use window_reading::{FigureWindows, ServerReading, SpanValues, read_windows};
