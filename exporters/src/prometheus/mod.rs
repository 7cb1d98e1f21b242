//! Metrics for Prometheus, on an HTTP endpoint of the program's own.
//!
//! | path | serves |
//! |---|---|
//! | `/metrics` | the metrics of [`METRICS`] and [`SAMPLES`], in Prometheus' text format |
//! | `/healthz` | `ok` while the session runs |
//!
//! Batches are aggregated on the exporter's own thread and served on one more, so nothing of this runs on the
//! application's threads. Labels are bounded: paths carry no ordinals and are limited in number, requests have no ids.
//! It listens on the loopback interface by default, so that what a program does is not exposed to others
//! unintentionally. There it answers only requests whose `Host` is `localhost`, a loopback address or an allowed name
//! ([`PrometheusConfig::allow_host`]), so that no web page can read it by making its own name point at this machine.
//!
//! ```
//! use candlescope_core::Session;
//! use candlescope_exporters::prometheus::{PrometheusConfig, PrometheusExporter};
//!
//! let exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
//! let endpoint = exporter.endpoint();
//! let (_layer, session) = Session::builder().exporter(exporter).start()?;
//! println!("http://{}/metrics", endpoint.address().expect("started"));
//! # session.finish();
//! # Ok::<(), candlescope_core::StartError>(())
//! ```
//!
//! Other programs of the same user find it by a file in the user's runtime directory ([`announced`]), which holds the
//! process, the address and the program's name.
//!
//! The metrics end with the session. For a short run, use its Parquet tables instead: a scrape every few seconds may
//! miss it.

mod announcement;
mod at_work;
#[doc(hidden)]
pub mod exposition;
mod hosts;
mod http_request;
mod prometheus_exporter;
mod running;
mod server;

#[doc(hidden)]
pub use crate::metrics::{Kind, METRICS, Metric, SAMPLES};
#[doc(hidden)]
pub use announcement::{AnnouncedProgram, announced};
#[doc(hidden)]
pub use at_work::{AtWork, WorkNotice, at_work};
pub use prometheus_exporter::PrometheusConfig;
#[doc(hidden)]
pub use prometheus_exporter::{DEFAULT_PORT, Endpoint, PrometheusExporter};
#[cfg(unix)]
#[doc(hidden)]
pub use server::listening;

/// For [`crate::fuzz`]: reads a request both piece by piece and all at once, and checks whether its host is accepted.
pub(crate) fn reads_request(bytes: &[u8]) -> bool {
    let bound = ([127, 0, 0, 1], DEFAULT_PORT).into();
    let hosts = hosts::Hosts::new(bound, "localhost:9464", &["gpu-box".to_string()]);
    let half = http_request::parse(&bytes[..bytes.len() / 2]);
    if let http_request::ParsedHead::Request { host, .. } = &half {
        drop(hosts.refuse(host));
    }
    match http_request::parse(bytes) {
        http_request::ParsedHead::Request { host, .. } => hosts.refuse(&host).is_none(),
        _ => false,
    }
}
