//! Certificates for TLS: trusted authorities, and our own.

use candlescope_core::files::read_limited;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest file of certificates, in bytes. All public authorities together have some 250 kB.
const MOST_BYTES: u64 = 16 << 20;

/// Certificates and a key, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// Authority that is trusted instead of the public ones.
    ca: Option<Vec<u8>>,
    /// Our certificate and key, for collectors that require them.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// A certificate or key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TlsError {
    #[error("cannot use {path} for TLS: {why}", path = .0.display(), why = .1)]
    File(PathBuf, String),
    #[error(
        "a client's certificate is of no use without its key, nor the key without it: set both OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY, or neither"
    )]
    Half,
    #[error("the client's certificate and its key cannot be used: {0}")]
    Identity(String),
}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("ca", &self.ca.is_some()).field("identity", &self.identity.is_some()).finish()
    }
}

impl Tls {
    pub(super) fn read(ca: Option<&Path>, certificate: Option<&Path>, key: Option<&Path>) -> Result<Self, TlsError> {
        let read =
            |path: &Path| read_limited(path, MOST_BYTES).map_err(|e| TlsError::File(path.to_path_buf(), e.to_string()));
        let certificates = |path: &Path| {
            let pem = read(path)?;
            parsed(&pem).map_err(|why| TlsError::File(path.to_path_buf(), why))?;
            Ok(pem)
        };
        let ca = ca.map(certificates).transpose()?;
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(path)) => {
                let key = read(path)?;
                PrivateKeyDer::from_pem_slice(&key).map_err(|e| TlsError::File(path.to_path_buf(), e.to_string()))?;
                Some((certificates(certificate)?, key))
            }
            _ => return Err(TlsError::Half),
        };
        let tls = Self { ca, identity };
        // A key that does not match the certificate is detected here, and not at each message.
        tls.for_http()?;
        Ok(tls)
    }

    /// For ureq.
    pub(super) fn for_http(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let wrong = |e: &dyn fmt::Display| TlsError::Identity(e.to_string());
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(pem) => {
                roots.add_parsable_certificates(parsed(pem).map_err(|e| wrong(&e))?);
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = versions.map_err(|e| wrong(&e))?.with_root_certificates(roots);
        let config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| wrong(&e))?;
                let chain = parsed(certificate).map_err(|e| wrong(&e))?;
                config.with_client_auth_cert(chain, key).map_err(|e| wrong(&e))?
            }
        };
        Ok(Arc::new(config))
    }

    #[cfg(feature = "otlp-grpc")]
    pub(super) fn for_grpc(&self) -> tonic::transport::ClientTlsConfig {
        use tonic::transport::{Certificate, ClientTlsConfig, Identity};
        let config = match &self.ca {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_webpki_roots(),
        };
        match &self.identity {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        }
    }
}

fn parsed(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(list) if list.is_empty() => Err("no certificate in PEM is in it".to_string()),
        Ok(list) => Ok(list),
        Err(error) => Err(error.to_string()),
    }
}
