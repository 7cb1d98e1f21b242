//! Keeps credentials out of what ureq logs.
//!
//! ureq writes every request's address and head to the `log` crate at the level `debug`, with all headers except two,
//! and this cannot be turned off: an application that logs at this level would have its collector's credentials in its
//! logs. So ureq gets neither address nor headers: it sends a request with a placeholder field, which is replaced by
//! the credentials on the way to the socket, after everything that logs. ureq lets a program supply the TLS layer, and
//! this code is installed there, also for connections without TLS.

use super::attempt::SendError;
use super::headers::Headers;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use candlescope_core::RedactedUrl;
use rustls::ClientConfig;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use ureq::{ReadWrite, TlsConnector};
use url::Url;

/// The placeholder field, which is replaced by the credentials.
const FIELD: &str = "x-credentials";
const LINE: &str = "x-credentials: sealed\r\n";

/// Fields without secrets, which ureq may set itself.
const OPEN: [&str; 4] = ["accept", "content-encoding", "content-type", "user-agent"];

/// Fields that define the framing of a request, or the encodings of responses: ureq sets them, and duplicates would be
/// ambiguous.
const UREQS_OWN: [&str; 4] = ["accept-encoding", "content-length", "host", "transfer-encoding"];

/// An address and headers for ureq, without their secrets.
#[derive(Debug)]
pub(super) struct Address {
    /// The address for ureq, which must use our connector.
    pub(super) url: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) connector: Arc<Connector>,
}

pub(super) struct Connector {
    tls: Option<Arc<ClientConfig>>,
    secrets: Arc<Secrets>,
}

/// What replaces [`FIELD`] and the query.
struct Secrets {
    query: Option<String>,
    fields: String,
}

impl Address {
    /// `tls` is used if the address is https.
    pub(super) fn new(endpoint: &RedactedUrl, headers: &Headers, tls: Arc<ClientConfig>) -> Result<Self, SendError> {
        let wrong = |why: &dyn fmt::Display| SendError::Client(format!("`{endpoint}` is no address: {why}"));
        let mut url = Url::parse(endpoint.expose()).map_err(|e| wrong(&e))?;
        let host = url.host_str().ok_or_else(|| wrong(&"it has no host"))?;
        let host = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        let mut fields = vec![("host".to_string(), host), (FIELD.to_string(), "sealed".to_string())];
        let mut sealed = String::new();
        for (name, value) in headers.iter() {
            if !is_field(name, value) {
                return Err(SendError::Client(format!(
                    "`{name}` and its value are no header: a name has letters, digits and dashes, a value no line breaks"
                )));
            }
            if UREQS_OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                return Err(SendError::Client(format!(
                    "the header `{name}` cannot be configured: it is set for each request; take it out of the headers"
                )));
            }
            if OPEN.iter().any(|open| name.eq_ignore_ascii_case(open)) {
                fields.retain(|(have, _)| !name.eq_ignore_ascii_case(have));
                fields.push((name.to_ascii_lowercase(), value.clone()));
            } else {
                sealed.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        let user = (url.username(), url.password().unwrap_or_default());
        let has_own = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        if user != ("", "") && !has_own {
            let basic = BASE64_STANDARD.encode(format!("{}:{}", user.0, user.1));
            sealed.push_str(&format!("Authorization: Basic {basic}\r\n"));
        }
        let query = url.query().filter(|query| !query.is_empty()).map(str::to_string);
        let tls = (url.scheme() == "https").then_some(tls);
        let port = url.port_or_known_default();
        url.set_query(None);
        url.set_fragment(None);
        // Only addresses such as `file:` lack these; they have no host either.
        let cannot = |()| wrong(&"it is none of a server");
        url.set_username("").and_then(|()| url.set_password(None)).map_err(cannot)?;
        url.set_scheme("https").and_then(|()| url.set_port(port)).map_err(cannot)?;
        let connector = Arc::new(Connector { tls, secrets: Arc::new(Secrets { query, fields: sealed }) });
        Ok(Self { url: url.into(), fields, connector })
    }
}

/// Whether this is a valid header field: the name is a token, the value printable.
fn is_field(name: &str, value: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token) && value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
}

impl Secrets {
    /// `bytes` with the credentials, if it is a request's head, which ureq writes in one piece.
    fn put_into(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let head = bytes.strip_prefix(b"POST ").and_then(|_| std::str::from_utf8(bytes).ok())?;
        let (line, rest) = head.split_once(" HTTP/1.1\r\n")?;
        let (before, after) = rest.split_once(LINE)?;
        let mut whole = String::with_capacity(head.len() + self.fields.len());
        whole.push_str(line);
        if let Some(query) = &self.query {
            whole.push('?');
            whole.push_str(query);
        }
        for part in [" HTTP/1.1\r\n", before, &self.fields, after] {
            whole.push_str(part);
        }
        Some(whole.into_bytes())
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl TlsConnector for Connector {
    fn connect(&self, name: &str, io: Box<dyn ReadWrite>) -> Result<Box<dyn ReadWrite>, ureq::Error> {
        let stream = match &self.tls {
            Some(tls) => tls.connect(name, io)?,
            None => io,
        };
        Ok(Box::new(SealedConnection { stream, secrets: self.secrets.clone(), in_request: false }))
    }
}

/// A connection that adds credentials to request heads.
struct SealedConnection {
    stream: Box<dyn ReadWrite>,
    secrets: Arc<Secrets>,
    /// Whether this request's head has been sent; what follows is its body, whatever it looks like.
    in_request: bool,
}

impl fmt::Debug for SealedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl ReadWrite for SealedConnection {
    fn socket(&self) -> Option<&TcpStream> {
        self.stream.socket()
    }
}

impl Read for SealedConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The next request comes after a response.
        self.in_request = false;
        self.stream.read(buffer)
    }
}

impl Write for SealedConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let head = if self.in_request { None } else { self.secrets.put_into(bytes) };
        let Some(head) = head else { return self.stream.write(bytes) };
        self.in_request = true;
        self.stream.write_all(&head)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::tls::Tls;

    fn address(endpoint: &str, headers: &[(&str, &str)]) -> Result<Address, SendError> {
        let headers = headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Address::new(&RedactedUrl::new(endpoint), &Headers(headers), Tls::default().for_http().unwrap())
    }

    #[test]
    fn ureq_gets_nothing_that_is_secret() {
        let headers = [("X-Api-Key", "token-1"), ("User-Agent", "mine")];
        let made = address("http://me:pass@h/v1/x?key=k1#f", &headers).unwrap();
        assert_eq!(made.url, "https://h:80/v1/x");
        let fields: Vec<(&str, &str)> = made.fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(fields, [("host", "h"), ("x-credentials", "sealed"), ("user-agent", "mine")]);
        let written = b"POST /v1/x HTTP/1.1\r\nhost: h\r\nx-credentials: sealed\r\nuser-agent: mine\r\n\r\n";
        let sent = made.connector.secrets.put_into(written).expect("a head");
        assert_eq!(
            String::from_utf8(sent).unwrap(),
            "POST /v1/x?key=k1 HTTP/1.1\r\nhost: h\r\nX-Api-Key: token-1\r\nAuthorization: Basic bWU6cGFzcw==\r\nuser-agent: mine\r\n\r\n"
        );
        assert_eq!(made.connector.secrets.put_into(b"\x0a\x05POST "), None, "a body");
        assert!(!format!("{made:?}").contains("token-1"));
    }

    #[test]
    fn addresses_keep_their_port_and_their_own_authorization() {
        for (endpoint, url, host, tls) in [
            ("http://[::1]:4318/v1/x", "https://[::1]:4318/v1/x", "[::1]:4318", false),
            ("https://h/v1/x", "https://h/v1/x", "h", true),
            ("https://h:80/v1/x", "https://h:80/v1/x", "h:80", true),
            ("http://h:443/v1/x", "https://h/v1/x", "h:443", false),
        ] {
            let made = address(endpoint, &[]).unwrap();
            assert_eq!((made.url.as_str(), made.fields[0].1.as_str()), (url, host));
            assert_eq!(made.connector.tls.is_some(), tls, "{endpoint}");
            assert_eq!(made.connector.secrets.fields, "");
        }
        let own = address("http://me:pass@h/v1/x", &[("authorization", "Bearer t")]).unwrap();
        assert_eq!(own.connector.secrets.fields, "authorization: Bearer t\r\n");
    }

    /// A stream that stores what is written.
    #[derive(Debug, Default, Clone)]
    struct Kept(Arc<std::sync::Mutex<Vec<u8>>>);

    impl Read for Kept {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl ReadWrite for Kept {
        fn socket(&self) -> Option<&TcpStream> {
            None
        }
    }

    #[test]
    fn a_body_that_looks_like_a_head_gets_nothing() {
        let connector = address("http://h/v1/x", &[("x-api-key", "token-1")]).unwrap().connector;
        let kept = Kept::default();
        let mut stream = connector.connect("h", Box::new(kept.clone())).unwrap();
        let head = b"POST /v1/x HTTP/1.1\r\nx-credentials: sealed\r\n\r\n";
        let sealed = |kept: &Kept| String::from_utf8_lossy(&kept.0.lock().unwrap()).matches("token-1").count();
        stream.write_all(head).unwrap();
        stream.write_all(head).unwrap();
        assert_eq!(sealed(&kept), 1, "the second is the body of the first");
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
        stream.write_all(head).unwrap();
        assert_eq!(sealed(&kept), 2, "the next request");
    }

    #[test]
    fn headers_of_the_transport_are_refused() {
        for name in ["Content-Length", "accept-encoding", "HOST", "Transfer-Encoding"] {
            let error = address("http://h/v1/x", &[(name, "5")]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}` cannot be configured")), "{error}");
        }
    }

    #[test]
    fn what_is_no_header_is_refused_and_not_shown() {
        for (name, value) in [("x", "token-1\r\ny: z"), ("x y", "token-1"), ("", "token-1"), ("x", "token-1\u{7f}")] {
            let error = address("http://h/v1/x", &[(name, value)]).unwrap_err().to_string();
            assert!(error.contains("are no header") && !error.contains("token-1"), "{error}");
        }
    }
}
