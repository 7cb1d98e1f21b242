//! The host names under which the endpoint may be requested.
//!
//! A web page that somebody has open can make its own name point at 127.0.0.1 (DNS rebinding), and its script can then
//! read what is meant for this machine only. Such a request can be recognised only by the page's name in `Host`.

use super::http_request::{NamedHost, Response};
use std::net::{IpAddr, SocketAddr};

/// The accepted names.
#[derive(Debug)]
pub(super) struct Hosts {
    /// Names besides those of this machine, in lower case; `None` if every name is accepted.
    allowed: Option<Vec<String>>,
}

impl Hosts {
    /// For a listener bound to `bound`, configured as `address`: on a loopback address, names of this machine, that of
    /// `address` and `further`; otherwise all names, because the names of a public address are not known here.
    pub(super) fn new(bound: SocketAddr, address: &str, further: &[String]) -> Self {
        let own = std::iter::once(address).chain(further.iter().map(String::as_str));
        let allowed = bound.ip().to_canonical().is_loopback().then(|| own.map(name).collect());
        Self { allowed }
    }

    /// The refusal, if there has to be one.
    pub(super) fn refuse(&self, host: &NamedHost<'_>) -> Option<Response> {
        let allowed = self.allowed.as_ref()?;
        match host {
            NamedHost::NotNeeded => None,
            NamedHost::Wrong => Some(Response::text(400, "one Host is needed")),
            NamedHost::Host(host) if is_local(host) || allowed.contains(&name(host)) => None,
            NamedHost::Host(_) => Some(Response::text(
                421,
                "this address is of this machine only, and is not known by the name in Host: \
                 ask for localhost or 127.0.0.1, or allow the name \
                 (PrometheusConfig::allow_host, prometheus-host=NAME in CANDLESCOPE)",
            )),
        }
    }
}

/// Whether it is `localhost` or a loopback address, with or without a port.
fn is_local(host: &str) -> bool {
    let name = name(host);
    let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(&name);
    name == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// A host without its port and trailing dot, in lower case.
fn name(host: &str) -> String {
    let host = host.trim();
    let after_bracket = host.rfind(']').map_or(0, |at| at + 1);
    let is_port = |port: &str| port.chars().all(|c| c.is_ascii_digit());
    let host = match host[after_bracket..].split_once(':') {
        Some((before, port)) if is_port(port) => &host[..after_bracket + before.len()],
        _ => host,
    };
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(bound: &str, address: &str, host: &str) -> Option<u16> {
        let hosts = Hosts::new(bound.parse().unwrap(), address, &["Metrics.Internal".to_string()]);
        hosts.refuse(&NamedHost::Host(host)).map(|response| response.status)
    }

    #[test]
    fn names_of_this_machine_are_answered_to_and_others_are_not() {
        for host in [
            "localhost",
            "LOCALHOST.:9464",
            "127.0.0.1",
            "127.0.0.1:9464",
            "127.9.8.7:1",
            "[::1]",
            "[::1]:9464",
            "[::ffff:127.0.0.1]:1",
            "metrics.internal:80",
            "gpu-box",
        ] {
            assert_eq!(status("127.0.0.1:9464", "gpu-box:9464", host), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:9464@evil.example",
            "192.168.0.1",
            "[::2]:9464",
            "0.0.0.0",
            "",
            ":9464",
            "[::1",
        ] {
            assert_eq!(status("127.0.0.1:9464", "127.0.0.1:9464", host), Some(421), "{host}");
            assert_eq!(status("[::1]:9464", "[::1]:9464", host), Some(421), "{host}");
        }
    }

    #[test]
    fn an_address_for_other_machines_is_known_by_any_name() {
        assert_eq!(status("0.0.0.0:9464", "0.0.0.0:9464", "gpu-7.cluster"), None);
        assert_eq!(status("10.0.0.1:9464", "10.0.0.1:9464", "gpu-7.cluster"), None);
    }

    #[test]
    fn no_host_is_for_old_clients_only() {
        let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), "1", &[]);
        assert!(hosts.refuse(&NamedHost::NotNeeded).is_none());
        assert_eq!(hosts.refuse(&NamedHost::Wrong).map(|r| r.status), Some(400));
    }
}
