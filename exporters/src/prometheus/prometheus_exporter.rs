//! The exporter: aggregates on its own thread, serves on another.

use super::announcement::Announcement;
use super::hosts::Hosts;
use super::http_request::Response;
use super::server::Server;
use crate::metrics::{Accountant, Aggregate, DEFAULT_MAX_PATHS, gather};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, DropReason, ExportError, Exporter, HostNs, Ledger, RecordKind, SessionStats};
use prometheus::{Encoder, Registry, TEXT_FORMAT, TextEncoder};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, OnceLock};

/// The default port: the one that OpenTelemetry's Prometheus exporters use.
pub const DEFAULT_PORT: u16 = 9464;

/// Options of the exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct PrometheusConfig {
    address: String,
    max_paths: usize,
    allowed_hosts: Vec<String>,
}

impl PrometheusConfig {
    /// Listens at `address`: `HOST:PORT`, `HOST`, or `PORT` and `:PORT` for this machine only. Port 0 takes a free one.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), max_paths: DEFAULT_MAX_PATHS, allowed_hosts: Vec::new() }
    }

    /// Sets how many paths get series of their own (default 500).
    ///
    /// Overload policy: further paths share the path `(overflow)` and are counted, because series take memory in the
    /// database for months, and a program with variable names in spans would make one for each.
    pub fn max_paths(mut self, paths: usize) -> Self {
        self.max_paths = paths;
        self
    }

    /// Answers a loopback address under `name` too, besides `localhost`, 127.0.0.0/8, `[::1]` and the name it listens
    /// at: for example that of a proxy. A request for any other name is refused with status 421, because a web page
    /// whose name points at this machine sends such requests (DNS rebinding). An address that other machines can reach
    /// answers to every name.
    pub fn allow_host(mut self, name: impl Into<String>) -> Self {
        self.allowed_hosts.push(name.into());
        self
    }
}

impl Default for PrometheusConfig {
    /// This machine only, port [`DEFAULT_PORT`].
    fn default() -> Self {
        Self::new(format!("127.0.0.1:{DEFAULT_PORT}"))
    }
}

/// A handle to an exporter that a session has taken: the address it listens at.
#[derive(Debug, Clone, Default)]
pub struct Endpoint {
    address: Arc<OnceLock<SocketAddr>>,
}

impl Endpoint {
    /// The address it listens at, with the actual port; `None` before the session starts.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }
}

/// Serves metrics of what is recorded on `/metrics`, from the session's start to its end.
#[derive(Debug)]
pub struct PrometheusExporter {
    config: PrometheusConfig,
    endpoint: Endpoint,
    session: SessionStats,
    running: Option<MetricsServer>,
}

#[derive(Debug)]
struct MetricsServer {
    aggregate: Aggregate,
    accountant: Accountant,
    /// Goes before the server does.
    _announcement: Announcement,
    /// Stops serving when it is dropped.
    _server: Server,
}

impl PrometheusExporter {
    /// An exporter that listens as `config` says, from the start of the session.
    pub fn new(config: PrometheusConfig) -> Self {
        Self { config, endpoint: Endpoint::default(), session: SessionStats::default(), running: None }
    }

    /// A handle that stays when a session has taken the exporter.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }
}

impl Exporter for PrometheusExporter {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn attach(&mut self, session: &SessionStats) {
        self.session = session.clone();
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let address = &self.config.address;
        let mut aggregate = Aggregate::new(self.config.max_paths)
            .map_err(|e| ExportError::fatal("cannot set the metrics up: a bug in candlescope").with_source(e))?;
        aggregate.learn(run);
        let listener = bind(address)?;
        let registry = aggregate.registry();
        let serve = || {
            let hosts = Hosts::new(listener.local_addr()?, &full_address(address), &self.config.allowed_hosts);
            Server::start(listener, hosts, move |path| respond(&registry, path))
        };
        let server =
            serve().map_err(|e| ExportError::fatal(format!("cannot serve metrics on {address}")).with_source(e))?;
        let _ = self.endpoint.address.set(server.address());
        let accountant = Accountant::new(self.session.clone());
        let announcement = Announcement::of(server.address());
        self.running = Some(MetricsServer { aggregate, accountant, _announcement: announcement, _server: server });
        Ok(())
    }

    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        if let Some(running) = &mut self.running {
            running.aggregate.learn(run);
        }
        Ok(())
    }

    /// A record counts as exported once it is part of the metrics, in a path of its own or in the overflow's.
    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(running) = &mut self.running else {
            ledger.dropped_batch(batch, DropReason::Dead);
            return Ok(());
        };
        let refused = running.aggregate.add(batch);
        ledger.exported_batch(batch);
        if refused > 0 {
            ledger.take_back(RecordKind::Sample, DropReason::Limit, refused);
        }
        running.accountant.account(&mut running.aggregate);
        Ok(())
    }

    fn flush(&mut self, _: &Ledger) -> Result<(), ExportError> {
        // After a flush, a scrape should show the current state.
        if let Some(running) = &mut self.running {
            running.aggregate.settle();
            running.accountant.account_now(&mut running.aggregate);
        }
        Ok(())
    }

    fn tick(&mut self, _: &Ledger) -> Result<(), ExportError> {
        if let Some(running) = &mut self.running {
            running.aggregate.expire(HostNs::now());
            running.accountant.account(&mut running.aggregate);
        }
        Ok(())
    }

    fn finish(&mut self, _: &RunManifest) -> Result<(), ExportError> {
        self.running = None;
        Ok(())
    }
}

/// The response for a path.
fn respond(registry: &Registry, path: &str) -> Response {
    match path {
        "/metrics" => {
            let mut body = Vec::with_capacity(64 * 1024);
            match TextEncoder::new().encode(&gather(registry), &mut body) {
                Ok(()) => Response { status: 200, content_type: TEXT_FORMAT, body },
                Err(error) => Response::text(500, &format!("cannot write the metrics: {error}")),
            }
        }
        "/healthz" => Response::text(200, "ok"),
        _ => Response::text(404, "not here: there are /metrics and /healthz"),
    }
}

/// Completes an address to `HOST:PORT`.
fn full_address(text: &str) -> String {
    let text = text.trim();
    let port = text.strip_prefix(':').unwrap_or(text);
    if port.parse::<u16>().is_ok() {
        return format!("127.0.0.1:{port}");
    }
    if let Ok(ip) = text.parse::<std::net::IpAddr>() {
        return SocketAddr::new(ip, DEFAULT_PORT).to_string();
    }
    if text.contains(':') || text.is_empty() { text.to_string() } else { format!("{text}:{DEFAULT_PORT}") }
}

/// Why the digits of `text` are no port, if it has digits in that place.
fn no_port(text: &str) -> Option<String> {
    let port = text.rsplit(':').next().unwrap_or(text);
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (digits && port.parse::<u16>().is_err())
        .then(|| format!("`{text}` is not an address to serve metrics on: {port} is no port, these go from 0 to 65535"))
}

fn bind(text: &str) -> Result<TcpListener, ExportError> {
    if let Some(why) = no_port(text) {
        return Err(ExportError::fatal(why));
    }
    let full = full_address(text);
    let found = full.to_socket_addrs().map_err(|e| {
        let remedy = "give HOST:PORT, for example 127.0.0.1:9464, or 0.0.0.0:9464 to be reached from other machines";
        ExportError::fatal(format!("`{text}` is not an address to serve metrics on; {remedy}")).with_source(e)
    })?;
    let addresses: Vec<SocketAddr> = found.collect();
    TcpListener::bind(addresses.as_slice()).map_err(|e| {
        let remedy = match e.kind() {
            ErrorKind::AddrInUse => "another program has the port; stop it or choose another port, 0 for any free one",
            ErrorKind::AddrNotAvailable => "no interface of this machine has the address; use 127.0.0.1 or 0.0.0.0",
            ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
            _ => "choose another address",
        };
        ExportError::fatal(format!("cannot serve metrics on {full}: {remedy}")).with_source(e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_machine_unless_told_otherwise() {
        for (text, full) in [
            ("9464", "127.0.0.1:9464"),
            (":0", "127.0.0.1:0"),
            ("0.0.0.0", "0.0.0.0:9464"),
            ("::1", "[::1]:9464"),
            ("[::1]:80", "[::1]:80"),
            (" localhost ", "localhost:9464"),
            ("10.0.0.1:1", "10.0.0.1:1"),
        ] {
            assert_eq!(full_address(text), full);
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_is_named_with_the_remedy() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().map(|a| (a.to_string(), taken)).unwrap();
        for (address, part) in [
            (taken.0.as_str(), "another program has the port"),
            ("192.0.2.1:9464", "no interface of this machine"),
            ("", "is not an address"),
            ("127.0.0.1:99999", "99999 is no port"),
            ("99999", "99999 is no port"),
        ] {
            let error =
                PrometheusExporter::new(PrometheusConfig::new(address)).start(&RunManifest::default()).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(part) && message.contains(address) && error.is_fatal(), "{message}");
        }
    }
}
