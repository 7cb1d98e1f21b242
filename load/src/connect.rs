//! Connections to one server: made when there is no idle one, and kept open between requests.

use crate::address::Address;
use crate::error::LoadError;
use crate::failure::{Failure, FailureKind};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// Longest time to connect to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// Largest file of certificates.
const MOST_BYTES: u64 = 16 << 20;

/// The server, and open connections to it that nobody uses.
pub(crate) struct Connections {
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Vec<Sender>>,
}

impl Connections {
    /// Looks the host up, once: the same addresses serve the whole run.
    pub(crate) async fn to(address: &Address, ca_file: Option<&Path>) -> Result<Self, LoadError> {
        let unreachable = |why: String| LoadError::Unreachable { url: address.shown(""), why };
        let tls = if address.is_tls() {
            let name = ServerName::try_from(address.host().to_string()).map_err(|e| unreachable(e.to_string()))?;
            Some((TlsConnector::from(Arc::new(client_config(ca_file)?)), name))
        } else {
            None
        };
        let found = tokio::net::lookup_host((address.host(), address.port())).await;
        let addresses: Vec<SocketAddr> =
            found.map_err(|e| unreachable(format!("cannot look up {}: {e}", address.host())))?.collect();
        Ok(Self { addresses, tls, idle: Mutex::new(Vec::new()) })
    }

    /// An idle connection that is still open.
    pub(crate) async fn idle(&self) -> Option<Sender> {
        loop {
            let mut sender = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    /// Keeps a connection whose last answer was read to its end.
    pub(crate) fn keep(&self, sender: Sender) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
    }

    /// A new connection.
    ///
    /// # Errors
    /// [`FailureKind::NoSockets`] where this side has none left, else [`FailureKind::Connect`].
    pub(crate) async fn open(&self) -> Result<Sender, Failure> {
        let failed = |text: String| Failure::new(FailureKind::Connect, text);
        let mut last = "the name has no address".to_string();
        for address in &self.addresses {
            match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true).map_err(|e| failed(e.to_string()))?;
                    return self.secured(stream).await.map_err(failed);
                }
                Ok(Err(error)) => {
                    if let Some(remedy) = ours(&error) {
                        return Err(Failure::new(FailureKind::NoSockets, format!("{error}: {remedy}")));
                    }
                    last = format!("{address}: {error}");
                }
                Err(_) => last = format!("{address}: no connection within {} s", CONNECT.as_secs()),
            }
        }
        Err(failed(last))
    }

    async fn secured(&self, stream: TcpStream) -> Result<Sender, String> {
        let Some((connector, name)) = &self.tls else { return spoken(stream).await };
        let secured = tokio::time::timeout(CONNECT, connector.connect(name.clone(), stream)).await;
        let secured = secured.map_err(|_| format!("no TLS within {} s", CONNECT.as_secs()))?;
        spoken(secured.map_err(|e| format!("TLS: {e}"))?).await
    }
}

/// What to do about an error that is this side's: without it, the server would be blamed.
fn ours(error: &std::io::Error) -> Option<&'static str> {
    // EMFILE and ENFILE have these numbers on every Unix; a port in use is one of this machine, as we connect.
    match error.raw_os_error() {
        Some(23 | 24) if cfg!(unix) => Some("this process can open no more: raise `ulimit -n`, or take fewer clients"),
        _ if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            Some("this machine has no port left for a connection: take fewer clients, or a lower rate")
        }
        _ => None,
    }
}

/// Begins HTTP/1.1 on a connection, which then lives until either side closes it.
async fn spoken(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Sender, String> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // How it ends is seen by the request on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, LoadError> {
    let mut roots = RootCertStore::empty();
    let path = ca_file.unwrap_or_else(|| Path::new("the public certificates"));
    let wrong = |why: String| LoadError::Certificates { path: path.to_path_buf(), why };
    match ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let pem = candlescope_core::files::read_limited(path, MOST_BYTES).map_err(|e| wrong(e.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
                roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
            }
            if roots.is_empty() {
                return Err(wrong("it has no certificate in PEM".to_string()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(versions.map_err(|e| wrong(e.to_string()))?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn what_this_side_lacks_is_not_laid_on_the_server() {
        #[cfg(unix)]
        for own in [23, 24] {
            assert!(ours(&Error::from_raw_os_error(own)).is_some_and(|remedy| remedy.contains("ulimit -n")));
        }
        assert!(ours(&ErrorKind::AddrNotAvailable.into()).is_some_and(|remedy| remedy.contains("port")));
        assert!(ours(&ErrorKind::ConnectionRefused.into()).is_none());
    }
}
