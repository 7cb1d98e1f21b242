//! An OpenTelemetry collector with a certificate from a private authority, which also requires client certificates.

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

/// Sends a trace and returns the exporter's account.
fn sent(config: OtlpConfig, caller: &str) -> ExporterReport {
    let builder = Session::builder().exporter(OtlpExporter::new(config)).exporter(MemoryExporter::new());
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
        let plain = OtlpConfig::new(format!("https://localhost:{}", address.port()))
            .protocol(protocol)
            .timeout(Duration::from_secs(1));
        let named = plain.clone().client_certificate(&certificate, &key);
        let config = named.clone().ca_certificate(&ca);
        let caller = |n: u32| format!("4bf92f3577b34da6a3ce929d0e0e475{n}");
        let whole = sent(config, &caller(n));
        assert_eq!(whole.last_error, None);
        // The request's span stands for its entry, which is an interval.
        server::trace(&jaeger, &caller(n), whole.exported["spans"] as usize);

        // Without the authority we cannot verify the collector; without our certificate it refuses us.
        let another = named.clone().ca_certificate(write(dir.path(), "other.pem", authority().pem()));
        let nameless = plain.ca_certificate(&ca);
        for (n, config) in (n + 1..).zip([named, another, nameless]) {
            let report = sent(config, &caller(n));
            assert_eq!(report.exported["spans"], 0, "{report:?}");
            assert!(report.dropped["spans"]["io"] > 0 && report.conserved(), "{report:?}");
            assert!(report.last_error.is_some_and(|e| e.contains("https://localhost")));
        }
    }
}
