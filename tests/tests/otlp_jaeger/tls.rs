//! A collector that proves who it is, with a certificate of an authority of its own, and wants to know who calls.

use crate::{server, work};
use candlescope_core::run::ExporterReport;
use candlescope_core::{MemoryExporter, Session};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpProtocol};
use candlescope_testkit::services::Jaeger;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing_subscriber::prelude::*;

fn write(dir: &Path, name: &str, text: String) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A certificate and its key, as files.
fn papers(authority: &CertifiedIssuer<'_, KeyPair>, dir: &Path, of: &str) -> (PathBuf, PathBuf) {
    let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(names).expect("names").signed_by(&key, authority).expect("signed");
    let certificate = write(dir, &format!("{of}.pem"), certificate.pem());
    (certificate, write(dir, &format!("{of}.key"), key.serialize_pem()))
}

/// Sends a trace, and what became of it.
fn sent(config: OtlpConfig, caller: &str) -> ExporterReport {
    let builder = Session::builder().exporter(OtlpExporter::create(config)).exporter(MemoryExporter::new());
    let (layer, session) = builder.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(caller));
    let manifest = session.finish();
    manifest.exporters.into_iter().find(|e| e.name == "otlp").expect("an account")
}

#[test]
fn collectors_with_certificates_of_their_own_are_reached_and_strangers_are_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let ours = authority();
    let ca = write(dir.path(), "ca.pem", ours.pem());
    let (server_certificate, server_key) = papers(&ours, dir.path(), "server");
    let (certificate, key) = papers(&ours, dir.path(), "client");
    let tls = format!(
        "{{ cert_file: {}, key_file: {}, client_ca_file: {} }}",
        server_certificate.display(),
        server_key.display(),
        ca.display()
    );
    let more = format!(
        "receivers:\n  otlp:\n    protocols:\n      http:\n        tls: {tls}\n      grpc:\n        tls: {tls}\n"
    );
    let jaeger = Jaeger::start_with(&[write(dir.path(), "tls.yaml", more)]);

    for (protocol, address, n) in [(OtlpProtocol::HttpProtobuf, jaeger.http, 1), (OtlpProtocol::Grpc, jaeger.grpc, 5)] {
        let mut config = OtlpConfig::new(format!("https://localhost:{}", address.port()));
        config.protocol = Some(protocol);
        config.timeout = Some(Duration::from_secs(1));
        config.ca_certificate = Some(ca.clone());
        config.client_certificate = Some(certificate.clone());
        config.client_key = Some(key.clone());
        let caller = |n: u32| format!("4bf92f3577b34da6a3ce929d0e0e475{n}");
        let whole = sent(config.clone(), &caller(n));
        assert_eq!(whole.last_error, None);
        // The request's span stands for its entry, an interval.
        server::trace(&jaeger, &caller(n), whole.exported["spans"] as usize);

        // Without the authority nobody knows whether it is the collector, without our certificate it does not know us.
        let mut without_ca = config.clone();
        without_ca.ca_certificate = None;
        let mut another = config.clone();
        another.ca_certificate = Some(write(dir.path(), "other.pem", authority().pem()));
        let mut nameless = config;
        (nameless.client_certificate, nameless.client_key) = (None, None);
        for (n, config) in (n + 1..).zip([without_ca, another, nameless]) {
            let report = sent(config, &caller(n));
            assert_eq!(report.exported["spans"], 0, "{report:?}");
            assert!(report.dropped["spans"]["io"] > 0 && report.conserved(), "{report:?}");
            assert!(report.last_error.is_some_and(|e| e.contains("https://localhost")));
        }
    }
}
